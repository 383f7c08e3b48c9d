//! Restart delays and lifetimes: a backoff before a child that failed early is started again (100 ms, doubled each time up to 10
//! s, or a second more each time, as uWSGI's daemons have it), and lifetimes of workers with jitter, so that workers of the same
//! age do not exit together. It does not know the clock or processes. Times are passed in. The master and its attendant run it.

use bolide_contract::recycling::Recycling;

use crate::text::duration;

/// The first pause after an early failure.
pub const PAUSE_FIRST_MS: u64 = 100;
/// The longest pause.
pub const MAX_PAUSE_MS: u64 = 10_000;
/// A worker failed early if it ended before its first request and before it had served for this time. A worker that was killed by
/// a request did not: such requests must not delay the workers that serve the others.
pub const EARLY_FAILURE_MS: u64 = 1000;
/// A daemon that lives no longer than this failed early, as in uWSGI.
const EARLY_END_OF_DAEMON_MS: u64 = 3000;

/// How pauses grow.
#[derive(Debug, Clone, Copy, Default)]
enum PauseGrowth {
    /// From [`PAUSE_FIRST_MS`] on, doubled each time.
    #[default]
    Doubled,
    /// By a second each time, up to this one: uWSGI's pauses between daemons.
    BySeconds { most_ms: u64 },
}

/// The backoff of one worker number, of prototypes, or of an auxiliary process.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    growth: PauseGrowth,
    pause_ms: u64,
    until_ms: u64,
}

/// Returns `immediately`, or `in 2 s`.
pub fn in_words(pause_ms: u64) -> String {
    if pause_ms == 0 { "immediately".to_owned() } else { format!("in {}", duration(pause_ms)) }
}

impl Backoff {
    /// The backoff of a daemon, whose pauses grow by a second up to `most_s`.
    pub fn by_seconds(most_s: u64) -> Backoff {
        Backoff { growth: PauseGrowth::BySeconds { most_ms: most_s.max(1) * 1000 }, ..Backoff::default() }
    }

    /// Notes an end, after `lived_ms`. Returns the pause before the restart: 0 if it did not end early.
    pub fn ended(&mut self, lived_ms: u64, now_ms: u64) -> u64 {
        if lived_ms <= self.early_ms() {
            return self.failed_early(now_ms);
        }
        self.lived();
        0
    }

    /// What ends after at most this time has failed early, in milliseconds.
    pub fn early_ms(&self) -> u64 {
        match self.growth {
            PauseGrowth::Doubled => EARLY_FAILURE_MS,
            PauseGrowth::BySeconds { .. } => EARLY_END_OF_DAEMON_MS,
        }
    }

    /// Notes an early failure. Returns the pause that follows it, in milliseconds.
    pub fn failed_early(&mut self, now_ms: u64) -> u64 {
        self.pause_ms = match self.growth {
            PauseGrowth::Doubled => (self.pause_ms * 2).clamp(PAUSE_FIRST_MS, MAX_PAUSE_MS),
            PauseGrowth::BySeconds { most_ms } => (self.pause_ms + 1000).min(most_ms),
        };
        self.until_ms = now_ms + self.pause_ms;
        self.pause_ms
    }

    /// Notes that a child has lived: the next pause is the first one again.
    pub fn lived(&mut self) {
        self.pause_ms = 0;
        self.until_ms = 0;
    }

    /// Waits until `until_ms`, without a longer pause next time.
    pub fn hold(&mut self, until_ms: u64) {
        self.until_ms = self.until_ms.max(until_ms);
    }

    /// Whether the pause is over, or there was none.
    pub fn over(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }

    /// When the pause ends; `None` if there is none now.
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.over(now_ms)).then_some(self.until_ms)
    }
}

/// A lifetime is shortened by up to this share of it, in thousandths, so that workers of the same age do not end together.
const JITTER_THOUSANDTHS: u64 = 100;

/// Pseudorandom numbers for jitter only: they are not secure.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// A sequence that follows from this seed.
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed | 1)
    }

    /// The lifetime of the worker with this number. With a delta, workers are spread already, so no jitter is added.
    pub fn lifetime_ms(&mut self, recycling: &Recycling, worker: u32) -> Option<u64> {
        let most_ms = recycling.max_lifetime_ms?;
        Some(match recycling.max_lifetime_delta_ms {
            0 => self.shorten(most_ms),
            delta_ms => most_ms.saturating_add(delta_ms.saturating_mul(u64::from(worker.saturating_sub(1)))),
        })
    }

    /// A lifetime, shortened by up to a tenth.
    fn shorten(&mut self, lifetime_ms: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let thousandths = (self.0 >> 32) % (JITTER_THOUSANDTHS + 1);
        lifetime_ms - (u128::from(lifetime_ms) * u128::from(thousandths) / 1000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_100_ms_to_10_s_and_begin_again_after_a_life() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..10).map(|_| backoff.failed_early(0)).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
        backoff.lived();
        assert!(backoff.over(0));
        assert_eq!(backoff.failed_early(5), 100);
        assert!(!backoff.over(104) && backoff.over(105));
        assert_eq!((backoff.wake_ms(6), backoff.wake_ms(105)), (Some(105), None));
    }

    #[test]
    fn a_hold_delays_and_does_not_lengthen_the_next_pause() {
        let mut backoff = Backoff::default();
        backoff.hold(50);
        assert!(!backoff.over(49) && backoff.over(50));
        assert_eq!(backoff.failed_early(50), 100);
    }

    #[test]
    fn a_lifetime_is_cut_by_a_tenth_at_the_most_and_differs() {
        let mut jitter = Jitter::new(4242);
        let times: Vec<u64> = (0..100).map(|_| jitter.shorten(100_000)).collect();
        assert!(times.iter().all(|time| (90_000..=100_000).contains(time)));
        assert!(times.iter().collect::<std::collections::BTreeSet<_>>().len() > 30);
        let recycling = Recycling { max_lifetime_ms: Some(1000), max_lifetime_delta_ms: 10, ..Recycling::default() };
        assert_eq!([1, 3].map(|worker| jitter.lifetime_ms(&recycling, worker)), [Some(1000), Some(1020)]);
        assert!(Jitter::new(0).shorten(u64::MAX) >= u64::MAX / 10 * 9);
    }
}
