//! What the callables of one `start_response` share, and functions of the module `uwsgi` reach by way of `current_request`.
//!
//! It knows neither. Whoever holds the interpreter uses it.

use std::cell::{Cell, RefCell, RefMut};
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use bolide_contract::scoreboard::Slot;
use bolide_engine::response::ResponseWriter;
use pyo3::ffi;

use crate::request_extras::RequestExtras;

/// Looked at and changed by threads that hold the interpreter only, and by none of them through an exclusive reference: while one
/// waits in `write` without the interpreter, others may call in.
pub struct CallState {
    /// The response that is being written; null between requests.
    pub response: Cell<*mut ResponseWriter<'static>>,
    /// Borrowed from the owner of the callables, and used only while that has armed us.
    pub write: Cell<*mut ffi::PyObject>,
    /// A `write` waits for its client. Until it has ended the response is its own, and stays where it is.
    pub is_writing: Cell<bool>,
    /// The engine's thread that has armed us (pthread_self).
    pub thread: Cell<libc::pthread_t>,
    /// The application's call has returned: what it returned is being sent, by that thread.
    pub has_returned: Cell<bool>,
    /// All of the answer was given: only its line of the log is left to be written.
    pub has_ended: Cell<bool>,
    /// Where the scoreboard shows the request, if it may take the connection.
    pub slot: Cell<Option<&'static Slot>>,
    /// The application has a further callable of the state's, or has left something here: it serves no other request.
    pub is_spent: Cell<bool>,
    /// What few requests have: see [`RequestExtras`].
    pub extras: RefCell<Option<Box<RequestExtras>>>,
    /// For the engine's thread, to wait for the end of such a `write`.
    pub quiet: (Mutex<()>, Condvar),
    /// Whether a client that left is the application's business (`ignore-write-errors`, `disable-write-exception`).
    pub write_errors: bool,
    pub write_timeout: Duration,
}

impl CallState {
    pub fn new(write_errors: bool, write_timeout: Duration) -> CallState {
        CallState {
            response: Cell::new(null_mut()),
            write: Cell::new(null_mut()),
            is_writing: Cell::new(false),
            thread: Cell::new(0),
            has_returned: Cell::new(false),
            has_ended: Cell::new(false),
            slot: Cell::new(None),
            is_spent: Cell::new(false),
            extras: RefCell::new(None),
            quiet: (Mutex::new(()), Condvar::new()),
            write_errors,
            write_timeout,
        }
    }

    pub fn extras(&self) -> RefMut<'_, RequestExtras> {
        self.is_spent.set(true);
        RefMut::map(self.extras.borrow_mut(), |extras| &mut **extras.get_or_insert_default())
    }

    /// The response, for as long as the interpreter is held and no code of the application runs.
    #[expect(clippy::mut_from_ref, reason = "the response is the engine's, lent to whoever holds the interpreter")]
    pub fn response(&self) -> Option<&mut ResponseWriter<'static>> {
        // SAFETY: null, or the response that the thread armed us with, which is not using it while the application runs. Whoever
        // asks holds the interpreter, so nobody else has it, but for a `write` that waits and has let it go meanwhile.
        unsafe { self.response.get().as_mut() }
    }

    /// The application has returned, and what it returned is being sent by the engine's thread, which has armed us and is not the
    /// calling one. It may have let the interpreter go meanwhile: the response must not be touched.
    pub fn is_of_another_thread(&self) -> bool {
        // SAFETY: the calls have no conditions.
        let is_ours = || unsafe { libc::pthread_equal(self.thread.get(), libc::pthread_self()) != 0 };
        !self.response.get().is_null() && self.has_returned.get() && !is_ours()
    }
}
