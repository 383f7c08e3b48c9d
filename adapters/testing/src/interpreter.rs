//! The language's own lock, which has one holder at a time, as CPython's has: with it the tests see whether the engine lets go of it and
//! takes it where it should. And a count of what an adapter is promised. Every thread of a worker uses it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{ThreadId, current};

/// Calls that are remembered; nobody asks for more.
const CALLS_MOST: usize = 10_000;

#[derive(Default)]
pub struct Interpreter {
    holder: Mutex<Option<ThreadId>>,
    freed: Condvar,
    /// Answers and exchanges that the engine has been given to keep, and that it has given back.
    pub kept: AtomicU64,
    pub given_back: AtomicU64,
    /// What the engine did against its word.
    pub faults: AtomicU64,
    /// The first lines of the requests that the application was called for, until somebody takes them.
    calls: Mutex<Vec<Vec<u8>>>,
}

impl Interpreter {
    pub fn acquire(&self) {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(*holder != Some(current().id()), "the language was taken twice by one thread");
        while holder.is_some() {
            holder = self.freed.wait(holder).unwrap_or_else(PoisonError::into_inner);
        }
        *holder = Some(current().id());
    }

    pub fn release(&self) {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(*holder == Some(current().id()), "the language was let go by a thread that has it not");
        *holder = None;
        self.freed.notify_one();
    }

    pub fn is_held(&self) -> bool {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) == Some(current().id())
    }

    /// Says that something of the language is called or dropped now, which needs the language in hand.
    pub fn check(&self) {
        if !self.is_held() {
            self.faults.fetch_add(1, SeqCst);
        }
    }

    /// The application is called.
    pub fn note_call(&self, line: &[u8]) {
        self.check();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < CALLS_MOST {
            calls.push(line.to_vec());
        }
    }

    /// The calls since this was asked last: `METHOD TARGET` and a line end.
    pub fn take_calls(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the engine still has, and what it did against its word.
    pub fn balance(&self) -> (u64, u64) {
        (self.kept.load(SeqCst) - self.given_back.load(SeqCst), self.faults.load(SeqCst))
    }
}

/// Something that the engine keeps for the application and must give back: a suspended answer, an ongoing exchange.
pub struct Kept {
    interpreter: &'static Interpreter,
    is_given_back: bool,
}

impl Kept {
    pub fn new(interpreter: &'static Interpreter) -> Kept {
        interpreter.kept.fetch_add(1, SeqCst);
        Kept { interpreter, is_given_back: false }
    }

    /// The application has it again: the engine has resumed or abandoned it, or is done with it.
    pub fn give_back(&mut self) {
        self.interpreter.check();
        if !std::mem::replace(&mut self.is_given_back, true) {
            self.interpreter.given_back.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.is_given_back {
            // Its end was told to nobody: an application's `close()` would not have run.
            self.interpreter.faults.fetch_add(1, SeqCst);
        }
    }
}
