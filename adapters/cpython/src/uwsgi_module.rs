//! The native half of the Python module `uwsgi` (`bolide/uwsgi/module.py`) for facts about this process and the instance: rows of
//! the scoreboard, the listening sockets, and requests to the master.
//!
//! It does not know about HTTP requests: functions about one are in `uwsgi_request`. Workers run it; in a prototype there is no
//! data yet.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use bolide_contract::life::PerLife;
use bolide_contract::message::{self, Asked, Report};
use bolide_contract::settings::WebSocket;
use bolide_engine::Assignment;
use bolide_engine::taken_connections::TakenConnections;
use bolide_prototype::Helper;
use bolide_scoreboard::{Meters, Recorder, Row, Scoreboard, Slot, Work};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::uwsgi_signals;

/// The access of a worker or a helper to the scoreboard and to its master.
struct Link {
    scoreboard: Scoreboard,
    row: u32,
    control: OwnedFd,
    /// `None` in a helper.
    worker: Option<WorkerLink>,
}

/// The part that only a worker has.
struct WorkerLink {
    listeners: Vec<RawFd>,
    websocket: WebSocket,
    taken_connections: TakenConnections,
}

static LINK: PerLife<Link> = PerLife::new();

/// The shortest limit of a request that was reported to the master, in milliseconds.
static SHORTEST_LIMIT_MS: AtomicU32 = AtomicU32::new(u32::MAX);

/// Called in a worker that is about to serve.
pub fn attach(assignment: &Assignment) -> io::Result<()> {
    let row = assignment.scoreboard.row(assignment.row).ok_or(io::ErrorKind::NotFound)?;
    let threads = assignment.settings.workers.threads.most();
    uwsgi_signals::attach(&assignment.signals, row);
    let link = Link {
        scoreboard: assignment.scoreboard,
        row: assignment.row,
        control: assignment.control.try_clone()?,
        worker: Some(WorkerLink {
            listeners: assignment.listeners.iter().map(|listener| listener.descriptor.as_raw_fd()).collect(),
            websocket: assignment.settings.asynchronous.websocket.clone(),
            taken_connections: TakenConnections::new(row, assignment.worker, threads)?,
        }),
    };
    set(link);
    Ok(())
}

/// Called in a helper that is about to work.
pub fn attach_helper(helper: &Helper) -> io::Result<()> {
    let (scoreboard, row) = helper.scoreboard();
    uwsgi_signals::attach(helper.signals(), scoreboard.row(row).ok_or(io::ErrorKind::NotFound)?);
    let link = Link { scoreboard, row, control: helper.descriptor().try_clone_to_owned()?, worker: None };
    set(link);
    Ok(())
}

fn set(link: Link) {
    SHORTEST_LIMIT_MS.store(u32::MAX, Relaxed);
    // A process serves or helps once.
    let _is_set = LINK.set(link);
}

/// The meters of the worker's first thread, for what the process does as a whole.
pub fn meters_of_worker() -> Option<&'static Meters> {
    let link = LINK.get()?;
    link.scoreboard.meters(link.row).first()
}

/// The scoreboard's slot of the calling thread. `None`: it is not a thread of the worker.
pub fn own_slot() -> Option<Recorder<'static>> {
    let link = LINK.get()?;
    let own = nix::unistd::gettid().as_raw() as u32;
    let slots = link.scoreboard.slots(link.row);
    let number = slots.iter().position(|slot| slot.thread.load(Relaxed) == own)?;
    link.scoreboard.recorder(link.row, u32::try_from(number).ok()?)
}

/// The settings of a WebSocket of this worker.
pub fn with_websocket_terms<R>(act: impl FnOnce(&WebSocket, &'static Row, &'static TakenConnections) -> R) -> Option<R> {
    let link = LINK.get()?;
    let worker = link.worker.as_ref()?;
    Some(act(&worker.websocket, link.scoreboard.row(link.row)?, &worker.taken_connections))
}

/// The connections that the applications of this worker have taken over.
pub fn taken_connections() -> Option<&'static TakenConnections> {
    Some(&LINK.get()?.worker.as_ref()?.taken_connections)
}

/// A request has a limit of its own, in milliseconds: the master must check requests at least that often. Only limits shorter
/// than all before are reported.
pub fn ask_for_harakiri(milliseconds: u32) {
    let Some(link) = LINK.get() else { return };
    if SHORTEST_LIMIT_MS.fetch_min(milliseconds, Relaxed) > milliseconds {
        // If the master is gone, no process enforces the limit.
        let _ = message::send(link.control.as_fd(), &Report::Limited { row: link.row, milliseconds }, None);
    }
}

/// Sends a request of the application to the master. False: there is no master.
pub fn ask(asked: Asked) -> bool {
    let tell = |link: &Link| {
        let report = Report::Asked { row: link.row, asked };
        message::send(link.control.as_fd(), &report, None).is_ok()
    };
    LINK.get().is_some_and(tell)
}

/// A message for a mule found its queue full.
#[pyfunction]
fn count_refused_message() {
    if let Some(row) = LINK.get().and_then(|link| link.scoreboard.row(link.row)) {
        row.refused_messages.fetch_add(1, Relaxed);
    }
}

/// A debugger has stopped this worker.
static IS_HALTED: AtomicBool = AtomicBool::new(false);

/// True while a debugger has stopped this worker: it is not stuck.
pub fn is_halted() -> bool {
    IS_HALTED.load(Relaxed)
}

/// Notifies the master that a debugger has stopped this worker, or that it continues: the master enforces no time limit in the
/// meantime.
#[pyfunction]
fn note_debugger(is_halted: bool) {
    IS_HALTED.store(is_halted, Relaxed);
    if let Some(link) = LINK.get() {
        // If the master is gone, no process waits for the worker.
        let _ = message::send(link.control.as_fd(), &Report::Halted { row: link.row, is_halted }, None);
    }
}

/// Notifies the master that the application listens for a debugger: the next worker can do that only when this one has ended.
#[pyfunction]
fn note_debugger_port() {
    if let Some(link) = LINK.get() {
        let _ = message::send(link.control.as_fd(), &Report::HasDebuggerPort { row: link.row }, None);
    }
}

#[pyfunction]
fn uwsgi_is_worker() -> bool {
    LINK.get().is_some_and(|link| link.worker.is_some())
}

#[pyfunction]
fn uwsgi_listeners() -> Vec<RawFd> {
    LINK.get().and_then(|link| link.worker.as_ref()).map(|worker| worker.listeners.clone()).unwrap_or_default()
}

/// Returns the row of each running worker.
#[pyfunction]
fn uwsgi_rows(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let Some(link) = LINK.get() else { return Ok(Vec::new()) };
    let rows = (0u32..).zip(link.scoreboard.rows()).filter(|(_, row)| row.pid.load(Relaxed) != 0 && row.is_of_request_worker());
    rows.map(|(number, row)| described(py, row, link.scoreboard.slots(number), link.scoreboard.work(number))).collect()
}

fn described<'py>(
    py: Python<'py>,
    row: &Row,
    slots: &[Slot],
    threads: impl Iterator<Item = Work>,
) -> PyResult<Bound<'py, PyDict>> {
    let is_busy = slots.iter().any(|slot| slot.began_ms.load(Relaxed) != 0 || slot.tally.ongoing.load(Relaxed) != 0);
    let work: Work = threads.sum();
    let facts = PyDict::new(py);
    facts.set_item("worker", row.worker.load(Relaxed))?;
    facts.set_item("pid", row.pid.load(Relaxed))?;
    facts.set_item("requests", row.requests.load(Relaxed))?;
    facts.set_item("signals", row.signals.load(Relaxed))?;
    facts.set_item("exceptions", work.exceptions())?;
    facts.set_item("sent_bytes", work.sent_bytes)?;
    facts.set_item("started_ms", row.started_ms.load(Relaxed))?;
    facts.set_item("is_busy", is_busy)?;
    facts.set_item("spent_us", work.busy_us)?;
    facts.set_item("average_us", row.average_us.load(Relaxed))?;
    let of_applications: Vec<(u64, u64)> = work.applications.iter().map(|one| (one.requests, one.exceptions)).collect();
    facts.set_item("applications", of_applications)?;
    Ok(facts)
}

/// Number and pid of each running helper.
#[pyfunction]
fn uwsgi_helper_pids() -> Vec<(u32, u32)> {
    let Some(link) = LINK.get() else { return Vec::new() };
    let pairs = link.scoreboard.rows().iter().filter(|row| !row.is_of_request_worker());
    let pairs = pairs.map(|row| (row.worker.load(Relaxed), row.pid.load(Relaxed)));
    pairs.filter(|(_, pid)| *pid != 0).collect()
}

/// `uwsgi.alarm(name, text)`. As in uWSGI the caller does not learn whether there is such an alarm: the master logs it.
#[pyfunction]
fn uwsgi_alarm(alarm: &str, text: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_heard = match text.cast::<PyString>() {
        Ok(text) => bolide_log::alarms::raise(alarm, text.to_str()?.as_bytes()),
        Err(_) => match text.cast::<PyBytes>() {
            Ok(text) => bolide_log::alarms::raise(alarm, text.as_bytes()),
            Err(_) => {
                let kind = text.get_type().name()?;
                return Err(PyTypeError::new_err(format!("alarm() argument 2 must be str or bytes, not {kind}")));
            }
        },
    };
    if !is_heard {
        static SAID: Once = Once::new();
        SAID.call_once(|| bolide_log::line(&format!("uwsgi.alarm: `{alarm}` has no effect: no `alarm` is configured")));
    }
    Ok(())
}

/// `uwsgi.reload()` and `uwsgi.stop()`.
#[pyfunction]
fn uwsgi_ask(code: u32) -> bool {
    Asked::from_code(code).is_some_and(ask)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ASK_RELOAD", Asked::Reload.code())?;
    module.add("ASK_STOP", Asked::Stop.code())?;
    module.add_function(wrap_pyfunction!(count_refused_message, module)?)?;
    module.add_function(wrap_pyfunction!(note_debugger, module)?)?;
    module.add_function(wrap_pyfunction!(note_debugger_port, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_is_worker, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_listeners, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_rows, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_helper_pids, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_alarm, module)?)?;
    module.add_function(wrap_pyfunction!(uwsgi_ask, module)?)?;
    Ok(())
}
