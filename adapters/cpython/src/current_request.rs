//! Which request the calling thread serves, for functions of the module `uwsgi`: the state of the callables that it armed last.
//!
//! It must not know what those functions are. Worker threads run it, with the interpreter in hand.

use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bolide_contract::scoreboard::Slot;
use bolide_engine::blocking_websocket::BlockingWebSocket;
use bolide_engine::response::ResponseWriter;

use crate::call_state::CallState;
use crate::request_extras::RequestExtras;

thread_local! {
    /// What the calling thread serves, or has served last.
    static CURRENT: Cell<*const CallState> = const { Cell::new(null()) };
}

/// The calling thread serves what this state is of.
pub fn make_current(state: *const CallState) {
    CURRENT.set(state);
}

/// The state is about to be gone.
pub fn forget(state: *const CallState) {
    if CURRENT.get() == state {
        forget_current();
    }
}

/// The calling thread serves nothing, as far as the module `uwsgi` is concerned.
pub fn forget_current() {
    CURRENT.set(null());
}

/// The request that the calling thread serves, for functions of the module `uwsgi`. Valid while the interpreter is held.
#[derive(Clone, Copy)]
pub struct CurrentRequest {
    state: *const CallState,
}

impl CurrentRequest {
    /// `None`: the thread serves none, or another thread is in the middle of writing its answer.
    pub fn of_this_thread() -> Option<CurrentRequest> {
        CurrentRequest::of_this_thread_till_its_line().filter(|request| !request.state().has_ended.get())
    }

    /// The same, and a request all of whose answer was given, as long as its line of the log can be changed.
    pub fn of_this_thread_till_its_line() -> Option<CurrentRequest> {
        let state = CURRENT.get();
        // SAFETY: what is current lives until it is another's or forgotten, by this very thread.
        let found = unsafe { state.as_ref() }?;
        (!found.response.get().is_null() && !found.is_writing.get()).then_some(CurrentRequest { state })
    }

    fn state(&self) -> &CallState {
        // SAFETY: as above; the call of the application, in which we are, keeps it.
        unsafe { &*self.state }
    }

    /// Uses the response for a moment in which nothing of Python runs.
    pub fn with<R>(&self, act: impl FnOnce(&mut ResponseWriter<'static>) -> R) -> Option<R> {
        self.state().response().map(act)
    }

    pub fn with_extras<R>(&self, act: impl FnOnce(&mut RequestExtras) -> R) -> R {
        act(&mut self.state().extras())
    }

    /// From now on the request is a WebSocket, which takes as long as it takes: `harakiri` is about requests.
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
