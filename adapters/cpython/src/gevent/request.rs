//! A request on its greenlet: the application's call, its answer, and the waits for a slow client in between.
//!
//! Between any two calls of Python the engine may have taken the response back into its table, so the response is looked for at
//! each use (`CallState::with`). The greenlets of the hub's thread run it.

use std::ptr::null_mut;

use bolide_contract::clock::precise_us;
use bolide_engine::answer::{Answer, Failure, Stage, Then};
use bolide_engine::request_stream::RequestStream;
use pyo3::ffi;

use super::context::Gevent;
use super::pool::{Job, JobEnd, Seat};
use crate::call::cooperation::{Cooperation, visit};
use crate::call::state::{CallState, Place};
use crate::event_loop::hosted::Hosted;
use crate::exceptions::{clear_client_disconnected, keeping_exception};
use crate::faults::{FaultPlace, failed, log_message, log_set_exception};
use crate::native::call;
use crate::object::Object;
use crate::wsgi::iterable::Iterable;
use crate::wsgi::sending::{AnswerAccess, SendProgress};

/// RFC 6455 section 7.4.1: the application has failed.
const INTERNAL_ERROR: u16 = 1011;

/// RFC 6455 section 7.4.1: the application has returned.
const NORMAL: u16 = 1000;

/// The response of a request in a greenlet.
struct GreenletAnswer<'a> {
    gevent: &'static Gevent,
    state: &'a CallState,
    environ: &'a Object,
}

impl AnswerAccess for GreenletAnswer<'_> {
    fn with<R>(&mut self, act: impl FnOnce(&mut Answer<'_>) -> R) -> Option<R> {
        // What a view with a WebSocket returns is for no client.
        if self.state.client.has_websocket.get() { None } else { self.state.with(act) }
    }

    fn note_empty_part(&mut self) -> Option<()> {
        // SAFETY: both live; the result is ours.
        unsafe { call(self.gevent.callbacks.settle.as_ptr(), [self.environ.as_ptr()]) }.map(drop)
    }
}

/// How an application has ended.
enum Ended {
    /// Its answer is complete, or its client has gone.
    Answered,
    /// It has returned without an answer.
    Unanswered,
    Failed,
    /// It has requested an exit.
    FailedFatally,
    /// Its greenlet was asked to end (`kill()`).
    Killed,
}

/// Serves a request. Returns whether the greenlet has been asked to end.
pub fn run(gevent: &'static Gevent, seat: &Object, job: Job) -> bool {
    let state = Seat::with(seat, |seat| seat.start.as_ref().map(|start| std::ptr::from_ref(start.state())));
    // SAFETY: the seat keeps the callables, and so their state, until this request ends below.
    let Some(state) = state.and_then(|state| unsafe { state.as_ref() }) else { return false };
    let application = job.application;
    let waits_since_ms = Seat::with(seat, |seat| {
        seat.environ = Some(job.environ.clone());
        seat.waits_since_ms.take()
    });
    // The client may have left while the request waited for others, or be about to.
    let is_over = state.place.get() == Place::Gone || waits_since_ms.is_some_and(|since_ms| is_refused(gevent, state, since_ms));
    let ended = if is_over {
        Ended::Answered
    } else {
        let measured = gevent.embedded().filter(|embedded| embedded.worker().admission.is_some());
        let measured = measured.map(|embedded| (embedded, precise_us()));
        let ended = in_own_context(gevent, || answer(gevent, seat, state, job));
        if let Some((embedded, began_us)) = measured {
            embedded.note_service(began_us);
        }
        ended
    };
    let end = match ended {
        Ended::Answered => JobEnd::Finished,
        Ended::FailedFatally => JobEnd::FailedFatally,
        Ended::Unanswered | Ended::Failed | Ended::Killed => JobEnd::Failed,
    };
    let place = state.place.replace(Place::Nowhere);
    if let Place::Kept(id) = place {
        let count = |embedded: &bolide_engine::EmbeddedWorker<Gevent>| match end {
            JobEnd::Finished => {}
            JobEnd::Failed => embedded.count_exception(application),
            JobEnd::FailedFatally => {
                embedded.count_exception(application);
                embedded.leave();
            }
        };
        gevent.embedded().map(count);
        let _client_is_gone = visit(id, |answer, request_stream| conclude(gevent, end, answer, request_stream)).is_none();
    }
    release(seat, matches!(place, Place::Lent(_)).then_some(end));
    matches!(ended, Ended::Killed)
}

/// Refuses a request that has waited too long for others to end. Returns whether it was refused.
fn is_refused(gevent: &Gevent, state: &CallState, since_ms: u64) -> bool {
    let Place::Kept(id) = state.place.get() else { return false };
    let mut is_refused = false;
    visit(id, |answer, _| {
        is_refused = gevent.embedded().is_some_and(|embedded| embedded.refuse_if_late(since_ms, answer));
    });
    is_refused
}

/// Runs code with context variables of its own (PEP 567), which begin as those of the worker.
fn in_own_context<R>(gevent: &Gevent, act: impl FnOnce() -> R) -> R {
    // SAFETY: the greenlet runs with the interpreter; the copy is new.
    let context = unsafe { Object::owned(ffi::PyContext_Copy(gevent.context.as_ptr())) };
    // SAFETY: as above; no other code has the context. Without memory the request shares the greenlet's own.
    let has_entered = context.as_ref().is_some_and(|context| unsafe { ffi::PyContext_Enter(context.as_ptr()) } == 0);
    if !has_entered {
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    }
    let result = act();
    if has_entered
        && let Some(context) = context
        // SAFETY: as above. It fails if the application has left the greenlet in a context of its own.
        && unsafe { ffi::PyContext_Exit(context.as_ptr()) } < 0
    {
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    }
    result
}

/// Calls the application and sends its answer.
fn answer(gevent: &'static Gevent, seat: &Object, state: &CallState, job: Job) -> Ended {
    let Some(callable) = Seat::with(seat, |seat| seat.start.as_ref().map(|start| start.callable.clone())) else {
        return Ended::Unanswered;
    };
    let arguments = [job.environ.as_ptr(), callable.as_ptr()];
    // SAFETY: the application and both arguments live through the call.
    let result = unsafe { Object::owned(ffi::PyObject_Vectorcall(job.callable, arguments.as_ptr(), 2, null_mut())) };
    drop(callable);
    gevent.leave_if_child();
    let result = result.filter(|_| wait_for_writers(gevent, state).is_some());
    Seat::with(seat, |seat| seat.start.as_ref().map(crate::start_response::StartResponse::note_return));
    let environ = job.environ;
    let Some(result) = result else { return raised(gevent, seat, state, &environ) };
    let mut iterable = Iterable::new(result);
    let mut answer = GreenletAnswer { gevent, state, environ: &environ };
    let mut chunk = None;
    let sent = loop {
        let mut sent = gevent.sender.send(&mut iterable, chunk.take(), &mut answer);
        if matches!(sent, Some(SendProgress::All)) {
            sent = Some(gevent.sender.complete(&mut iterable, &mut answer));
        }
        match sent {
            Some(SendProgress::Slow(rest)) if wait_for_room(gevent, state).is_some() => chunk = rest,
            Some(SendProgress::Slow(_)) | None => break None,
            Some(SendProgress::All | SendProgress::Gone) => break Some(()),
        }
    };
    let ended = match sent {
        Some(()) => Ended::Answered,
        // The exception that is set is handled first: close() may raise another one.
        None => raised(gevent, seat, state, &environ),
    };
    if !matches!(ended, Ended::Answered) {
        // The client has its answer before code of the application runs again.
        refuse(gevent, state);
    }
    let has_answer = answer.with(|answer| answer.stage() > Stage::Fresh || answer.is_taken_over()) != Some(false);
    if let (Ended::Answered, Some(fault)) = (&ended, answer.with(|answer| answer.length_fault()).flatten()) {
        let line = format!("the application's answer to {} {fault}", described(gevent, &environ));
        log_message(&gevent.wsgi.fault_log, &line);
    }
    after_request(gevent, state);
    gevent.sender.close(&iterable);
    if matches!(ended, Ended::Answered) && !has_answer {
        let problem = "the application did not call start_response; answered with 500";
        log_message(&gevent.wsgi.fault_log, &format!("{}: {problem}", described(gevent, &environ)));
        return Ended::Unanswered;
    }
    ended
}

/// Waits until the client has read enough, and the engine has sent a file that is part of the answer. `None`: an exception is
/// set.
fn wait_for_room(gevent: &Gevent, state: &CallState) -> Option<()> {
    loop {
        gevent.wait(&state.client)?;
        if state.with(|answer| answer.has_room()) != Some(false) {
            return Some(());
        }
    }
}

/// Waits until other greenlets of the request have ended their `write`.
fn wait_for_writers(gevent: &Gevent, state: &CallState) -> Option<()> {
    while state.is_writing.get() {
        gevent.pause()?;
    }
    Some(())
}

/// Handles the exception that is set.
fn raised(gevent: &Gevent, seat: &Object, state: &CallState, environ: &Object) -> Ended {
    if gevent.greenlets.is_exit_set() {
        // SAFETY: the greenlet runs with the interpreter.
        unsafe { ffi::PyErr_Clear() };
        log_message(&gevent.wsgi.fault_log, &format!("{}: its greenlet was killed", described(gevent, environ)));
        return Ended::Killed;
    }
    if clear_own_timeout(seat) || clear_end_of_taken(state) || clear_client_disconnected() {
        return Ended::Answered;
    }
    match failed::<()>(&gevent.wsgi.fault_log, &described(gevent, environ)) {
        bolide_engine::app::Outcome::FailedFatally => Ended::FailedFatally,
        _ => Ended::Failed,
    }
}

/// An application that has taken over its connection ends with an exception that tells other servers not to send an answer. True:
/// it was that exception, which is now cleared.
fn clear_end_of_taken(state: &CallState) -> bool {
    // SAFETY: an exception is set; the types live as long as the interpreter.
    unsafe {
        let is_usual = ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) != 0
            || ffi::PyErr_ExceptionMatches(ffi::PyExc_ConnectionError) != 0;
        // The engine may have dropped the connection already.
        if !is_usual || !state.is_given_away.get() {
            return false;
        }
        ffi::PyErr_Clear();
    }
    true
}

/// Clears the exception that is set if it is the one that `harakiri` has thrown into this request: it is already in the log.
fn clear_own_timeout(seat: &Object) -> bool {
    let (number, timeout) = Seat::with(seat, |seat| (seat.number, seat.timeout.take()));
    let Some((timeout, _)) = timeout.filter(|(_, of)| *of == number) else { return false };
    // SAFETY: an exception is set, and the type lives as long as the exception that we hold.
    unsafe {
        let is_ours = ffi::PyErr_ExceptionMatches(ffi::Py_TYPE(timeout.as_ptr()).cast()) != 0;
        if is_ours {
            ffi::PyErr_Clear();
        }
        is_ours
    }
}

/// Answers 500, or breaks the answer off, before the application's `close()` runs.
fn refuse(gevent: &Gevent, state: &CallState) {
    // The engine takes a response that it has lent back when the hub runs, and sends it then.
    if matches!(state.place.get(), Place::Lent(_)) && gevent.pause().is_none() {
        log_set_exception(&gevent.wsgi.fault_log, "the end of a request that has failed");
    }
    if let Place::Kept(id) = state.place.get() {
        visit(id, |answer, request_stream| conclude(gevent, JobEnd::Failed, answer, request_stream));
    }
}

/// Ends an answer that the engine keeps.
fn conclude(gevent: &Gevent, end: JobEnd, answer: &mut Answer<'_>, request_stream: &mut RequestStream) {
    if let RequestStream::Messages(websocket) = request_stream {
        if websocket.is_open() {
            websocket.close(if end == JobEnd::Finished { NORMAL } else { INTERNAL_ERROR }, "", answer);
        }
        return;
    }
    match answer.stage() {
        Stage::Done => {}
        _ if end == JobEnd::Finished => {
            answer.finish(Then::RequestEnds);
        }
        stage => {
            if let Some(embedded) = gevent.embedded().filter(|_| stage == Stage::Body) {
                embedded.count_broken_off(answer);
            }
            answer.fail(Failure::Status(500));
            answer.flush();
        }
    }
}

/// Calls `uwsgi.after_req_hook`. It runs in the request's greenlet, where it may wait.
fn after_request(gevent: &Gevent, state: &CallState) {
    let Some(hook) = &gevent.wsgi.after_request else { return };
    state.has_ended.set(true);
    // SAFETY: the callable lives as long as the worker; the result is dropped.
    if unsafe { call(hook.as_ptr(), []) }.is_none() {
        log_set_exception(&gevent.wsgi.fault_log, "uwsgi.after_req_hook");
    }
    gevent.leave_if_child();
}

/// Ends the request of a greenlet. `ended`: its end, if the engine's call is still there to take it.
fn release(seat: &Object, ended: Option<JobEnd>) {
    let (start, environ) = Seat::with(seat, |seat| {
        seat.is_busy = false;
        seat.ended = ended;
        seat.permit = None;
        (seat.start.take(), seat.environ.take())
    });
    drop(environ);
    let Some(start) = start else { return };
    if start.is_unshared() {
        Seat::with(seat, |seat| seat.start = Some(start));
    } else {
        start.end_offer();
    }
}

/// Returns the name of a request for the log. An exception that is set stays set.
pub fn described(gevent: &Gevent, environ: &Object) -> FaultPlace {
    let mut place = FaultPlace::other("");
    keeping_exception(|| place = place_of(gevent, environ));
    place
}

fn place_of(gevent: &Gevent, environ: &Object) -> FaultPlace {
    let text = |key: &Object| {
        // SAFETY: both live; the item is borrowed, and its text is copied immediately. It is a dictionary, whatever the
        // application has put into it.
        unsafe {
            let value = ffi::PyDict_GetItem(environ.as_ptr(), key.as_ptr());
            let text = if value.is_null() { None } else { Object::owned(ffi::PyObject_Str(value)) };
            // PEP 3333: each character is a byte of the client.
            let bytes = text.and_then(|text| Object::owned(ffi::PyUnicode_AsLatin1String(text.as_ptr())));
            ffi::PyErr_Clear();
            bytes.map(|bytes| String::from_utf8_lossy(crate::object::bytes_of(bytes.as_ptr())).into_owned())
        }
    };
    let method = text(&gevent.names.request_method).unwrap_or_default();
    let uri = text(&gevent.names.request_uri).unwrap_or_default();
    let id = text(&gevent.names.request_id).unwrap_or_default();
    FaultPlace::of_request(format!("{method} {uri}").as_bytes(), &id)
}
