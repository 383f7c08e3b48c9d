//! The spans that wait in the exporter to be sent, and the counts that the master does not have yet: shared by the exporter's two
//! threads, of which one takes spans from workers and the other sends them. It does not know sockets.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bolide_services::statistics::SpanCounts;

/// Spans that wait, and their bytes together. A span beyond them is dropped.
pub const MAX_WAITING: usize = 8192;
pub const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;
/// Spans of a batch, and their bytes together.
pub const MAX_BATCH: usize = 512;
pub const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Milliseconds that a span waits for others of its batch.
const BATCH_WAIT_MS: u64 = 500;

#[derive(Debug, Default)]
pub struct SpanQueue {
    state: Mutex<WaitingSpans>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitingSpans {
    spans: VecDeque<Vec<u8>>,
    bytes: usize,
    /// When the first of them came since the last batch was taken.
    since: Option<Instant>,
    /// Spans of the batch that is being sent.
    in_flight: usize,
    counts: SpanCounts,
    /// Dropped spans since the last line about them.
    untold: u64,
    /// The exporter exits: nothing is awaited beyond this time.
    ends: Option<Instant>,
    is_done: bool,
}

impl SpanQueue {
    fn state(&self) -> MutexGuard<'_, WaitingSpans> {
        // Nothing panics while it is held, and counts and spans are whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the span, or drops it if too many wait. `lost` were dropped by the worker before.
    pub fn push(&self, lost: u32, span: &[u8]) {
        let mut state = self.state();
        state.drop_more(u64::from(lost));
        if state.spans.len() >= MAX_WAITING || state.bytes + span.len() > MAX_WAITING_BYTES {
            return state.drop_more(1);
        }
        state.bytes += span.len();
        state.spans.push_back(span.to_vec());
        let is_first = state.since.is_none();
        state.since.get_or_insert_with(Instant::now);
        if is_first || state.spans.len() == MAX_BATCH {
            self.changed.notify_all();
        }
    }

    /// Waits for the next batch. `None`: the exporter exits, and nothing is left, or no time.
    pub fn next_batch(&self) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state();
        state.in_flight = 0;
        loop {
            let waited = state.since.map(|since| since.elapsed());
            let left = Duration::from_millis(BATCH_WAIT_MS).saturating_sub(waited.unwrap_or_default());
            let is_full = state.spans.len() >= MAX_BATCH || state.bytes >= MAX_BATCH_BYTES;
            let is_late = state.ends.is_some_and(|ends| Instant::now() >= ends);
            if state.ends.is_some() && (state.spans.is_empty() || is_late) {
                state.is_done = true;
                self.changed.notify_all();
                return None;
            }
            if !state.spans.is_empty() && (is_full || left.is_zero() || state.ends.is_some()) {
                return Some(state.take_batch());
            }
            let most = if state.spans.is_empty() { None } else { Some(left) };
            state = match most {
                Some(most) => {
                    self.changed.wait_timeout(state, most).map_or_else(|error| error.into_inner().0, |(state, _)| state)
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Waits before another attempt, or until the exporter exits. Returns whether there is time for another one.
    pub fn pause(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if let Some(ends) = state.ends
                && until >= ends
            {
                return false;
            }
            if now >= until {
                return true;
            }
            let waited = self.changed.wait_timeout(state, until - now);
            state = waited.map_or_else(|error| error.into_inner().0, |(state, _)| state);
        }
    }

    /// How long an attempt may take, at most `most`.
    pub fn time_left(&self, most: Duration) -> Duration {
        let ends = self.state().ends;
        ends.map_or(most, |ends| ends.saturating_duration_since(Instant::now()).min(most))
    }

    pub fn count(&self, counts: SpanCounts) {
        self.state().counts += counts;
    }

    /// Returns the counts that the master does not have yet; they are gone then.
    pub fn take_counts(&self) -> SpanCounts {
        std::mem::take(&mut self.state().counts)
    }

    /// Returns the number of dropped spans since the last call.
    pub fn take_untold(&self) -> u64 {
        std::mem::take(&mut self.state().untold)
    }

    pub fn has_counts(&self) -> bool {
        self.state().counts != SpanCounts::default()
    }

    /// Orders the end, and waits until everything is sent, or no time is left. What is left is counted as dropped. Returns how
    /// much that is.
    pub fn end(&self, most: Duration) -> u64 {
        let ends = Instant::now() + most;
        let mut state = self.state();
        state.ends = Some(ends);
        self.changed.notify_all();
        while !state.is_done {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.map_or_else(|error| error.into_inner().0, |(state, _)| state);
        }
        let left = if state.is_done { 0 } else { state.in_flight };
        let left = (state.spans.len() + left) as u64;
        state.counts.dropped += left;
        state.spans.clear();
        left
    }
}

impl WaitingSpans {
    fn drop_more(&mut self, count: u64) {
        self.counts.dropped += count;
        self.untold += count;
    }

    fn take_batch(&mut self) -> Vec<Vec<u8>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < MAX_BATCH
            && self.spans.front().is_some_and(|span| batch.is_empty() || bytes + span.len() <= MAX_BATCH_BYTES)
            && let Some(span) = self.spans.pop_front()
        {
            bytes += span.len();
            batch.push(span);
        }
        self.bytes -= bytes;
        self.since = (!self.spans.is_empty()).then(Instant::now);
        self.in_flight = batch.len();
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_sent_in_batches_and_those_beyond_the_bounds_are_dropped() {
        let queue = SpanQueue::default();
        for _ in 0..MAX_WAITING + 3 {
            queue.push(0, b"span");
        }
        queue.push(2, b"span");
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(MAX_BATCH));
        assert_eq!(queue.take_counts(), SpanCounts { dropped: 6, ..SpanCounts::default() });
        assert_eq!((queue.has_counts(), queue.take_untold(), queue.take_untold()), (false, 6, 0));
        queue.push(0, &vec![0; MAX_WAITING_BYTES]);
        assert_eq!(queue.take_counts().dropped, 1);
        // The batch that was taken is not sent.
        assert_eq!(queue.end(Duration::ZERO), MAX_WAITING as u64);
        assert_eq!(queue.take_counts().dropped, MAX_WAITING as u64);
        assert_eq!(queue.next_batch(), None);
    }

    #[test]
    fn nothing_is_awaited_at_the_end() {
        let queue = SpanQueue::default();
        queue.push(0, b"span");
        std::thread::scope(|scope| {
            scope.spawn(|| while queue.next_batch().is_some() {});
            assert_eq!(queue.end(Duration::from_secs(60)), 0);
        });
        assert_eq!(queue.take_counts(), SpanCounts::default());
        assert!(!queue.pause(Duration::from_secs(60)));
        assert!(queue.time_left(Duration::from_secs(99)) <= Duration::from_secs(60));
    }
}
