//! Values of other servers' settings: addresses as gunicorn writes them, times with units as in granian, and similar. Pure
//! functions over text.

use super::translation::Translation;

/// Whether the text is a host alone, which needs a port.
pub fn is_host(text: &str) -> bool {
    let is_other = text.is_empty() || text.starts_with("unix:") || text.starts_with("fd://") || text.contains('/');
    !is_other
        && (!text.contains(':')
            || text.starts_with('[') && text.ends_with(']')
            || text.matches(':').count() > 1 && !text.contains(['[', '$']))
}

/// HOST:PORT, with brackets around an IPv6 address.
pub fn host_and_port(host: &str, port: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Returns the option and its value for an address of `--bind`; the error is the advice.
pub fn address(text: &str, default_port: &str) -> Result<(&'static str, String), String> {
    let text = text.trim();
    let text = text.strip_prefix("tcp://").unwrap_or(text);
    if text.starts_with("unix:") || text.starts_with("fd://") {
        return Ok(("http-socket", text.replacen("unix://", "unix:", 1)));
    }
    if text.starts_with('/') || text.starts_with('.') {
        return Err(format!("write `--bind unix:{text}` for a UNIX socket"));
    }
    if text.is_empty() {
        return Ok(("http", format!("0.0.0.0:{default_port}")));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("write `--bind :{text}` for a port"));
    }
    Ok(("http", if is_host(text) { host_and_port(text, default_port) } else { text.to_owned() }))
}

/// Keeps a value unchanged.
pub fn as_it_is(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Checks the addresses of `--bind`, which commas separate.
pub fn binds(text: &str) -> Result<String, String> {
    let all: Vec<&str> = text.split(',').map(str::trim).collect();
    for one in &all {
        address(one, "0")?;
    }
    Ok(all.join(","))
}

/// Checks a host. An empty one stands for all addresses, as in uvicorn.
pub fn host(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok("0.0.0.0".to_owned());
    }
    match text.contains('/') || !is_host(text) {
        true => Err(format!("write `--http {text}` for an address with a port, or `--http-socket {text}` for a UNIX socket")),
        false => Ok(text.to_owned()),
    }
}

/// Checks a port here, since an error of the address would quote host and port.
pub fn port(text: &str) -> Result<String, String> {
    match text.trim().parse::<u16>() {
        Ok(port) => Ok(port.to_string()),
        Err(_) => Err(format!("`{text}` is not a port: write a port from 0 to 65535")),
    }
}

/// gunicorn's protocol for the addresses of `--bind`.
pub fn protocol(text: &str) -> Result<String, String> {
    match text {
        "uwsgi" | "http" | "http11" => Ok(text.to_owned()),
        _ => Err(format!("write `--socket ADDRESS --protocol {text}`")),
    }
}

/// A prefix of statsd names, without the dot that follows it.
pub fn without_dots(text: &str) -> Result<String, String> {
    Ok(text.trim_end_matches('.').to_owned())
}

/// Whether a log file is a name of the terminal, where log lines go in any case.
pub fn is_terminal(file: &str) -> bool {
    matches!(file, "" | "-" | "/dev/stdout" | "/dev/stderr")
}

/// Read, write and execute for all users.
const EVERY_RIGHT: u32 = 0o777;

/// Checks a mask: a number as Python's `int` reads it, or octal after a leading zero. Returns it in octal digits.
pub fn mask(text: &str) -> Result<String, String> {
    let octal = text.strip_prefix("0o").or_else(|| text.strip_prefix('0').filter(|digits| !digits.is_empty()));
    let bits: Option<u32> = octal.map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 8).ok());
    Ok(format!("{:03o}", bits.ok_or("write `--chmod-socket 660` for a UNIX socket")?))
}

/// Returns the mode of a UNIX socket for a [`mask`], and whether it has more bits than the kernel takes (umask(2)): people write
/// 666 where Python reads it as a decimal number.
pub fn mode_of_mask(octal: &str) -> (String, bool) {
    let bits = u32::from_str_radix(octal, 8).unwrap_or_default();
    (format!("{:03o}", EVERY_RIGHT & !bits), bits > EVERY_RIGHT)
}

/// [`seconds`] as digits.
pub fn plain_seconds(text: &str) -> Result<String, String> {
    seconds(text).map(|seconds| seconds.to_string())
}

/// No value of an option of this name shows that another server's is meant.
pub fn never(_: &str) -> Option<(String, String)> {
    None
}

/// Parses seconds: a number, or days, hours, minutes and seconds with their letters (`1h30m`), as granian accepts them.
pub fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "write a number of seconds".to_owned();
    if let Ok(number) = text.parse::<u64>() {
        return Ok(number);
    }
    let mut total: u64 = 0;
    let mut digits = String::new();
    for letter in text.trim().chars() {
        let unit: u64 = match letter {
            '0'..='9' => {
                digits.push(letter);
                continue;
            }
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(wrong()),
        };
        let number: u64 = std::mem::take(&mut digits).parse().map_err(|_| wrong())?;
        total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
    }
    if digits.is_empty() && total > 0 { Ok(total) } else { Err(wrong()) }
}

/// The time that an idle connection is kept. `http-keepalive = 1` means "on", as in uWSGI, so one second becomes two.
pub fn keep_alive(to: &mut Translation, text: &str) -> Result<(), String> {
    let kept = seconds(text)?;
    if kept == 1 {
        to.note("an idle connection is kept for 2 seconds: `http-keepalive = 1` means the default in uWSGI");
    }
    to.add("http-keepalive", &if kept == 1 { 2 } else { kept }.to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_addresses_as_gunicorn_writes_them() {
        for (text, wanted) in [
            ("127.0.0.1:9000", ("http", "127.0.0.1:9000")),
            (":9000", ("http", ":9000")),
            ("0.0.0.0", ("http", "0.0.0.0:8000")),
            ("shop.example", ("http", "shop.example:8000")),
            ("[::1]:9000", ("http", "[::1]:9000")),
            ("[::1]", ("http", "[::1]:8000")),
            ("::1", ("http", "[::1]:8000")),
            ("tcp://0.0.0.0:80", ("http", "0.0.0.0:80")),
            ("", ("http", "0.0.0.0:8000")),
            ("127.0.0.1:$(PORT:-8005)", ("http", "127.0.0.1:$(PORT:-8005)")),
            ("unix:/run/app.sock", ("http-socket", "unix:/run/app.sock")),
            ("unix:///run/app.sock", ("http-socket", "unix:/run/app.sock")),
            ("fd://3", ("http-socket", "fd://3")),
        ] {
            assert_eq!(address(text, "8000"), Ok((wanted.0, wanted.1.to_owned())), "{text}");
        }
        for text in ["/run/app.sock", "./app.sock", "8000"] {
            assert!(address(text, "8000").expect_err(text).starts_with("write `--bind "), "{text}");
        }
    }

    #[test]
    fn test_times_may_have_units() {
        for (text, wanted) in [("30", Some(30)), ("1h30m", Some(5400)), ("1d", Some(86_400)), ("90s", Some(90)), ("0", Some(0))] {
            assert_eq!(seconds(text).ok(), wanted, "{text}");
        }
        for text in ["", "x", "1w", "h", "30m5", "-1", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
