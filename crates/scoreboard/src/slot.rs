//! A slot of the scoreboard: the request that one thread of a worker serves, the thread's counters, and its flight recorder, a
//! ring of the last requests. The thread writes; the master and tools read from other processes, also after the thread's death.
//! Neither side ever blocks: a reader detects that a slot or an entry has changed during the read, and retries or leaves it out.
//!
//! It knows neither rows nor memory. `models` runs this file under every order in which writer and reader can interleave, so its
//! atomics are those of `crate::atomics`.

use crate::atomics::{AtomicU32, AtomicU64, Ordering, fence};
use Ordering::{Acquire, Relaxed, Release};

use crate::work::Tally;

/// Bytes of a request's first line that a slot keeps; the rest is truncated.
pub const TEXT_BYTES: usize = 192;

/// Bytes of a request's identifier that a slot keeps.
pub const IDENTIFIER_BYTES: usize = 48;

/// Bytes of a request's place in a trace: the identifiers of the trace, of its span, and of the span's parent.
pub const TRACE_BYTES: usize = 32;

/// Read attempts before a reader gives up, so that a slot that changes quickly does not block readers.
const MAX_READS: u32 = 8;

/// Requests that the threads of a worker remember together, at least.
pub const REMEMBERED: u32 = 64;
/// Requests that a thread remembers at least, however many threads its worker has.
const REMEMBERED_BY_THREAD: u32 = 4;

/// Returns the entries of a thread's ring, a power of two, in a worker with this many threads.
pub const fn entries_of_thread(threads: u32) -> u32 {
    let share = REMEMBERED.div_ceil(if threads == 0 { 1 } else { threads }).next_power_of_two();
    if share < REMEMBERED_BY_THREAD { REMEMBERED_BY_THREAD } else { share }
}

/// A request in a ring. Each field is one word, so that a reader never sees half of it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Entry {
    /// The mark of the request's number (16 bits), the length of its text (8 bits) and the monotonic time of its begin in
    /// milliseconds (40 bits). It is written last.
    head: AtomicU64,
    /// The mark of the request's number (16 bits), the status of its answer (10 bits) and its time in microseconds (38 bits).
    /// With the mark of an older request, the request has not ended, and is in the application. A status above [`MAX_STATUS`] is
    /// another phase of a request that has not ended.
    end: AtomicU64,
    text: [AtomicU64; TEXT_BYTES / 8],
    /// The number of the request whose place in a trace is below. It is written last.
    traced: AtomicU64,
    trace: [AtomicU64; TRACE_BYTES / 8],
}

const _: () = assert!(TEXT_BYTES < 1 << LENGTH_BITS);
const TIME_BITS: u32 = 40;
const LENGTH_BITS: u32 = 8;
const STATUS_BITS: u32 = 10;
const MICROSECOND_BITS: u32 = 38;
const MAX_STATUS: u64 = 999;

/// What a request in flight waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// The application has it. It is not written unless another phase was: most requests have no other.
    #[default]
    Application,
    /// The rest of its body has to arrive.
    Body,
    /// The client has to read bytes of the answer.
    Sending,
    /// It waits for a permit of its bulkhead.
    Bulkhead,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Application => "application",
            Phase::Body => "body",
            Phase::Sending => "sending",
            Phase::Bulkhead => "bulkhead",
        }
    }

    /// Its number where an ended request has its status.
    const fn code(self) -> u64 {
        MAX_STATUS + 1 + self as u64
    }

    fn of(code: u64) -> Phase {
        [Phase::Body, Phase::Sending, Phase::Bulkhead].into_iter().find(|phase| phase.code() == code).unwrap_or_default()
    }
}

/// The mark of a number: entries of the same place have different marks for 1,000 rounds of the ring.
const fn mark(number: u64) -> u64 {
    number << 48
}

const fn has_mark(word: u64, number: u64) -> bool {
    word >> 48 == number & 0xffff
}

const fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// The request that one thread of a worker is serving.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Slot {
    /// Monotonic time at which the call in progress began, in milliseconds; 0 if there is none.
    pub began_ms: AtomicU64,
    /// Number of calls that this slot has begun: two reads with different counts saw two calls.
    pub count: AtomicU64,
    /// The kernel's id of the thread.
    pub thread: AtomicU32,
    /// Time limit of this request (a route's `harakiri:`), in milliseconds; 0 is the limit of the settings.
    pub limit_ms: AtomicU32,
    /// Number of the newest request in the ring, from 1. A request has several calls if its client reads slowly.
    newest: AtomicU64,
    /// Number of the request whose call is in progress, or was the last one.
    current: AtomicU64,
    /// Number of the newest request of the row's last process: requests up to it are another worker's.
    before: AtomicU64,
    /// Entries of the thread's ring; 0 before the thread has taken the slot.
    pub entries: AtomicU32,
    /// 1 from when the thread measures (`meters`): a reader leaves the memory of others untouched.
    pub measures: AtomicU32,
    // The counters of each request are next to the fields that each request writes anyway.
    pub tally: Tally,
    /// The call whose request has the identifier below, by its `count`. Calls of requests without one leave it alone.
    named: AtomicU64,
    /// Filled with zeros.
    identifier: [AtomicU64; IDENTIFIER_BYTES / 8],
}

/// A consistent snapshot of a request in progress.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub began_ms: u64,
    pub count: u64,
    pub limit_ms: u32,
    pub text: String,
    /// Truncated to [`IDENTIFIER_BYTES`]; empty if the request has none.
    pub identifier: String,
}

/// A request that the recorder remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// Its number in its thread's ring.
    pub number: u64,
    /// Monotonic, in milliseconds.
    pub began_ms: u64,
    /// `GET /path?query`, truncated to [`TEXT_BYTES`]. It has the values of the query, which readers mask.
    pub text: String,
    /// `None`: the request is in flight.
    pub end: Option<End>,
    /// The thread is in a call for it. The others in flight wait: for their client, or in an asynchronous application.
    pub is_called: bool,
    /// What it waits for, if it is in flight.
    pub phase: Phase,
    /// Its place in a trace, if it has a span.
    pub trace: Option<[u8; TRACE_BYTES]>,
}

/// The end of a remembered request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// 0: the answer has not begun, or the work was not a request.
    pub status: u16,
    pub microseconds: u64,
}

impl Slot {
    /// The `limit_ms` of a connection that the application has taken over, and that is no longer a request.
    pub const UNLIMITED_MS: u32 = u32::MAX;

    /// Forgets the thread and its requests, for the row's next process.
    pub fn clear(&self) {
        for number in [&self.limit_ms, &self.thread, &self.entries, &self.measures] {
            number.store(0, Relaxed);
        }
        self.began_ms.store(0, Relaxed);
        self.before.store(self.newest.load(Relaxed), Relaxed);
    }

    fn identifier(&self) -> String {
        let bytes = self.identifier.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes());
        String::from_utf8_lossy(&bytes.take_while(|byte| *byte != 0).collect::<Vec<u8>>()).into_owned()
    }

    /// Records that the thread is in no call.
    pub fn leave(&self) {
        self.began_ms.store(0, Relaxed);
        // A limit that is written after this belongs to the next request: any reader of it sees that this request has ended.
        fence(Release);
    }
}

/// A thread's slot with its ring.
#[derive(Debug, Clone, Copy)]
pub struct Recorder<'a> {
    pub slot: &'a Slot,
    /// The number of entries is a power of two.
    ring: &'a [Entry],
}

impl std::ops::Deref for Recorder<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.slot
    }
}

impl<'a> Recorder<'a> {
    /// Offset of the text in an entry, in bytes: for writers that know the memory but not this type, such as tests in other
    /// languages.
    pub const TEXT_START: usize = std::mem::offset_of!(Entry, text);

    /// The ring's length is rounded down to a power of two. `None`: it has no entry.
    pub fn new(slot: &'a Slot, ring: &'a [Entry]) -> Option<Recorder<'a>> {
        let entries = 1 << ring.len().checked_ilog2()?;
        Some(Recorder { slot, ring: &ring[..entries] })
    }

    /// Marks the slot as the thread's with this kernel's id.
    pub fn take(&self, thread: u32) {
        self.slot.thread.store(thread, Relaxed);
        self.slot.entries.store(self.ring.len() as u32, Relaxed);
    }

    #[inline(always)]
    fn entry(&self, number: u64) -> &'a Entry {
        // The length is a power of two, so the place is always inside of the ring.
        &self.ring[number as usize & (self.ring.len() - 1)]
    }

    /// Records the identifier of the request whose call begins next. Like a limit, it is written after the end of the last call.
    pub fn identify(&self, identifier: &[u8]) {
        let mut bytes = [0u8; IDENTIFIER_BYTES];
        let length = identifier.len().min(IDENTIFIER_BYTES);
        bytes[..length].copy_from_slice(&identifier[..length]);
        for (place, chunk) in self.slot.identifier.iter().zip(bytes.chunks_exact(8)) {
            let word = [chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]];
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
        self.slot.named.store(self.slot.count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Records the start of a request's call, and returns its number. `text` is passed in pieces, such as `GET`, ` `, `/path`.
    pub fn begin(&self, now_ms: u64, pieces: &[&[u8]]) -> u64 {
        let slot = self.slot;
        // The numbers change before the text, and the times are written last: a reader that has seen any of the new text also
        // sees the new numbers, and one that has seen a new time sees the whole text.
        slot.began_ms.store(0, Relaxed);
        slot.count.store(slot.count.load(Relaxed).wrapping_add(1), Release);
        let number = self.write(now_ms, pieces);
        slot.current.store(number, Relaxed);
        slot.began_ms.store(now_ms.max(1), Release);
        number
    }

    /// Records a request that waits before its call, and returns its number: its call begins by [`Recorder::resume`]. Only a
    /// thread that is in no call may do that.
    pub fn await_call(&self, now_ms: u64, pieces: &[&[u8]], phase: Phase) -> u64 {
        let number = self.write(now_ms, pieces);
        self.enter_phase(number, phase);
        number
    }

    /// Writes the next entry of the ring, and returns its number.
    #[inline(always)]
    fn write(&self, now_ms: u64, pieces: &[&[u8]]) -> u64 {
        let slot = self.slot;
        let number = slot.newest.load(Relaxed).wrapping_add(1);
        let entry = self.entry(number);
        let mut bytes = [0u8; TEXT_BYTES];
        let mut length = 0;
        for piece in pieces {
            let taken = piece.len().min(TEXT_BYTES - length);
            bytes[length..length + taken].copy_from_slice(&piece[..taken]);
            length += taken;
        }
        slot.newest.store(number, Release);
        fence(Release);
        for (place, chunk) in entry.text.iter().zip(bytes[..length.next_multiple_of(8)].chunks_exact(8)) {
            let word = [chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]];
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
        let head = mark(number) | (length as u64) << TIME_BITS | low(now_ms, TIME_BITS);
        entry.head.store(head, Release);
        number
    }

    /// Records the place in a trace of a request that this thread has begun.
    pub fn trace(&self, number: u64, trace: &[u8; TRACE_BYTES]) {
        let entry = self.entry(number);
        if number == 0 || !has_mark(entry.head.load(Relaxed), number) {
            return;
        }
        for (place, chunk) in entry.trace.iter().zip(trace.chunks_exact(8)) {
            let word = [chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]];
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
        entry.traced.store(number, Release);
    }

    /// Records what a request in flight waits for, if that has changed. Like [`Recorder::complete`], any thread may call it for
    /// the request that it works on; 0 means that there is none.
    pub fn enter_phase(&self, number: u64, phase: Phase) {
        let entry = self.entry(number);
        let end = entry.end.load(Relaxed);
        let before = if has_mark(end, number) { Phase::of(low(end >> MICROSECOND_BITS, STATUS_BITS)) } else { Phase::default() };
        if number != 0 && before != phase && has_mark(entry.head.load(Relaxed), number) {
            entry.end.store(mark(number) | phase.code() << MICROSECOND_BITS, Release);
        }
    }

    /// Records another call for a request that this thread has begun. False: its entry has a newer request, or `number` is 0.
    pub fn resume(&self, number: u64, now_ms: u64) -> bool {
        let slot = self.slot;
        if number == 0 || slot.newest.load(Relaxed) >= number.wrapping_add(self.ring.len() as u64) {
            return false;
        }
        slot.began_ms.store(0, Relaxed);
        slot.count.store(slot.count.load(Relaxed).wrapping_add(1), Release);
        fence(Release);
        slot.current.store(number, Relaxed);
        self.enter_phase(number, Phase::Application);
        slot.began_ms.store(now_ms.max(1), Release);
        true
    }

    /// Records the end of a request. Any thread may call it, long after the request has begun: the end of one whose entry has a
    /// newer request is not recorded, and no reader takes it for the end of the newer one.
    #[inline]
    pub fn complete(&self, number: u64, end: End) {
        let entry = self.entry(number);
        if number != 0 && has_mark(entry.head.load(Relaxed), number) {
            let status = u64::from(end.status).min(MAX_STATUS);
            let microseconds = end.microseconds.min((1 << MICROSECOND_BITS) - 1);
            entry.end.store(mark(number) | status << MICROSECOND_BITS | microseconds, Release);
        }
    }

    /// Records the end of work that has no answer: a signal's handler, a message. Outside of a call there is none; the last call
    /// may be that of a request which is still in flight.
    pub fn end(&self) {
        if self.slot.began_ms.load(Relaxed) != 0 {
            self.complete(self.slot.current.load(Relaxed), End { status: 0, microseconds: 0 });
        }
        self.slot.leave();
    }

    /// Returns the request in progress. `None`: there is none, or the request changed during each attempt.
    pub fn look(&self) -> Option<Seen> {
        let slot = self.slot;
        for _ in 0..MAX_READS {
            let count = slot.count.load(Acquire);
            let began_ms = slot.began_ms.load(Acquire);
            if began_ms == 0 {
                return None;
            }
            let limit_ms = slot.limit_ms.load(Relaxed);
            let text = self.entry(slot.current.load(Relaxed)).text();
            let identifier = if slot.named.load(Relaxed) == count { slot.identifier() } else { String::new() };
            fence(Acquire);
            if slot.began_ms.load(Acquire) == began_ms && slot.count.load(Relaxed) == count {
                return Some(Seen { began_ms, count, limit_ms, text, identifier });
            }
        }
        None
    }

    /// Returns the number of the request whose call is in progress, and when the request began, as far as its entry has that: in
    /// monotonic milliseconds. `None`: there is none, or it changed during the read.
    pub fn in_call(&self) -> Option<(u64, u64)> {
        let slot = self.slot;
        let count = slot.count.load(Acquire);
        let began_ms = slot.began_ms.load(Acquire);
        let number = slot.current.load(Relaxed);
        let head = self.entry(number).head.load(Acquire);
        fence(Acquire);
        let is_same = slot.began_ms.load(Acquire) == began_ms && slot.count.load(Relaxed) == count;
        (began_ms != 0 && is_same && has_mark(head, number)).then(|| (number, low(head, TIME_BITS)))
    }

    /// Returns what a request in flight waits for. `None`: it has ended, or its entry has a newer request.
    pub fn phase(&self, number: u64) -> Option<Phase> {
        let entry = self.entry(number);
        let end = entry.end.load(Acquire);
        fence(Acquire);
        if number == 0 || !has_mark(entry.head.load(Acquire), number) {
            return None;
        }
        let status = low(end >> MICROSECOND_BITS, STATUS_BITS);
        match has_mark(end, number) {
            false => Some(Phase::default()),
            true => (status > MAX_STATUS).then(|| Phase::of(status)),
        }
    }

    /// Returns the requests in the ring, the oldest first, without those that were overwritten in the meantime.
    pub fn remembered(&self) -> Vec<Remembered> {
        let newest = self.slot.newest.load(Acquire);
        let oldest = newest.saturating_sub(self.ring.len() as u64).max(self.slot.before.load(Relaxed));
        (oldest + 1..=newest).filter_map(|number| self.read(number)).collect()
    }

    fn read(&self, number: u64) -> Option<Remembered> {
        let entry = self.entry(number);
        let head = entry.head.load(Acquire);
        if !has_mark(head, number) {
            return None;
        }
        let end = entry.end.load(Acquire);
        let text = entry.text();
        let trace = entry.trace_of(number);
        let is_called = self.slot.began_ms.load(Relaxed) != 0 && self.slot.current.load(Relaxed) == number;
        fence(Acquire);
        if self.slot.newest.load(Relaxed) >= number + self.ring.len() as u64 {
            return None;
        }
        let status = low(end >> MICROSECOND_BITS, STATUS_BITS);
        let (end, phase) = match has_mark(end, number) {
            false => (None, Phase::default()),
            true if status > MAX_STATUS => (None, Phase::of(status)),
            true => (Some(End { status: status as u16, microseconds: low(end, MICROSECOND_BITS) }), Phase::default()),
        };
        Some(Remembered {
            number,
            began_ms: low(head, TIME_BITS),
            text,
            is_called: is_called && end.is_none(),
            phase,
            end,
            trace,
        })
    }
}

impl Entry {
    fn trace_of(&self, number: u64) -> Option<[u8; TRACE_BYTES]> {
        if self.traced.load(Acquire) != number {
            return None;
        }
        let mut trace = [0; TRACE_BYTES];
        for (chunk, word) in trace.chunks_exact_mut(8).zip(&self.trace) {
            chunk.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        Some(trace)
    }

    fn text(&self) -> String {
        let length = low(self.head.load(Relaxed) >> TIME_BITS, LENGTH_BITS) as usize;
        let bytes: Vec<u8> = self.text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(length).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
