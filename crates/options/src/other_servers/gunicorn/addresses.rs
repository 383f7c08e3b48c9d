//! gunicorn's `bind` as options of sockets. It opens nothing.

use super::{AskedSetting, Carried};

/// gunicorn's address where none is named.
const DEFAULT: &str = "127.0.0.1:8000";
/// The port of an address that names none.
const DEFAULT_PORT: &str = "8000";
/// All may use a UNIX socket of gunicorn's, but for what its umask takes away.
const SOCKET_MODE: u32 = 0o777;

/// The options of all addresses. `umask` is gunicorn's, which its UNIX sockets are made with.
pub fn bound(bind: Option<&AskedSetting>, speaks_uwsgi: bool, umask: u32, port: Option<&str>, carried: &mut Carried) {
    let default = AskedSetting::text("bind", &port.map_or_else(|| DEFAULT.to_owned(), |port| format!("0.0.0.0:{port}")));
    let asked = bind.filter(|asked| !asked.words().is_empty()).unwrap_or(&default);
    let mut is_local = false;
    for word in asked.words() {
        let (key, address) = address(&word);
        let key = if speaks_uwsgi { "uwsgi-socket" } else { key };
        is_local |= word.starts_with("unix:");
        carried.option(asked, key, address);
    }
    if is_local {
        carried.option(asked, "chmod-socket", format!("{:o}", SOCKET_MODE & !umask));
    }
}

/// The option and the value of an address as gunicorn reads it: `HOST:PORT`, `:PORT`, `HOST`, `[IPV6]:PORT`, `unix:PATH`, `fd://N`.
pub fn address(text: &str) -> (&'static str, String) {
    if let Some(path) = text.strip_prefix("unix:") {
        return ("http-socket", path.strip_prefix("//").unwrap_or(path).to_owned());
    }
    if text.starts_with("fd://") {
        return ("http-socket", text.to_owned());
    }
    let text = text.strip_prefix("tcp://").unwrap_or(text);
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']') && !port.is_empty());
    let host = text.strip_suffix(':').unwrap_or(text);
    ("http", if has_port { text.to_owned() } else { format!("{host}:{DEFAULT_PORT}") })
}
