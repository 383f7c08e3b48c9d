//! How many requests of a connection begin before others have their turn, and which answers wait for each other so that they are
//! sent together.
//!
//! It does not know about streams, frames or sockets, and does not read the clock: the caller passes times in microseconds. The
//! threads that attend to the connection run it.

/// Maximum number of requests of a connection that begin before others have their turn. After slow ones it shrinks to the number
/// of threads, but not below two.
const MAX_BATCH: usize = 32;
const MIN_BATCH: usize = 2;

/// A batch that took longer than this many microseconds halves the next one.
const BATCH_US: u64 = 1_000;

/// An answer within this many microseconds of the one before it was quick.
const HOLD_US: u64 = 200;

/// After this many quick answers, the next one waits for those of the other requests of its batch, so that they are sent
/// together. None waits while application code runs ([`crate::scheduling::held_answers`]): these are answers of files and routes.
const QUICK_ANSWERS: u32 = 16;

/// How often the streams of a connection may ask for its turn before it must queue behind all others, at the poll.
const MAX_CALLS: u32 = 4;

/// When a connection has the turn that a stream asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Another stream has asked already.
    Made,
    /// Behind the connections that have events now.
    Next,
    /// Behind all others, at the poll.
    Last,
}

pub struct Turns {
    /// More requests are here than began in this turn.
    pub has_rest: bool,
    batch: usize,
    batch_least: usize,
    /// The turn was asked for, and has not come yet.
    is_called: bool,
    calls: u32,
    /// When the last answer was complete, or the batch began.
    marked_us: u64,
    quick_answers: u32,
}

impl Turns {
    pub fn new(threads: usize) -> Turns {
        let batch_least = threads.clamp(MIN_BATCH, MAX_BATCH);
        Turns { has_rest: false, batch: batch_least, batch_least, is_called: false, calls: 0, marked_us: 0, quick_answers: 0 }
    }

    /// The number of requests that may begin in this turn.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Lifts the limit of a turn, for a thread that reads while it waits for room. Returns the limit.
    pub fn lift_batch(&mut self) -> usize {
        self.has_rest = false;
        std::mem::replace(&mut self.batch, usize::MAX)
    }

    pub fn limit_batch(&mut self, batch: usize) {
        self.batch = batch;
    }

    /// A stream asks for the connection's turn, unless it was asked for already. `must_wait`: others come first in any case.
    pub fn call(&mut self, must_wait: bool) -> Call {
        if std::mem::replace(&mut self.is_called, true) {
            return Call::Made;
        }
        self.calls += 1;
        if self.calls <= MAX_CALLS && !must_wait {
            return Call::Next;
        }
        self.calls = 0;
        Call::Last
    }

    /// Begins a turn: the other connections have had theirs.
    pub fn begin(&mut self, now_us: u64) {
        self.is_called = false;
        if std::mem::take(&mut self.has_rest) {
            let is_quick = now_us.saturating_sub(self.marked_us) < BATCH_US;
            self.batch = if is_quick { (self.batch * 2).min(MAX_BATCH) } else { (self.batch / 2).max(self.batch_least) };
        }
        self.marked_us = now_us;
    }

    /// An answer is complete. Returns whether it may wait for others.
    pub fn note_answer(&mut self, now_us: u64) -> bool {
        let took_us = now_us.saturating_sub(std::mem::replace(&mut self.marked_us, now_us));
        self.quick_answers = if took_us < HOLD_US { self.quick_answers.saturating_add(1) } else { 0 };
        self.quick_answers >= QUICK_ANSWERS
    }
}
