//! TLS without a socket: parses certificates and keys, converts a listener's settings for the library, seals session tickets
//! and the cookie of `sticky`, and collects facts about a connection for applications.
//!
//! It does not open files except the log of secrets, if configured, and that of trusted certificates. The master validates with
//! it; workers serve with it.

mod authorities;
mod certificate;
mod client_certificates;
mod config;
mod cookies;
mod facts;
mod facts_packet;
mod inspection;
mod names;
mod provider;
mod resolver;
mod tickets;

pub use authorities::{read_authorities, system_authorities};
pub use certificate::{LoadedCertificate, UNSUPPORTED_KEY, load, names_of};
pub use client_certificates::refusal_reason;
pub use config::{ALPN_HTTP1, ALPN_HTTP1_0, ALPN_HTTP2, ListenerTls};
pub use cookies::{OpenedCookie, SealedCookies};
pub use facts::{ClientFacts, TlsFacts};
pub use inspection::{Gap, Inspection, inspect};
pub use provider::{known_suites, provider};
pub use resolver::take_named_host;
pub use rustls;
