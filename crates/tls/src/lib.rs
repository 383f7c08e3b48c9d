//! TLS without a socket: what certificates and keys are, what a listener's settings mean to the library, what a session's ticket is, and
//! what an application is told of a connection.
//!
//! It opens no file but the log of secrets that was asked for. The master checks by it what workers then serve by.

mod certificate;
mod client_certificates;
mod config;
mod facts;
mod inspection;
mod key_log;
mod names;
mod provider;
mod resolver;
mod tickets;

pub use certificate::{LoadedCertificate, UNSUPPORTED_KEY, load, names_of};
pub use client_certificates::is_of_old_version;
pub use config::{ALPN_HTTP1, ALPN_HTTP1_0, ALPN_HTTP2, ListenerTls};
pub use facts::{ClientFacts, TlsFacts};
pub use inspection::{Gap, Inspection, inspect};
pub use provider::{known_suites, provider};
pub use resolver::take_named_host;
pub use rustls;
