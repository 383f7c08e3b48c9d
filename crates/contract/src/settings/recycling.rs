//! Settings of recycling: when a worker is worn out and gets its replacement. Plain data, read by master and prototypes.

use serde::{Deserialize, Serialize};

/// Time that a worker serves before it may be replaced (`min-worker-lifetime`), in milliseconds; that of uWSGI.
pub const MIN_LIFETIME_MS: u64 = 10_000;

/// When workers are replaced. `None` is never.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recycling {
    pub max_requests: Option<u64>,
    /// `max-requests-delta`: worker 2 serves so many requests more than worker 1, worker 3 twice as many more.
    pub max_requests_delta: u64,
    pub max_lifetime_ms: Option<u64>,
    /// `max-worker-lifetime-delta`, as for requests.
    pub max_lifetime_delta_ms: u64,
    pub min_lifetime_ms: u64,
    pub memory: MemoryLimits,
    /// `reload-on-pressure`: the share of time, in percent, in which processes of the cgroup may wait for memory.
    pub pressure_percent: Option<u32>,
}

impl Default for Recycling {
    fn default() -> Recycling {
        Recycling {
            max_requests: None,
            max_requests_delta: 0,
            max_lifetime_ms: None,
            max_lifetime_delta_ms: 0,
            min_lifetime_ms: MIN_LIFETIME_MS,
            memory: MemoryLimits::default(),
            pressure_percent: None,
        }
    }
}

/// Memory of a worker beyond which it is replaced, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimits {
    /// `reload-on-rss`: resident, what is shared with others counted in full.
    pub resident: Option<u64>,
    /// `reload-on-as`: address space.
    pub address_space: Option<u64>,
    /// `reload-on-uss`: resident and its own alone.
    pub unique: Option<u64>,
    /// `reload-on-pss`: resident, what is shared counted in shares.
    pub proportional: Option<u64>,
    /// `evil-reload-on-rss`: killed at once.
    pub evil_resident: Option<u64>,
    /// `evil-reload-on-as`.
    pub evil_address_space: Option<u64>,
}

impl MemoryLimits {
    /// Somebody's memory has to be looked at.
    pub fn are_set(&self) -> bool {
        *self != MemoryLimits::default()
    }
}
