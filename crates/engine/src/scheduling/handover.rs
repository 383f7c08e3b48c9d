//! The parts of a worker that hand connections over to other workers: the queue that they share, the order to hand over before a
//! kill, and the wake-up of the companion, the thread that puts connections into the queue while all others are inside of calls.
//! It knows neither the connections nor the thread. Workers run it.

use std::io;
use std::os::fd::OwnedFd;

use crate::scheduling::concurrency::{AtomicBool, Doorbell, Ordering::Relaxed, Ordering::SeqCst, now_ms};

/// A worker's ends of the queue of connections that need a worker.
pub struct ConnectionQueue {
    pub put: OwnedFd,
    pub take: OwnedFd,
}

/// What happens to connections that come to rest, in a worker that may be killed at any moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Doom {
    /// It is not about to be killed.
    #[default]
    None,
    /// They go to the queue until this time, in monotonic milliseconds.
    HandsOver { until_ms: u64 },
    /// They are closed until this time, because no other worker follows.
    Closes { until_ms: u64 },
}

impl Doom {
    pub fn is_at_work(self) -> bool {
        self.until_ms().is_some()
    }

    /// When it ends unless the worker is killed, in monotonic milliseconds. `None`: it is over.
    pub fn until_ms(self) -> Option<u64> {
        match self {
            Doom::None => None,
            Doom::HandsOver { until_ms } | Doom::Closes { until_ms } => Some(until_ms).filter(|until_ms| now_ms() < *until_ms),
        }
    }
}

/// The companion as seen by the threads of the worker.
pub struct Companion {
    pub bell: Doorbell,
    /// A call has begun that is expected to be long.
    expects_long_call: AtomicBool,
    pub(crate) has_begun: AtomicBool,
    pub(crate) has_failed: AtomicBool,
}

/// What wakes the companion. It changes with the table locked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Sleep {
    /// It does not sleep; or there is none.
    #[default]
    Awake,
    /// The next connection that is attended to.
    UntilWork,
    /// The next long call, or the next answer that may be held.
    UntilNeeded,
}

impl Companion {
    pub fn new() -> io::Result<Companion> {
        let [expects_long_call, has_begun, has_failed] = std::array::from_fn(|_| AtomicBool::new(false));
        Ok(Companion { bell: Doorbell::new()?, expects_long_call, has_begun, has_failed })
    }

    /// A call has begun that is expected to be long, as those before it were. The companion looks immediately.
    pub fn expect_long_call(&self) {
        if self.has_begun.load(Relaxed) {
            self.expects_long_call.store(true, SeqCst);
            self.bell.ring();
        }
    }

    /// The companion looks. Returns whether a call has begun since the last look that is expected to be long.
    pub(crate) fn take_expectation(&self) -> bool {
        self.expects_long_call.load(Relaxed) && self.expects_long_call.swap(false, SeqCst)
    }

    /// A connection is about to be attended to.
    #[inline]
    pub fn wake_for_work(&self, sleep: &mut Sleep) {
        if *sleep == Sleep::UntilWork {
            self.wake(sleep);
        }
    }

    /// There is work that only the companion does.
    pub fn wake_for_need(&self, sleep: &mut Sleep) {
        if *sleep != Sleep::Awake {
            self.wake(sleep);
        }
    }

    fn wake(&self, sleep: &mut Sleep) {
        *sleep = Sleep::Awake;
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_call_is_expected_once_and_only_if_there_is_a_companion() {
        let companion = Companion::new().expect("a descriptor");
        companion.expect_long_call();
        assert!(!companion.take_expectation());
        companion.has_begun.store(true, SeqCst);
        companion.expect_long_call();
        assert!(companion.take_expectation() && !companion.take_expectation());
    }
}
