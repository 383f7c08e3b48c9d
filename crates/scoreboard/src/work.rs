//! The counters of a thread: in its slot as `Tally`, which only the thread writes, and as plain numbers that can be added up, as
//! `Work`. It does not know rows. `models` runs it with the slot.

use crate::atomics::AtomicU64;
use crate::counters::{Gauge, Shared, Summed, counters};

/// Applications whose requests are counted separately; others are counted together with the last of these.
pub const MAX_APPLICATIONS: usize = 8;

/// Classes of statuses: 1xx to 5xx, and requests without a valid status.
pub const CLASSES: usize = 6;

/// Where `sticky` has a request served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionResult {
    /// At the worker that it came to, which has the session.
    Here,
    /// At the worker that has the session, to which its connection has moved.
    Moved,
    /// At the worker that has the session, while its connection stays where it is.
    Relayed,
    /// At the worker that it came to, which has the session from now on.
    Learned,
    /// At the worker that it came to, although another one has the session: neither its connection nor the request could move.
    NotMoved,
}

impl SessionResult {
    pub const ALL: [SessionResult; 5] =
        [SessionResult::Here, SessionResult::Moved, SessionResult::Relayed, SessionResult::Learned, SessionResult::NotMoved];

    /// The result in metrics.
    pub fn name(self) -> &'static str {
        match self {
            SessionResult::Here => "here",
            SessionResult::Moved => "moved",
            SessionResult::Relayed => "relayed",
            SessionResult::Learned => "learned",
            SessionResult::NotMoved => "not_moved",
        }
    }
}

/// What has become of a request whose client has left before its response was complete (`cancel-on-disconnect`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The application handled it, and was cancelled.
    Running,
    /// It waited, and was never begun.
    Waiting,
}

impl Cancelled {
    pub const ALL: [Cancelled; 2] = [Cancelled::Running, Cancelled::Waiting];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cancelled::Running => "running",
            Cancelled::Waiting => "waiting",
        }
    }
}

counters! {
    /// The counters of a thread since its worker's start. Only the thread writes them, so a load and a store are enough; the
    /// reader adds up the threads.
    #[repr(C)]
    #[derive(Default)]
    pub struct Tally {
        /// Requests answered, by the application or by the server.
        pub requests: AtomicU64,
        pub sent_bytes: AtomicU64,
        /// Total time from the head to the end of the answer of all requests, in microseconds; only counted if something reads
        /// it.
        pub busy_us: AtomicU64,
        pub applications: [ApplicationTally; MAX_APPLICATIONS],
        pub static_requests: AtomicU64,
        pub routed_requests: AtomicU64,
        /// Clients that have disconnected, or not read their answer in time.
        pub write_errors: AtomicU64,
        /// Request bodies that were incomplete.
        pub read_errors: AtomicU64,
        /// Requests and WebSockets in progress in an asynchronous application.
        pub ongoing: Gauge,
        /// Requests that were answered with 500 and above, or whose answer was aborted by an exception.
        pub errors: AtomicU64,
        /// Requests by class of status ([`class_of`]), except 2xx: these are the rest of `requests`, so that a usual request
        /// counts nothing here. See [`Work::by_class`].
        pub classes: [AtomicU64; CLASSES],
        /// Requests by what `sticky` has found about their session, in the order of [`SessionResult`].
        pub sessions: [AtomicU64; SessionResult::ALL.len()],
        /// Requests whose clients have left, in the order of [`Cancelled`].
        pub cancelled: [AtomicU64; Cancelled::ALL.len()],
        /// Requests that were refused because they had waited too long, or too many waited (`admission`). They are not among
        /// `requests`. The companion counts here too, so that writers add with one instruction.
        pub late_requests: AtomicU64,
    }
    /// The counters of a thread as numbers, or the sum of those of several.
    #[derive(Copy)]
    pub struct Work { .. }
}

counters! {
    /// The counters of an application.
    #[repr(C)]
    #[derive(Default)]
    pub struct ApplicationTally {
        pub requests: AtomicU64,
        pub exceptions: AtomicU64,
    }
    /// The same as numbers.
    #[derive(Copy)]
    pub struct ApplicationWork { .. }
}

impl Tally {
    /// Returns the counters of an application, by its number in the settings.
    pub fn application(&self, number: u32) -> &ApplicationTally {
        &self.applications[(number as usize).min(MAX_APPLICATIONS - 1)]
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

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Work>>(works: I) -> Work {
        let mut sum = Work::default();
        works.for_each(|work| sum += &work);
        sum
    }
}

/// Returns the place of a status in an array of [`CLASSES`]: 1xx to 5xx come first, anything else is last.
pub fn class_of(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100) - 1,
        _ => CLASSES - 1,
    }
}
