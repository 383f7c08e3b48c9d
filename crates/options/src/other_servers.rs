//! Options of other servers' command lines, for those who type them here: what to write instead. Acts on the command line only, after
//! the catalogue has had its say; it starts nothing.

/// An option of gunicorn, uvicorn, hypercorn or granian, and what says the same here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bind", "write `--http 0.0.0.0:8000`, or `--http-socket /run/app.sock` for a UNIX socket"),
    ("host", "write `--http HOST:PORT`, such as `--http 0.0.0.0:8000`"),
    ("port", "write `--http HOST:PORT`, such as `--http 127.0.0.1:8000`"),
    ("uds", "write `--http-socket /run/app.sock`"),
    ("app-dir", "write `--pythonpath FOLDER`"),
    ("worker-class", "leave it out: WSGI and ASGI are told apart; for requests that wait write `--threads 16`"),
    ("name", "write `--procname-prefix NAME`"),
    (
        "preload",
        "leave it out: several workers are forked from one process that has loaded the application; with one worker write `--master`",
    ),
    ("timeout", "write `--harakiri SECONDS`"),
    ("graceful-timeout", "write `--reload-mercy SECONDS`"),
    ("timeout-graceful-shutdown", "write `--reload-mercy SECONDS`"),
    ("keep-alive", "write `--http-keepalive SECONDS`"),
    ("timeout-keep-alive", "write `--http-keepalive SECONDS`"),
    ("limit-max-requests", "write `--max-requests NUMBER`"),
    ("no-access-log", "write `--disable-logging`"),
    ("access-logfile", "write `--logto FILE`; the lines of requests go where all others go"),
    ("env-file", "set the variables before the start, or write `--env KEY=VALUE` for each"),
    ("fd", "write `--http-socket fd://NUMBER`"),
    ("backlog", "write `--listen NUMBER`"),
    ("pid", "write `--pidfile FILE`"),
    ("daemon", "leave it out: leave it to systemd or the container, or write `--daemonize FILE`"),
    ("max-requests-jitter", "leave it out: workers never retire together"),
    ("error-logfile", "write `--logto FILE`"),
    ("limit-request-line", "write `--buffer-size BYTES`: one bound for the whole head"),
    ("limit-request-field_size", "write `--buffer-size BYTES`: one bound for the whole head"),
    ("h11-max-incomplete-event-size", "write `--buffer-size BYTES`: one bound for the whole head"),
    ("check-config", "write `bolide check FILE`"),
    ("print-config", "write `bolide config FILE`"),
    ("ssl-version", "leave it out: TLS 1.2 and 1.3 are spoken; write `--tls-min-version 1.3` for the newer one alone"),
    ("ciphers", "leave it out; or name them behind the key: `--https ADDRESS,CERTIFICATE,KEY,CIPHERS`"),
    ("ssl-ciphers", "leave it out; or name them behind the key: `--https ADDRESS,CERTIFICATE,KEY,CIPHERS`"),
    ("statsd-host", "write `stats-push = statsd:HOST:PORT`"),
    ("proxy-protocol", "write `--http-enable-proxy-protocol`, or `--enable-proxy-protocol` for `--http-socket`"),
    ("proxy-allow-from", "write `--trusted-proxies ADDRESS,NETWORK`"),
    ("header", "write `--add-header 'NAME: VALUE'`"),
    ("no-server-header", "leave it out: there is no such option here"),
    ("no-date-header", "leave it out: there is no such option here"),
    ("log-level", "leave it out: what is logged has one level; `--disable-logging` is about requests"),
    ("log-config", "leave it out: what is logged has one level; `--disable-logging` is about requests"),
    ("ws", "leave it out: there is one implementation"),
    ("ws-max-size", "write `--websocket-max-message-size BYTES`"),
    ("ws-max-queue", "leave it out: what waits is bounded in bytes"),
    ("ws-ping-interval", "write `--websocket-ping-interval SECONDS`"),
    ("ws-ping-timeout", "write `--websocket-ping-timeout SECONDS`"),
    ("ws-per-message-deflate", "write `websocket-compression = false` in the configuration"),
];

/// The advice for another server's option.
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

    /// Long options in the first column of the guide's tables.
    fn of_the_guide() -> Vec<&'static str> {
        let guide = include_str!("../../../docs/migrate-from-gunicorn.md");
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let written = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        written.flat_map(|code| code.split(' ')).filter_map(|word| word.strip_prefix("--")).collect()
    }

    #[test]
    fn test_the_guide_and_the_command_line_know_the_same_options() {
        let guide = of_the_guide();
        assert!(guide.contains(&"bind"), "{guide:?}");
        for name in &guide {
            assert!(catalogue().get(name).is_some() || instead(name).is_some(), "the guide's --{name} gets no advice");
        }
        for (name, _) in ELSEWHERE {
            assert!(guide.contains(name), "--{name} is not in the guide");
        }
    }

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
