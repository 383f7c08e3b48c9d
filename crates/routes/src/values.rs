//! Values that rules read: a request's variables by their CGI names, and `${function[key]}`.
//!
//! Must not know rules. Workers run it, for each variable that a rule names.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::networks::Network;
use crate::service_access::Services;

/// A request, or an answer with its request, for rules.
pub trait Values {
    /// Returns a variable by its CGI name: `PATH_INFO`, `HTTP_HOST`. `None`: it does not exist.
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;

    /// Returns the network of the client.
    fn network(&self) -> Network<'_> {
        Network::of_text(self.value(b"REMOTE_ADDR").unwrap_or_default())
    }

    /// Returns a value that only the server has.
    fn server(&self, what: ServerValue) -> u64;

    /// Returns the services that rules may use; `None` if there are none.
    fn services(&self) -> Option<&dyn Services> {
        None
    }

    /// Runs slow work without blocking other requests, such as hashing a password.
    fn aside(&self, work: &mut dyn FnMut()) {
        work();
    }
}

/// Keys of `${uwsgi[…]}` that are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerValue {
    /// `wid`: the worker's number.
    Worker,
    /// `pid`
    Process,
    /// `status` of the answer; 0 while there is none.
    Status,
}

/// `${function[key]}`, resolved when its rule is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// `cookie[name]`
    Cookie(Vec<u8>),
    /// `qs[name]`: a parameter of the query, as the client sent it.
    Query(Vec<u8>),
    /// `base64[VARIABLE]`
    Base64(Vec<u8>),
    /// `hex[VARIABLE]`
    Hex(Vec<u8>),
    /// `time[unix]`, `time[micros]`
    Seconds,
    Microseconds,
    /// `httptime[seconds from now]`
    HttpTime(u64),
    /// `uwsgi[uuid]`: a new one each time.
    Uuid,
    Server(ServerValue),
    /// `metric[name]`
    Metric(Vec<u8>),
}

/// Why a `${function[key]}` is not available.
#[derive(Debug, PartialEq, Eq)]
pub enum FunctionError {
    /// uWSGI has it, Bolide does not yet.
    NotYet,
    UnknownKey,
    /// Not a function of uWSGI.
    Unknown,
}

impl Function {
    pub fn named(name: &str, key: &str) -> Result<Function, FunctionError> {
        let bytes = || key.as_bytes().to_vec();
        match (name, key) {
            ("cookie", _) => Ok(Function::Cookie(bytes())),
            ("qs", _) => Ok(Function::Query(bytes())),
            ("base64", _) => Ok(Function::Base64(bytes())),
            ("hex", _) => Ok(Function::Hex(bytes())),
            ("time", "unix") => Ok(Function::Seconds),
            ("time", "micros") => Ok(Function::Microseconds),
            ("httptime", _) => key.parse().map(Function::HttpTime).map_err(|_| FunctionError::UnknownKey),
            ("uwsgi", "uuid") => Ok(Function::Uuid),
            ("uwsgi", "wid") => Ok(Function::Server(ServerValue::Worker)),
            ("uwsgi", "pid") => Ok(Function::Server(ServerValue::Process)),
            ("uwsgi", "status") => Ok(Function::Server(ServerValue::Status)),
            ("metric", _) => Ok(Function::Metric(bytes())),
            ("uwsgi", "rtime" | "lq" | "rsize" | "sor") | ("mime" | "math" | "geoip" | "xattr" | "xattr2", _) => {
                Err(FunctionError::NotYet)
            }
            ("time" | "uwsgi", _) => Err(FunctionError::UnknownKey),
            _ => Err(FunctionError::Unknown),
        }
    }

    /// Returns the variable that it reads.
    pub fn variable(&self) -> Option<&[u8]> {
        match self {
            Function::Cookie(_) => Some(b"HTTP_COOKIE"),
            Function::Query(_) => Some(b"QUERY_STRING"),
            Function::Base64(name) | Function::Hex(name) => Some(name),
            Function::Seconds
            | Function::Microseconds
            | Function::HttpTime(_)
            | Function::Uuid
            | Function::Server(_)
            | Function::Metric(_) => None,
        }
    }

    pub fn write(&self, values: &dyn Values, out: &mut Vec<u8>) {
        let since_epoch = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = match self {
            Function::Cookie(name) => {
                let cookies = values.value(b"HTTP_COOKIE").unwrap_or_default();
                out.extend_from_slice(pair(&cookies, b';', name).unwrap_or_default());
                return;
            }
            Function::Query(name) => {
                let query = values.value(b"QUERY_STRING").unwrap_or_default();
                out.extend_from_slice(pair(&query, b'&', name).unwrap_or_default());
                return;
            }
            Function::Base64(name) => STANDARD.encode(values.value(name).unwrap_or_default()),
            Function::Hex(name) => values.value(name).unwrap_or_default().iter().map(|byte| format!("{byte:02X}")).collect(),
            Function::Seconds => since_epoch().as_secs().to_string(),
            Function::Microseconds => since_epoch().as_micros().to_string(),
            Function::HttpTime(seconds) => {
                let then = SystemTime::now().checked_add(Duration::from_secs(*seconds)).unwrap_or(UNIX_EPOCH);
                httpdate::fmt_http_date(then)
            }
            Function::Uuid => uuid(),
            Function::Server(what) => values.server(*what).to_string(),
            Function::Metric(name) => values.services().map_or(0, |services| services.metric(name)).to_string(),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// A random UUID (RFC 9562 section 5.4).
fn uuid() -> String {
    let mut bytes = [0u8; 16];
    // Linux' getrandom(2) can't fail once the system is up; a UUID of zeros would show it.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = [0; 16];
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Returns the value of `name` in `a=1;b=2`.
fn pair<'a>(text: &'a [u8], separator: u8, name: &[u8]) -> Option<&'a [u8]> {
    text.split(|&byte| byte == separator).find_map(|one| {
        let one = one.trim_ascii_start();
        one.strip_prefix(name)?.strip_prefix(b"=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_their_whole_name() {
        assert_eq!(pair(b"sessionid=1; id=2", b';', b"id"), Some(&b"2"[..]));
        assert_eq!(pair(b"a=1&b=&c", b'&', b"b"), Some(&b""[..]));
        assert_eq!(pair(b"a=1&b=&c", b'&', b"c"), None);
    }
}
