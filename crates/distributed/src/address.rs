//! Addresses of engines: `redis://user:password@host:6379/0?answer-ms=500`, `rediss://`, `redis+unix:///path`.
//!
//! It opens nothing. The process that reads the configuration parses addresses to report mistakes, and the processes that use
//! the engine parse them again. A password is in no text that this file makes.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

const PORT: u16 = 6379;
/// Milliseconds for a connection, with TLS and the password.
const CONNECT_MS: u64 = 100;
/// Milliseconds for an answer, from the first byte of the command to the last one of the answer.
const ANSWER_MS: u64 = 500;
/// Milliseconds that a limit may have at most: a request waits that long.
const MAX_LIMIT_MS: u64 = 60_000;
/// Bytes of the prefix of all keys, and of a queue's name.
const MAX_NAME_BYTES: usize = 128;
/// Seconds of a reservation, a lease or a firing.
const MAX_SECONDS: u64 = 86_400;

const FORM: &str = "write redis://HOST:6379/0, rediss://HOST:6379/0 or redis+unix:///PATH";

/// Signs of a path that mean something else in an address.
const PATH_SIGNS: &AsciiSet = &CONTROLS.add(b' ').add(b'?').add(b'#').add(b'%');

/// What the engine is for. It decides which keys a query may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Cache,
    Jobs,
    Locks,
    Timers,
    Messages,
}

impl Purpose {
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Purpose::Cache | Purpose::Messages => &["ca", "db", "user", "pass", "connect-ms", "answer-ms", "prefix"],
            Purpose::Jobs => {
                &["ca", "db", "user", "pass", "connect-ms", "answer-ms", "prefix", "directory", "queue", "hold-seconds"]
            }
            Purpose::Locks | Purpose::Timers => {
                &["ca", "db", "user", "pass", "connect-ms", "answer-ms", "prefix", "hold-seconds"]
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Tcp {
        host: String,
        port: u16,
    },
    /// `authority`: a file of certificates (PEM) that replaces those of the system.
    Tls {
        host: String,
        port: u16,
        authority: Option<PathBuf>,
    },
    Unix(PathBuf),
}

#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub place: Place,
    pub database: u32,
    pub user: Option<String>,
    pub password: Option<String>,
    pub connect: Duration,
    pub answer: Duration,
    /// The start of all keys, so that several applications can share a database.
    pub prefix: String,
    /// The directory that keeps jobs while the engine is away.
    pub directory: Option<String>,
    /// The name of the queue of jobs, so that several spoolers can share a prefix.
    pub queue: String,
    /// How long a reservation, a lease or a firing lasts after its process has died.
    pub hold: Option<Duration>,
}

impl Address {
    /// Returns whether `text` is meant as an address of an engine.
    pub fn is_meant(text: &str) -> bool {
        ["redis:", "rediss:", "redis+unix:", "valkey:", "valkeys:", "valkey+unix:"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// The error says what is wrong and what to write, without the address itself.
    pub fn parse(text: &str, purpose: Purpose) -> Result<Address, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("it is not the address of an engine; {FORM}"))?;
        if text.contains(['#', ' ', '\t']) {
            return Err("it has a # or a space; write %23 or %20".to_owned());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = Query::of(query, purpose)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        let mut address = Address {
            place: Place::Unix(PathBuf::new()),
            database: query.database.unwrap_or(0),
            user: Some(decoded(user, "user")?).filter(|user| !user.is_empty()).or(query.user),
            password: password.map(|password| decoded(password, "password")).transpose()?.or(query.password),
            connect: query.connect,
            answer: query.answer,
            prefix: query.prefix,
            directory: query.directory,
            queue: query.queue,
            hold: query.hold,
        };
        address.place = match scheme {
            "redis+unix" | "valkey+unix" if host.is_empty() && path.len() > 1 => Place::Unix(decoded(path, "path")?.into()),
            "redis+unix" | "valkey+unix" => {
                return Err("it has no absolute path; write redis+unix:///run/redis/redis.sock".to_owned());
            }
            "redis" | "valkey" => host_and_port(host).map(|(host, port)| Place::Tcp { host, port })?,
            "rediss" | "valkeys" => {
                host_and_port(host).map(|(host, port)| Place::Tls { host, port, authority: query.authority.clone() })?
            }
            _ => return Err(format!("it is not the address of an engine; {FORM}")),
        };
        if query.authority.is_some() && !matches!(address.place, Place::Tls { .. }) {
            return Err("`ca` is for TLS alone; write rediss://, or leave `ca` out".to_owned());
        }
        let number = path.trim_matches('/');
        if !matches!(address.place, Place::Unix(_)) && !number.is_empty() {
            address.database = number.parse().map_err(|_| "its database is not a number; write …:6379/0".to_owned())?;
        }
        Ok(address)
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => {
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        Some(_) => return Err("its host is not an IPv6 address; write redis://[::1]:6379/0".to_owned()),
        None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(format!("it has no host; {FORM}"));
    }
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)) {
        return Err("its host has a sign that no host has; write @, / and : of a password as %40, %2F and %3A".to_owned());
    }
    let port = match port {
        Some("") => Some(PORT),
        port => port.and_then(|port| port.parse().ok()).filter(|port| *port > 0),
    };
    port.map(|port| (host.to_owned(), port)).ok_or_else(|| format!("its port is not a number from 1 to 65535; write :{PORT}"))
}

/// The address without user and password, for the log and `bolide status`.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match &self.place {
            Place::Tcp { host, port } => ("redis", host, port),
            Place::Tls { host, port, .. } => ("rediss", host, port),
            Place::Unix(path) => {
                let path = path.to_string_lossy();
                let path = utf8_percent_encode(&path, PATH_SIGNS);
                return write!(formatter, "redis+unix://{path}?db={}", self.database);
            }
        };
        match host.contains(':') {
            true => write!(formatter, "{scheme}://[{host}]:{port}/{}", self.database),
            false => write!(formatter, "{scheme}://{host}:{port}/{}", self.database),
        }
    }
}

/// Settings are written to logs with `{:?}`, so this form has no password either.
impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Address({self})")
    }
}

/// The keys `db`, `user` and `pass` are for UNIX sockets, whose addresses have no other place for them.
struct Query {
    authority: Option<PathBuf>,
    database: Option<u32>,
    user: Option<String>,
    password: Option<String>,
    connect: Duration,
    answer: Duration,
    prefix: String,
    directory: Option<String>,
    queue: String,
    hold: Option<Duration>,
}

impl Query {
    fn of(text: &str, purpose: Purpose) -> Result<Query, String> {
        let mut query = Query {
            authority: None,
            database: None,
            user: None,
            password: None,
            connect: Duration::from_millis(CONNECT_MS),
            answer: Duration::from_millis(ANSWER_MS),
            prefix: "bolide".to_owned(),
            directory: None,
            queue: "spooler".to_owned(),
            hold: None,
        };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value, "query")?;
            if !purpose.keys().contains(&key) {
                return Err(format!("it has the unknown key `{key}`; the keys are {}", purpose.keys().join(", ")));
            }
            let number = |most: u64| {
                let found = value.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
                found.ok_or_else(|| format!("`{key}` is not a number from 1 to {most}"))
            };
            match key {
                "connect-ms" => query.connect = Duration::from_millis(number(MAX_LIMIT_MS)?),
                "answer-ms" => query.answer = Duration::from_millis(number(MAX_LIMIT_MS)?),
                "hold-seconds" => query.hold = Some(Duration::from_secs(number(MAX_SECONDS)?)),
                "db" => query.database = Some(value.parse().map_err(|_| "`db` is not a number; write db=0".to_owned())?),
                "user" => query.user = Some(value),
                "pass" => query.password = Some(value),
                "ca" => query.authority = Some(PathBuf::from(value)),
                "directory" if value.is_empty() => return Err("`directory` is empty; write directory=PATH".to_owned()),
                "directory" => query.directory = Some(value),
                "queue" => query.queue = name(key, value)?,
                _ => query.prefix = name(key, value)?,
            }
        }
        Ok(query)
    }
}

/// Braces would choose another hash slot than the keys of a queue have together.
fn name(key: &str, value: String) -> Result<String, String> {
    let is_fit = (1..=MAX_NAME_BYTES).contains(&value.len()) && !value.contains(['{', '}']);
    is_fit.then_some(value).ok_or_else(|| format!("`{key}` is not 1 to {MAX_NAME_BYTES} bytes without braces"))
}

/// Reads `%2F` and the like.
fn decoded(text: &str, what: &str) -> Result<String, String> {
    let bytes = percent_decode_str(text).decode_utf8();
    bytes.map(String::from).map_err(|_| format!("its {what} is not UTF-8 text; write another one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text, Purpose::Cache)
    }

    #[test]
    fn an_address_has_defaults() {
        let address = parse("redis://cache.example").expect("an address");
        assert_eq!(address.place, Place::Tcp { host: "cache.example".to_owned(), port: 6379 });
        assert_eq!((address.database, address.user.clone(), address.password.clone()), (0, None, None));
        assert_eq!((address.connect.as_millis(), address.answer.as_millis()), (100, 500));
        assert_eq!(address.to_string(), "redis://cache.example:6379/0");
    }

    #[test]
    fn every_part_of_an_address_is_read() {
        let address = parse("valkey://me:p%40ss@[::1]:7000/3?connect-ms=20&answer-ms=30&prefix=shop").expect("an address");
        assert_eq!(address.place, Place::Tcp { host: "::1".to_owned(), port: 7000 });
        assert_eq!((address.database, address.user.as_deref(), address.password.as_deref()), (3, Some("me"), Some("p@ss")));
        assert_eq!((address.connect.as_millis(), address.answer.as_millis(), address.prefix.as_str()), (20, 30, "shop"));
        let socket = parse("redis+unix:///run/redis.sock?db=2&user=me&pass=word").expect("an address");
        assert_eq!((socket.place.clone(), socket.database), (Place::Unix("/run/redis.sock".into()), 2));
        assert_eq!((socket.user.as_deref(), socket.password.as_deref()), (Some("me"), Some("word")));
        let tls = parse("rediss://cache.example?ca=/etc/ca.pem").expect("an address");
        assert_eq!(tls.place, Place::Tls { host: "cache.example".to_owned(), port: 6379, authority: Some("/etc/ca.pem".into()) });
        let jobs = Address::parse("redis://h?directory=jobs&hold-seconds=30", Purpose::Jobs).expect("an address");
        assert_eq!((jobs.directory.as_deref(), jobs.hold), (Some("jobs"), Some(Duration::from_secs(30))));
    }

    #[test]
    fn a_password_is_in_no_text() {
        let address = parse("redis://:secret@h").expect("an address");
        assert_eq!(address.password.as_deref(), Some("secret"));
        assert!(!format!("{address} {address:?}").contains("secret"));
        for wrong in
            ["redis://:secret@", "redis://:secret@h:99999", "redis://:secret@h/x", "redis://:secret@h?db=x&a=b", "redis:secret"]
        {
            let error = parse(wrong).expect_err(wrong);
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        for (wrong, told) in [
            ("memcached://h", "not the address of an engine"),
            ("redis://", "no host"),
            ("redis:///0", "no host"),
            ("redis://h:0", "port is not"),
            ("redis://h:70000", "port is not"),
            ("redis://[::1", "its host has a sign"),
            ("redis://[::1]x", "port is not"),
            ("redis://[x]:1", "not an IPv6 address"),
            ("redis://u:p#a@h", "write %23"),
            ("redis://u:p/a@h", "its port is not"),
            ("redis://h/zero", "database is not a number"),
            ("redis://h?wait=1", "unknown key `wait`"),
            ("redis://h?directory=x", "unknown key `directory`"),
            ("redis://h?answer-ms=0", "not a number from 1 to 60000"),
            ("redis://h?ca=/x", "for TLS alone"),
            ("redis+unix://relative.sock", "no absolute path"),
            ("unix:///x", "redis+unix"),
            ("redis:h", "not the address of an engine"),
            ("redis://h?prefix=%7Ba%7D", "without braces"),
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }
}
