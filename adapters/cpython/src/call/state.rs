//! The state that the callables of one `start_response` share. Functions of the module `uwsgi` reach it through
//! `current_request`.
//!
//! It knows neither. The thread that holds the interpreter uses it.

use std::cell::{Cell, RefCell, RefMut};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex};

use bolide_engine::ExchangeId;
use bolide_engine::answer::Answer;
use bolide_engine::blocking_websocket::BlockingWebSocket;
use bolide_scoreboard::{Recorder, Slot};
use pyo3::ffi;

use crate::call::context::AnswerRules;
use crate::call::cooperation::{ClientEvent, visit};
use crate::object::Object;

/// The present place of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Between requests.
    Nowhere,
    /// Lent by the engine's call, by a caller higher in the stack.
    Lent(*mut Answer<'static>),
    /// In the engine's table: the request's greenlet has waited.
    Kept(ExchangeId),
    /// The client has left, or the engine has given the request up, and its greenlet goes on.
    Gone,
}

/// Only threads that hold the interpreter access it, and none of them through an exclusive reference: while one waits in `write`
/// without the interpreter, others may call in.
pub struct CallState {
    /// Where the answer in progress is.
    pub place: Cell<Place>,
    /// Borrowed from the owner of the callables, and used only while the owner has armed this state.
    pub write: Cell<*mut ffi::PyObject>,
    /// A `write` waits for its client. Until it has ended, it owns the answer, which must not move.
    pub is_writing: Cell<bool>,
    /// The engine's thread that has armed this state (pthread_self).
    pub thread: Cell<libc::pthread_t>,
    /// The application's call has returned: that thread is sending the result.
    pub has_returned: Cell<bool>,
    /// The answer is complete; only its access log line is still to be written.
    pub has_ended: Cell<bool>,
    /// The request's slot in the scoreboard, if the request may take over the connection.
    pub slot: Cell<Option<Recorder<'static>>>,
    /// The application holds another callable of this state, or has left data here: it is not used for another request.
    pub is_spent: Cell<bool>,
    /// The application has taken over the connection. Such a state is spent, so this is never reset.
    pub is_given_away: Cell<bool>,
    /// Data that few requests have: see [`RequestExtras`].
    pub extras: RefCell<Option<Box<RequestExtras>>>,
    /// For the engine's thread, to wait until such a `write` has ended.
    pub quiet: (Mutex<()>, Condvar),
    /// What a request in a greenlet waits for.
    pub client: ClientEvent,
    /// The number of the application that the request goes to.
    pub application: Cell<u32>,
    pub rules: &'static AnswerRules,
}

impl CallState {
    pub fn new(rules: &'static AnswerRules) -> CallState {
        CallState {
            place: Cell::new(Place::Nowhere),
            write: Cell::new(null_mut()),
            is_writing: Cell::new(false),
            thread: Cell::new(0),
            has_returned: Cell::new(false),
            has_ended: Cell::new(false),
            slot: Cell::new(None),
            is_spent: Cell::new(false),
            is_given_away: Cell::new(false),
            extras: RefCell::new(None),
            quiet: (Mutex::new(()), Condvar::new()),
            client: ClientEvent::default(),
            application: Cell::new(0),
            rules,
        }
    }

    pub fn extras(&self) -> RefMut<'_, RequestExtras> {
        self.is_spent.set(true);
        RefMut::map(self.extras.borrow_mut(), |extras| &mut **extras.get_or_insert_default())
    }

    /// Uses the answer. No Python code may run in `act`, which the interpreter's lock then keeps other threads from. `None`:
    /// there is none, since the request has ended.
    pub fn with<R>(&self, act: impl FnOnce(&mut Answer<'_>) -> R) -> Option<R> {
        match self.place.get() {
            Place::Nowhere | Place::Gone => None,
            // SAFETY: the answer that the thread armed us with, which is not using it while the application runs. The caller
            // holds the interpreter, so no other thread uses it, except a `write` that waits and has released the interpreter in
            // the meantime.
            Place::Lent(answer) => unsafe { answer.as_mut() }.map(act),
            Place::Kept(id) => visit(id, |answer, _| act(answer)),
        }
    }

    /// True if the application has returned and another thread, the engine's that has armed us, is sending the result. That
    /// thread may have released the interpreter in the meantime: the answer must not be touched.
    pub fn is_of_another_thread(&self) -> bool {
        // SAFETY: pthread_self and pthread_equal have no preconditions.
        let is_ours = || unsafe { libc::pthread_equal(self.thread.get(), libc::pthread_self()) != 0 };
        self.place.get() != Place::Nowhere && self.has_returned.get() && !is_ours()
    }
}

/// Data of the few requests that use functions of the module `uwsgi`: it is kept beside the answer, and dropped with the
/// request.
#[derive(Default)]
pub struct RequestExtras {
    /// The request's slot, and its limit before `set_user_harakiri`.
    limited: Option<(&'static Slot, u32)>,
    pub environ: Option<Object>,
    pub websocket: Option<BlockingWebSocket>,
}

impl RequestExtras {
    /// Limits the time of the request, in milliseconds since it began.
    pub fn limit(&mut self, slot: &'static Slot, limit_ms: u32) {
        self.limited.get_or_insert((slot, slot.limit_ms.load(Relaxed)));
        slot.limit_ms.store(limit_ms, Relaxed);
    }

    pub fn restore_limit(&mut self) {
        if let Some((slot, before)) = self.limited.take() {
            slot.limit_ms.store(before, Relaxed);
        }
    }
}
