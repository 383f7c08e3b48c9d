//! Connections with complete answers that wait in memory, to leave together with the other answers of their batch.
//!
//! Nobody knows how long a call of the application lasts that begins meanwhile. So an answer is held only while somebody without the
//! interpreter watches: the worker's companion, which sends what is held for longer than its look. What is held leaves as well before a sleep
//! in the poll, and before a return to the loop of somebody else. [`HeldAnswers::push`] is for all of that. Any thread may call it, with the
//! interpreter or without, that has no connection's lock; it may have the table's. It knows no application and asks no clock.

use std::sync::{Arc, PoisonError};

use crate::scheduling::concurrency::{AtomicBool, Mutex, MutexGuard, Ordering::Relaxed, Ordering::SeqCst};

/// A connection as it is known here.
pub trait Holding: Send + Sync {
    /// Sends what is held, where it has not left meanwhile.
    fn let_go(&self);
}

/// The answers of a worker that wait for others.
#[derive(Default)]
pub struct HeldAnswers {
    /// Somebody looks every now and then whether something is held.
    is_watched: AtomicBool,
    /// There was something to hold since this was last asked.
    is_wanted: AtomicBool,
    /// Nothing is held most of the time, and to find that out costs a look.
    are_there: AtomicBool,
    /// One entry a connection at the most. Locked under connections' locks, and none of them is taken under this one.
    connections: Mutex<Vec<Arc<dyn Holding>>>,
}

impl HeldAnswers {
    /// Sends all that is held. Gives whether something was.
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
            // What is held next finds the room.
            *connections = held;
        }
        are_some
    }

    /// Holds an answer of this connection, where none was held before. False: nobody watches, and it must leave now.
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
        // Whoever stops to watch says so first, and pushes then: it sees what is held here, or this sees that it has stopped.
        self.is_watched.load(SeqCst)
    }

    /// Something is held.
    pub fn are_there(&self) -> bool {
        self.are_there.load(Relaxed)
    }

    /// There was something to hold since this was last asked.
    pub fn were_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed) && self.is_wanted.swap(false, Relaxed)
    }

    /// There is something to hold, and nobody watches.
    pub fn want_watch(&self) -> bool {
        self.is_wanted.load(Relaxed) && !self.is_watched.load(Relaxed)
    }

    /// The calling thread watches from now on, or does not any more.
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
