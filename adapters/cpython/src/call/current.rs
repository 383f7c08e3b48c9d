//! The request that the calling thread serves, for functions of the module `uwsgi`: the state of the callables that it armed
//! last.
//!
//! It must not know those functions. Worker threads run it while they hold the interpreter.

use std::cell::Cell;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bolide_engine::ExchangeId;
use bolide_engine::answer::Answer;
use bolide_engine::blocking_websocket::BlockingWebSocket;
use bolide_scoreboard::Slot;
use pyo3::prelude::*;

use crate::call::cooperation::{ClientEvent, cooperation};
use crate::call::state::{CallState, Place, RequestExtras};

thread_local! {
    /// The state of the request that the calling thread serves, or has served last.
    static CURRENT: Cell<*const CallState> = const { Cell::new(null()) };
}

/// Finds the state of a request in a worker whose requests share a thread: the one that the current greenlet serves, or that of a
/// `uwsgi.request_context()`; null if there is none.
type Find = fn(Option<&Bound<'_, PyAny>>) -> *const CallState;

static FIND: OnceLock<Find> = OnceLock::new();

/// Has requests found by their greenlets, from now on.
pub fn find_by(find: Find) {
    let _made_once = FIND.set(find);
}

/// Makes this state's request the current one of the calling thread.
pub fn make_current(state: *const CallState) {
    CURRENT.set(state);
}

/// Called before the state is freed.
pub fn forget(state: *const CallState) {
    if CURRENT.get() == state {
        forget_current();
    }
}

/// Leaves the calling thread without a current request, for the module `uwsgi`.
pub fn forget_current() {
    CURRENT.set(null());
}

/// The request that the calling thread serves, for functions of the module `uwsgi`. Valid while the interpreter is held.
#[derive(Clone, Copy)]
pub struct CurrentRequest {
    state: *const CallState,
}

impl CurrentRequest {
    /// `None`: the thread is not serving a request, or another thread is writing its answer.
    pub fn of_this_thread() -> Option<CurrentRequest> {
        CurrentRequest::of_this_thread_till_its_line().filter(|request| !request.state().has_ended.get())
    }

    /// Includes a request whose answer is complete, as long as its access log line can be changed.
    pub fn of_this_thread_till_its_line() -> Option<CurrentRequest> {
        let of_greenlet = FIND.get().map_or(null(), |find| find(None));
        let state = if of_greenlet.is_null() { CURRENT.get() } else { of_greenlet };
        CurrentRequest::of_state(state)
    }

    /// The request of a `uwsgi.request_context()`, from any greenlet of its worker.
    pub fn of_context(context: &Bound<'_, PyAny>) -> Option<CurrentRequest> {
        CurrentRequest::of_state(FIND.get().map_or(null(), |find| find(Some(context))))
    }

    fn of_state(state: *const CallState) -> Option<CurrentRequest> {
        // SAFETY: the state lives until its own thread or greenlet replaces or forgets it.
        let found = unsafe { state.as_ref() }?;
        (found.place.get() != Place::Nowhere && !found.is_writing.get()).then_some(CurrentRequest { state })
    }

    fn state(&self) -> &CallState {
        // SAFETY: as above; the call of the application, in which we are, keeps it.
        unsafe { &*self.state }
    }

    /// Uses the answer. No Python code may run in `act`.
    pub fn with<R>(&self, act: impl FnOnce(&mut Answer<'_>) -> R) -> Option<R> {
        self.state().with(act)
    }

    /// The name of the exchange that the engine keeps for a request in a greenlet; the engine does so from now on. `None` in
    /// other workers. `Some(None)`: the client has left.
    ///
    /// # Errors
    /// An exception of the application, which other greenlets may throw into this one.
    pub fn kept(&self) -> Result<Option<Option<ExchangeId>>, ()> {
        let Some(worker) = cooperation() else { return Ok(None) };
        if let Place::Lent(_) = self.state().place.get() {
            worker.pause().ok_or(())?;
        }
        Ok(Some(match self.state().place.get() {
            Place::Kept(id) => Some(id),
            Place::Lent(_) | Place::Gone | Place::Nowhere => None,
        }))
    }

    /// What the request waits for, in a greenlet. It is the request's own from now on.
    pub fn client(&self) -> &ClientEvent {
        self.state().is_spent.set(true);
        &self.state().client
    }

    pub fn with_extras<R>(&self, act: impl FnOnce(&mut RequestExtras) -> R) -> R {
        act(&mut self.state().extras())
    }

    /// Turns the request into a WebSocket, which may last: `harakiri` applies to requests only.
    pub fn keep_websocket(&self, websocket: BlockingWebSocket) {
        if let Some(slot) = self.state().slot.get() {
            slot.limit_ms.store(Slot::UNLIMITED_MS, Relaxed);
        }
        self.with_extras(|extras| extras.websocket = Some(websocket));
    }

    pub fn write_timeout(&self) -> Duration {
        self.state().rules.write_timeout
    }
}
