//! A slot of the scoreboard: the request that one thread of a worker serves, and the thread's counters. The thread writes; the
//! master and tools read from other processes. Neither side ever blocks: a reader detects that the slot has changed during the
//! read, and retries.
//!
//! It knows neither rows nor memory. `models` runs this file under every order in which writer and reader can interleave, so its
//! atomics are those of `crate::atomics`.

use crate::atomics::{AtomicU32, AtomicU64, Ordering, fence};
use Ordering::{Acquire, Relaxed, Release};

/// Bytes of a request's first line that a slot keeps; the rest is truncated.
pub const TEXT_BYTES: usize = 192;

/// Read attempts before a reader gives up, so that a slot that changes quickly blocks no reader.
const READS_MOST: u32 = 8;

/// Applications whose requests are counted separately; further ones are counted together with the last of these.
pub const APPLICATIONS_MOST: usize = 8;

/// Classes of statuses: 1xx to 5xx, and requests without a valid status.
pub const CLASSES: usize = 6;

/// A thread's counters since its worker's start. Only the thread writes them, so a load and a store are enough; the reader adds
/// up the threads.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests answered, by the application or by the server.
    pub requests: AtomicU64,
    pub sent_bytes: AtomicU64,
    /// Total time from the head to the end of the answer of all requests, in microseconds; only counted if something reads it.
    pub busy_us: AtomicU64,
    pub applications: [ApplicationTally; APPLICATIONS_MOST],
    pub static_requests: AtomicU64,
    pub routed_requests: AtomicU64,
    /// Clients that have disconnected, or not read their answer in time.
    pub write_errors: AtomicU64,
    /// Request bodies that were incomplete.
    pub read_errors: AtomicU64,
    /// Requests and WebSockets in progress in an asynchronous application.
    pub ongoing: AtomicU64,
    /// Requests that were answered with 500 and above, or whose answer was aborted by an exception.
    pub errors: AtomicU64,
    /// Requests by class of status ([`class_of`]), except 2xx: these are the rest of `requests`, so that a usual request
    /// counts nothing here.
    pub classes: [AtomicU64; CLASSES],
}

#[repr(C)]
#[derive(Debug, Default)]
pub struct ApplicationTally {
    pub requests: AtomicU64,
    pub exceptions: AtomicU64,
}

impl Tally {
    /// Returns the counters of an application, by its number in the settings.
    pub fn application(&self, number: u32) -> &ApplicationTally {
        &self.applications[(number as usize).min(APPLICATIONS_MOST - 1)]
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

/// The request that one thread of a worker is serving.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Slot {
    /// Monotonic time at which the request in progress began, in milliseconds; 0 if there is none.
    pub began_ms: AtomicU64,
    /// Number of requests that this slot has begun: two reads with different counts saw two requests.
    pub count: AtomicU64,
    /// The kernel's id of the thread.
    pub thread: AtomicU32,
    text_length: AtomicU32,
    // The counters of each request are next to the fields that each request writes anyway.
    pub tally: Tally,
    text: [AtomicU64; TEXT_BYTES / 8],
    /// Time limit of this request (a route's `harakiri:`), in milliseconds; 0 is the limit of the settings.
    pub limit_ms: AtomicU32,
    /// 1 from when the thread measures (`meters`): a reader leaves the memory of others untouched.
    pub measures: AtomicU32,
}

/// A consistent snapshot of a request in progress.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub began_ms: u64,
    pub count: u64,
    pub limit_ms: u32,
    pub text: String,
}

impl Slot {
    /// Offset of the text in a slot, in bytes: for writers that know the memory but not this type, such as tests in other
    /// languages.
    pub const TEXT_START: usize = std::mem::offset_of!(Slot, text);
    /// The `limit_ms` of a connection that the application has taken over, and that is no longer a request.
    pub const UNLIMITED_MS: u32 = u32::MAX;

    /// Records the start of a request. `text` is passed in pieces, such as `GET`, ` `, `/path`.
    pub fn begin(&self, now_ms: u64, pieces: &[&[u8]]) {
        let mut words = [0u64; TEXT_BYTES / 8];
        let mut bytes = [0u8; TEXT_BYTES];
        let mut length = 0;
        for piece in pieces {
            let taken = piece.len().min(TEXT_BYTES - length);
            bytes[length..length + taken].copy_from_slice(&piece[..taken]);
            length += taken;
        }
        let used = length.div_ceil(8);
        for (word, chunk) in words[..used].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes([chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]]);
        }
        // The count changes before the text, and the time is written last: a reader that has seen any of the new text also sees
        // the new count, and one that has seen the new time sees the whole text.
        self.began_ms.store(0, Relaxed);
        self.count.store(self.count.load(Relaxed).wrapping_add(1), Release);
        fence(Release);
        for (place, word) in self.text.iter().zip(&words[..used]) {
            place.store(*word, Relaxed);
        }
        self.text_length.store(length as u32, Relaxed);
        self.began_ms.store(now_ms.max(1), Release);
    }

    /// Records that no request is in progress.
    pub fn end(&self) {
        self.began_ms.store(0, Relaxed);
        // A limit that is written after this belongs to the next request: any reader of it sees that this request has ended.
        fence(Release);
    }

    /// Returns the request in progress. `None`: there is none, or the request changed during each attempt.
    pub fn look(&self) -> Option<Seen> {
        for _ in 0..READS_MOST {
            let count = self.count.load(Acquire);
            let began_ms = self.began_ms.load(Acquire);
            if began_ms == 0 {
                return None;
            }
            let limit_ms = self.limit_ms.load(Relaxed);
            let text = self.text();
            fence(Acquire);
            if self.began_ms.load(Acquire) == began_ms && self.count.load(Relaxed) == count {
                return Some(Seen { began_ms, count, limit_ms, text });
            }
        }
        None
    }

    fn text(&self) -> String {
        let length = (self.text_length.load(Relaxed) as usize).min(TEXT_BYTES);
        let bytes: Vec<u8> = self.text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(length).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
