//! What a thread measures of the requests that it serves, beside the counters of its slot: how long they take, and what each
//! group of routes has of them. It is apart from the slot because it is large: the pages of a thread that measures nothing are
//! never touched, and cost no memory.
//!
//! One thread writes, without locks; others read and add up. It knows neither row nor memory.

use std::ops::AddAssign;

use crate::atomics::{AtomicU64, Ordering::Relaxed};
use crate::census::Census;
pub use crate::coarse_histogram::MAX_GROUPS;
use crate::coarse_histogram::{COARSE_BUCKETS, CoarseCounts};
use crate::histogram::{Distribution, Histogram};
use crate::work::add;
pub use crate::work::{CLASSES, class_of};

/// The group of requests that no group of the configuration takes.
pub const OTHER_GROUP: u32 = MAX_GROUPS as u32;

/// Generations of CPython's garbage collector.
pub const GENERATIONS: usize = 3;

/// Why a TLS handshake has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    /// HTTP without TLS.
    PlainHttp,
    /// Something else without TLS.
    NotTls,
    /// The client left before the end.
    Left,
    /// It was not complete in time.
    Timeout,
    /// No version, cipher suite, key exchange, signature or application protocol in common.
    NothingInCommon,
    /// The client's certificate is missing or was not accepted.
    ClientCertificate,
    /// The client does not accept this server's certificate.
    ServerCertificate,
    /// Anything else: malformed messages, another alert of the client.
    Other,
}

/// The names of all failures, in the order of [`TlsFailure`].
pub const TLS_FAILURES: [&str; 8] =
    ["plain_http", "not_tls", "left", "timeout", "nothing_in_common", "client_certificate", "server_certificate", "other"];

/// The measurements of a thread since its worker's start.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Meters {
    /// From the head of a request to the end of its answer, except those of WebSockets. Counted if the time is measured anyway.
    pub latency: Histogram,
    /// From the front server's receipt of a request (`X-Request-Start`) to its head here. Counted with `metrics`.
    pub waiting: Histogram,
    /// Waits for the language, such as CPython's GIL, before a thread could go on. Counted where a scraper may come.
    pub language_waits: Histogram,
    /// How late an event loop was that an asynchronous application runs in. Counted where a scraper may come.
    pub loop_lag: Histogram,
    /// How long connections have waited to be accepted, in the meters of the first thread alone. The thread that leads writes it.
    pub accept_waits: Histogram,
    /// Collections of garbage, in which a process can't serve. Only threads that hold the language write it, one at a time.
    collections: Histogram,
    /// The same by generation.
    collected: [AtomicU64; GENERATIONS],
    pub tls_handshakes: AtomicU64,
    tls_failures: [AtomicU64; TLS_FAILURES.len()],
    /// Of all connections of the worker, in the meters of its first thread alone. The thread that leads writes it.
    pub census: Census,
    /// Counted with `route-group`; the last one has all other requests.
    pub groups: [GroupMeter; MAX_GROUPS + 1],
}

/// The requests of a group of routes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct GroupMeter {
    /// By class of status, see [`class_of`].
    classes: [AtomicU64; CLASSES],
    busy_us: AtomicU64,
}

/// A copy of a thread's measurements, or the sum of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    pub latency: Distribution,
    pub waiting: Distribution,
    pub language_waits: Distribution,
    pub loop_lag: Distribution,
    pub accept_waits: Distribution,
    pub collections: Distribution,
    pub collected: [u64; GENERATIONS],
    pub tls_handshakes: u64,
    /// In the order of [`TLS_FAILURES`].
    pub tls_failures: [u64; TLS_FAILURES.len()],
    pub groups: [GroupWork; MAX_GROUPS + 1],
    /// The durations in each group of `groups`; empty where the scoreboard has no room for them.
    pub group_durations: Vec<CoarseCounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupWork {
    pub classes: [u64; CLASSES],
    pub busy_us: u64,
}

impl Default for Meters {
    fn default() -> Meters {
        let groups = std::array::from_fn(|_| GroupMeter::default());
        Meters {
            latency: Histogram::default(),
            waiting: Histogram::default(),
            language_waits: Histogram::default(),
            loop_lag: Histogram::default(),
            accept_waits: Histogram::default(),
            collections: Histogram::default(),
            collected: Default::default(),
            tls_handshakes: AtomicU64::new(0),
            tls_failures: Default::default(),
            census: Census::default(),
            groups,
        }
    }
}

impl Default for Measured {
    fn default() -> Measured {
        let groups = [GroupWork::default(); MAX_GROUPS + 1];
        Measured {
            latency: Distribution::default(),
            waiting: Distribution::default(),
            language_waits: Distribution::default(),
            loop_lag: Distribution::default(),
            accept_waits: Distribution::default(),
            collections: Distribution::default(),
            collected: [0; GENERATIONS],
            tls_handshakes: 0,
            tls_failures: [0; TLS_FAILURES.len()],
            groups,
            group_durations: Vec::new(),
        }
    }
}

impl Meters {
    /// Returns the group with this number.
    pub fn group(&self, number: u32) -> &GroupMeter {
        &self.groups[(number as usize).min(MAX_GROUPS)]
    }

    /// Counts a collection. Only a thread that holds the language may do so.
    pub fn note_collection(&self, generation: usize, microseconds: u64) {
        self.collections.note(microseconds);
        add(&self.collected[generation.min(GENERATIONS - 1)], 1);
    }

    pub fn note_tls_failure(&self, failure: TlsFailure) {
        add(&self.tls_failures[failure as usize], 1);
    }

    /// Sets everything to zero, after its writer has ended.
    pub fn clear(&self) {
        self.census.clear();
        let of_requests = [&self.latency, &self.waiting, &self.language_waits];
        for histogram in of_requests.into_iter().chain([&self.loop_lag, &self.accept_waits, &self.collections]) {
            histogram.clear();
        }
        let of_groups = self.groups.iter().flat_map(|group| group.classes.iter().chain([&group.busy_us]));
        for counter in of_groups.chain(&self.collected).chain(&self.tls_failures).chain([&self.tls_handshakes]) {
            if counter.load(Relaxed) != 0 {
                counter.store(0, Relaxed);
            }
        }
    }
}

impl GroupMeter {
    /// Counts a request. Only one thread may do so.
    pub fn note(&self, status: u16, microseconds: u64) {
        add(&self.classes[class_of(status)], 1);
        add(&self.busy_us, microseconds);
    }
}

impl Measured {
    pub fn add_group_durations(&mut self, more: &[CoarseCounts]) {
        if self.group_durations.len() < more.len() {
            self.group_durations.resize(more.len(), [0; COARSE_BUCKETS]);
        }
        for (count, more) in self.group_durations.iter_mut().flatten().zip(more.iter().flatten()) {
            *count = count.wrapping_add(*more);
        }
    }

    /// Reads the measurements of a thread.
    pub fn of(meters: &Meters) -> Measured {
        let group = |group: &GroupMeter| GroupWork {
            classes: group.classes.each_ref().map(|count| count.load(Relaxed)),
            busy_us: group.busy_us.load(Relaxed),
        };
        Measured {
            latency: Distribution::of(&meters.latency),
            waiting: Distribution::of(&meters.waiting),
            language_waits: Distribution::of(&meters.language_waits),
            loop_lag: Distribution::of(&meters.loop_lag),
            accept_waits: Distribution::of(&meters.accept_waits),
            collections: Distribution::of(&meters.collections),
            collected: meters.collected.each_ref().map(|count| count.load(Relaxed)),
            tls_handshakes: meters.tls_handshakes.load(Relaxed),
            tls_failures: meters.tls_failures.each_ref().map(|count| count.load(Relaxed)),
            groups: meters.groups.each_ref().map(group),
            group_durations: Vec::new(),
        }
    }
}

impl AddAssign<&Measured> for Measured {
    fn add_assign(&mut self, other: &Measured) {
        self.latency += &other.latency;
        self.waiting += &other.waiting;
        self.language_waits += &other.language_waits;
        self.loop_lag += &other.loop_lag;
        self.accept_waits += &other.accept_waits;
        self.collections += &other.collections;
        for (sum, more) in self.collected.iter_mut().zip(other.collected) {
            *sum = sum.wrapping_add(more);
        }
        self.tls_handshakes = self.tls_handshakes.wrapping_add(other.tls_handshakes);
        for (sum, more) in self.tls_failures.iter_mut().zip(other.tls_failures) {
            *sum = sum.wrapping_add(more);
        }
        self.add_group_durations(&other.group_durations);
        for (sum, more) in self.groups.iter_mut().zip(&other.groups) {
            sum.busy_us = sum.busy_us.wrapping_add(more.busy_us);
            for (count, more) in sum.classes.iter_mut().zip(more.classes) {
                *count = count.wrapping_add(more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_threads_add_up_and_are_cleared() {
        let meters = [Meters::default(), Meters::default()];
        for (thread, status) in meters.iter().zip([204, 503]) {
            thread.latency.note(1000);
            thread.waiting.note(20);
            thread.note_collection(7, 4);
            thread.note_tls_failure(TlsFailure::Other);
            thread.group(2).note(status, 7);
            thread.group(99).note(0, 3);
        }
        let mut sum = Measured::of(&meters[0]);
        sum += &Measured::of(&meters[1]);
        assert_eq!((sum.latency.count(), sum.waiting.sum_us), (2, 40));
        assert_eq!((sum.collected, sum.collections.sum_us), ([0, 0, 2], 8));
        assert_eq!(sum.tls_failures, [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(sum.groups[2], GroupWork { classes: [0, 1, 0, 0, 1, 0], busy_us: 14 });
        assert_eq!(sum.groups[MAX_GROUPS].classes[CLASSES - 1], 2);
        meters[0].clear();
        assert_eq!(Measured::of(&meters[0]), Measured::default());
    }
}
