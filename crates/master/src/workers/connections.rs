//! When the master holds connections of killed workers, and when it gives them back. The connections are in
//! `provision/connection_queue`. The master runs it.

use crate::children::Children;
use crate::provision::connection_queue::ConnectionMove;

/// The instance, as far as its connections depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Prospects {
    pub is_stopping: bool,
    /// The workers of another master take connections from our queue.
    pub continues_elsewhere: bool,
}

impl Prospects {
    /// Returns whether connections of a killed worker are served by others: not at a stop.
    pub fn has_takers(self) -> bool {
        !self.is_stopping || self.continues_elsewhere
    }

    /// Returns how connections move now. The master takes some only while a worker that is about to be killed puts them into the
    /// queue, or no worker is there, and no other worker could take them.
    pub fn next_move(self, children: &Children, now_ms: u64) -> ConnectionMove {
        let is_needed = || children.is_handing_over(now_ms) || !children.has_serving_worker();
        match self {
            Prospects { continues_elsewhere: true, .. } => ConnectionMove::Give,
            Prospects { is_stopping: true, .. } => ConnectionMove::None,
            _ if children.has_taker(now_ms) => ConnectionMove::Give,
            _ if is_needed() => ConnectionMove::Take,
            _ => ConnectionMove::None,
        }
    }
}
