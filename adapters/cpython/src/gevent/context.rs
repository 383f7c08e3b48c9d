//! The state of a worker that serves in greenlets: the pool of greenlets, the hub, Python callbacks, and the engine within the
//! hub.
//!
//! It does not know about request's answers. Only the hub's thread uses it.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use bolide_engine::answer::Answer;
use bolide_engine::forks::{is_child, leave_if_child};
use bolide_engine::request_stream::RequestStream;
use bolide_engine::{ExchangeId, Visited};
use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::greenlets::Greenlets;
use super::pool::{Pool, Seat};
use crate::call::context::Wsgi;
use crate::call::cooperation::{self, ClientEvent, Cooperation};
use crate::call::current as current_request;
use crate::call::state::CallState;
use crate::event_loop::hosted::{Hosted, Turns};
use crate::exceptions::{raise, runtime_error};
use crate::faults::log_set_exception;
use crate::native::{call, call_method};
use crate::object::Object;
use crate::wsgi::sending::Sender;

/// The applications of a worker and the greenlets that serve them.
pub struct Gevent {
    pub wsgi: &'static Wsgi,
    pub sender: Sender,
    pub greenlets: Greenlets,
    pub pool: Pool,
    pub hub: Object,
    /// `hub.loop.run_callback`
    pub run_callback: Object,
    pub callbacks: PyFunctions,
    pub names: Names,
    /// The context variables that each request begins with.
    pub context: Object,
    pub turns: Turns<Gevent>,
    /// The hub's thread.
    pub thread: libc::pthread_t,
}

/// The worker of this process.
static GEVENT: OnceLock<&'static Gevent> = OnceLock::new();

// SAFETY: only the hub's thread uses a `Gevent`: the engine is embedded in the hub and has no thread of its own, and other
// threads that come by a callable of a request are refused (`Cooperation::visit`).
unsafe impl Sync for Gevent {}

/// Functions of `bolide.gevent.worker`.
pub struct PyFunctions {
    /// `RequestGreenlet(serve, number)`
    pub make: Object,
    /// `gevent.event.Event`
    pub event: Object,
    /// `offer(environ)`: offers a WebSocket to a request that asks for one.
    pub offer: Object,
    /// `settle(environ)`: waits for what `uwsgi.wait_fd_read` and similar calls have registered.
    pub settle: Object,
    /// `overdue(greenlet, seconds, request)`: logs where an overdue request waits, and returns an exception for it.
    pub overdue: Object,
    /// `live_as_child()`: in a child that a request has forked, goes on without the worker.
    pub live_as_child: Object,
}

/// Names of methods and keys.
pub struct Names {
    pub wait: Object,
    pub set: Object,
    pub clear: Object,
    pub switch: Object,
    pub request_method: Object,
    pub request_uri: Object,
    pub request_id: Object,
}

impl Hosted for Gevent {
    fn turns(&self) -> &Turns<Gevent> {
        &self.turns
    }

    fn schedule(&self, function: &Object) {
        // SAFETY: both live; the result is ours.
        if unsafe { call(self.run_callback.as_ptr(), [function.as_ptr()]) }.is_none() {
            log_set_exception(&self.wsgi.fault_log, "gevent's hub");
        }
    }

    /// In a child that a request has forked, the hub serves the code of that request alone.
    fn may_turn(&self) -> bool {
        !is_child()
    }

    fn running(&self) -> usize {
        self.pool.busy()
    }

    fn left(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        // SAFETY: the pointers are those of living objects, and each result has a reference of its own.
        let owned = |greenlet: &Object| unsafe { Bound::from_borrowed_ptr(py, greenlet.as_ptr()).unbind() };
        self.pool.left().iter().map(owned).collect()
    }
}

impl Gevent {
    /// Lets requests of this process be found by their greenlets.
    pub fn register(&'static self) {
        let _made_once = GEVENT.set(self);
        cooperation::register(self);
        current_request::find_by(state_of);
    }

    /// Ends this process if it is a child whose code has returned from the application. In other greenlets of a child it never
    /// returns: the hub goes on for the child's code, and later requests are the parent's.
    #[inline]
    pub fn leave_if_child(&self) {
        if is_child() {
            self.live_as_child();
        }
    }

    #[cold]
    fn live_as_child(&self) {
        // SAFETY: the function lives as long as the worker. After its result, or an exception, the process exits.
        let _ends = unsafe { Object::owned(ffi::PyObject_CallNoArgs(self.callbacks.live_as_child.as_ptr())) };
        leave_if_child();
    }

    /// Has the hub switch to a greenlet soon.
    fn resume_soon(&self, greenlet: &Object) -> Option<()> {
        // SAFETY: all live; results are ours.
        unsafe {
            let switch = Object::owned(ffi::PyObject_GetAttr(greenlet.as_ptr(), self.names.switch.as_ptr()))?;
            call(self.run_callback.as_ptr(), [switch.as_ptr()]).map(drop)
        }
    }

    /// Wakes the greenlets that wait for this event, after the engine's turn.
    pub fn notify(&self, event: &Object) {
        // SAFETY: both live; the result is ours. `set` only schedules the greenlets.
        if unsafe { call_method(&self.names.set, [event.as_ptr()]) }.is_none() {
            log_set_exception(&self.wsgi.fault_log, "gevent's hub");
        }
    }

    /// A request begins in this greenlet. False: it has to wait until another one ends.
    pub fn begin(&self, seat: &Object) -> bool {
        let begins = self.pool.begin(seat);
        self.show_busy();
        begins
    }

    /// A request has ended: one that has waited for that begins, or the engine may accept connections.
    pub fn note_end(&self) {
        let next = self.pool.end();
        self.show_busy();
        let Some(next) = next else { return self.want_turn() };
        let greenlet = Seat::with(&next, |seat| seat.greenlet.clone());
        if greenlet.is_none_or(|greenlet| self.resume_soon(&greenlet).is_none()) {
            log_set_exception(&self.wsgi.fault_log, "gevent's hub");
        }
    }

    fn show_busy(&self) {
        self.wsgi.row.greenlets.store(self.pool.busy() as u32, Relaxed);
        if let Some(embedded) = self.embedded() {
            embedded.set_full(self.pool.is_full());
        }
    }
}

impl Cooperation for Gevent {
    fn visit(&self, id: ExchangeId, act: &mut dyn FnMut(&mut Answer<'_>, &mut RequestStream)) -> bool {
        // SAFETY: pthread_self and pthread_equal have no preconditions.
        if unsafe { libc::pthread_equal(self.thread, libc::pthread_self()) } == 0 {
            return false;
        }
        let Some(embedded) = self.embedded() else { return false };
        let visited = embedded.visit(id, |answer, request_stream| act(answer, request_stream));
        self.want_turn();
        matches!(visited, Visited::Done(()))
    }

    fn wait(&self, client: &ClientEvent) -> Option<()> {
        let known = client.event.borrow().clone();
        let event = match known {
            Some(event) => event,
            None => {
                // SAFETY: the type lives; the result is new.
                let event = unsafe { Object::owned(ffi::PyObject_CallNoArgs(self.callbacks.event.as_ptr()))? };
                *client.event.borrow_mut() = Some(event.clone());
                event
            }
        };
        client.waiting.set(client.waiting.get() + 1);
        // SAFETY: both live; results are ours.
        let waited = unsafe { call_method(&self.names.wait, [event.as_ptr()]) };
        client.waiting.set(client.waiting.get() - 1);
        self.leave_if_child();
        waited?;
        // SAFETY: as above.
        unsafe { call_method(&self.names.clear, [event.as_ptr()]) }.map(drop)
    }

    fn environ(&self) -> Option<Object> {
        self.pool.seat_of(self.greenlets.current()).and_then(|seat| Seat::with(&seat, |seat| seat.environ.clone()))
    }

    fn pause(&self) -> Option<()> {
        let greenlet =
            self.pool.seat_of(self.greenlets.current()).and_then(|seat| Seat::with(&seat, |seat| seat.greenlet.clone()));
        let Some(greenlet) = greenlet else {
            return raise(runtime_error(), "this greenlet is not serving a request");
        };
        self.resume_soon(&greenlet)?;
        self.greenlets.switch(&self.hub)
    }
}

/// The worker of this process, once there is one.
pub fn worker() -> Option<&'static Gevent> {
    GEVENT.get().copied()
}

/// A request, for greenlets other than its own (`uwsgi.request_context()`, as in uWSGI 2.1).
#[pyclass(unsendable, frozen, module = "bolide._native")]
pub struct RequestContext {
    seat: Object,
    number: u64,
}

/// Returns the request that the current greenlet serves, or the one with this `environ`, whichever greenlet asks.
#[pyfunction]
#[pyo3(signature = (environ=None))]
pub fn uwsgi_request_context(environ: Option<&Bound<'_, PyDict>>) -> PyResult<RequestContext> {
    let seat = worker().and_then(|gevent| match environ {
        Some(environ) => gevent.pool.seat_of_environ(environ.as_ptr()),
        None => gevent.pool.seat_of(gevent.greenlets.current()),
    });
    let seat = seat.ok_or_else(|| PySystemError::new_err("this greenlet is not serving a request"))?;
    let number = Seat::with(&seat, |seat| seat.number);
    Ok(RequestContext { seat, number })
}

/// Returns the state of the request that the current greenlet serves, or that of a context; null if there is none.
fn state_of(context: Option<&Bound<'_, PyAny>>) -> *const CallState {
    let (seat, number) = match (context, worker()) {
        (Some(context), _) => match context.cast::<RequestContext>() {
            Ok(context) => (Some(context.get().seat.clone()), Some(context.get().number)),
            Err(_) => (None, None),
        },
        (None, Some(gevent)) => (gevent.pool.seat_of(gevent.greenlets.current()), None),
        (None, None) => (None, None),
    };
    let state = seat.and_then(|seat| {
        Seat::with(&seat, |seat| {
            let is_current = seat.is_busy && number.is_none_or(|number| seat.number == number);
            Some(std::ptr::from_ref(seat.start.as_ref().filter(|_| is_current)?.state()))
        })
    });
    state.unwrap_or(std::ptr::null())
}
