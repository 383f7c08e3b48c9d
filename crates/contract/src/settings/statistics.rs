//! Settings of the statistics: where the master gives them, in which form, and to whom it sends them by itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::address::Address;

/// Who is told the numbers of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Statistics {
    /// `stats`: whoever connects there is given them.
    pub server: Option<StatisticsServer>,
    /// `stats-minified`: without line breaks.
    pub is_minified: bool,
    /// `stats-no-cores`: not each thread by itself.
    pub omits_cores: bool,
    /// `stats-push`
    pub pushers: Vec<Pusher>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatisticsServer {
    pub address: Address,
    /// Mode of a UNIX socket's file (`chmod-socket`).
    pub mode: Option<u32>,
    /// `stats-http`: who connects sends a request of HTTP.
    pub is_http: bool,
    /// Where it was asked for: `uwsgi.ini:3`.
    pub origin: String,
}

/// A place to which the numbers are sent again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pusher {
    pub kind: PusherKind,
    /// Time between two, in milliseconds.
    pub every_ms: u64,
    /// Where it was asked for: `uwsgi.ini:3`.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PusherKind {
    /// The JSON is appended to a file, with this behind it.
    File { path: PathBuf, separator: String },
    /// A datagram for each number: `prefix.name type value`.
    Socket { address: Address, prefix: String },
    /// A datagram for each number, as statsd reads them: `prefix.name:value|g`.
    Statsd { address: Address, prefix: String },
}

impl Statistics {
    /// Somebody reads the numbers, so that what costs a look at a clock is worth it.
    pub fn has_reader(&self) -> bool {
        self.server.is_some() || !self.pushers.is_empty()
    }
}
