//! The pause before a child that died at birth is tried again: 100 ms, doubled each time, to 10 s.
//! It knows no clock and no process: times are given to it. The master runs it.

/// The first pause after a death at birth.
pub const PAUSE_FIRST_MS: u64 = 100;
/// The longest.
pub const PAUSE_MOST_MS: u64 = 10_000;
/// A worker that ends before its first request, and before it has served for this time, died at birth. One that was killed by what
/// it served did not: a request that crashes workers must not take their place from all others.
pub const BIRTH_MS: u64 = 1000;

/// The pauses of one worker number, or of prototypes.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    pause_ms: u64,
    until_ms: u64,
}

impl Backoff {
    /// Notes a death at birth; gives the pause that follows it, in milliseconds.
    pub fn died_at_birth(&mut self, now_ms: u64) -> u64 {
        self.pause_ms = (self.pause_ms * 2).clamp(PAUSE_FIRST_MS, PAUSE_MOST_MS);
        self.until_ms = now_ms + self.pause_ms;
        self.pause_ms
    }

    /// Notes that one lived: the next pause is the first again.
    pub fn lived(&mut self) {
        self.pause_ms = 0;
        self.until_ms = 0;
    }

    /// Waits until then, without a longer pause next time.
    pub fn hold(&mut self, until_ms: u64) {
        self.until_ms = self.until_ms.max(until_ms);
    }

    /// The pause is over, or there was none.
    pub fn over(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }

    /// When the pause ends; `None` if there is none now.
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.over(now_ms)).then_some(self.until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_100_ms_to_10_s_and_begin_again_after_a_life() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..10).map(|_| backoff.died_at_birth(0)).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
        backoff.lived();
        assert!(backoff.over(0));
        assert_eq!(backoff.died_at_birth(5), 100);
        assert!(!backoff.over(104) && backoff.over(105));
        assert_eq!((backoff.wake_ms(6), backoff.wake_ms(105)), (Some(105), None));
    }

    #[test]
    fn a_hold_delays_and_does_not_lengthen_the_next_pause() {
        let mut backoff = Backoff::default();
        backoff.hold(50);
        assert!(!backoff.over(49) && backoff.over(50));
        assert_eq!(backoff.died_at_birth(50), 100);
    }
}
