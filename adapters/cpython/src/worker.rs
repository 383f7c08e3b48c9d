//! The native half of a worker: connects the settings and the loaded applications with the engine. It does not know about
//! requests. The worker's main thread runs it.

use bolide_contract::settings::{self, Settings};
use bolide_engine::ListeningSocket;
use bolide_engine::mounts::Mounts;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::call::context::{AnswerRules, Wsgi};
use crate::faults::FaultLog;
use crate::object::Object;
use crate::prototype::Assignment;
use crate::uwsgi_module;

/// Serves until the order to stop has been carried out. `applications` is a list of `(mount, callable)`; `module` is
/// `bolide.wsgi`, with the objects that go into each `environ`; `after_request` is called after each answer.
#[pyfunction]
pub fn serve(
    py: Python<'_>,
    assignment: &Assignment,
    applications: Vec<(String, Py<PyAny>)>,
    module: &Bound<'_, PyAny>,
    after_request: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    let engine_assignment = assignment.take()?;
    let wsgi = make_wsgi(py, &engine_assignment, applications, module, after_request)?;
    bolide_engine::serve(wsgi, engine_assignment)?;
    if let Some(taken) = uwsgi_module::taken_connections() {
        py.detach(|| taken.finish());
    }
    Ok(())
}

/// Makes the applications of a worker; `module` is `bolide.wsgi`.
pub fn make_wsgi(
    py: Python<'_>,
    engine: &bolide_engine::Assignment,
    applications: Vec<(String, Py<PyAny>)>,
    module: &Bound<'_, PyAny>,
    after_request: Option<Bound<'_, PyAny>>,
) -> PyResult<&'static Wsgi> {
    let settings = &engine.settings;
    let python = python_of(settings)?;
    let templates =
        engine.listeners.iter().map(|listener| template(py, settings, listener, module)).collect::<PyResult<Vec<_>>>()?;
    let object = |name: &str| module.getattr(name).map(object_of);
    let row = engine.scoreboard.row(engine.row);
    let mounts: Vec<String> = applications.iter().map(|(mount, _)| mount.clone()).collect();
    let wsgi = Wsgi {
        row: row.ok_or_else(|| PyRuntimeError::new_err("the scoreboard has no row for this worker"))?,
        mounts: Mounts::new(mounts.iter().map(|mount| mount.clone().into_bytes()).collect(), &settings.application),
        callables: applications.into_iter().map(|(_, callable)| object_of(callable.into_bound(py))).collect(),
        templates,
        body_in_memory: object("body_in_memory")?,
        body_in_file: object("body_in_file")?,
        file_wrapper: object("FileWrapper")?,
        sendable: object("sendable")?,
        read_and_go_on: object("read_and_go_on")?,
        connection_socket: object("ConnectionSocket")?,
        after_request: after_request.map(object_of),
        is_strict: python.wsgi_strict,
        fault_log: FaultLog { log_exception: object("log_exception")?, log_message: object("log_message")? },
        rules: AnswerRules {
            write_errors: settings.logging.write_errors,
            write_timeout: std::time::Duration::from_millis(
                settings.listeners.iter().map(|listener| listener.timeout_ms).max().unwrap_or(0),
            ),
            is_strict: python.wsgi_strict,
            frames_chunks: python.frames_chunks,
            dropped: mounts.iter().map(|mount| (mount.clone(), false.into())).collect(),
            worker: engine.worker,
        },
    };
    // The worker serves for the rest of the process' life, so this is never freed.
    Ok(Box::leak(Box::new(wsgi)))
}

/// Python's settings.
fn python_of(settings: &Settings) -> PyResult<&settings::Python> {
    settings.language.python().ok_or_else(|| PyRuntimeError::new_err("the applications are not Python's"))
}

pub fn object_of(object: Bound<'_, PyAny>) -> Object {
    // SAFETY: the pointer is the reference that `into_ptr` releases to us; it is never null.
    unsafe { Object::owned(object.into_ptr()) }.unwrap_or_else(|| unreachable!("a Bound is never null"))
}

/// What CGI calls the name and version of the server.
const SERVER_SOFTWARE: &str = concat!("bolide/", env!("CARGO_PKG_VERSION"));

/// Returns the constant part of every `environ` of a listener. It includes the keys that differ from request to request, with
/// empty values, so that the copy has room for them.
fn template(py: Python<'_>, settings: &Settings, listener: &ListeningSocket, module: &Bound<'_, PyAny>) -> PyResult<Object> {
    let python = python_of(settings)?;
    let environ = PyDict::new(py);
    for name in ["REQUEST_METHOD", "REQUEST_URI", "RAW_URI", "PATH_INFO", "QUERY_STRING", "SERVER_PROTOCOL", "SCRIPT_NAME"] {
        environ.set_item(name, "")?;
    }
    environ.set_item("SERVER_NAME", &listener.server_name)?;
    environ.set_item("SERVER_PORT", &listener.server_port)?;
    environ.set_item("REMOTE_ADDR", "")?;
    environ.set_item("REMOTE_PORT", "")?;
    environ.set_item("DOCUMENT_ROOT", "")?;
    environ.set_item("SERVER_SOFTWARE", SERVER_SOFTWARE)?;
    environ.set_item("wsgi.version", (1, 0))?;
    // The TLS of a reverse proxy is not that of the client.
    environ.set_item("wsgi.url_scheme", if listener.is_https() { "https" } else { "http" })?;
    environ.set_item("wsgi.input", module.getattr("EMPTY_INPUT")?)?;
    // The body is whole and has an end (it was collected first): reading beyond its length is safe, also of a chunked one.
    environ.set_item("wsgi.input_terminated", true)?;
    environ.set_item("wsgi.errors", module.getattr("errors")?)?;
    let shares_process = settings.workers.threads.most() > 1 || python.gevent.is_some();
    environ.set_item("wsgi.multithread", shares_process)?;
    environ.set_item("wsgi.multiprocess", settings.workers.processes > 1)?;
    environ.set_item("wsgi.run_once", false)?;
    if !python.no_file_wrapper {
        environ.set_item("wsgi.file_wrapper", module.getattr("FileWrapper")?)?;
    }
    // gunicorn's key, which uWSGI does not have.
    if !python.frames_chunks {
        environ.set_item("wsgi.early_hints", py.import("bolide._native")?.getattr("early_hints")?)?;
    }
    environ.set_item("uwsgi.version", PyBytes::new(py, env!("CARGO_PKG_VERSION").as_bytes()))?;
    environ.set_item("uwsgi.node", PyBytes::new(py, listener.server_name.as_bytes()))?;
    environ.set_item("uwsgi.core", 0)?;
    if python.gevent.is_some() {
        environ.update(py.import("bolide.gevent.calls")?.getattr("ENVIRON")?.cast()?)?;
    }
    // A dictionary that was built by insertion may have spare room; a copy of it is as small as it can be.
    Ok(object_of(environ.copy()?.into_any()))
}
