//! The data that all requests of a worker's asynchronous applications share: names, templates, Python callbacks, the engine
//! within the event loop, and the exchanges whose tasks are still running.
//!
//! It does not know about requests or tasks. Only the event loop's thread uses it.

use std::cell::{Cell, RefCell};

use bolide_engine::mounts::Mounts;
use bolide_files::named::NamedFiles;
use pyo3::ffi;

use super::awaitable::Awaitables;
use super::names::AsgiNames;
use super::scope::Templates;
use super::task_factory::TaskFactory;
use crate::event_loop::hosted::Turns;
use crate::faults::{FaultLog, log_set_exception};
use crate::object::Object;

/// The applications of a worker and the objects that serve them.
pub struct Asgi {
    pub mounts: Mounts,
    /// The application of each mount.
    pub callables: Vec<Object>,
    /// Whether each of them is a WSGI application, whose requests run in threads.
    pub bridged: Vec<bool>,
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
    /// Taken by the one thread that enters.
    pub templates: Cell<Option<Templates>>,
    /// Files that `http.response.pathsend` has named lately.
    pub files: RefCell<NamedFiles<Object>>,
    /// A client's disconnect is not logged (`ignore-write-errors`, `disable-write-exception`).
    pub is_quiet_of_clients: bool,
    /// Applications may send `http.response.informational` (`asgi-extensions`).
    pub offers_informational: bool,
    /// `limit-concurrency`
    pub most_running: usize,
    /// Tasks of the application that have not ended.
    pub ongoing: Ongoing,
    /// The context of each turn. Without it, a turn would run with the context variables of the request that scheduled it, and so
    /// would the requests that start in that turn.
    pub context: Object,
    /// `("context",)`: the keyword of `call_soon` for it.
    pub context_keyword: Object,
    pub turns: Turns<Asgi>,
}

// SAFETY: only the event loop's thread uses an `Asgi`: the engine is embedded in that loop and has no thread of its own, the
// watcher knows the engine's heartbeat only, and other Python threads can reach it only through objects that refuse calls from
// them (asyncio's own rule).
unsafe impl Sync for Asgi {}

/// Functions of `bolide.asgi` for steps that are simpler in Python.
pub struct PyCallbacks {
    /// `plain_headers(headers)`: a list of pairs of bytes, or a TypeError.
    pub plain_headers: Object,
    /// `log_overdue(task, seconds, place)`: logs the stack of a task that exceeds its time limit.
    pub log_overdue: Object,
    /// `report_stall(loop, seconds)`: logs the tasks that wait while the loop is blocked.
    pub report_stall: Object,
    /// The exception of a `send()` whose client has disconnected.
    pub client_disconnected: Object,
    /// `pause()`: awaiting it lets other tasks run.
    pub pause: Object,
    /// `is_client_disconnect(exception, has_left)`: whether this exception is or follows from ours, or is a framework's with the
    /// same meaning.
    pub is_client_disconnect: Object,
    /// `note_left(task, has_begun, request)`: the task's client has disconnected, in the middle of its answer or before.
    pub note_left: Object,
}

impl Asgi {
    pub fn log_set_exception(&self, subject: &str) {
        log_set_exception(&self.fault_log, subject);
    }
}

/// The exchanges whose application's tasks are still running. Each exchange knows its index here, so that it is found without a
/// search.
#[derive(Default)]
pub struct Ongoing {
    /// The task of each holds a reference to it until it is removed here.
    exchanges: RefCell<Vec<*mut ffi::PyObject>>,
}

impl Ongoing {
    pub fn count(&self) -> usize {
        self.exchanges.borrow().len()
    }

    /// Returns its index.
    pub fn add(&self, exchange: &Object) -> usize {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.push(exchange.as_ptr());
        exchanges.len() - 1
    }

    /// Returns the exchange that has this index from now on.
    pub fn remove(&self, place: usize) -> Option<Object> {
        let mut exchanges = self.exchanges.borrow_mut();
        exchanges.swap_remove(place);
        // SAFETY: it is in the list, so its task has not ended and holds a reference.
        exchanges.get(place).and_then(|moved| unsafe { Object::borrowed(*moved) })
    }

    /// Returns at most `most` of them.
    pub fn some(&self, most: usize) -> Vec<Object> {
        // SAFETY: as above.
        self.exchanges.borrow().iter().take(most).filter_map(|exchange| unsafe { Object::borrowed(*exchange) }).collect()
    }
}
