//! When a worker had no free descriptor for a connection, when it looks again, and whether the application is the reason. It does
//! not open anything or take connections. Workers run it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::{Accepting, Row};
use nix::sys::resource::{Resource, getrlimit};

/// Milliseconds for which no connection is taken, unless one of the worker's own ends earlier.
const SHORT_MS: u64 = 100;

/// The shortest time between two log lines about missing descriptors, in milliseconds.
const REPORT_MS: u64 = 60_000;

/// A worker that could not take a connection for this many milliseconds is replaced if its connections are not the reason.
pub const WORN_MS: u64 = 5_000;

/// Clients still wait if one could not be taken within this many milliseconds.
const WAITED_MS: u64 = 1_000;

/// Connections are the reason if they have at least this part of the descriptors that the worker could open at its start.
const CONNECTIONS_PART: u64 = 8;

/// The worker's free descriptors, as far as they were missing.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// When the worker looks again, in monotonic milliseconds; `None`: descriptors are not missing.
    again_ms: Option<u64>,
    /// Since when no connection could be taken, and when one was last refused, in monotonic milliseconds.
    since_ms: Option<u64>,
    refused_ms: u64,
    reported_ms: Option<u64>,
    /// How often a descriptor was missing since the last report.
    refusals: u64,
    /// The limit of open files at the worker's start.
    limit: u64,
}

impl Descriptors {
    pub fn new() -> Descriptors {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
        Descriptors { limit, ..Descriptors::default() }
    }

    /// Connections wait until a descriptor is free again.
    #[inline]
    pub fn are_missing(&self) -> bool {
        self.again_ms.is_some()
    }

    /// No descriptor is left for a connection. Returns how often that was so since the last report, if another one is due.
    pub fn note_refusal(&mut self, row: &Row, now_ms: u64) -> Option<u64> {
        self.again_ms = Some(now_ms + SHORT_MS);
        self.since_ms.get_or_insert(now_ms);
        self.refused_ms = now_ms;
        self.refusals += 1;
        change(row, Accepting::Yes, Accepting::NoDescriptor);
        let is_due = self.reported_ms.is_none_or(|reported_ms| now_ms.saturating_sub(reported_ms) >= REPORT_MS);
        if !is_due {
            return None;
        }
        self.reported_ms = Some(now_ms);
        Some(std::mem::take(&mut self.refusals))
    }

    /// A connection was taken: there was a descriptor for it.
    #[inline]
    pub fn note_free(&mut self, row: &Row) {
        if self.since_ms.is_some() {
            self.since_ms = None;
            change(row, Accepting::NoDescriptor, Accepting::Yes);
        }
    }

    /// A connection has ended: its descriptor may serve one that waits.
    #[inline]
    pub fn note_end(&mut self, now_ms: u64) {
        if let Some(again_ms) = &mut self.again_ms {
            *again_ms = (*again_ms).min(now_ms);
        }
    }

    /// The worker listens to nothing any more. When it listens again, it finds out again.
    pub fn forget(&mut self, row: &Row) {
        self.again_ms = None;
        self.note_free(row);
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.again_ms
    }

    /// Returns whether it is time to look whether there are descriptors again, and takes the time.
    pub fn take_due(&mut self, now_ms: u64) -> bool {
        self.again_ms.take_if(|again_ms| now_ms >= *again_ms).is_some()
    }

    /// The application has opened most descriptors, or lowered the limit, and this worker can't accept clients.
    pub fn are_lost(&self, connections: usize, now_ms: u64) -> bool {
        self.since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= WORN_MS)
            && now_ms.saturating_sub(self.refused_ms) < WAITED_MS
            && (connections as u64).saturating_mul(CONNECTIONS_PART) < self.limit
    }
}

/// Changes the state of a worker that is in it. One that drains stays as it is, whatever its descriptors do.
fn change(row: &Row, from: Accepting, to: Accepting) {
    let _is_in_another = row.accepting.compare_exchange(from.code(), to.code(), Relaxed, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting() -> Row {
        let row = Row::default();
        row.accepting.store(Accepting::Yes.code(), Relaxed);
        row
    }

    #[test]
    fn a_worker_that_stops_listening_has_room_again_unless_it_drains() {
        let row = accepting();
        let mut descriptors = Descriptors::default();
        descriptors.note_refusal(&row, 1_000);
        assert!(row.is_accepting() && !row.has_room());
        descriptors.forget(&row);
        assert!(row.has_room() && !descriptors.are_missing());
        row.accepting.store(Accepting::No.code(), Relaxed);
        descriptors.note_refusal(&row, 2_000);
        assert!(!row.is_accepting());
        descriptors.note_free(&row);
        assert!(!row.is_accepting());
    }

    #[test]
    fn a_worker_is_lost_that_is_refused_again_and_again_with_few_connections() {
        let row = accepting();
        let mut descriptors = Descriptors { limit: 1_024, ..Descriptors::default() };
        for now_ms in (10_000..10_000 + WORN_MS).step_by(SHORT_MS as usize) {
            assert!(!descriptors.are_lost(3, now_ms));
            descriptors.note_refusal(&row, now_ms);
            assert!(descriptors.take_due(now_ms + SHORT_MS));
        }
        let now_ms = 10_000 + WORN_MS;
        assert!(descriptors.are_lost(3, now_ms));
        // Its connections have the descriptors, or no client waits any more.
        assert!(!descriptors.are_lost(1_000, now_ms));
        assert!(!descriptors.are_lost(3, now_ms + WAITED_MS));
        descriptors.note_free(&row);
        assert!(!descriptors.are_lost(3, now_ms));
        assert!(row.has_room());
    }

    #[test]
    fn one_report_a_minute_has_the_count_of_the_refusals_since_the_last_one() {
        let row = accepting();
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.note_refusal(&row, 1_000), Some(1));
        assert!(!row.has_room());
        assert_eq!(descriptors.note_refusal(&row, 2_000), None);
        assert_eq!(descriptors.note_refusal(&row, 1_000 + REPORT_MS), Some(2));
    }

    #[test]
    fn the_end_of_a_connection_is_the_time_of_the_next_look() {
        let row = accepting();
        let mut descriptors = Descriptors::default();
        descriptors.note_end(1_000);
        assert_eq!((descriptors.wake_ms(), descriptors.are_missing()), (None, false));
        descriptors.note_refusal(&row, 1_000);
        assert_eq!(descriptors.wake_ms(), Some(1_000 + SHORT_MS));
        descriptors.note_end(1_010);
        assert_eq!(descriptors.wake_ms(), Some(1_010));
        assert!(descriptors.take_due(1_010) && !descriptors.take_due(1_010));
    }
}
