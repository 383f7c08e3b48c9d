//! The request that the calling thread serves, for functions of the module `uwsgi`: the state of the callables that it armed
//! last.
//!
//! It must not know those functions. Worker threads run it while they hold the interpreter.

use std::cell::Cell;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bolide_contract::scoreboard::Slot;
use bolide_engine::blocking_websocket::BlockingWebSocket;
use bolide_engine::response::ResponseWriter;

use crate::call::extras::RequestExtras;
use crate::call::state::{CallState, Place};

thread_local! {
    /// The state of the request that the calling thread serves, or has served last.
    static CURRENT: Cell<*const CallState> = const { Cell::new(null()) };
}

/// Finds the state of the request that the current greenlet serves, in a worker whose requests share a thread; null if it serves
/// none.
static FIND: OnceLock<fn() -> *const CallState> = OnceLock::new();

/// Has requests found by their greenlets, from now on.
pub fn find_by(find: fn() -> *const CallState) {
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
    /// `None`: the thread serves no request, or another thread is writing its answer.
    pub fn of_this_thread() -> Option<CurrentRequest> {
        CurrentRequest::of_this_thread_till_its_line().filter(|request| !request.state().has_ended.get())
    }

    /// Includes a request whose answer is complete, as long as its access log line can be changed.
    pub fn of_this_thread_till_its_line() -> Option<CurrentRequest> {
        let of_greenlet = FIND.get().map_or(null(), |find| find());
        let state = if of_greenlet.is_null() { CURRENT.get() } else { of_greenlet };
        // SAFETY: the current state lives until this very thread or greenlet replaces or forgets it.
        let found = unsafe { state.as_ref() }?;
        (found.place.get() != Place::Nowhere && !found.is_writing.get()).then_some(CurrentRequest { state })
    }

    fn state(&self) -> &CallState {
        // SAFETY: as above; the call of the application, in which we are, keeps it.
        unsafe { &*self.state }
    }

    /// Uses the response. No Python code may run in `act`.
    pub fn with<R>(&self, act: impl FnOnce(&mut ResponseWriter<'_>) -> R) -> Option<R> {
        self.state().with(act)
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
        self.state().write_timeout
    }
}
