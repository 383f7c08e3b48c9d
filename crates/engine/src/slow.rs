//! Requests that run longer than the mark of `slow-request`: a thread of the worker looks at them while they run, and when one
//! ends it is reported once, with where its time went.
//!
//! Requests do nothing for it while they run, except those that an asynchronous application keeps. It does not know about
//! languages or sockets. The worker's threads call it at the end of requests; the watcher is a thread of its own, which exists
//! only with the option.

pub mod report;
pub mod watcher;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bolide_contract::clock::now_ms;
use bolide_scoreboard::Recorder;

use crate::sampling::{Look, Subject};

/// Looks at one request: with the pauses that double, the last one is at 32,768 times the mark.
pub const MAX_LOOKS: usize = 16;
/// Requests that are watched at the same time. Others are reported without samples.
const MAX_WATCHED: usize = 10_000;
/// A request that was in no call for this many milliseconds is forgotten; if it still ends, it is reported without its looks.
const FORGET_AFTER_MS: u64 = 600_000;
/// Reports of a worker in a minute. The rest of them is counted.
const REPORTS_A_MINUTE: u32 = 30;
const MINUTE_MS: u64 = 60_000;

/// A request, by its thread's slot and its number in the ring there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RequestKey {
    slot: usize,
    number: u64,
}

impl RequestKey {
    fn of((recorder, number): (Recorder<'static>, u64)) -> RequestKey {
        RequestKey { slot: std::ptr::from_ref(recorder.slot).addr(), number }
    }
}

/// What the looks at a request have seen; `Err`: why nothing could be seen.
pub type Looks = Vec<Result<Look, String>>;

/// A request that is looked at.
#[derive(Debug)]
struct WatchedRequest {
    subject: Subject,
    looks: Looks,
    /// Times at which a look was due. While the client was waited for, there was nothing to see.
    times: usize,
    /// When the next look is due, in monotonic milliseconds.
    next_ms: u64,
    /// When it was last seen in a call. An application that keeps it is asked until its end.
    seen_ms: u64,
    is_kept: bool,
}

impl WatchedRequest {
    /// Adds a look, and sets the time of the next one: 1, 2, 4 … times the mark after the request's begin.
    fn add(&mut self, look: Option<Result<Look, String>>, mark_ms: u64, now_ms: u64) {
        self.next_ms = now_ms.saturating_add(mark_ms.saturating_mul(1 << self.times.min(MAX_LOOKS)));
        self.times += 1;
        self.looks.extend(look);
    }

    /// An application may keep a request for as long as it likes; what can't be seen any more is of no use.
    fn may_be_forgotten(&self, now_ms: u64) -> bool {
        let is_over = !self.is_kept || self.times >= MAX_LOOKS;
        is_over && now_ms.saturating_sub(self.seen_ms) >= FORGET_AFTER_MS
    }

    fn is_due(&self, now_ms: u64) -> bool {
        self.times < MAX_LOOKS && self.next_ms <= now_ms
    }
}

#[derive(Debug, Default)]
struct WatchState {
    watched: HashMap<RequestKey, WatchedRequest>,
    /// Reports since this time, and slow requests beyond their limit.
    minute_began_ms: u64,
    told: u32,
    untold: u64,
}

/// The slow requests of one worker.
#[derive(Debug)]
pub struct SlowRequests {
    pub mark_ms: u64,
    state: Mutex<WatchState>,
}

impl SlowRequests {
    pub fn new(mark_ms: u64) -> SlowRequests {
        SlowRequests { mark_ms, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An application has kept a request: it is looked at by what the language has for it.
    #[cold]
    pub fn keep(&self, recorded: Option<(Recorder<'static>, u64)>, thread: u32, task: u64) {
        let (Some(recorded), mut state) = (recorded, self.lock()) else { return };
        if state.watched.len() >= MAX_WATCHED {
            return;
        }
        let now_ms = now_ms();
        let subject = Subject { thread, task: Some(task) };
        let new = || WatchedRequest {
            subject,
            looks: Vec::new(),
            times: 0,
            next_ms: now_ms + self.mark_ms,
            seen_ms: now_ms,
            is_kept: true,
        };
        // It may have been slow in its first step already.
        let watched = state.watched.entry(RequestKey::of(recorded)).or_insert_with(new);
        (watched.subject, watched.is_kept) = (subject, true);
    }

    /// Forgets a request that has ended.
    pub fn take(&self, recorded: Option<(Recorder<'static>, u64)>) -> Looks {
        let watched = recorded.and_then(|recorded| self.lock().watched.remove(&RequestKey::of(recorded)));
        watched.map(|watched| watched.looks).unwrap_or_default()
    }

    /// Whether one more report may be written.
    pub fn may_tell(&self, worker: u32) -> bool {
        let mut state = self.lock();
        let (may_tell, before) = state.count_report(now_ms());
        drop(state);
        tell_rest(worker, before);
        may_tell
    }
}

impl WatchState {
    /// Returns whether a report may be written, and the number of those that were not written in a minute that has ended.
    fn count_report(&mut self, now_ms: u64) -> (bool, u64) {
        let before = self.end_minute(now_ms);
        let may_tell = self.told < REPORTS_A_MINUTE;
        if may_tell {
            self.told += 1;
        } else {
            self.untold += 1;
        }
        (may_tell, before)
    }

    /// Begins another minute if one has passed. Returns the number of reports that were not written in it.
    fn end_minute(&mut self, now_ms: u64) -> u64 {
        if now_ms.saturating_sub(self.minute_began_ms) < MINUTE_MS {
            return 0;
        }
        (self.minute_began_ms, self.told) = (now_ms, 0);
        std::mem::take(&mut self.untold)
    }
}

/// Logs how many slow requests had no report.
fn tell_rest(worker: u32, untold: u64) {
    if untold > 0 {
        bolide_log::line(&format!(
            "worker {worker}: slow-request: slow requests that were not reported: {untold} (a worker reports \
            {REPORTS_A_MINUTE} in a minute)"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_at_one_two_four_times_the_mark_and_end() {
        let subject = Subject { thread: 1, task: None };
        let mut watched = WatchedRequest { subject, looks: Vec::new(), times: 0, next_ms: 1_500, seen_ms: 0, is_kept: false };
        let mut times = Vec::new();
        for _ in 0..4 {
            let now_ms = watched.next_ms;
            times.push(now_ms);
            assert!(watched.is_due(now_ms) && !watched.is_due(now_ms - 1));
            watched.add(Some(Err(String::new())), 500, now_ms);
        }
        // It has begun at 1,000.
        assert_eq!(times, [1_500, 2_000, 3_000, 5_000]);
        while watched.times < MAX_LOOKS {
            watched.add(None, u64::MAX >> 20, 0);
        }
        assert!(!watched.is_due(u64::MAX));
    }

    #[test]
    fn a_minute_has_a_limited_number_of_reports_and_the_rest_is_counted() {
        let mut state = WatchState::default();
        let written = (0..40).filter(|_| state.count_report(100_000).0).count();
        assert_eq!(written, REPORTS_A_MINUTE as usize);
        assert_eq!(state.end_minute(100_001), 0);
        assert_eq!(state.count_report(160_000), (true, 10));
        assert_eq!(state.end_minute(220_000), 0);
    }
}
