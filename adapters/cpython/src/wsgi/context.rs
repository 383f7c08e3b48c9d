//! The applications of a worker and what all calls of them share. It knows no request. The threads of a worker use it.

use bolide_engine::mounts::Mounts;
use bolide_scoreboard::Row;

use crate::call::rules::AnswerRules;
use crate::faults::FaultLog;
use crate::object::Object;

/// The applications of a worker, and the objects that its threads need to call them.
pub struct Wsgi {
    pub row: &'static Row,
    pub mounts: Mounts,
    /// The application of each mount.
    pub callables: Vec<Object>,
    /// A template of `environ` for each listener.
    pub templates: Vec<Object>,
    /// `bolide.wsgi.body_in_memory(bytes)` and `body_in_file(descriptor)`: make `wsgi.input`.
    pub body_in_memory: Object,
    pub body_in_file: Object,
    /// `bolide.wsgi.FileWrapper`, and `sendable(wrapper)`: `(descriptor, offset, length)` or None.
    pub file_wrapper: Object,
    pub sendable: Object,
    /// `bolide.wsgi.read_and_go_on(wrapper, rest)`: an iterator over a wrapper's parts, and then over the rest of the answer.
    pub read_and_go_on: Object,
    /// `bolide.wsgi.ConnectionSocket(take_socket)`
    pub connection_socket: Object,
    /// `uwsgi.after_req_hook`
    pub after_request: Option<Object>,
    /// `wsgi-strict`
    pub is_strict: bool,
    pub fault_log: FaultLog,
    pub rules: AnswerRules,
}
