//! Rules for what an application may do with its answer, the same for all requests of a worker. It must not know requests. The
//! threads of a worker use it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The rules of a worker, for all of its applications.
pub struct AnswerRules {
    /// Whether a client's disconnect raises an exception in the application (`ignore-write-errors`, `disable-write-exception`).
    pub write_errors: bool,
    pub write_timeout: Duration,
    /// `wsgi-strict`: a field that belongs to the server is an error.
    pub is_strict: bool,
    /// A body with `Transfer-Encoding: chunked` consists of chunks, as under uWSGI.
    pub frames_chunks: bool,
    /// For each application, its mount point, and whether the log has a line about a field that belongs to the server.
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
            "worker {}: the application{place} sets the field `{name}`, which belongs to the server (PEP 3333): it is dropped; leave such fields (Connection, Keep-Alive, Transfer-Encoding, Upgrade and the like) to the server",
            self.worker
        ));
    }
}
