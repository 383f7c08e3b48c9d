//! Parses addresses of sockets in uWSGI's forms: an address with a colon is TCP, one with an `@` an abstract name, `fd://N` an
//! open descriptor, anything else the path of a UNIX socket. Also `unix:PATH`, as in nginx and gunicorn.

use std::path::Path;

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::host_info::{HostInfo, NamedSocket};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::Address;

use super::context::normalized;

const WRITE_DESCRIPTOR: &str =
    "write fd:// and the number of a descriptor, or the FileDescriptorName= of a socket unit of systemd";

/// Longest path of a UNIX socket on Linux, in bytes (`sun_path` without its terminator).
const MAX_PATH_BYTES: usize = 107;

/// The default address of `bolide package.module:callable`.
pub fn default() -> Address {
    Address::Tcp { host: "127.0.0.1".to_owned(), port: 8000 }
}

/// Returns the descriptor after `fd://`: a number, or the name from a socket unit.
fn descriptor(text: &str, host: &HostInfo) -> Result<i32, (String, &'static str)> {
    if let Ok(number) = text.parse::<i32>() {
        return if number >= 0 {
            Ok(number)
        } else {
            Err((format!("`fd://{text}` does not contain a descriptor"), WRITE_DESCRIPTOR))
        };
    }
    match host.passed_socket(text) {
        NamedSocket::One(number) => Ok(number),
        NamedSocket::Several => Err((format!("several of the passed sockets are called `{text}`"), WRITE_DESCRIPTOR)),
        NamedSocket::Missing => Err((format!("none of the passed sockets is called `{text}`"), WRITE_DESCRIPTOR)),
    }
}

/// Parses the value of a socket option, and returns a warning if it is doubtful.
///
/// # Errors
/// The value is not an address.
pub fn read(pair: &Pair, host: &HostInfo) -> Result<(Address, Option<Diagnostic>), Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default().trim();
    let error = |message: String| Diagnostic::error(Some(&pair.location), message);
    if text.is_empty() {
        return Err(error(format!("`{}` does not contain an address", pair.key)).advise("write host:port, :port or a path"));
    }
    if let Some(inner) = bolide_configuration::values::unquoted(text) {
        return Err(
            error(format!("`{text}` is not an address")).advise(format!("leave the quotes out: `{} = {inner}`", pair.key))
        );
    }
    if let Some(inner) = without_scheme(text) {
        return Err(error(format!("`{text}` is a URL, not an address")).advise(format!("write `{} = {inner}`", pair.key)));
    }
    if let Some(number) = text.strip_prefix("fd://") {
        return descriptor(number, host).map(|number| (Address::Descriptor(number), None)).map_err(|(message, advice)| {
            let diagnostic = error(message).advise(advice);
            // The passed sockets are those of this process, so this is not a fault of the file.
            if number.starts_with(|first: char| first.is_ascii_alphabetic()) { diagnostic.local() } else { diagnostic }
        });
    }
    // uWSGI parses `unix` as a host name, and then does not find a port in the path.
    let (text, is_local) = match text.strip_prefix("unix:") {
        Some(path) => (path.strip_prefix("//").unwrap_or(path), true),
        None => (text, false),
    };
    if is_local && text.is_empty() {
        return Err(error("`unix:` does not contain a path".to_owned()).advise("write unix:/run/app.sock, or unix:@name"));
    }
    if let Some(name) = text.strip_prefix('@').or_else(|| text.strip_prefix("\\0")) {
        return match name.is_empty() || name.len() > MAX_PATH_BYTES {
            true => Err(error(format!("`{text}` is not a name for an abstract socket"))
                .advise(format!("it has 1 to {MAX_PATH_BYTES} bytes after the @"))),
            false => Ok((Address::Abstract(name.to_owned()), None)),
        };
    }
    if is_local {
        return unix(text, pair);
    }
    if text.starts_with('=') {
        return Err(error(format!("`{text}`: a shared socket can't be used here")).advise("name the address itself"));
    }
    match text.rsplit_once(':') {
        Some((host, port)) => tcp(host, port, text, pair),
        None => unix(text, pair),
    }
}

fn tcp(host: &str, written: &str, text: &str, pair: &Pair) -> Result<(Address, Option<Diagnostic>), Diagnostic> {
    let error = |message: String| Diagnostic::error(Some(&pair.location), message);
    // As in uWSGI, which uses `atoi`: text after the digits is ignored.
    let number = bolide_configuration::values::number(written);
    let has_digits = written.trim_start().starts_with(|first: char| first.is_ascii_digit());
    let port = u16::try_from(number.value)
        .ok()
        .filter(|_| has_digits)
        .ok_or_else(|| error(format!("`{text}`: `{written}` is not a port")).advise("a port is a number up to 65535"))?;
    let doubt = (!number.whole).then(|| {
        Diagnostic::warning(Some(&pair.location), format!("`{} = {text}` is read as port {port}", pair.key))
            .advise(format!("write `{} = {host}:{port}`; a comment needs a line of its own", pair.key))
    });
    let host = host.trim();
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .ok_or_else(|| error(format!("`{text}`: the bracket is not closed")).advise("write [::1]:8000"))?,
        None => host,
    };
    if host.contains(['/', ' ', '\t', '#', ';']) {
        return Err(error(format!("`{text}` is not an address"))
            .advise("there are no comments after a value; write host:port, :port or a path"));
    }
    Ok((Address::Tcp { host: if bare == "*" { String::new() } else { bare.to_owned() }, port }, doubt))
}

/// What stands between the scheme and the path of a URL.
fn without_scheme(text: &str) -> Option<&str> {
    let rest = ["http://", "https://", "tcp://"].into_iter().find_map(|scheme| text.strip_prefix(scheme))?;
    rest.split('/').next().filter(|host| !host.is_empty())
}

fn unix(text: &str, pair: &Pair) -> Result<(Address, Option<Diagnostic>), Diagnostic> {
    if text.len() > MAX_PATH_BYTES {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{text}` is too long for the path of a UNIX socket"))
            .advise(format!("the kernel takes at most {MAX_PATH_BYTES} bytes, and this has {}", text.len())));
    }
    let doubt = |message: String| Some(Diagnostic::warning(Some(&pair.location), message));
    let doubt = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        doubt(format!("`{text}` is taken as the path of a UNIX socket"))
            .map(|diagnostic| diagnostic.advise(format!("write `:{text}` for a port")))
    } else if text.contains([' ', '\t', '#']) {
        doubt(format!("`{text}` is taken as the path of a UNIX socket, including the spaces"))
            .map(|diagnostic| diagnostic.advise("there are no comments after a value"))
    } else {
        None
    };
    Ok((Address::Unix(text.into()), doubt))
}

/// Makes relative paths of UNIX sockets absolute, starting at the directory of `chdir`.
pub fn absolute(address: &Address, directory: &Path) -> Address {
    match address {
        Address::Unix(path) => Address::Unix(normalized(&directory.join(path))),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_configuration::diagnostic::Location;

    fn address(text: &str) -> Result<(Address, Option<Diagnostic>), Diagnostic> {
        let pair = Pair {
            key: "socket".to_owned(),
            value: Some(text.to_owned()),
            location: Location::file("x.ini", 1),
            acted: false,
            placeholder: false,
        };
        let variables =
            [("LISTEN_FDNAMES", "web:admin:web"), ("LISTEN_FDS", "3"), ("LISTEN_PID", &std::process::id().to_string())]
                .map(|(name, value)| (name.into(), value.into()));
        read(&pair, &HostInfo::gather(&variables))
    }

    #[test]
    fn test_addresses_as_uwsgi_writes_them() {
        let tcp = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
        let cases = [
            ("127.0.0.1:8000", tcp("127.0.0.1", 8000)),
            (":8000", tcp("", 8000)),
            ("*:8000", tcp("", 8000)),
            ("172.*:80", tcp("172.*", 80)),
            ("localhost:8080;", tcp("localhost", 8080)),
            (":6000 #", tcp("", 6000)),
            ("[::1]:80", tcp("::1", 80)),
            ("::1:80", tcp("::1", 80)),
            ("localhost:0", tcp("localhost", 0)),
            ("/run/app.sock", Address::Unix("/run/app.sock".into())),
            ("app.sock", Address::Unix("app.sock".into())),
            ("@app", Address::Abstract("app".to_owned())),
            ("\\0app", Address::Abstract("app".to_owned())),
            ("fd://3", Address::Descriptor(3)),
            ("fd://admin", Address::Descriptor(4)),
            ("unix:/run/app.sock", Address::Unix("/run/app.sock".into())),
            ("unix:///run/app.sock", Address::Unix("/run/app.sock".into())),
            ("unix:app.sock", Address::Unix("app.sock".into())),
            ("unix://app.sock", Address::Unix("app.sock".into())),
            ("unix:/run/a:b.sock", Address::Unix("/run/a:b.sock".into())),
            ("unix:@app", Address::Abstract("app".to_owned())),
            ("unix:8000", Address::Unix("8000".into())),
        ];
        for (text, wanted) in cases {
            assert_eq!(address(text).map(|(address, _)| address), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn test_invalid_addresses_say_what_to_write() {
        for text in [
            "",
            "127.0.0.1:http",
            ":99999",
            "@",
            "unix:",
            "unix://",
            "unix:@",
            "fd://x",
            "fd://web",
            "fd://-1",
            "[::1:80",
            ": 8000x:y",
            "a b:80",
            "=0",
        ] {
            let diagnostic = address(text).expect_err(text);
            assert!(diagnostic.advice.is_some() && diagnostic.location.is_some(), "{text}: {diagnostic}");
        }
    }

    #[test]
    fn test_quotes_and_schemes_and_long_paths_are_refused_with_what_to_write() {
        let long = format!("/{}", "x".repeat(MAX_PATH_BYTES));
        for (text, advice) in [
            ("\"127.0.0.1:8000\"", "leave the quotes out: `socket = 127.0.0.1:8000`"),
            ("'/run/app.sock'", "leave the quotes out: `socket = /run/app.sock`"),
            ("http://127.0.0.1:8000/", "write `socket = 127.0.0.1:8000`"),
            ("tcp://localhost:80", "write `socket = localhost:80`"),
            (long.as_str(), "the kernel takes at most 107 bytes, and this has 108"),
        ] {
            assert_eq!(address(text).expect_err(text).advice.as_deref(), Some(advice), "{text}");
        }
        assert!(address(&long[1..]).is_ok());
    }

    #[test]
    fn test_a_bare_number_is_a_doubtful_path_and_more_than_a_port_a_doubtful_port() {
        for text in ["localhost:8080;", ":6000 #", ":8000 # public"] {
            let (_, doubt) = address(text).expect(text);
            assert!(doubt.is_some_and(|doubt| doubt.to_string().contains("is read as port")), "{text}");
        }
        assert!(address("8000").is_ok_and(|(_, doubt)| doubt.is_some_and(|doubt| doubt.to_string().contains("`:8000`"))));
    }
}
