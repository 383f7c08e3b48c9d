//! Settings of the services that several machines share on a Redis or Valkey server. Plain data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The engines, and what is on them. A number of an engine is its place in `engines`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distributed {
    /// Each address once.
    pub engines: Vec<EngineSettings>,
    /// `cache2` with `engine`.
    pub caches: Vec<EngineCache>,
    /// `lock-engine`: the engine of `uwsgi.lock` and of leases.
    pub lock_engine: Option<usize>,
    /// `timer-engine`: timers and cron times fire once for all instances of this engine.
    pub timer_engine: Option<usize>,
    /// `publish` with `engine`: messages of channels reach all instances of this engine.
    pub publish_engine: Option<usize>,
}

/// A cache that an engine keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCache {
    pub name: String,
    /// The number of its engine.
    pub engine: usize,
    /// Bytes of a key and of a value, at most.
    pub key_bytes: u32,
    pub value_bytes: u64,
    /// Items never expire, whatever time they are given.
    pub never_expires: bool,
    /// The number that `cache_inc` and the related functions begin with.
    pub first_number: i64,
    /// It is the first cache of the configuration.
    pub is_default: bool,
}

/// A server that an option names.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSettings {
    /// The address as written, with the password.
    pub url: String,
    /// The address without user and password.
    pub shown: String,
    /// Where it was written first.
    pub origin: String,
}

/// Hides the password.
impl fmt::Debug for EngineSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EngineSettings({} of {})", self.shown, self.origin)
    }
}
