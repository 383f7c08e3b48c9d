//! Connections with complete answers that wait in memory, to be sent together with the other answers of their batch.
//!
//! The length of the application's next call is not known. So an answer is held only while a thread without the interpreter
//! watches: the worker's companion, which sends answers that are held for longer than its interval. They are also sent before a
//! sleep in the poll, and before a return to an embedding event loop. [`HeldAnswers::push`] does all of that. Any thread may call
//! it, with or without the interpreter, unless it holds a connection's lock; it may hold the table's. This module does not know
//! about the application and does not read the clock.

use std::sync::{Arc, PoisonError};

use crate::scheduling::concurrency::{AtomicBool, Mutex, MutexGuard, Ordering::Relaxed, Ordering::SeqCst};

/// A connection as seen from here.
pub trait Holding: Send + Sync {
    /// Sends the held answers, unless they were sent in the meantime.
    fn let_go(&self);
}

/// The answers of a worker that wait for others.
#[derive(Default)]
pub struct HeldAnswers {
    /// A thread checks at intervals whether answers are held.
    is_watched: AtomicBool,
    /// An answer could have been held since this was last asked.
    is_wanted: AtomicBool,
    /// Whether the list contains entries. It is empty most of the time, and this flag costs less than the lock.
    are_there: AtomicBool,
    /// One entry for each connection at most. It is locked under connections' locks, and none of those is taken under this
    /// one.
    connections: Mutex<Vec<Arc<dyn Holding>>>,
}

impl HeldAnswers {
    /// Sends all held answers. Returns whether there were any.
    #[inline]
    pub fn push(&self) -> bool {
        self.are_there.load(SeqCst) && self.push_all()
    }

    #[cold]
    fn push_all(&self) -> bool {
        let mut held = {
            let mut connections = self.list();
            self.are_there.store(false, SeqCst);
            std::mem::take(&mut *connections)
        };
        let are_some = !held.is_empty();
        for connection in held.drain(..) {
            connection.let_go();
        }
        let mut connections = self.list();
        if connections.capacity() == 0 {
            // Keeps the capacity for the next answers.
            *connections = held;
        }
        are_some
    }

    /// Holds an answer of this connection, of which none was held before. Returns `false` if no thread watches, so it must be
    /// sent now.
    pub fn hold(&self, make: impl FnOnce() -> Option<Arc<dyn Holding>>) -> bool {
        if !self.is_wanted.load(Relaxed) {
            self.is_wanted.store(true, Relaxed);
        }
        if !self.is_watched.load(Relaxed) {
            return false;
        }
        if let Some(connection) = make() {
            self.list().push(connection);
            self.are_there.store(true, SeqCst);
        }
        // A thread that stops watching clears the flag first and then pushes: either it sees this entry, or this load sees that
        // it has stopped.
        self.is_watched.load(SeqCst)
    }

    /// Answers are held.
    pub fn are_there(&self) -> bool {
        self.are_there.load(Relaxed)
    }

    /// Whether an answer could have been held since the last call.
    pub fn were_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed) && self.is_wanted.swap(false, Relaxed)
    }

    /// An answer could be held, and no thread watches.
    pub fn want_watch(&self) -> bool {
        self.is_wanted.load(Relaxed) && !self.is_watched.load(Relaxed)
    }

    /// The calling thread watches from now on, or stops watching.
    pub fn watch(&self, is_watched: bool) {
        if self.is_watched.load(Relaxed) != is_watched {
            self.is_watched.store(is_watched, SeqCst);
        }
        if !is_watched {
            self.push();
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<dyn Holding>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
