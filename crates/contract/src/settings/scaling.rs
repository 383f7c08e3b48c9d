//! Settings of a number of workers that varies: `cheaper` and its kin, `cheap`, `idle`. Plain data; the master acts on it.

use serde::{Deserialize, Serialize};

/// When workers come and go. By default they stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaling {
    /// `None`: there are always as many as `processes` says.
    pub cheaper: Option<Cheaper>,
    /// `cheap`: none is started before the first connection comes.
    pub starts_empty: bool,
    /// `idle`: time without a request after which all end, in milliseconds.
    pub idle_ms: Option<u64>,
    /// `die-on-idle`: the instance ends then.
    pub dies_idle: bool,
}

impl Scaling {
    /// The time that requests take decides how many workers there are.
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
    /// `cheaper-step`: how many are added at a time.
    pub step: u32,
    /// `cheaper-overload`: seconds for most algorithms, connections for `backlog`.
    pub overload: u32,
    /// `cheaper-idle`, in seconds.
    pub idle_s: u32,
    /// `cheaper-rss-limit-soft`, in bytes: nobody is added beyond it.
    pub resident_soft: Option<u64>,
    /// `cheaper-rss-limit-hard`, in bytes: somebody ends beyond it.
    pub resident_hard: Option<u64>,
    pub algorithm: Algorithm,
    pub busyness: Busyness,
}

/// `cheaper-algo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// One worker should be free.
    #[default]
    Spare,
    /// `cheaper` workers should be free.
    Spare2,
    /// Few connections should wait.
    Backlog,
    /// Workers should be busy for a share of their time.
    Busyness,
    /// Commands alone add and remove workers.
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
    /// Waiting connections beyond which workers are added at once.
    pub backlog_alert: u32,
    pub backlog_multiplier: u32,
    pub backlog_step: u32,
    /// Seconds for which a single connection may wait.
    pub backlog_nonzero_s: u32,
}

/// As in uWSGI.
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

/// As in uWSGI.
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
