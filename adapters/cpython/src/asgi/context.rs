//! What a worker has of its asynchronous applications, shared by all of their requests: names, templates, Python's callbacks,
//! and the engine within the event loop.
//!
//! It knows no request and no task. The event loop's thread alone touches it.

use std::cell::{Cell, OnceCell, RefCell};

use bolide_engine::EmbeddedWorker;
use bolide_engine::mounts::Mounts;
use bolide_files::named::NamedFiles;

use super::awaitable::Awaitables;
use super::names::AsgiNames;
use super::ongoing::Ongoing;
use super::scope::Templates;
use super::task_factory::TaskFactory;
use crate::exceptions::keeping_exception;
use crate::faults::{FaultLog, log_set_exception};
use crate::native::call_method_with;
use crate::object::Object;

/// The applications of a worker and what serves them.
pub struct Asgi {
    pub mounts: Mounts,
    /// The application of each mount.
    pub callables: Vec<Object>,
    pub names: AsgiNames,
    pub awaitables: Awaitables,
    pub event_loop: Object,
    /// `b""`
    pub empty: Object,
    /// `{"type": "http.request", "body": b"", "more_body": False}`
    pub request_template: Object,
    /// `{"type": "http.disconnect"}`
    pub disconnect_template: Object,
    pub task_factory: TaskFactory,
    pub callbacks: PyCallbacks,
    pub fault_log: FaultLog,
    /// For the one thread that enters.
    pub templates: Cell<Option<Templates>>,
    /// Those that `http.response.pathsend` has named lately.
    pub files: RefCell<NamedFiles<Object>>,
    /// A client that leaves is worth no line (`ignore-write-errors`, `disable-write-exception`).
    pub is_quiet_of_clients: bool,
    /// `limit-concurrency`
    pub most_running: usize,
    /// Tasks of the application that have not ended.
    pub ongoing: Ongoing,
    pub turn_is_wanted: Cell<bool>,
    /// `AsgiWorker.turn`, for the loop to call.
    pub turn: OnceCell<Object>,
    /// The context of each turn. Without it a turn that one request asks for had that request's context variables, and so would
    /// the requests that it gives to the application.
    pub context: Object,
    /// `("context",)`: the keyword of `call_soon` for it.
    pub context_keyword: Object,
    pub embedded: OnceCell<EmbeddedWorker<Asgi>>,
}

// SAFETY: the event loop's thread is the only one that touches an `Asgi`: the engine is embedded in that loop and has no
// thread of its own, the watcher knows the engine's heartbeat only, and Python's other threads have no way to it but
// through objects that say "not from this thread" (asyncio's own rule).
unsafe impl Sync for Asgi {}

/// Functions of `bolide.asgi` for what is easier said in Python.
pub struct PyCallbacks {
    /// `plain_headers(headers)`: a list of pairs of bytes, or a TypeError.
    pub plain_headers: Object,
    /// `log_overdue(task, seconds, place)`: the stack of a task that is over its time.
    pub log_overdue: Object,
    /// `report_stall(loop, seconds)`: the tasks that wait behind what blocks the loop.
    pub report_stall: Object,
    /// The exception of a `send()` whose client has gone.
    pub client_disconnected: Object,
    /// `pause()`: to be awaited; others have their turn meanwhile.
    pub pause: Object,
    /// `is_client_disconnect(exception, has_left)`: whether that exception is behind another one, or one of a framework's that means the same.
    pub is_client_disconnect: Object,
    /// `note_left(task, has_begun, request)`: its client has gone, in the middle of its answer or before.
    pub note_left: Object,
}

impl Asgi {
    /// The engine, once it is there.
    pub fn embedded(&self) -> Option<&EmbeddedWorker<Asgi>> {
        self.embedded.get()
    }

    /// Asks the loop for a turn if a visit left something to do.
    pub fn want_turn(&self) {
        if let Some(embedded) = self.embedded.get()
            && !self.turn_is_wanted.get()
            && embedded.wants_turn()
        {
            self.ask_for_turn();
        }
    }

    /// Has the loop call for a turn when the tasks that are ready have had theirs.
    pub fn ask_for_turn(&self) {
        let Some(turn) = self.turn.get() else { return };
        self.turn_is_wanted.set(true);
        keeping_exception(|| {
            let arguments = [self.event_loop.as_ptr(), turn.as_ptr(), self.context.as_ptr()];
            // SAFETY: all live; the result is ours. The last argument is the one that the tuple names.
            let asked = unsafe { call_method_with(&self.names.call_soon, arguments, &self.context_keyword) };
            if asked.is_none() {
                self.log_set_exception("the event loop");
            }
        });
    }

    pub fn log_set_exception(&self, subject: &str) {
        log_set_exception(&self.fault_log, subject);
    }
}
