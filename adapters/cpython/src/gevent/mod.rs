//! WSGI applications in greenlets (gevent): a request that waits lets others run on the same thread.
//!
//! [`Gevent`] is the state of a worker, [`GeventThread`] the interface that the engine calls. The engine is one of the things
//! that gevent's hub watches, and runs on the hub's stack: a request's greenlet runs within the engine's call until it waits for
//! the first time or ends. From then on the engine keeps its exchange, and the greenlet comes back by visits. All of it runs on
//! the hub's thread, which holds the interpreter.

pub mod context;
mod greenlets;
mod overdue;
mod pool;
mod request;
pub mod worker;

use std::ops::ControlFlow;

use bolide_engine::answer::Answer;
use bolide_engine::app::{App, Cancelled, HeldPermit, Language, Outcome};
use bolide_engine::request::Request;
use bolide_engine::request_stream::RequestStream;
use bolide_engine::sampling::Sampler;
use pyo3::ffi;

use crate::call::state::{CallState, Place};
use crate::environ::EnvironMemo;
use crate::exceptions::keeping_exception;
use crate::faults::{described, failed, log_set_exception};
use crate::native::{Lasting, NativeType, bound, call};
use crate::object::Object;
use crate::sampling::{Kept, PythonSampler};
use crate::services::inboxes;
use crate::start_response::StartResponse;
use crate::wsgi::calls::Calls;
use context::Gevent;
use pool::{Job, JobEnd, Seat};

/// A request that its greenlet continues, as the engine holds it.
pub struct KeptRequest {
    seat: Object,
    number: u64,
}

/// The application as the engine calls it.
pub struct GeventThread {
    gevent: &'static Gevent,
    calls: Calls,
    seats: NativeType<Seat>,
}

impl Language for Gevent {
    type App = GeventThread;

    fn enter(&self, _thread: u32) -> Result<GeventThread, String> {
        // SAFETY: the engine asks for a `&'static` language, and this one is: it is never freed (see worker.rs).
        let gevent: &'static Gevent = unsafe { &*std::ptr::from_ref(self) };
        // SAFETY: the type has no slot except the one that frees its objects.
        let seats = unsafe { NativeType::new(c"bolide._native.Seat", &[]) }.ok_or("out of memory")?;
        Ok(GeventThread { gevent, calls: Calls::new(gevent.wsgi)?, seats })
    }

    fn spawn(&self, _name: String, _body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
        Err("a hub has only one thread".to_owned())
    }

    fn note_leaving(&self) {
        inboxes::note_leaving();
    }

    fn sampler(&self) -> Option<Box<dyn Sampler>> {
        Some(Box::new(PythonSampler::new(Kept::Greenlet)))
    }
}

impl App for GeventThread {
    type Memo = EnvironMemo;
    type Pending = KeptRequest;
    const KEEPS_EXCHANGES: bool = true;

    fn call(&mut self, request: &mut Request<'_, EnvironMemo>, answer: &mut Answer<'_>) -> Outcome<KeptRequest> {
        let outcome = self.begin(request, answer);
        outcome.unwrap_or_else(|| failed(&self.gevent.wsgi.fault_log, &described(request)))
    }

    fn resume(&mut self, pending: KeptRequest, _answer: &mut Answer<'_>) -> Outcome<KeptRequest> {
        // Ongoing exchanges get events; they are never suspended.
        Outcome::Ongoing(pending)
    }

    fn abandon(&mut self, pending: KeptRequest) {
        pending.leave(self.gevent);
    }

    fn cancels(&self, pending: &KeptRequest) -> Option<Cancelled> {
        // A greenlet that serves the request continues, as a thread would.
        pending.waits_for_others().then_some(Cancelled::Waiting)
    }

    fn client_event(&mut self, pending: &mut KeptRequest, _: &mut Answer<'_>, request_stream: &mut RequestStream) {
        let note = |state: &CallState| state.client.note(request_stream);
        if let Some(event) = pending.event(note) {
            self.gevent.notify(&event);
        }
    }

    fn keep_permit(&mut self, pending: &KeptRequest, permit: HeldPermit) {
        Seat::with(&pending.seat, |seat| {
            // A request that still waits for a greenlet is never begun.
            if seat.is_busy && seat.number == pending.number && seat.job.is_none() {
                seat.permit = Some(permit);
            }
        });
    }

    fn overdue(&mut self, pending: KeptRequest, milliseconds: u64) {
        pending.leave(self.gevent);
        overdue::end_overdue(self.gevent, &pending.seat, pending.number, milliseconds);
    }

    fn release(&mut self) {}

    fn acquire(&mut self) {}

    fn address_of(&self, pending: &KeptRequest) -> u64 {
        Seat::with(&pending.seat, |seat| seat.greenlet.as_ref().map_or(0, |greenlet| greenlet.as_ptr().addr() as u64))
    }

    crate::call::of_the_process!();

    fn interrupted(&mut self) -> ControlFlow<()> {
        // gevent's loop itself handles signals.
        ControlFlow::Continue(())
    }
}

impl KeptRequest {
    /// As many requests run as may, and this one was not begun.
    fn waits_for_others(&self) -> bool {
        Seat::with(&self.seat, |seat| seat.number == self.number && seat.is_busy && seat.job.is_some())
    }

    /// The engine keeps the request's exchange no longer.
    fn leave(&self, gevent: &Gevent) {
        let event = self.event(|state| {
            state.place.set(Place::Gone);
            state.client.show();
        });
        if let Some(event) = event {
            gevent.notify(&event);
        }
    }

    /// Returns the object that greenlets of this request wait for, if any does. `act` sees the request's state first.
    fn event(&self, act: impl FnOnce(&CallState)) -> Option<Object> {
        Seat::with(&self.seat, |seat| {
            let start = seat.start.as_ref().filter(|_| seat.is_busy && seat.number == self.number)?;
            let state = start.state();
            act(state);
            let client = &state.client;
            if client.waiting.get() > 0 { client.event.borrow().clone() } else { None }
        })
    }
}

impl GeventThread {
    /// Passes a request to a greenlet, and runs that up to its first wait. `None`: an exception is set.
    fn begin(&mut self, request: &mut Request<'_, EnvironMemo>, answer: &mut Answer<'_>) -> Option<Outcome<KeptRequest>> {
        let gevent = self.gevent;
        let seat = match gevent.pool.take() {
            Some(seat) => seat,
            None => self.make_seat()?,
        };
        let prepared = self.prepare(&seat, request);
        if prepared.is_none() {
            keeping_exception(|| {
                let _kept = gevent.pool.keep(&seat);
            });
        }
        let number = prepared?;
        if !gevent.begin(&seat) {
            let place = Place::Kept(request.id);
            Seat::with(&seat, |seat| seat.start.as_ref().map(|start| start.arm_at(place)));
            return Some(Outcome::Ongoing(KeptRequest { seat, number }));
        }
        // SAFETY: the engine lends the answer for this call, before whose return the seat gives it up again. What it refers to is
        // on the heap, in the connection. Only the `Answer` itself is on the hub's stack, so the greenlet gets its own.
        let lent = unsafe { std::mem::transmute::<Answer<'_>, Answer<'static>>(answer.reborrow()) };
        let greenlet = Seat::with(&seat, |seat| {
            let lent = seat.lent.insert(lent);
            if let Some(start) = &seat.start {
                start.arm_at(Place::Lent(std::ptr::from_mut(lent)));
            }
            seat.greenlet.clone()
        });
        let switched = greenlet.and_then(|greenlet| gevent.greenlets.switch(&greenlet));
        gevent.leave_if_child();
        let ended = Seat::with(&seat, |seat| {
            seat.lent = None;
            let ended = seat.ended.take();
            if ended.is_none()
                && let Some(start) = &seat.start
            {
                start.arm_at(Place::Kept(request.id));
            }
            ended
        });
        if switched.is_none() {
            // An exception came back instead of the greenlet.
            log_set_exception(&gevent.wsgi.fault_log, "gevent's hub");
        }
        Some(match ended {
            None => Outcome::Ongoing(KeptRequest { seat, number }),
            Some(JobEnd::Finished) => Outcome::Finished,
            Some(JobEnd::Failed) => Outcome::Failed,
            Some(JobEnd::FailedFatally) => Outcome::FailedFatally,
        })
    }

    /// Gives the greenlet a request. Returns the request's number. `None`: an exception is set.
    fn prepare(&mut self, seat: &Object, request: &mut Request<'_, EnvironMemo>) -> Option<u64> {
        let wsgi = self.gevent.wsgi;
        let (start, core) = Seat::with(seat, |seat| (seat.start.take(), seat.core.clone()));
        let start = match start {
            Some(start) => start,
            None => StartResponse::new(&wsgi.rules)?,
        };
        start.begin();
        let prepared = self.calls.prepare(request, &start, core.as_ref())?;
        if prepared.is_rare {
            // SAFETY: both live; the result is ours.
            unsafe { call(self.gevent.callbacks.offer.as_ptr(), [prepared.environ.as_ptr()])? };
        }
        let job = Job { callable: prepared.callable, environ: prepared.environ, application: request.log_facts.application };
        Some(Seat::with(seat, |seat| {
            seat.start = Some(start);
            seat.job = Some(job);
            seat.number += 1;
            seat.is_busy = true;
            seat.number
        }))
    }

    /// Makes a greenlet. `None`: an exception is set.
    fn make_seat(&self) -> Option<Object> {
        let gevent = self.gevent;
        let number = gevent.pool.next_number();
        // SAFETY: the result is new.
        let core = unsafe { Object::owned(ffi::PyLong_FromUnsignedLongLong(number))? };
        let seat = self.seats.make(Seat {
            greenlet: None,
            core: (number > 0).then(|| core.clone()),
            start: None,
            job: None,
            lent: None,
            ended: None,
            number: 0,
            waits_since_ms: None,
            is_busy: false,
            environ: None,
            timeout: None,
            permit: None,
        })?;
        let serve = bound(&SERVE, &seat)?;
        // SAFETY: all live; the result is ours.
        let greenlet = unsafe { call(gevent.callbacks.make.as_ptr(), [serve.as_ptr(), core.as_ptr()])? };
        gevent.pool.add(&greenlet, &seat);
        Seat::with(&seat, |seat| seat.greenlet = Some(greenlet));
        Some(seat)
    }
}

static SERVE: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"serve".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: serve },
    ml_flags: ffi::METH_NOARGS,
    ml_doc: c"serve(): serves one request after another".as_ptr(),
});

/// # Safety
/// Called by Python only, with our seat.
unsafe extern "C" fn serve(seat: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the callable was bound to a seat, which lives through the call.
    let Some(seat) = (unsafe { Object::borrowed(seat) }) else { return std::ptr::null_mut() };
    let Some(gevent) = context::worker() else { return std::ptr::null_mut() };
    let mut is_thrown = false;
    while let Some(job) = Seat::with(&seat, |seat| seat.job.take()) {
        let is_killed = request::run(gevent, &seat, job);
        gevent.note_end();
        if is_killed || !gevent.pool.keep(&seat) {
            break;
        }
        // The hub's greenlet switches back here with the next request.
        if gevent.greenlets.switch(&gevent.hub).is_none() {
            is_thrown = true;
            break;
        }
    }
    keeping_exception(|| gevent.pool.forget(&seat));
    if is_thrown { std::ptr::null_mut() } else { crate::object::none().into_ptr() }
}
