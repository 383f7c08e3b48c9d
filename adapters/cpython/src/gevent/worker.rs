//! The Python object for a worker that serves WSGI applications in greenlets: `bolide/gevent/worker.py` makes one and has
//! gevent's hub watch it. It must not know requests. The hub's thread runs it.

use std::cell::{Cell, OnceCell};

use bolide_engine::EmbeddedWorker;
use bolide_engine::forks::is_child;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::context::{Gevent, Names, PyFunctions};
use super::greenlets::Greenlets;
use super::pool::Pool;
use crate::event_loop::hosted::{HostLoop, HostedWorker, NextTurn, not_made};
use crate::object::Object;
use crate::prototype::Assignment;
use crate::worker::{make_wsgi, object_of};
use crate::wsgi::sending::Sender;

/// A worker within gevent's hub.
#[pyclass(unsendable, module = "bolide._native")]
pub struct GeventWorker {
    gevent: &'static Gevent,
    hosted: HostedWorker<Gevent>,
    stall_ms: Option<u64>,
    worker: u32,
    report_stall: Py<PyAny>,
}

#[pymethods]
impl GeventWorker {
    /// `applications` is a list of `(mount, callable)`; `event_loop` is the hub with the methods of asyncio's loop; `modules` are
    /// `bolide.gevent.worker` and `bolide.wsgi`; `on_drained` is called once, when there is nothing more to serve.
    #[new]
    fn new(
        py: Python<'_>,
        assignment: &Assignment,
        applications: Vec<(String, Py<PyAny>)>,
        event_loop: Bound<'_, PyAny>,
        modules: (Bound<'_, PyAny>, Bound<'_, PyAny>),
        after_request: Option<Bound<'_, PyAny>>,
        on_drained: Py<PyAny>,
    ) -> PyResult<GeventWorker> {
        let engine = assignment.take()?;
        let (stall_ms, worker) = (engine.settings.asynchronous.stall_ms, engine.worker);
        let most = engine.settings.asynchronous.gevent.as_ref().map_or(1, |gevent| gevent.greenlets as usize);
        let (module, wsgi_module) = modules;
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
            turn_is_wanted: Cell::new(false),
            turn: OnceCell::new(),
            embedded: OnceCell::new(),
            // SAFETY: the call has no conditions.
            thread: unsafe { libc::pthread_self() },
        };
        // The worker serves for the rest of the process' life, so this is never freed.
        let gevent: &'static Gevent = Box::leak(Box::new(gevent));
        if gevent.embedded.set(EmbeddedWorker::new(gevent, engine)?).is_err() {
            return Err(PyRuntimeError::new_err("a worker is made once"));
        }
        gevent.register();
        let host = HostLoop { event_loop: event_loop.unbind(), context: None };
        let hosted = HostedWorker::new(host, gevent.embedded().ok_or_else(not_made)?, on_drained);
        Ok(GeventWorker { gevent, hosted, stall_ms, worker, report_stall: module.getattr("report_stall")?.unbind() })
    }

    /// Begins to serve: the hub watches the descriptor from now on, and the master is notified.
    fn start(this: &Bound<'_, GeventWorker>) -> PyResult<()> {
        let py = this.py();
        let worker = this.borrow();
        let turn = this.getattr("turn")?;
        let _made_once = worker.gevent.turn.set(object_of(turn.clone()));
        let calls = (turn.unbind(), this.getattr("tick")?.unbind());
        worker.hosted.start(py, calls, (worker.stall_ms, worker.worker), worker.report_stall.clone_ref(py))
    }

    /// Handles all pending events, and schedules the next timer.
    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        // In a child that a request has forked, the hub serves the code of that request alone.
        if is_child() {
            return Ok(());
        }
        self.gevent.turn_is_wanted.set(false);
        if self.hosted.turn(py, || {})? == NextTurn::Soon {
            self.gevent.ask_for_turn();
        }
        Ok(())
    }

    /// The hub's timer has fired.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        if is_child() {
            return Ok(());
        }
        self.hosted.note_tick(self.gevent.turn_is_wanted.get());
        self.turn(py)
    }

    /// Stops serving: the hub no longer watches the descriptor.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.hosted.stop(py)
    }

    /// Reports that the interpreter ends next.
    fn report_leaving(&self) {
        self.hosted.embedded().tell_leaving();
    }

    /// The application wants the process to exit: requests in flight are finished first.
    fn leave(&self) {
        self.hosted.embedded().leave();
    }

    /// The number of requests whose greenlets still run.
    #[getter]
    fn running(&self) -> usize {
        self.gevent.pool.busy()
    }

    /// Seconds since the order to stop. `None` if the worker exits for another reason.
    #[getter]
    fn seconds_of_stop(&self) -> Option<f64> {
        self.hosted.seconds_of_stop()
    }

    /// The greenlets of requests that go on although their clients have left.
    fn left(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        // SAFETY: the pointers are those of living objects, and each result has a reference of its own.
        let owned = |greenlet: &Object| unsafe { Bound::from_borrowed_ptr(py, greenlet.as_ptr()).unbind() };
        self.gevent.pool.left().iter().map(owned).collect()
    }
}
