//! Settings of recycling: when a worker is replaced, because of its age, its requests, its memory or an exception of the
//! application. Plain data: the options room fills it in; the master, prototypes and workers act on it.

use serde::{Deserialize, Serialize};

/// Minimum time that a worker serves before it may be replaced (`min-worker-lifetime`), in milliseconds; uWSGI's default.
pub const MIN_LIFETIME_MS: u64 = 10_000;

/// How often a worker becomes the prototype of its generation (`refork-max`): in Python, more than once gains nothing.
pub const REFORK_MAX: u32 = 1;

crate::with_defaults! {
    /// When workers are replaced. `None` is never.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Recycling {
        pub max_requests: Option<u64>,
        /// `max-requests-delta`: worker 2 serves this many more requests than worker 1, worker 3 twice as many more.
        pub max_requests_delta: u64,
        pub max_lifetime_ms: Option<u64>,
        /// `max-worker-lifetime-delta`, as for requests.
        pub max_lifetime_delta_ms: u64,
        pub min_lifetime_ms: u64 = MIN_LIFETIME_MS,
        pub memory: MemoryLimits,
        /// `refork-after`: a worker that has answered this many requests becomes the prototype of its generation.
        pub refork_after: Option<u64>,
        /// `refork-max`: how often in a generation.
        pub refork_max: u32 = REFORK_MAX,
        /// `reload-on-pressure`: maximum share of time, in percent, in which processes of the cgroup stall on memory.
        pub pressure_percent: Option<u32>,
    }
}

/// Memory limits beyond which a worker is replaced, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimits {
    /// `reload-on-rss`: resident memory, shared pages counted in full.
    pub resident: Option<u64>,
    /// `reload-on-as`: address space.
    pub address_space: Option<u64>,
    /// `reload-on-uss`: resident memory that is not shared.
    pub unique: Option<u64>,
    /// `reload-on-pss`: resident memory, shared pages counted proportionally.
    pub proportional: Option<u64>,
    /// `evil-reload-on-rss`: the worker is killed immediately.
    pub evil_resident: Option<u64>,
    /// `evil-reload-on-as`.
    pub evil_address_space: Option<u64>,
}

impl MemoryLimits {
    /// Whether any limit is set, so that memory must be measured.
    pub fn are_set(&self) -> bool {
        *self != MemoryLimits::default()
    }
}

/// `reload-on-exception` and the related options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ReloadOn {
    /// Every exception.
    pub any: bool,
    /// Names of exception types, with or without their module.
    pub types: Vec<String>,
    /// Texts of exceptions.
    pub values: Vec<String>,
    /// `TYPE: TEXT`.
    pub reprs: Vec<String>,
}
