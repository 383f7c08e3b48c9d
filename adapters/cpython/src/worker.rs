//! A worker's native half: from the settings and the loaded applications to the engine.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::PoisonError;

use bolide_contract::scoreboard::Scoreboard;
use bolide_contract::settings::{Address, Listener, Settings};
use bolide_engine::{Assignment as EngineAssignment, ListeningSocket};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::faults::FaultLog;
use crate::mounts::Mounts;
use crate::object::Object;
use crate::prototype::{Assignment, Prototype, close_on_exec, set_non_blocking};
use crate::wsgi::Wsgi;

/// `max-requests` is reached up to this share earlier, differently in each worker, so that they don't all leave at once.
const JITTER_PERCENT: u64 = 10;

/// Serves until the order to end has been carried out. `applications` is a list of `(mount, callable)`; `module` is
/// `bolide.wsgi`, whose pieces go into each `environ`.
#[pyfunction]
pub fn serve(
    py: Python<'_>,
    prototype: &Prototype,
    assignment: &Assignment,
    applications: Vec<(String, Py<PyAny>)>,
    module: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let settings = &prototype.boot.settings;
    let engine_assignment = engine_assignment(prototype, assignment)?;
    let templates = engine_assignment
        .listeners
        .iter()
        .map(|listener| template(py, settings, listener, module))
        .collect::<PyResult<Vec<_>>>()?;
    let object = |name: &str| module.getattr(name).map(object_of);
    let row = engine_assignment.scoreboard.row(engine_assignment.row);
    let wsgi = Wsgi {
        row: row.ok_or_else(|| PyRuntimeError::new_err("the scoreboard has no row for this worker"))?,
        mounts: Mounts::new(applications.iter().map(|(mount, _)| mount.clone().into_bytes()).collect(), &settings.python),
        callables: applications.into_iter().map(|(_, callable)| object_of(callable.into_bound(py))).collect(),
        templates,
        body_in_memory: object("body_in_memory")?,
        body_in_file: object("body_in_file")?,
        file_wrapper: object("FileWrapper")?,
        sendable: object("sendable")?,
        read_and_go_on: object("read_and_go_on")?,
        connection_socket: object("ConnectionSocket")?,
        is_strict: settings.python.wsgi_strict,
        fault_log: FaultLog { log_exception: object("log_exception")?, log_message: object("log_message")? },
        write_errors: settings.logging.write_errors,
        write_timeout: std::time::Duration::from_millis(
            settings.listeners.iter().map(|listener| listener.timeout_ms).max().unwrap_or(0),
        ),
    };
    // The worker serves for the rest of the process' life: nothing ever frees this.
    let wsgi: &'static Wsgi = Box::leak(Box::new(wsgi));
    bolide_engine::serve(wsgi, engine_assignment)?;
    Ok(())
}

/// What the engine is to serve with, from what the master handed down.
pub fn engine_assignment(prototype: &Prototype, assignment: &Assignment) -> PyResult<EngineAssignment> {
    let settings = &prototype.boot.settings;
    let control = assignment.control.lock().unwrap_or_else(PoisonError::into_inner).take();
    let control = control.ok_or_else(|| PyRuntimeError::new_err("an assignment can be served once only"))?;
    set_non_blocking(&control)?;
    close_on_exec(control.as_raw_fd())?;
    let scoreboard = Scoreboard::attach(&prototype.scoreboard, prototype.boot.scoreboard_rows, prototype.boot.scoreboard_slots)?;
    let listeners = listening_sockets(prototype)?;
    Ok(EngineAssignment {
        settings: settings.clone(),
        row: assignment.row,
        worker: assignment.worker,
        scoreboard,
        control,
        listeners,
        worn_after: settings.lifecycle.max_requests.map(with_jitter),
    })
}

pub fn object_of(object: Bound<'_, PyAny>) -> Object {
    // SAFETY: the pointer is the reference that `into_ptr` gives away; it is never null.
    unsafe { Object::owned(object.into_ptr()) }.unwrap_or_else(|| unreachable!("a Bound is never null"))
}

fn listening_sockets(prototype: &Prototype) -> PyResult<Vec<ListeningSocket>> {
    prototype
        .boot
        .settings
        .listeners
        .iter()
        .zip(&prototype.boot.listeners)
        .map(|(listener, handed)| {
            // SAFETY: the master handed this descriptor down and it stays open in the prototype; the copy is our own.
            let descriptor = unsafe { BorrowedFd::borrow_raw(handed.descriptor) }.try_clone_to_owned()?;
            let (server_name, server_port) = name_and_port(listener, &handed.bound);
            Ok(ListeningSocket {
                descriptor,
                protocol: listener.protocol,
                server_name,
                server_port,
                bound: handed.bound.clone(),
                timeout_ms: listener.timeout_ms,
                is_ours: handed.is_ours,
                is_tcp: !matches!(listener.address, Address::Unix(_) | Address::Abstract(_)),
            })
        })
        .collect()
}

/// SERVER_NAME is the machine's name, as in uWSGI; SERVER_PORT is that of the socket.
fn name_and_port(listener: &Listener, bound: &str) -> (String, String) {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned());
    let port = match listener.address {
        Address::Unix(_) | Address::Abstract(_) => String::new(),
        Address::Tcp { .. } | Address::Descriptor(_) | Address::Passed(_) => {
            bound.rsplit_once(':').map_or_else(String::new, |(_, port)| port.to_owned())
        }
    };
    (name, port)
}

/// What every `environ` of a listener has. The keys that differ from request to request are here too, with empty values:
/// so the copy has room for them.
fn template(py: Python<'_>, settings: &Settings, listener: &ListeningSocket, module: &Bound<'_, PyAny>) -> PyResult<Object> {
    let environ = PyDict::new(py);
    for name in ["REQUEST_METHOD", "REQUEST_URI", "PATH_INFO", "QUERY_STRING", "SERVER_PROTOCOL", "SCRIPT_NAME"] {
        environ.set_item(name, "")?;
    }
    environ.set_item("SERVER_NAME", &listener.server_name)?;
    environ.set_item("SERVER_PORT", &listener.server_port)?;
    environ.set_item("REMOTE_ADDR", "")?;
    environ.set_item("REMOTE_PORT", "")?;
    environ.set_item("DOCUMENT_ROOT", "")?;
    environ.set_item("wsgi.version", (1, 0))?;
    environ.set_item("wsgi.url_scheme", "http")?;
    environ.set_item("wsgi.input", module.getattr("EMPTY_INPUT")?)?;
    // The body is whole and has an end (it was collected first): reading beyond its length is safe, also of a chunked one.
    environ.set_item("wsgi.input_terminated", true)?;
    environ.set_item("wsgi.errors", module.getattr("errors")?)?;
    environ.set_item("wsgi.multithread", settings.workers.threads.most() > 1)?;
    environ.set_item("wsgi.multiprocess", settings.workers.processes > 1)?;
    environ.set_item("wsgi.run_once", false)?;
    if !settings.python.no_file_wrapper {
        environ.set_item("wsgi.file_wrapper", module.getattr("FileWrapper")?)?;
    }
    environ.set_item("uwsgi.version", PyBytes::new(py, env!("CARGO_PKG_VERSION").as_bytes()))?;
    environ.set_item("uwsgi.node", PyBytes::new(py, listener.server_name.as_bytes()))?;
    environ.set_item("uwsgi.core", 0)?;
    // A dictionary that was built by insertion may have spare room; a copy of it is as small as it can be.
    Ok(object_of(environ.copy()?.into_any()))
}

/// A number of this process' own: workers are forked one after the other, so their pids differ.
fn with_jitter(requests: u64) -> u64 {
    /// Multiplier of Knuth's multiplicative hash: neighbouring pids come out far apart.
    const SPREAD: u64 = 2_654_435_761;
    let spread = u64::from(std::process::id()).wrapping_mul(SPREAD) % 1000;
    requests - requests * JITTER_PERCENT * spread / 100_000
}
