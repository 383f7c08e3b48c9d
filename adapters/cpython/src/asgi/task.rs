//! The application's task, from the call of the application to the consequences of its end for the exchange, and the description
//! of the tasks that an exiting worker waits for, which the master's log shows. It does not know about sockets. The event loop's
//! thread runs all of it.

use bolide_contract::clock::now_ms;
use bolide_engine::Visited;
use bolide_engine::answer::{Answer, Failure, Stage};
use bolide_engine::app::Outcome;
use bolide_engine::request_stream::RequestStream;
use pyo3::ffi;

use super::context::Asgi;
use super::exchange::{AsgiChannel, AsgiExchange, ConnectionRef, ExchangeHandle, ProtocolState, SendEvent};
use super::websocket::{NORMAL, WebSocketSendEvent};
use crate::event_loop::hosted::Hosted;
use crate::faults::{FaultPlace, failed, log_message, log_request_exception};
use crate::native::{Lasting, bound, call, call_method};
use crate::object::{Object, new_reference, utf8_lossy};

/// RFC 6455 section 7.4.1: the application has failed.
const INTERNAL_ERROR: u16 = 1011;

/// Maximum number of tasks that are searched for the oldest one: a worker may have thousands.
const MAX_LOOKED_AT: usize = 64;

/// Bytes of a request's line, so that the text after it fits into the scoreboard.
const LINE_BYTES: usize = 128;

/// Calls the application and runs it up to its first wait. Returns its task; `None`: an exception is set.
pub fn start(asgi: &'static Asgi, callable: &Object, scope: Object, channel: &AsgiChannel) -> Option<Object> {
    // SAFETY: all objects live through the calls; results are ours.
    unsafe {
        // No code of the application runs in this call: `bolide.asgi` passes async functions only.
        let coroutine = call(callable.as_ptr(), [scope.as_ptr(), channel.receive.as_ptr(), channel.send.as_ptr()])?;
        drop(scope);
        asgi.task_factory.start(coroutine)
    }
}

/// The end of a task.
enum TaskEnd {
    Returned,
    Cancelled,
    /// By the exception of a `send()` after the client's disconnect. Applications usually end that way then, so it is not a
    /// failure.
    Disconnected,
    /// By an exception that the application or its framework raised instead of that one.
    DisconnectedIndirectly,
    /// The exception is set.
    Raised,
}

/// What the end of a task means for its exchange.
enum Conclusion {
    /// The answer is complete, or its client is gone.
    Finished,
    /// The application gave up its answer because the client left, which is not a failure.
    ClientLeft,
    /// The failure has been logged.
    Failed,
    /// The failure has been logged, and the worker must end.
    FailedFatally,
}

/// `has_left` returns whether the client has disconnected. It is called only if the task has failed.
fn end_of(asgi: &Asgi, task: *mut ffi::PyObject, has_left: impl FnOnce() -> bool) -> TaskEnd {
    // SAFETY: the task lives and is done; its exception is ours, and set again as Python's current one.
    unsafe {
        match call_method(&asgi.names.exception, [task]) {
            Some(exception) if exception.as_ptr() == ffi::Py_None() => TaskEnd::Returned,
            Some(exception)
                if ffi::PyErr_GivenExceptionMatches(exception.as_ptr(), asgi.callbacks.client_disconnected.as_ptr()) != 0 =>
            {
                TaskEnd::Disconnected
            }
            Some(exception) if is_client_disconnect(asgi, &exception, has_left()) => TaskEnd::DisconnectedIndirectly,
            Some(exception) => {
                ffi::PyErr_SetObject(ffi::Py_TYPE(exception.as_ptr()).cast(), exception.as_ptr());
                TaskEnd::Raised
            }
            // `exception()` of a cancelled task raises CancelledError.
            None => {
                ffi::PyErr_Clear();
                TaskEnd::Cancelled
            }
        }
    }
}

fn is_client_disconnect(asgi: &Asgi, exception: &Object, has_left: bool) -> bool {
    // SAFETY: both live; the result is ours. An exception that can't be examined is reported unchanged.
    unsafe {
        let has_left = if has_left { ffi::Py_True() } else { ffi::Py_False() };
        let found = call(asgi.callbacks.is_client_disconnect.as_ptr(), [exception.as_ptr(), has_left]);
        if found.is_none() {
            ffi::PyErr_Clear();
        }
        found.is_some_and(|found| found.as_ptr() == ffi::Py_True())
    }
}

/// The application has ended within its first step. `place` is where its connection was.
pub fn ended_at_once(
    asgi: &'static Asgi,
    object: &Object,
    task: &Object,
    connection: ConnectionRef,
    described: impl Fn() -> FaultPlace,
) -> Outcome<ExchangeHandle> {
    let end = end_of(asgi, task.as_ptr(), || false);
    if matches!(end, TaskEnd::Returned) && AsgiExchange::with(object, |exchange| exchange.protocol.is_complete()) {
        return Outcome::Finished;
    }
    AsgiExchange::with(object, |exchange| exchange.connection = connection);
    let conclusion = conclude(asgi, object, &end, &described());
    let waiters = AsgiExchange::with(object, |exchange| {
        match conclusion {
            Conclusion::Finished => {}
            Conclusion::ClientLeft => drop(exchange.visit(end_left)),
            Conclusion::Failed | Conclusion::FailedFatally => drop(exchange.visit(close_failed)),
        }
        exchange.disconnect()
    });
    waiters.wake(asgi);
    match conclusion {
        Conclusion::Finished | Conclusion::ClientLeft => Outcome::Finished,
        Conclusion::Failed => Outcome::Failed,
        Conclusion::FailedFatally => Outcome::FailedFatally,
    }
}

/// Follows a task that continues after its first step. `None`: an exception is set.
pub fn follow(asgi: &'static Asgi, object: &Object, task: Object) -> Option<()> {
    let callback = bound(&TASK_DONE, object)?;
    // SAFETY: all live; the result is ours.
    unsafe { call_method(&asgi.names.add_done_callback, [task.as_ptr(), callback.as_ptr()])? };
    // The task holds the exchange by its callback, and the exchange holds the task: so neither is freed before the task's end.
    let place = asgi.ongoing.add(object);
    let before = AsgiExchange::with(object, |exchange| {
        exchange.place = place;
        exchange.task.replace(task)
    });
    drop(before);
    Some(())
}

/// A task that was followed has ended.
fn ended_later(object: &Object, task: *mut ffi::PyObject) {
    let (asgi, place, own) = AsgiExchange::with(object, |exchange| {
        exchange.permit = None;
        (exchange.asgi, exchange.place, exchange.task.take())
    });
    drop(own);
    if let Some(moved) = asgi.ongoing.remove(place) {
        AsgiExchange::with(&moved, |exchange| exchange.place = place);
    }
    show_awaited(asgi);
    let end =
        end_of(asgi, task, || AsgiExchange::with(object, |exchange| exchange.protocol.has_ended() || client_has_gone(exchange)));
    if matches!(end, TaskEnd::Returned) && AsgiExchange::with(object, |exchange| exchange.protocol.is_complete()) {
        return;
    }
    let (request, application, is_over) = AsgiExchange::with(object, |exchange| {
        let is_over = exchange.protocol.is_complete() || exchange.protocol.is_disconnected();
        (exchange.place_in_log(), exchange.application, is_over)
    });
    let conclusion = conclude(asgi, object, &end, &request);
    let has_failed = matches!(conclusion, Conclusion::Failed | Conclusion::FailedFatally);
    let failed_in = asgi.embedded().filter(|_| has_failed);
    if let Some(embedded) = failed_in {
        embedded.count_exception(application);
    }
    if !matches!(conclusion, Conclusion::Finished) && !is_over {
        let waiters = AsgiExchange::with(object, |exchange| {
            exchange.visit(|protocol, answer, request_stream| {
                if matches!(conclusion, Conclusion::ClientLeft) {
                    return end_left(protocol, answer, request_stream);
                }
                if let Some(embedded) = failed_in.filter(|_| answer.stage() >= Stage::Body) {
                    embedded.count_broken_off(answer);
                }
                if !close_failed(protocol, answer, request_stream) {
                    answer.fail(Failure::Status(500));
                }
            });
            exchange.disconnect()
        });
        waiters.wake(asgi);
    }
    asgi.want_turn();
}

/// Ends an exchange whose application has given it up because the client has left.
fn end_left(protocol: &mut ProtocolState, answer: &mut Answer<'_>, request_stream: &mut RequestStream) {
    if !close_failed(protocol, answer, request_stream) {
        answer.fail(Failure::ClientLeft);
    }
}

/// Closes an open WebSocket whose application has failed. False: it is not open.
fn close_failed(protocol: &mut ProtocolState, answer: &mut Answer<'_>, request_stream: &mut RequestStream) -> bool {
    let (ProtocolState::WebSocket(socket), RequestStream::Messages(websocket)) = (protocol, request_stream) else { return false };
    if socket.is_open() {
        websocket.close(INTERNAL_ERROR, "", answer);
    }
    socket.is_open()
}

/// Determines what the end of an application means that has not simply completed its answer. Failures are logged here.
fn conclude(asgi: &'static Asgi, object: &Object, end: &TaskEnd, described: &FaultPlace) -> Conclusion {
    let (complete, disconnected) =
        AsgiExchange::with(object, |exchange| (exchange.protocol.is_complete(), exchange.protocol.is_disconnected()));
    match end {
        TaskEnd::Disconnected | TaskEnd::DisconnectedIndirectly if complete => Conclusion::Finished,
        TaskEnd::Disconnected => Conclusion::ClientLeft,
        TaskEnd::DisconnectedIndirectly => {
            log_disconnect(asgi, object, described);
            Conclusion::ClientLeft
        }
        TaskEnd::Raised if complete => {
            log_request_exception(&asgi.fault_log, described, ", after its response");
            Conclusion::Finished
        }
        TaskEnd::Raised => match failed::<()>(&asgi.fault_log, described) {
            Outcome::FailedFatally => Conclusion::FailedFatally,
            _ => Conclusion::Failed,
        },
        TaskEnd::Cancelled if complete || disconnected => Conclusion::Finished,
        TaskEnd::Cancelled => {
            log_message(
                &asgi.fault_log,
                &format!("{described}: the application's task was cancelled before its response was complete"),
            );
            Conclusion::Failed
        }
        TaskEnd::Returned if disconnected => Conclusion::Finished,
        TaskEnd::Returned if AsgiExchange::with(object, |exchange| matches!(exchange.protocol, ProtocolState::WebSocket(_))) => {
            returned_from_websocket(asgi, object, described)
        }
        TaskEnd::Returned if AsgiExchange::with(object, client_has_gone) => {
            log_disconnect(asgi, object, described);
            Conclusion::ClientLeft
        }
        TaskEnd::Returned => {
            log_message(&asgi.fault_log, &format!("{described}: the application returned without completing its response"));
            Conclusion::Failed
        }
    }
}

/// The application of a WebSocket has returned without a close: determines the outcome, and logs it.
fn returned_from_websocket(asgi: &'static Asgi, object: &Object, described: &FaultPlace) -> Conclusion {
    let is_open =
        AsgiExchange::with(object, |exchange| matches!(&exchange.protocol, ProtocolState::WebSocket(socket) if socket.is_open()));
    if !is_open && AsgiExchange::with(object, client_has_gone) {
        log_disconnect(asgi, object, described);
        return Conclusion::ClientLeft;
    }
    if !is_open {
        log_message(
            &asgi.fault_log,
            &format!("{described}: the application returned without accepting or closing the WebSocket"),
        );
        return Conclusion::Failed;
    }
    let mut close = SendEvent::WebSocket(WebSocketSendEvent::Close { code: NORMAL, reason: String::new() });
    // If the message can't be sent, the client has disconnected by itself.
    let _is_gone = AsgiExchange::with(object, |exchange| exchange.deliver(&mut close)).is_err();
    Conclusion::Finished
}

/// True if the client of a request has disconnected; the application may have been told so, and have returned.
fn client_has_gone(exchange: &mut AsgiExchange) -> bool {
    let gone = exchange
        .visit(|_, answer, request_stream| answer.client_is_gone() || request_stream.body().is_some_and(|flow| flow.is_gone));
    !matches!(gone, Visited::Done(false))
}

/// Logs one line for a client that did not wait for the end of its answer.
fn log_disconnect(asgi: &'static Asgi, object: &Object, described: &FaultPlace) {
    let began_ms = AsgiExchange::with(object, |exchange| exchange.began_ms);
    if began_ms > 0 && !asgi.is_quiet_of_clients {
        let seconds = now_ms().saturating_sub(began_ms) as f64 / 1000.0;
        log_message(&asgi.fault_log, &format!("{described}: the client disconnected after {seconds:.1} s"));
    }
}

/// The client has disconnected, and messages of the task are dropped: a worker that exits waits less long for it than for others.
pub fn note_left(asgi: &Asgi, object: &Object) {
    let (task, has_begun, request_line) = AsgiExchange::with(object, |exchange| {
        (exchange.task.clone(), exchange.protocol.has_begun(), exchange.request_line.clone())
    });
    let Some(task) = task else { return };
    // SAFETY: all live; the result is ours.
    let noted = utf8_lossy(&request_line).and_then(|request| unsafe {
        let has_begun = if has_begun { ffi::Py_True() } else { ffi::Py_False() };
        call(asgi.callbacks.note_left.as_ptr(), [task.as_ptr(), has_begun, request.as_ptr()])
    });
    if noted.is_none() {
        asgi.log_set_exception("a client that left");
    }
}

/// `cancel-on-disconnect`: cancels the task of a request whose client has left. Its exchange is over.
pub fn cancel_left(object: &Object) {
    let (asgi, task) = AsgiExchange::with(object, |exchange| (exchange.asgi, exchange.task.clone()));
    let Some(task) = task else { return };
    // SAFETY: both live; the result is ours. Cancelling only schedules the task's next step.
    if unsafe { call_method(&asgi.names.cancel, [task.as_ptr()]) }.is_none() {
        asgi.log_set_exception("cancel-on-disconnect");
    }
}

/// `harakiri`: logs the task's stack, and cancels the task. The engine answers.
pub fn cancel_overdue(object: &Object, milliseconds: u64) {
    let (asgi, task, request, waiters) = AsgiExchange::with(object, |exchange| {
        (exchange.asgi, exchange.task.clone(), exchange.place_in_log().with_id(), exchange.disconnect())
    });
    waiters.wake(asgi);
    let Some(task) = task else { return };
    // SAFETY: all live; results are ours. Cancelling only schedules the task's next step.
    unsafe {
        let seconds = Object::owned(ffi::PyFloat_FromDouble(milliseconds as f64 / 1000.0));
        let request = utf8_lossy(request.as_bytes());
        let told = seconds.zip(request).and_then(|(seconds, request)| {
            call(asgi.callbacks.log_overdue.as_ptr(), [task.as_ptr(), seconds.as_ptr(), request.as_ptr()])?;
            call_method(&asgi.names.cancel, [task.as_ptr()])
        });
        if told.is_none() {
            asgi.log_set_exception("harakiri");
        }
    }
}

static TASK_DONE: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"task_done".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: task_done },
    ml_flags: ffi::METH_O,
    ml_doc: c"task_done(task): the application has ended".as_ptr(),
});

/// # Safety
/// Called by Python only, with our exchange and a task that is done.
unsafe extern "C" fn task_done(exchange: *mut ffi::PyObject, task: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the callable was bound to an exchange, which lives through the call.
    unsafe {
        if let Some(object) = Object::borrowed(exchange) {
            ended_later(&object, task);
        }
        new_reference(ffi::Py_None())
    }
}

/// The facts about one task for the log.
struct Awaited {
    began_ms: u64,
    line: Vec<u8>,
    state: &'static [u8],
}

/// Shows what an exiting worker waits for in the scoreboard. It is called after each turn of the loop and after each task's end.
pub fn show_awaited(asgi: &Asgi) {
    let Some(embedded) = asgi.embedded().filter(|embedded| embedded.worker().is_draining()) else { return };
    let heartbeat = embedded.heartbeat_of_loop();
    let Some(awaited) = oldest(asgi) else { return heartbeat.hide_awaited() };
    let others = match asgi.ongoing.count() - 1 {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        count => format!(" and {count} others"),
    };
    heartbeat.show_awaited(awaited.began_ms, &[&awaited.line, awaited.state, others.as_bytes()]);
}

fn oldest(asgi: &Asgi) -> Option<Awaited> {
    let looked_at = asgi.ongoing.some(MAX_LOOKED_AT);
    let oldest = looked_at.iter().min_by_key(|object| AsgiExchange::with(object, |exchange| exchange.began_ms))?;
    Some(AsgiExchange::with(oldest, |exchange| Awaited {
        began_ms: exchange.began_ms,
        line: exchange.request_line[..exchange.request_line.len().min(LINE_BYTES)].to_vec(),
        state: match exchange.protocol.is_complete() {
            true => b", which goes on after its answer",
            false if exchange.has_left || exchange.protocol.is_disconnected() => b", whose client has left",
            false => b"",
        },
    }))
}
