//! The lock of the test language, which has one holder at a time, like CPython's: the tests check that the engine releases and
//! acquires it where it should. It also counts violations of the engine's promises to an adapter. It does not know requests.
//! Every thread of a worker uses it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{ThreadId, current};

/// Most calls that are remembered; no test needs more.
const MAX_CALLS: usize = 10_000;

#[derive(Default)]
pub struct Interpreter {
    holder: Mutex<Option<ThreadId>>,
    freed: Condvar,
    /// Answers and exchanges that the engine was given to keep, and those that it has given back.
    pub kept: AtomicU64,
    pub given_back: AtomicU64,
    /// The number of violations of the engine's promises.
    pub faults: AtomicU64,
    /// The request lines of the application's calls, until a test takes them.
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

    /// Checks that this thread holds the language: a part of it is called or dropped now.
    pub fn check(&self) {
        if !self.is_held() {
            self.faults.fetch_add(1, SeqCst);
        }
    }

    /// Notes a call of the application.
    pub fn note_call(&self, line: &[u8]) {
        self.check();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < MAX_CALLS {
            calls.push(line.to_vec());
        }
    }

    /// Returns the calls since the last time: `METHOD TARGET` and a line end.
    pub fn take_calls(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how many objects the engine still keeps, and the number of violations.
    pub fn balance(&self) -> (u64, u64) {
        (self.kept.load(SeqCst) - self.given_back.load(SeqCst), self.faults.load(SeqCst))
    }
}

/// An object that the engine keeps for the application and must give back: a suspended answer, an ongoing exchange.
pub struct Kept {
    interpreter: &'static Interpreter,
    is_given_back: bool,
}

impl Kept {
    pub fn new(interpreter: &'static Interpreter) -> Kept {
        interpreter.kept.fetch_add(1, SeqCst);
        Kept { interpreter, is_given_back: false }
    }

    /// The application has it again: the engine has resumed or abandoned it, or has finished with it.
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
            // The application was not notified of its end: its `close()` would not have run.
            self.interpreter.faults.fetch_add(1, SeqCst);
        }
    }
}
