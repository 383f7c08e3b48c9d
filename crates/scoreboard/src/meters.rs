//! What a thread measures of the requests that it serves, beside the counters of its slot: how long they take, and what each
//! group of routes has of them. It is apart from the slot because it is large: the pages of a thread that measures nothing are
//! never touched, and do not use memory.
//!
//! One thread writes, without locks; others read and add up. It knows neither row nor memory.

use crate::atomics::AtomicU64;
use crate::census::Census;
use crate::coarse_histogram::CoarseCounts;
pub use crate::coarse_histogram::MAX_GROUPS;
use crate::counters::{Shared, Summed, add, counters};
use crate::histogram::Histogram;
pub use crate::work::{CLASSES, class_of};

/// The group of requests that no group of the configuration takes.
pub const OTHER_GROUP: u32 = MAX_GROUPS as u32;

/// Generations of CPython's garbage collector.
pub const GENERATIONS: usize = 3;

bolide_contract::with_words! {
    /// Why a TLS handshake has failed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TlsFailure {
        /// HTTP without TLS.
        PlainHttp = "plain_http",
        /// Something else without TLS.
        NotTls = "not_tls",
        /// The client left before the end.
        Left = "left",
        /// It was not complete in time.
        Timeout = "timeout",
        /// No version, cipher suite, key exchange, signature or application protocol in common.
        NothingInCommon = "nothing_in_common",
        /// The client's certificate is missing or was not accepted.
        ClientCertificate = "client_certificate",
        /// The client does not accept this server's certificate.
        ServerCertificate = "server_certificate",
        /// Anything else: malformed messages, another alert of the client.
        Other = "other",
    }
    /// Its name in the metrics.
    pub fn name() -> &'static str;
}

counters! {
    /// The measurements of a thread since its worker's start.
    #[repr(C, align(128))]
    pub struct Meters {
        /// From the head of a request to the end of its answer, except those of WebSockets. Counted if the time is measured
        /// anyway.
        pub latency: Histogram,
        /// From the reverse proxy's receipt of a request (`X-Request-Start`) to its head here. Counted with `metrics`.
        pub waiting: Histogram,
        /// Waits for the language, such as CPython's GIL, before a thread could go on. Counted where a scraper may come.
        pub language_waits: Histogram,
        /// How late an event loop was that an asynchronous application runs in. Counted where a scraper may come.
        pub loop_lag: Histogram,
        /// How long connections have waited to be accepted, in the meters of the first thread alone. The thread that leads writes
        /// it.
        pub accept_waits: Histogram,
        /// Collections of garbage, in which a process can't serve. Only threads that hold the language write it, one at a time.
        collections: Histogram,
        /// The same by generation.
        collected: [AtomicU64; GENERATIONS],
        pub tls_handshakes: AtomicU64,
        /// In the order of [`TlsFailure::ALL`].
        tls_failures: [AtomicU64; TlsFailure::ALL.len()],
        /// Of all connections of the worker, in the meters of its first thread alone. The thread that leads writes it.
        pub census: Census,
        /// Counted with `route-group`; the last one has all other requests.
        pub groups: [GroupMeter; MAX_GROUPS + 1],
    }
    /// A copy of a thread's measurements, or the sum of several.
    pub struct Measured {
        ..
        /// The durations in each group of `groups`; empty where the scoreboard has no room for them.
        pub group_durations: Vec<CoarseCounts>,
    }
}

counters! {
    /// The requests of a group of routes.
    #[repr(C)]
    pub struct GroupMeter {
        /// By class of status, see [`class_of`].
        classes: [AtomicU64; CLASSES],
        busy_us: AtomicU64,
    }
    /// The same as numbers.
    #[derive(Copy)]
    pub struct GroupWork { .. }
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
}

impl GroupMeter {
    /// Counts a request. Only one thread may do so.
    pub fn note(&self, status: u16, microseconds: u64) {
        add(&self.classes[class_of(status)], 1);
        add(&self.busy_us, microseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_threads_add_up_and_are_cleared() {
        let (board, _memory) = crate::Scoreboard::create(1, 2).expect("made");
        let meters = board.meters(0);
        for (thread, status) in meters.iter().zip([204, 503]) {
            thread.latency.note(1000);
            thread.waiting.note(20);
            thread.note_collection(7, 4);
            thread.note_tls_failure(TlsFailure::Other);
            thread.group(2).note(status, 7);
            thread.group(99).note(0, 3);
        }
        let mut sum = meters[0].read();
        sum += &meters[1].read();
        assert_eq!((sum.latency.count(), sum.waiting.sum_us), (2, 40));
        assert_eq!((sum.collected, sum.collections.sum_us), ([0, 0, 2], 8));
        assert_eq!(sum.tls_failures, [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(sum.groups[2], GroupWork { classes: [0, 1, 0, 0, 1, 0], busy_us: 14 });
        assert_eq!(sum.groups[MAX_GROUPS].classes[CLASSES - 1], 2);
        meters[0].clear();
        assert_eq!(meters[0].read(), Measured::default());
    }
}
