//! What other servers' command lines say, for those who type it here: what to write instead. Acts on the command line only, after
//! the catalogue has had its say; it starts nothing.

/// An option of gunicorn, uvicorn, hypercorn or granian, and what says the same here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bind", "write `--http 0.0.0.0:8000`, or `--http-socket /run/app.sock` for a UNIX socket"),
    ("host", "write `--http HOST:PORT`, such as `--http 0.0.0.0:8000`"),
    ("port", "write `--http HOST:PORT`, such as `--http 127.0.0.1:8000`"),
    ("uds", "write `--http-socket /run/app.sock`"),
    ("app-dir", "write `--pythonpath FOLDER`"),
    ("root-path", "write `--route-run setscriptname:/PATH` where the front server takes the prefix away"),
    ("worker-class", "leave it out: WSGI and ASGI are told apart; for requests that wait write `--threads 16`"),
    ("preload", "leave it out: the application is loaded once before workers start, unless `--lazy-apps` is given"),
    ("timeout", "write `--harakiri SECONDS`"),
    ("graceful-timeout", "write `--reload-mercy SECONDS`"),
    ("timeout-graceful-shutdown", "write `--reload-mercy SECONDS`"),
    ("keep-alive", "write `--http-keepalive SECONDS`"),
    ("timeout-keep-alive", "write `--http-keepalive SECONDS`"),
    ("limit-max-requests", "write `--max-requests NUMBER`"),
    ("no-access-log", "write `--disable-logging`"),
    ("access-logfile", "write `--logto FILE`; the lines of requests go where all others go"),
    ("env-file", "set the variables before the start, or write `--env KEY=VALUE` for each"),
    ("proxy-headers", "leave it out: X-Forwarded-Proto counts; for the client's address see `route-run = setremoteaddr:`"),
    ("ws-max-size", "write `--websocket-max-message-size BYTES`"),
];

/// What to write in place of another server's option.
pub fn instead(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(known, _)| *known == name).map(|&(_, advice)| advice)
}

/// A letter that means something else elsewhere: `-w 4` and `-b HOST:PORT`. The message and the advice.
pub fn misunderstood(name: &str, value: &str) -> Option<(String, String)> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match name {
        "module" if is_number => Some((
            format!("`-w {value}` is `--module {value}`: the name of a module, not a number of workers"),
            format!("write `-p {value}`"),
        )),
        "buffer-size" if value.contains([':', '/']) => Some((
            format!("`-b {value}` is `--buffer-size {value}`: a number of bytes, not an address"),
            format!("write `--http {value}`"),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::catalogue;

    #[test]
    fn test_what_is_advised_are_options_and_what_is_foreign_is_none() {
        for (name, advice) in ELSEWHERE {
            assert!(catalogue().get(name).is_none(), "{name} is an option");
            for written in advice.split('`').skip(1).step_by(2) {
                for option in written.split(' ').filter_map(|word| word.strip_prefix("--")) {
                    assert!(catalogue().get(option).is_some(), "{name}: {option} is no option");
                }
            }
        }
    }
}
