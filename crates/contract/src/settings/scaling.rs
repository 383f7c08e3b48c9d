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
    /// `idle`: time without a request after which all workers end, in milliseconds.
    pub idle_ms: Option<u64>,
    /// `die-on-idle`: the instance ends instead.
    pub dies_idle: bool,
}

impl Scaling {
    /// The number of workers depends on the duration of requests.
    pub fn weighs_time(&self) -> bool {
        self.cheaper.as_ref().is_some_and(|cheaper| cheaper.algorithm == Algorithm::Busyness)
    }
}

/// `cheaper`: a number of workers between `least` and `processes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cheaper {
    pub least: u32,
    /// `cheaper-initial`.
    pub first: u32,
    /// `cheaper-step`: the number of workers added at a time.
    pub step: u32,
    /// `cheaper-overload`: seconds for most algorithms, connections for `backlog`.
    pub overload: u32,
    /// `cheaper-idle`, in seconds.
    pub idle_s: u32,
    /// `cheaper-rss-limit-soft`, in bytes: no worker is added beyond it.
    pub resident_soft: Option<u64>,
    /// `cheaper-rss-limit-hard`, in bytes: a worker is removed beyond it.
    pub resident_hard: Option<u64>,
    pub algorithm: Algorithm,
    pub busyness: Busyness,
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

/// Settings of the algorithm `busyness`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busyness {
    pub most_percent: u32,
    pub least_percent: u32,
    pub multiplier: u32,
    pub penalty: u32,
    pub is_verbose: bool,
    /// Number of queued connections beyond which workers are added at once.
    pub backlog_alert: u32,
    pub backlog_multiplier: u32,
    pub backlog_step: u32,
    /// Seconds for which a single connection may be queued.
    pub backlog_nonzero_s: u32,
}

/// uWSGI's defaults.
impl Default for Busyness {
    fn default() -> Busyness {
        Busyness {
            most_percent: 50,
            least_percent: 25,
            multiplier: 10,
            penalty: 2,
            is_verbose: false,
            backlog_alert: 33,
            backlog_multiplier: 3,
            backlog_step: 1,
            backlog_nonzero_s: 60,
        }
    }
}

/// uWSGI's defaults.
impl Default for Cheaper {
    fn default() -> Cheaper {
        Cheaper {
            least: 1,
            first: 1,
            step: 1,
            overload: 3,
            idle_s: 10,
            resident_soft: None,
            resident_hard: None,
            algorithm: Algorithm::Spare,
            busyness: Busyness::default(),
        }
    }
}
