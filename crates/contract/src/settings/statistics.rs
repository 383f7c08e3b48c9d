//! Settings of the statistics: the socket that serves them, their format, and the destinations that they are pushed to. Plain
//! data; the master acts on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::sockets::Address;

/// Groups of routes in the configuration (`route-group`). All other requests are in one more, the last.
pub const MAX_GROUPS: usize = 32;

/// Readers and format of an instance's statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Statistics {
    /// `stats`: the socket that serves them.
    pub server: Option<StatisticsServer>,
    /// `metrics`: the socket that serves them to Prometheus, with the health of the instance.
    pub metrics: Option<StatisticsServer>,
    /// `metrics-host`: names under which browsers may ask for pages.
    pub hosts: Vec<String>,
    /// `route-group`: requests that are counted together, by their paths.
    pub groups: Vec<RouteGroup>,
    /// `stats-minified`: without line breaks.
    pub is_minified: bool,
    /// `stats-no-cores`: without the list of each worker's threads.
    pub omits_cores: bool,
    /// `stats-no-metrics`: without the metrics of `enable-metrics`.
    pub omits_metrics: bool,
    /// `stats-push`
    pub pushers: Vec<Pusher>,
}

/// Requests that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteGroup {
    pub name: String,
    /// The beginnings of paths, or texts with `*`, each with its place among those of all groups: the first that matches decides.
    pub patterns: Vec<(u32, String)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatisticsServer {
    pub address: Address,
    /// Mode of a UNIX socket's file (`chmod-socket`).
    pub mode: Option<u32>,
    /// `stats-http`, and always for `metrics`: clients send an HTTP request.
    pub is_http: bool,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

/// A destination to which the statistics are sent periodically.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pusher {
    pub kind: PusherKind,
    /// The interval in milliseconds.
    pub every_ms: u64,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PusherKind {
    /// The JSON is appended to a file, followed by the separator.
    File { path: PathBuf, separator: String },
    /// A datagram for each number: `prefix.name type value`.
    Socket { address: Address, prefix: String },
    /// A datagram for each number, in the format of statsd: `prefix.name:value|g`.
    Statsd { address: Address, prefix: String },
}

impl Statistics {
    /// Whether a scraper may read numbers (`metrics`, or `stats` with `stats-http`), so that what only it gets is measured.
    pub fn has_scraper(&self) -> bool {
        self.metrics.is_some() || self.server.as_ref().is_some_and(|server| server.is_http)
    }

    /// Whether anything reads the statistics, so that measurements that cost a clock read are worth it.
    pub fn has_reader(&self) -> bool {
        self.server.is_some() || self.metrics.is_some() || !self.pushers.is_empty()
    }
}
