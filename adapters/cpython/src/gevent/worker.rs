//! Makes the worker that serves WSGI applications in greenlets, for `bolide/gevent/worker.py`: the objects that all requests
//! share. It must not know requests. The hub's thread runs it.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::context::{Gevent, Names, PyFunctions};
use super::greenlets::Greenlets;
use super::pool::Pool;
use crate::event_loop::hosted::{HostLoop, LoopWorker, Turns};
use crate::object::Object;
use crate::prototype::Assignment;
use crate::worker::{make_wsgi, object_of};
use crate::wsgi::sending::Sender;

/// Makes a worker within gevent's hub. `applications` is a list of `(mount, callable)`; `event_loop` is the hub with the methods
/// of asyncio's loop; `module` is `bolide.gevent.worker`; `on_drained` is called once, when there is nothing more to serve.
#[pyfunction]
#[pyo3(signature = (assignment, applications, event_loop, module, after_request, on_drained))]
pub fn gevent_worker(
    py: Python<'_>,
    assignment: &Assignment,
    applications: Vec<(String, Py<PyAny>)>,
    event_loop: Bound<'_, PyAny>,
    module: Bound<'_, PyAny>,
    after_request: Option<Bound<'_, PyAny>>,
    on_drained: Py<PyAny>,
) -> PyResult<LoopWorker> {
    let engine = assignment.take()?;
    let most = engine.settings.language.greenlets().map_or(1, |greenlets| greenlets as usize);
    let wsgi_module = py.import("bolide.wsgi")?.into_any();
    let wsgi = make_wsgi(py, &engine, applications, &wsgi_module, after_request)?;
    let object = |name: &str| module.getattr(name).map(object_of);
    let name = |text: &str| object_of(PyString::intern(py, text).into_any());
    let no_memory = || PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("out of memory"));
    let gevent = Gevent {
        wsgi,
        sender: Sender::new(wsgi, name("close")),
        greenlets: Greenlets::import().ok_or_else(no_memory)?,
        pool: Pool::new(most),
        hub: object_of(event_loop.getattr("hub")?),
        run_callback: object_of(event_loop.getattr("call_soon")?),
        callbacks: PyFunctions {
            make: object("RequestGreenlet")?,
            event: object("Event")?,
            offer: object("offer")?,
            settle: object("settle")?,
            overdue: object("overdue")?,
            live_as_child: object("live_as_child")?,
        },
        names: Names {
            wait: name("wait"),
            set: name("set"),
            clear: name("clear"),
            switch: name("switch"),
            request_method: name("REQUEST_METHOD"),
            request_uri: name("REQUEST_URI"),
            request_id: name("bolide.request_id"),
        },
        // SAFETY: the thread holds the interpreter; the copy is new.
        context: unsafe { Object::owned(ffi::PyContext_CopyCurrent()) }.ok_or_else(no_memory)?,
        turns: Turns::default(),
        // SAFETY: pthread_self has no preconditions.
        thread: unsafe { libc::pthread_self() },
    };
    // The worker serves for the rest of the process' life, so this is never freed.
    let gevent: &'static Gevent = Box::leak(Box::new(gevent));
    let host = HostLoop { event_loop: event_loop.unbind(), context: None };
    let worker = LoopWorker::new(gevent, engine, host, on_drained, module.getattr("report_stall")?.unbind())?;
    gevent.register();
    Ok(worker)
}
