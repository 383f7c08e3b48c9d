//! The counters of a thread: in its slot as `Tally`, which only the thread writes, and as plain numbers that can be added up, as
//! `Work`. Both have the fields of one struct. It knows no row. `models` runs it with the slot.

use std::iter::Sum;
use std::ops::AddAssign;

use crate::atomics::{AtomicU64, Ordering::Relaxed};

/// Applications whose requests are counted separately; further ones are counted together with the last of these.
pub const MAX_APPLICATIONS: usize = 8;

/// Classes of statuses: 1xx to 5xx, and requests without a valid status.
pub const CLASSES: usize = 6;

/// The counters since a worker's start, each an `N`, and a gauge. A new counter is a field here, and a line of
/// [`Counters::with`], which does not compile without it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters<N, G = ()> {
    /// Requests answered, by the application or by the server.
    pub requests: N,
    pub sent_bytes: N,
    /// Total time from the head to the end of the answer of all requests, in microseconds; only counted if something reads it.
    pub busy_us: N,
    pub applications: [OfApplication<N>; MAX_APPLICATIONS],
    pub static_requests: N,
    pub routed_requests: N,
    /// Clients that have disconnected, or not read their answer in time.
    pub write_errors: N,
    /// Request bodies that were incomplete.
    pub read_errors: N,
    /// Requests and WebSockets in progress in an asynchronous application. It also falls, so it is no part of a sum over
    /// processes, of which some have ended.
    pub ongoing: G,
    /// Requests that were answered with 500 and above, or whose answer was aborted by an exception.
    pub errors: N,
    /// Requests by class of status ([`class_of`]), except 2xx: these are the rest of `requests`, so that a usual request
    /// counts nothing here. See [`Work::by_class`].
    pub classes: [N; CLASSES],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfApplication<N> {
    pub requests: N,
    pub exceptions: N,
}

/// The counters of a thread. Only the thread writes them, so a load and a store are enough; the reader adds up the threads.
pub type Tally = Counters<AtomicU64, AtomicU64>;

/// The counters of a thread as numbers, or the sum of those of several.
pub type Work = Counters<u64>;

impl<N, G> Counters<N, G> {
    /// Combines each counter with the same one of others.
    fn with<M, H, R>(&self, other: &Counters<M, H>, one: impl Fn(&N, &M) -> R) -> Counters<R> {
        Counters {
            requests: one(&self.requests, &other.requests),
            sent_bytes: one(&self.sent_bytes, &other.sent_bytes),
            busy_us: one(&self.busy_us, &other.busy_us),
            applications: std::array::from_fn(|number| {
                let (own, other) = (&self.applications[number], &other.applications[number]);
                OfApplication {
                    requests: one(&own.requests, &other.requests),
                    exceptions: one(&own.exceptions, &other.exceptions),
                }
            }),
            static_requests: one(&self.static_requests, &other.static_requests),
            routed_requests: one(&self.routed_requests, &other.routed_requests),
            write_errors: one(&self.write_errors, &other.write_errors),
            read_errors: one(&self.read_errors, &other.read_errors),
            ongoing: (),
            errors: one(&self.errors, &other.errors),
            classes: std::array::from_fn(|class| one(&self.classes[class], &other.classes[class])),
        }
    }
}

impl Tally {
    /// Returns the counters of an application, by its number in the settings.
    pub fn application(&self, number: u32) -> &OfApplication<AtomicU64> {
        &self.applications[(number as usize).min(MAX_APPLICATIONS - 1)]
    }

    /// Reads the counters. Each is read separately: a request that ends meanwhile may be in one and not in another.
    pub fn work(&self) -> Work {
        self.with(self, |counter, _| counter.load(Relaxed))
    }

    /// Sets the counters to zero, after their writer has ended.
    pub fn clear(&self) {
        self.with(self, |counter, _| counter.store(0, Relaxed));
        self.ongoing.store(0, Relaxed);
    }
}

impl Work {
    /// Exceptions of all applications.
    pub fn exceptions(&self) -> u64 {
        self.applications.iter().map(|application| application.exceptions).sum()
    }

    /// Requests by class of status: 1xx to 5xx, and those without a status.
    pub fn by_class(&self) -> [u64; CLASSES] {
        let mut classes = self.classes;
        classes[1] = self.requests.saturating_sub(self.classes.iter().sum());
        classes
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        *self = self.with(&other, |sum, more| sum + more);
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        works.fold(Work::default(), |sum, work| sum.with(&work, |sum, more| sum + more))
    }
}

/// Returns the place of a status in an array of [`CLASSES`]: 1xx to 5xx come first, anything else is last.
pub fn class_of(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100) - 1,
        _ => CLASSES - 1,
    }
}

/// Adds to a counter that only the calling thread writes.
#[inline(always)]
pub fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}
