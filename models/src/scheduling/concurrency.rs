//! Replaces `crates/engine/src/scheduling/concurrency.rs`: locks and threads of `loom`, and a clock with which every call that is
//! looked at twice has blocked, so the lead changes hands wherever it can. Waits never time out here: a thread that is not woken
//! is a deadlock, which fails the test.

use std::io;
use std::ops::Add;
use std::sync::atomic::AtomicU64 as Counter;
use std::time::Duration;

pub use loom::sync::atomic::Ordering;
use loom::sync::atomic::fence;
pub use loom::sync::{Condvar, Mutex, MutexGuard};

/// A standby that does not see an event goes to sleep immediately.
pub const IDLE_TICKS: u32 = 0;

/// Microseconds, one more at each reading.
static NOW_US: Counter = Counter::new(0);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    pub fn now() -> Instant {
        Instant(NOW_US.fetch_add(1, Ordering::Relaxed))
    }

    pub fn duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_micros)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, more: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(more.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Replaces a descriptor. In the server, both the bell and client events wake poll(2); here, both are this bell.
#[derive(Default)]
pub struct Doorbell {
    is_ringing: Mutex<bool>,
    rang: Condvar,
}

impl Doorbell {
    /// Never: there are no descriptors that could run out.
    pub fn new() -> io::Result<Doorbell> {
        Ok(Doorbell::default())
    }

    pub fn ring(&self) {
        *self.is_ringing.lock().expect("no thread panicked") = true;
        self.rang.notify_all();
    }

    pub fn wait(&self) {
        let mut is_ringing = self.is_ringing.lock().expect("no thread panicked");
        while !*is_ringing {
            is_ringing = self.rang.wait(is_ringing).expect("no thread panicked");
        }
        *is_ringing = false;
    }
}

pub fn now_ms() -> u64 {
    0
}

pub fn pause(_microseconds: u64) {
    loom::thread::yield_now();
}

pub fn own_thread() -> u32 {
    1
}

/// A thread that is inside a call never uses CPU time.
pub fn thread_cpu_us(_thread: u32) -> u64 {
    0
}

/// `loom` treats SeqCst as AcqRel, but supports SeqCst fences: a fence after each such write and before each such read orders
/// them as the language does if everything is SeqCst (<https://docs.rs/loom/0.7/loom/#limitations-and-caveats>). Relaxed accesses
/// have no fence.
fn fence_as(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

macro_rules! sequential {
    ($name:ident, $value:ty) => {
        #[derive(Default)]
        pub struct $name(loom::sync::atomic::$name);

        #[allow(dead_code, reason = "no type needs each of these")]
        impl $name {
            pub fn new(value: $value) -> $name {
                $name(loom::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                fence_as(order);
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                fence_as(order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                fence_as(order);
                let before = self.0.swap(value, order);
                fence_as(order);
                before
            }

            pub fn compare_exchange(&self, old: $value, new: $value, met: Ordering, not: Ordering) -> Result<$value, $value> {
                fence_as(met);
                let outcome = self.0.compare_exchange(old, new, met, not);
                fence_as(met);
                outcome
            }
        }
    };
}

sequential!(AtomicBool, bool);
sequential!(AtomicU32, u32);
sequential!(AtomicU64, u64);
