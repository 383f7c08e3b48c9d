//! The time that a client has to send its body: silence has a limit, and so has a trickle of bytes that never ends.
//!
//! It does not know about sockets and does not read the clock: the caller passes times in monotonic milliseconds. Workers run it
//! for each piece of a body.

/// Milliseconds in which a request whose head is arriving at a draining worker must be complete, including its body if the worker
/// stops: a trickle must not use up all of the mercy. At a reload it is the time for which a body may stall, or arrive more
/// slowly than `body-min-rate`.
pub(crate) const DRAIN_ARRIVAL_MS: u64 = 5_000;

/// The time that a client has left. Waiting uses it up, and each byte that arrives earns some back: a client that sends at the
/// minimum rate or above never runs out of it, and a silent client has the whole time limit.
#[derive(Debug, Clone, Copy)]
pub struct BodyTimeout {
    /// The maximum, and the initial value.
    timeout_ms: u64,
    /// `body-min-rate`; 0 allows any rate.
    bytes_per_second: u64,
    left_ms: u64,
    /// Since when it is being used up; `None` while the client is not waited for.
    since_ms: Option<u64>,
}

impl BodyTimeout {
    pub fn new(timeout_ms: u64, bytes_per_second: u64) -> BodyTimeout {
        BodyTimeout { timeout_ms, bytes_per_second, left_ms: timeout_ms, since_ms: None }
    }

    pub fn is_waiting(&self) -> bool {
        self.since_ms.is_some()
    }

    /// The client is waited for from now on, or no longer.
    pub fn wait(&mut self, waits: bool, now_ms: u64) {
        self.use_up(now_ms);
        self.since_ms = waits.then_some(now_ms);
    }

    /// Bytes have arrived. They earn their time before the time that they took is counted: bytes that waited in the kernel while
    /// the worker was busy count as sent in time.
    pub fn note(&mut self, bytes: usize, now_ms: u64) {
        let earned_ms = match self.bytes_per_second {
            0 if bytes > 0 => u64::MAX,
            0 => 0,
            rate => (bytes as u64).saturating_mul(1000) / rate,
        };
        self.left_ms = self.left_ms.saturating_add(earned_ms);
        self.use_up(now_ms);
        self.left_ms = self.left_ms.min(self.timeout_ms);
    }

    /// Lowers the maximum from now on.
    pub fn shorten(&mut self, most_ms: u64, now_ms: u64) {
        self.use_up(now_ms);
        self.timeout_ms = self.timeout_ms.min(most_ms);
        self.left_ms = self.left_ms.min(most_ms);
    }

    /// Returns when the time is over if nothing arrives.
    pub fn until_ms(&self) -> u64 {
        self.since_ms.map_or(u64::MAX, |since_ms| since_ms.saturating_add(self.left_ms))
    }

    fn use_up(&mut self, now_ms: u64) {
        if let Some(since_ms) = &mut self.since_ms {
            self.left_ms = self.left_ms.saturating_sub(now_ms.saturating_sub(*since_ms));
            *since_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(bytes_per_second: u64) -> BodyTimeout {
        let mut body_timeout = BodyTimeout::new(30_000, bytes_per_second);
        body_timeout.wait(true, 0);
        body_timeout
    }

    #[test]
    fn a_silent_client_has_the_whole_time_limit() {
        assert_eq!(waiting(500).until_ms(), 30_000);
    }

    #[test]
    fn a_drip_ends() {
        let mut body_timeout = waiting(500);
        let drips = (1..100).map(|number| number * 4_000).take_while(|&now_ms| {
            let is_in_time = now_ms < body_timeout.until_ms();
            body_timeout.note(1, now_ms);
            is_in_time
        });
        assert_eq!(drips.last(), Some(28_000));
    }

    #[test]
    fn time_that_is_used_up_is_not_earned_again_by_a_byte() {
        let mut body_timeout = waiting(500);
        for now_ms in [31_000, 32_000, 33_000] {
            body_timeout.note(1, now_ms);
            assert_eq!(body_timeout.until_ms(), now_ms);
        }
    }

    #[test]
    fn bytes_that_waited_in_the_kernel_came_in_time() {
        let mut body_timeout = waiting(500);
        body_timeout.note(100_000, 60_000);
        assert_eq!(body_timeout.until_ms(), 90_000);
    }

    #[test]
    fn a_client_at_the_lowest_rate_continues_forever() {
        let mut body_timeout = waiting(500);
        for second in 1..10_000 {
            body_timeout.note(500, second * 1000);
            assert!(body_timeout.until_ms() > second * 1000);
        }
    }

    #[test]
    fn much_at_once_buys_no_more_than_the_time_limit() {
        let mut body_timeout = waiting(500);
        body_timeout.note(1 << 30, 1_000);
        assert_eq!(body_timeout.until_ms(), 31_000);
    }

    #[test]
    fn a_shorter_timeout_begins_now() {
        let mut body_timeout = waiting(500);
        body_timeout.shorten(5_000, 20_000);
        assert_eq!(body_timeout.until_ms(), 25_000);
        body_timeout.note(1_000_000, 24_000);
        body_timeout.shorten(5_000, 24_000);
        assert_eq!(body_timeout.until_ms(), 29_000);
        let mut body_timeout = waiting(500);
        body_timeout.shorten(5_000, 29_000);
        assert_eq!(body_timeout.until_ms(), 30_000, "it has no more than was left");
    }

    #[test]
    fn without_a_rate_each_byte_restarts_the_time() {
        let mut body_timeout = waiting(0);
        body_timeout.note(1, 29_000);
        assert_eq!(body_timeout.until_ms(), 59_000);
    }

    #[test]
    fn the_application_may_take_its_time() {
        let mut body_timeout = waiting(500);
        body_timeout.wait(false, 10_000);
        assert_eq!(body_timeout.until_ms(), u64::MAX);
        body_timeout.wait(true, 1_000_000);
        assert_eq!(body_timeout.until_ms(), 1_020_000);
    }
}
