//! Makes the worker of asynchronous applications, for `bolide/asgi.py`: the objects that all requests share. It must not know
//! requests. The event loop's thread runs it.

use std::cell::{Cell, RefCell};

use bolide_contract::settings::{Extension, Settings};
use bolide_engine::forks::leave_if_child;
use bolide_engine::mounts::Mounts;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::awaitable::Awaitables;
use super::context::{Asgi, Ongoing, PyCallbacks};
use super::names::AsgiNames;
use super::scope::Templates;
use super::task::show_awaited;
use super::task_factory::TaskFactory;
use crate::event_loop::hosted::{HostLoop, Hosted, LoopWorker, Turns};
use crate::faults::FaultLog;
use crate::native::call_method_with;
use crate::object::Object;
use crate::prototype::Assignment;
use crate::worker::object_of;

/// The implemented version of the specification: `send()` after a client's disconnect raises OSError since 2.4.
const SPEC_VERSION: &str = "2.5";

/// A mount, its callable, and the `state` of its lifespan.
type MountedApplication = (String, Py<PyAny>, Option<Py<PyDict>>);

/// Makes a worker within an event loop. `applications` is a list of `(mount, callable, state)`, where `state` is None or the
/// dictionary of its lifespan; `module` is `bolide.asgi`; `on_drained` is called once, when there is nothing more to serve.
#[pyfunction]
pub fn asgi_worker(
    py: Python<'_>,
    assignment: &Assignment,
    applications: Vec<MountedApplication>,
    event_loop: Bound<'_, PyAny>,
    module: &Bound<'_, PyAny>,
    on_drained: Py<PyAny>,
) -> PyResult<LoopWorker> {
    let engine = assignment.take()?;
    let templates = templates(py, &engine, &applications)?;
    let asgi = make(py, applications, event_loop.clone(), module, templates, &engine.settings)?;
    // The worker serves for the rest of the process' life, so this is never freed.
    let asgi: &'static Asgi = Box::leak(Box::new(asgi));
    let context = Some(bound(py, &asgi.context).unbind());
    let host = HostLoop { event_loop: event_loop.unbind(), context };
    LoopWorker::new(asgi, engine, host, on_drained, bound(py, &asgi.callbacks.report_stall).unbind())
}

impl Hosted for Asgi {
    fn turns(&self) -> &Turns<Asgi> {
        &self.turns
    }

    fn schedule(&self, function: &Object) {
        let arguments = [self.event_loop.as_ptr(), function.as_ptr(), self.context.as_ptr()];
        // SAFETY: all live; the result is ours. The tuple names the last argument.
        let asked = unsafe { call_method_with(&self.names.call_soon, arguments, &self.context_keyword) };
        if asked.is_none() {
            self.log_set_exception("the event loop");
        }
    }

    /// A child of a request ends with the call of the application, and does not come back to the loop.
    fn may_turn(&self) -> bool {
        leave_if_child();
        true
    }

    fn note_turn(&self) {
        show_awaited(self);
    }

    fn running(&self) -> usize {
        self.ongoing.count()
    }
}

fn bound<'py>(py: Python<'py>, object: &Object) -> Bound<'py, PyAny> {
    // SAFETY: the object is alive, and the result takes a reference of its own.
    unsafe { Bound::from_borrowed_ptr(py, object.as_ptr()) }
}

fn no_memory(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("out of memory"))
}

fn make(
    py: Python<'_>,
    applications: Vec<MountedApplication>,
    event_loop: Bound<'_, PyAny>,
    module: &Bound<'_, PyAny>,
    templates: Templates,
    settings: &Settings,
) -> PyResult<Asgi> {
    let object = |name: &str| module.getattr(name).map(object_of);
    // Those of WSGI have no lifespan, and so no state of one.
    let bridged = applications.iter().map(|(.., state)| state.is_none()).collect();
    let paths = applications.iter().map(|(mount, ..)| mount.clone().into_bytes()).collect();
    let names = AsgiNames::new().ok_or_else(|| no_memory(py))?;
    let event_loop = object_of(event_loop);
    let task = object_of(py.import("asyncio")?.getattr("Task")?);
    let task_factory = TaskFactory::new(task, event_loop.clone()).ok_or_else(|| no_memory(py))?;
    let message = |kind: &str| {
        let message = PyDict::new(py);
        message.set_item("type", kind)?;
        Ok::<_, PyErr>(message)
    };
    let request_template = message("http.request")?;
    request_template.set_item("body", PyBytes::new(py, b""))?;
    request_template.set_item("more_body", false)?;
    Ok(Asgi {
        mounts: Mounts::new(paths, &settings.application),
        callables: applications.into_iter().map(|(_, callable, _)| object_of(callable.into_bound(py))).collect(),
        bridged,
        names,
        awaitables: Awaitables::new().ok_or_else(|| no_memory(py))?,
        event_loop,
        empty: object_of(PyBytes::new(py, b"").into_any()),
        request_template: object_of(request_template.into_any()),
        disconnect_template: object_of(message("http.disconnect")?.into_any()),
        task_factory,
        callbacks: PyCallbacks {
            plain_headers: object("plain_headers")?,
            log_overdue: object("log_overdue")?,
            report_stall: object("report_stall")?,
            client_disconnected: object("ClientDisconnected")?,
            pause: object("pause")?,
            is_client_disconnect: object("is_client_disconnect")?,
            note_left: object("note_left")?,
        },
        fault_log: FaultLog { log_exception: object("log_exception")?, log_message: object("log_message")? },
        templates: Cell::new(Some(templates)),
        files: RefCell::default(),
        is_quiet_of_clients: !settings.logging.write_errors,
        offers_informational: settings.asynchronous.extensions.contains(&Extension::Informational),
        most_running: settings.asynchronous.concurrency.map_or(usize::MAX, |most| most as usize),
        ongoing: Ongoing::default(),
        // SAFETY: the thread holds the interpreter; the copy is new.
        context: unsafe { Object::owned(ffi::PyContext_CopyCurrent()) }.ok_or_else(|| no_memory(py))?,
        context_keyword: object_of(PyTuple::new(py, ["context"])?.into_any()),
        turns: Turns::default(),
    })
}

fn templates(py: Python<'_>, engine: &bolide_engine::Assignment, applications: &[MountedApplication]) -> PyResult<Templates> {
    let asgi = PyDict::new(py);
    asgi.set_item("version", "3.0")?;
    asgi.set_item("spec_version", SPEC_VERSION)?;
    let asked_for = engine.settings.asynchronous.extensions.iter().map(|extension| match extension {
        Extension::PathSend => "http.response.pathsend",
        Extension::ZeroCopySend => "http.response.zerocopysend",
        Extension::Informational => "http.response.informational",
    });
    let mut templates = Templates {
        http: Vec::new(),
        websocket: Vec::new(),
        states: Vec::new(),
        asgi: object_of(asgi.into_any()),
        http_extensions: extensions(py, HTTP_EXTENSIONS.into_iter().chain(asked_for))?,
        websocket_extensions: extensions(py, WEBSOCKET_EXTENSIONS)?,
    };
    for listener in &engine.listeners {
        let server = match (listener.bound.rsplit_once(':'), listener.is_tcp) {
            (Some((host, port)), true) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                (host, port.parse::<u16>().ok())
            }
            _ => (listener.bound.as_str(), None),
        };
        for is_websocket in [false, true] {
            let scope = template(py, is_websocket, listener.is_https(), server)?;
            // A dictionary that was built by insertion may have spare room; its copy is as small as possible.
            let scope = object_of(scope.copy()?.into_any());
            (if is_websocket { &mut templates.websocket } else { &mut templates.http }).push(scope);
        }
    }
    for (_, _, state) in applications {
        templates.states.push(state.as_ref().map(|state| object_of(state.bind(py).clone().into_any())));
    }
    Ok(templates)
}

/// Extensions that the server offers (ASGI, "Extensions").
const HTTP_EXTENSIONS: [&str; 2] = ["http.response.early_hint", "http.response.trailers"];
const WEBSOCKET_EXTENSIONS: [&str; 1] = ["websocket.http.response"];

fn extensions(py: Python<'_>, names: impl IntoIterator<Item = &'static str>) -> PyResult<Object> {
    let extensions = PyDict::new(py);
    for name in names {
        extensions.set_item(name, PyDict::new(py))?;
    }
    Ok(object_of(extensions.copy()?.into_any()))
}

/// The scope of `GET /`. It includes the keys that differ from request to request, so that the copy has room for them.
fn template<'py>(
    py: Python<'py>,
    is_websocket: bool,
    is_https: bool,
    server: (&str, Option<u16>),
) -> PyResult<Bound<'py, PyDict>> {
    let scope = PyDict::new(py);
    scope.set_item("type", if is_websocket { "websocket" } else { "http" })?;
    scope.set_item("asgi", py.None())?;
    scope.set_item("http_version", "1.1")?;
    scope.set_item("server", server)?;
    scope.set_item("client", py.None())?;
    let scheme = match (is_websocket, is_https) {
        (false, false) => "http",
        (false, true) => "https",
        (true, false) => "ws",
        (true, true) => "wss",
    };
    scope.set_item("scheme", scheme)?;
    if is_websocket {
        scope.set_item("subprotocols", PyList::empty(py))?;
    } else {
        scope.set_item("method", "GET")?;
    }
    scope.set_item("root_path", "")?;
    scope.set_item("path", "/")?;
    scope.set_item("raw_path", PyBytes::new(py, b"/"))?;
    scope.set_item("query_string", PyBytes::new(py, b""))?;
    scope.set_item("headers", PyList::empty(py))?;
    scope.set_item("extensions", py.None())?;
    scope.set_item("state", py.None())?;
    Ok(scope)
}
