//! Time limits of connections: a heap of times, the earliest first.
//!
//! Most limits are extended long before they expire (each answer on a persistent connection renews its keep-alive time). So when
//! a limit moves back, its entry stays where it is, and is inserted again when it comes up. A limit that moves forward gets
//! another entry, and the earlier one becomes stale. It does not know about connections: keys are numbers. Workers run it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No time limit, in monotonic milliseconds.
pub const NEVER_MS: u64 = u64::MAX;

/// Maximum delay of the clock in milliseconds: a wait that ends this much later finds its time over, and need not be repeated.
pub const CLOCK_TICK_MS: u64 = 4;

/// Stale entries are removed when there are more than this many for each connection, and `ENTRIES_SPARE` beside.
const MAX_ENTRIES_EACH: usize = 4;
const ENTRIES_SPARE: usize = 64;

#[derive(Debug, Default)]
pub struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Deadlines {
    /// Adds a look at `key` at this time.
    pub fn add(&mut self, when_ms: u64, key: u64) {
        self.heap.push(Reverse((when_ms, key)));
    }

    /// Returns the earliest time, or [`NEVER_MS`]. It may belong to a stale entry.
    pub fn earliest_ms(&self) -> u64 {
        self.heap.peek().map_or(NEVER_MS, |Reverse((when_ms, _))| *when_ms)
    }

    /// Removes and returns the earliest entry whose time has come.
    pub fn take(&mut self, now_ms: u64) -> Option<(u64, u64)> {
        if self.earliest_ms() > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Whether there are more entries than this many connections need.
    pub fn is_crowded(&self, connections: usize) -> bool {
        self.heap.len() > connections * MAX_ENTRIES_EACH + ENTRIES_SPARE
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.heap.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_up_in_the_order_of_their_times_and_not_earlier() {
        let mut deadlines = Deadlines::default();
        for (when_ms, key) in [(30, 3), (10, 1), (20, 2)] {
            deadlines.add(when_ms, key);
        }
        assert_eq!((deadlines.earliest_ms(), deadlines.take(9)), (10, None));
        assert_eq!([deadlines.take(20), deadlines.take(20), deadlines.take(20)], [Some((10, 1)), Some((20, 2)), None]);
        assert_eq!(deadlines.take(NEVER_MS), Some((30, 3)));
        assert_eq!(deadlines.earliest_ms(), NEVER_MS);
    }
}
