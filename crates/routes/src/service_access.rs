//! The services of an instance as rules use them. Must not know how a service works, nor rules. Workers run it.

use bolide_contract::rate::{Counted, Rate};

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

/// A change of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricChange {
    Set(i64),
    Calculate(Operator, i64),
}
