//! The applications of a worker, what all calls of them share, and the rules for what they may do with their answers. It must not
//! know requests. The threads of a worker use it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bolide_engine::mounts::Mounts;
use bolide_scoreboard::Row;

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

/// The rules of a worker, for all of its applications.
pub struct AnswerRules {
    /// Whether a client's disconnect raises an exception in the application (`ignore-write-errors`, `disable-write-exception`).
    pub write_errors: bool,
    pub write_timeout: Duration,
    /// `wsgi-strict`: a field that belongs to the server is an error.
    pub is_strict: bool,
    /// A body with `Transfer-Encoding: chunked` consists of chunks, as under uWSGI.
    pub frames_chunks: bool,
    /// For each application, its mount point, and whether a field that belongs to the server was logged.
    pub dropped: Vec<(String, AtomicBool)>,
    pub worker: u32,
}

impl AnswerRules {
    /// Logs that an application has set a field that belongs to the server, once for each application in this worker.
    #[cold]
    pub fn note_dropped(&self, application: u32, name: &[u8]) {
        let Some((mount, is_told)) = self.dropped.get(application as usize) else { return };
        if is_told.swap(true, Relaxed) {
            return;
        }
        let place = if mount.is_empty() { String::new() } else { format!(" at {mount}") };
        let name = String::from_utf8_lossy(name);
        bolide_log::line(&format!(
            "worker {}: the application{place} sets the field `{name}`, which belongs to the server (PEP 3333): it is dropped; \
            leave such fields (Connection, Keep-Alive, Transfer-Encoding, Upgrade and the like) to the server",
            self.worker
        ));
    }
}
