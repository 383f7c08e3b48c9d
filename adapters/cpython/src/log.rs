//! The log for Python: `bolide/log.py` and all other Python code write lines through it, so that no application waits for a
//! reader of the log. Prototypes and workers run it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bolide_engine::app::EndedRequest;
use bolide_log::Level;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// True once there is a judge. It is read for each request that has a line.
static IS_JUDGED: AtomicBool = AtomicBool::new(false);

/// Called with each request before its line is written, once a program has changed an access logger (`bolide/server_loggers.py`):
/// `(address, method, target, protocol, status, body bytes, microseconds)`. True: the line is written.
static JUDGE: OnceLock<Py<PyAny>> = OnceLock::new();

/// Writes whole lines, each with its newline. Never blocks: see the crate `log`.
#[pyfunction]
pub fn write_log(lines: &[u8]) {
    bolide_log::write(lines);
}

/// Writes whole lines of the application.
#[pyfunction]
pub fn write_output(lines: &[u8]) {
    bolide_log::write_output(lines);
}

/// Writes the lines of one event of the server: the first one gets the time, or all of them are one JSON object.
#[pyfunction]
pub fn report_log(lines: &[u8]) {
    bolide_log::report(lines);
}

/// Writes an event of the form JSON. `members` are additional members of its object, each with a comma before it; an unknown
/// level is `info`.
#[pyfunction]
pub fn log_event(level: &str, kind: &str, message: &[u8], members: &[u8]) {
    bolide_log::event(Level::named(level).unwrap_or(Level::Info), kind, message, members);
}

/// This process is the worker of this number, or the helper of this name.
#[pyfunction]
pub fn name_log(worker: u32, helper: &str) {
    if helper.is_empty() {
        bolide_log::identity::set_worker(worker);
    } else {
        bolide_log::identity::set_helper(helper);
    }
}

/// True if each line of the log is a JSON object.
#[pyfunction]
pub fn log_is_json() -> bool {
    bolide_log::is_json()
}

/// Writes one line of the server itself, in the same form as those of other processes.
#[pyfunction]
pub fn tell_log(text: &str) {
    bolide_log::line(text);
}

/// Flushes buffered lines for a short time, at the end of the process.
#[pyfunction]
pub fn finish_log(py: Python<'_>) {
    py.detach(bolide_log::finish);
}

/// True if log lines are short and may be colored.
#[pyfunction]
pub fn log_is_colored() -> bool {
    bolide_log::colors_lines()
}

/// The number of the log's descriptor, for writing from a signal handler (`faulthandler`). It is above 2.
#[pyfunction]
pub fn log_descriptor() -> Option<RawFd> {
    bolide_log::raw_descriptor().map(|descriptor| descriptor.as_raw_fd())
}

/// Has this callable decide which requests have a line, for the rest of the process' life and in its forks.
#[pyfunction]
pub fn judge_requests(judge: Py<PyAny>) {
    IS_JUDGED.store(JUDGE.set(judge).is_ok() || IS_JUDGED.load(Relaxed), Relaxed);
}

#[inline(always)]
pub fn judges_requests() -> bool {
    IS_JUDGED.load(Relaxed)
}

/// Asks the callable. The thread holds the interpreter.
#[cold]
pub fn judge_request(request: &EndedRequest<'_>) -> bool {
    let Some(judge) = JUDGE.get() else { return true };
    Python::attach(|py| {
        let text = |bytes: &[u8]| PyString::new(py, &String::from_utf8_lossy(bytes)).unbind();
        let described = (
            text(request.address),
            text(request.method),
            text(request.target),
            text(request.protocol),
            request.status,
            request.body_bytes,
            request.microseconds,
        );
        let judged = judge.call1(py, (described,)).and_then(|answer| answer.is_truthy(py));
        judged.unwrap_or_else(|error| {
            // The callable takes exceptions of the application; this is one of a process that exits.
            error.write_unraisable(py, None);
            true
        })
    })
}
