//! The services of an instance as rules use them. Must not know how a service works, nor rules. Workers run it.

use crate::cache_access::{Caches, Operator};

/// The services that rules may use. No call waits.
pub trait Services {
    fn caches(&self) -> &dyn Caches;

    /// Returns the value of a metric; 0 if there is none of this name.
    fn metric(&self, name: &[u8]) -> i64;

    /// False: there is no such metric, or it is one of the server's own, or the number to divide by is 0.
    fn change_metric(&self, name: &[u8], change: MetricChange) -> bool;

    /// Raises a signal of uWSGI's.
    fn raise_signal(&self, number: u8);

    /// Raises an alarm. A name that no alarm has is reported by the master.
    fn raise_alarm(&self, name: &[u8], text: &[u8]);

    /// Counts a request for a key of the rate limit with this number, at this rate.
    fn count(&self, limit: usize, key: &[u8], rate: Rate) -> Counted;
}

/// A rate as limits count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Microseconds in which one more request may pass.
    pub interval_us: u64,
    /// Requests that pass without a pause between them.
    pub burst: u64,
}

/// What a rate limit says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// It passes, and so would `remaining` others. In `full_us` microseconds the whole burst would.
    Passes { remaining: u64, full_us: u64 },
    /// The limit is reached, and the next one passes in `retry_us` microseconds.
    Refused { retry_us: u64, full_us: u64 },
    /// It passes, and is not counted.
    Uncounted,
}

/// A change of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricChange {
    Set(i64),
    Calculate(Operator, i64),
}
