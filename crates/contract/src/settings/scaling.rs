//! Settings of the varying number of workers: `cheaper` and the related options, `cheap`, `idle`. Plain data; the master acts on
//! it.

use serde::{Deserialize, Serialize};

/// When workers are added and removed. By default their number is fixed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaling {
    /// `None`: the number of workers is always `processes`.
    pub cheaper: Option<Cheaper>,
    /// `cheap`: no worker is started before the first connection arrives.
    pub starts_empty: bool,
    /// `idle`: time without a request after which all workers exit, in milliseconds.
    pub idle_ms: Option<u64>,
    /// `die-on-idle`: the instance exits instead.
    pub dies_idle: bool,
}

impl Scaling {
    /// The number of workers depends on the duration of requests.
    pub fn weighs_time(&self) -> bool {
        self.cheaper.as_ref().is_some_and(|cheaper| cheaper.algorithm == Algorithm::Busyness)
    }
}

crate::with_defaults! {
    /// `cheaper`: a number of workers between `least` and `processes`, with the defaults of uWSGI.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Cheaper {
        pub least: u32 = 1,
        /// `cheaper-initial`.
        pub first: u32 = 1,
        /// `cheaper-step`: the number of workers added at a time.
        pub step: u32 = 1,
        /// `cheaper-overload`: seconds for most algorithms, connections for `backlog`.
        pub overload: u32 = 3,
        /// `cheaper-idle`, in seconds.
        pub idle_s: u32 = 10,
        /// `cheaper-rss-limit-soft`, in bytes: no worker is added beyond it.
        pub resident_soft: Option<u64>,
        /// `cheaper-rss-limit-hard`, in bytes: a worker is removed beyond it.
        pub resident_hard: Option<u64>,
        pub algorithm: Algorithm = Algorithm::Spare,
        pub busyness: Busyness,
    }
}

/// `cheaper-algo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// Keep one worker idle.
    #[default]
    Spare,
    /// Keep `cheaper` workers idle.
    Spare2,
    /// Keep the listen queue short.
    Backlog,
    /// Keep workers busy for a share of their time.
    Busyness,
    /// Only commands add and remove workers.
    Manual,
}

crate::with_defaults! {
    /// Settings of the algorithm `busyness`, with the defaults of uWSGI.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Busyness {
        pub most_percent: u32 = 50,
        pub least_percent: u32 = 25,
        pub multiplier: u32 = 10,
        pub penalty: u32 = 2,
        pub is_verbose: bool,
        /// Number of queued connections beyond which workers are added immediately.
        pub backlog_alert: u32 = 33,
        pub backlog_multiplier: u32 = 3,
        pub backlog_step: u32 = 1,
        /// Seconds for which a single connection may be queued.
        pub backlog_nonzero_s: u32 = 60,
    }
}
