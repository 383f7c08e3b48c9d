//! The application's task: its first step at once, as an eager task (Python 3.12), or by an equivalent of the same promises
//! before that; and what its end means for the exchange.
//!
//! An application that never waits so costs no trip through the loop, and `asyncio.current_task()` is right in all of it.

use std::ptr::null_mut;

use bolide_contract::scoreboard::now_ms;
use bolide_engine::Visited;
use bolide_engine::app::Outcome;
use bolide_engine::request_stream::RequestStream;
use bolide_engine::response::Response;
use pyo3::ffi;

use super::Asgi;
use super::exchange::{AsgiChannel, AsgiExchange, ConnectionRef, ProtocolState};
use super::names::set;
use super::native::{Lasting, bound, call, call_method};
use crate::faults::{failed, log_message};
use crate::object::{Object, new_reference};

const VERSION_3_12: u64 = 0x030c_0000;

/// RFC 6455 section 7.4.1: the application has failed.
const INTERNAL_ERROR: u16 = 1011;

/// How tasks are begun with this interpreter.
pub struct TaskFactory {
    /// `asyncio.Task`
    task_type: Object,
    /// The keywords of its call: `loop`, and `eager_start` where there is that.
    keywords: Object,
    method: StartMethod,
}

enum StartMethod {
    /// `Task(coroutine, loop=loop, eager_start=True)`
    Eager,
    /// A task gives its first step to `loop.call_soon`. For that moment the loop's own attribute of this name is `catch`, which
    /// puts the step aside; it is then run in the task's context.
    Caught { catch: Object, caught: Object },
}

impl TaskFactory {
    /// `task_type` is `asyncio.Task`. `None`: an exception is set.
    pub fn new(task_type: Object, event_loop: &Object) -> Option<TaskFactory> {
        // SAFETY: all objects are alive; the dictionary takes references of its own.
        unsafe {
            let keywords = Object::owned(ffi::PyDict_New())?;
            set(&keywords, &crate::names::intern("loop")?, event_loop.as_ptr())?;
            if super::hexversion()? >= VERSION_3_12 {
                set(&keywords, &crate::names::intern("eager_start")?, ffi::Py_True())?;
                return Some(TaskFactory { task_type, keywords, method: StartMethod::Eager });
            }
            let caught = Object::owned(ffi::PyList_New(0))?;
            let catch = bound(&CATCH, &caught)?;
            Some(TaskFactory { task_type, keywords, method: StartMethod::Caught { catch, caught } })
        }
    }

    /// Makes the task of a coroutine, and runs it up to where it waits. `None`: an exception is set.
    fn start(&self, asgi: &Asgi, coroutine: Object) -> Option<Object> {
        // SAFETY: all objects live through the calls; results are ours. A tuple steals the reference that is put into it.
        unsafe {
            let arguments = Object::owned(ffi::PyTuple_New(1))?;
            ffi::PyTuple_SetItem(arguments.as_ptr(), 0, coroutine.into_ptr());
            let make = || Object::owned(ffi::PyObject_Call(self.task_type.as_ptr(), arguments.as_ptr(), self.keywords.as_ptr()));
            match &self.method {
                StartMethod::Eager => make(),
                StartMethod::Caught { catch, caught } => {
                    let event_loop = asgi.event_loop.as_ptr();
                    if ffi::PyObject_SetAttr(event_loop, asgi.names.call_soon.as_ptr(), catch.as_ptr()) != 0 {
                        return None;
                    }
                    let task = make();
                    // The loop's method is its class' again. Deleting can't fail: the line above has set it.
                    ffi::PyObject_SetAttr(event_loop, asgi.names.call_soon.as_ptr(), null_mut());
                    let task = task?;
                    run_caught(caught)?;
                    Some(task)
                }
            }
        }
    }
}

/// Runs the step that was put aside, in its context. `None`: it raised an exception beyond its task (SystemExit).
///
/// # Safety
/// The thread holds the interpreter.
unsafe fn run_caught(caught: &Object) -> Option<()> {
    // SAFETY: the list is ours; what it holds is referred to by us before it is emptied.
    unsafe {
        let length = ffi::PyList_Size(caught.as_ptr());
        let entry = Object::borrowed(ffi::PyList_GetItem(caught.as_ptr(), length - 1))?;
        ffi::PyList_SetSlice(caught.as_ptr(), length - 1, length, null_mut());
        let (step, context) = (ffi::PyTuple_GetItem(entry.as_ptr(), 0), ffi::PyTuple_GetItem(entry.as_ptr(), 1));
        if context == ffi::Py_None() {
            return call(step, []).map(drop);
        }
        if ffi::PyContext_Enter(context) != 0 {
            return None;
        }
        let stepped = call(step, []);
        // Leaving a context runs nothing, and an exception that is set stays.
        ffi::PyContext_Exit(context);
        stepped.map(drop)
    }
}

static CATCH: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"call_soon".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: catch },
    ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
    ml_doc: c"call_soon(step, context=None): puts a task's first step aside".as_ptr(),
});

/// # Safety
/// Called by Python only: `count` positional arguments, then those of `keywords`, of which a task's call has one, its context.
unsafe extern "C" fn catch(
    caught: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see above; the list and the tuple take references of their own.
    unsafe {
        let named = if keywords.is_null() { 0 } else { ffi::PyTuple_Size(keywords) };
        if count != 1 || named > 1 {
            ffi::PyErr_SetString(ffi::PyExc_RuntimeError, c"a task gave its first step to the loop in an unknown way".as_ptr());
            return null_mut();
        }
        let context = if named == 1 { *arguments.add(1) } else { ffi::Py_None() };
        match Object::owned(ffi::PyTuple_Pack(2, *arguments, context)) {
            Some(entry) if ffi::PyList_Append(caught, entry.as_ptr()) == 0 => new_reference(ffi::Py_None()),
            _ => null_mut(),
        }
    }
}

/// Calls the application and runs it up to where it waits. Returns its task; `None`: an exception is set.
pub fn start(asgi: &'static Asgi, callable: &Object, scope: Object, channel: &AsgiChannel) -> Option<Object> {
    // SAFETY: all objects live through the calls; results are ours.
    unsafe {
        // None of the application's code runs in this call: `bolide.asgi` hands over async functions only.
        let coroutine = call(callable.as_ptr(), [scope.as_ptr(), channel.receive.as_ptr(), channel.send.as_ptr()])?;
        drop(scope);
        asgi.task_factory.start(asgi, coroutine)
    }
}

/// Whether a task or a future is done. `None`: an exception is set.
pub fn is_done(asgi: &Asgi, task: &Object) -> Option<bool> {
    // SAFETY: the object lives; the result is ours.
    unsafe { call_method(&asgi.names.done, [task.as_ptr()]).map(|done| done.as_ptr() == ffi::Py_True()) }
}

/// The end of a task.
enum TaskEnd {
    Returned,
    Cancelled,
    /// By the exception that a `send()` to nobody raises. That is how applications end whose client has left, and no failure.
    Disconnected,
    /// The same, by an exception that the application or its framework raised in the place of that one.
    DisconnectedIndirectly,
    /// The exception is set.
    Raised,
}

fn end_of(asgi: &Asgi, task: *mut ffi::PyObject) -> TaskEnd {
    // SAFETY: the task lives and is done; what it gives is ours, and set again as Python's present exception.
    unsafe {
        match call_method(&asgi.names.exception, [task]) {
            Some(exception) if exception.as_ptr() == ffi::Py_None() => TaskEnd::Returned,
            Some(exception)
                if ffi::PyErr_GivenExceptionMatches(exception.as_ptr(), asgi.callbacks.client_disconnected.as_ptr()) != 0 =>
            {
                TaskEnd::Disconnected
            }
            Some(exception) if is_departure(asgi, &exception) => TaskEnd::DisconnectedIndirectly,
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

fn is_departure(asgi: &Asgi, exception: &Object) -> bool {
    // SAFETY: both live; the result is ours. An exception that can't even be looked at is told as it is.
    unsafe {
        let found = call(asgi.callbacks.is_departure.as_ptr(), [exception.as_ptr()]);
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
    described: impl Fn() -> String,
) -> Outcome<super::ExchangeHandle> {
    let end = end_of(asgi, task.as_ptr());
    if matches!(end, TaskEnd::Returned) && AsgiExchange::with(object, |exchange| exchange.protocol.is_complete()) {
        return Outcome::Finished;
    }
    AsgiExchange::with(object, |exchange| exchange.connection = connection);
    let outcome = conclude(asgi, object, &end, &described());
    let waiters = AsgiExchange::with(object, |exchange| {
        if !matches!(outcome, Outcome::Finished) {
            exchange.visit(close_failed);
        }
        exchange.disconnect()
    });
    waiters.wake(asgi);
    outcome
}

/// Looks after a task that goes on by itself. `None`: an exception is set.
pub fn follow(asgi: &'static Asgi, object: &Object, task: Object) -> Option<()> {
    let callback = AsgiExchange::end_callback(object)?;
    // SAFETY: all live; the result is ours.
    unsafe { call_method(&asgi.names.add_done_callback, [task.as_ptr(), callback.as_ptr()])? };
    // The task refers to the exchange by its callback, and the exchange to the task: so neither goes before its end.
    let before = AsgiExchange::with(object, |exchange| exchange.task.replace(task));
    drop(before);
    asgi.running.set(asgi.running.get() + 1);
    Some(())
}

/// A task that was followed has ended.
pub fn ended_later(object: &Object, task: *mut ffi::PyObject) {
    let (asgi, own) = AsgiExchange::with(object, |exchange| (exchange.asgi, exchange.task.take()));
    drop(own);
    asgi.running.set(asgi.running.get() - 1);
    let end = end_of(asgi, task);
    if matches!(end, TaskEnd::Returned) && AsgiExchange::with(object, |exchange| exchange.protocol.is_complete()) {
        return;
    }
    let (first_line, is_over) = AsgiExchange::with(object, |exchange| {
        (std::mem::take(&mut exchange.first_line), exchange.protocol.is_complete() || exchange.protocol.is_disconnected())
    });
    let outcome = conclude(asgi, object, &end, &String::from_utf8_lossy(&first_line));
    if !matches!(outcome, Outcome::Finished) && !is_over {
        if let Some(embedded) = asgi.embedded()
            && !matches!(end, TaskEnd::Disconnected | TaskEnd::DisconnectedIndirectly)
        {
            embedded.count_exception();
        }
        let waiters = AsgiExchange::with(object, |exchange| {
            exchange.visit(|protocol, response, request_stream| {
                if close_failed(protocol, response, request_stream) {
                    return;
                }
                if response.head_has_left() {
                    response.cut_off();
                } else {
                    response.answer(500, "Internal Server Error", "Internal Server Error");
                }
            });
            exchange.disconnect()
        });
        waiters.wake(asgi);
    }
    asgi.want_turn();
}

/// An open WebSocket is told that its application has failed. False: there is none.
fn close_failed(protocol: &mut ProtocolState, response: &mut Response, request_stream: &mut RequestStream) -> bool {
    let (ProtocolState::WebSocket(socket), RequestStream::Messages(websocket)) = (protocol, request_stream) else { return false };
    if socket.is_open() {
        websocket.close(INTERNAL_ERROR, "", response);
    }
    socket.is_open()
}

/// What an application's end means, when it is not simply that all was said. What went wrong is logged here.
fn conclude(asgi: &'static Asgi, object: &Object, end: &TaskEnd, described: &str) -> Outcome<super::ExchangeHandle> {
    let (complete, disconnected) =
        AsgiExchange::with(object, |exchange| (exchange.protocol.is_complete(), exchange.protocol.is_disconnected()));
    match end {
        TaskEnd::Disconnected | TaskEnd::DisconnectedIndirectly if complete => Outcome::Finished,
        TaskEnd::Disconnected => Outcome::Failed,
        TaskEnd::DisconnectedIndirectly => {
            tell_of_departure(asgi, object, described);
            Outcome::Failed
        }
        TaskEnd::Raised if complete => {
            asgi.log_set_exception(&format!("{described}, after its response"));
            Outcome::Finished
        }
        TaskEnd::Raised => failed(&asgi.fault_log, described),
        TaskEnd::Cancelled if complete || disconnected => Outcome::Finished,
        TaskEnd::Cancelled => {
            log_message(
                &asgi.fault_log,
                &format!("{described}: the application's task was cancelled before its response was complete"),
            );
            Outcome::Failed
        }
        TaskEnd::Returned if disconnected => Outcome::Finished,
        TaskEnd::Returned if AsgiExchange::with(object, |exchange| matches!(exchange.protocol, ProtocolState::WebSocket(_))) => {
            super::websocket::returned(asgi, object, described)
        }
        TaskEnd::Returned if AsgiExchange::with(object, client_has_gone) => {
            tell_of_departure(asgi, object, described);
            Outcome::Failed
        }
        TaskEnd::Returned => {
            log_message(&asgi.fault_log, &format!("{described}: the application returned without completing its response"));
            Outcome::Failed
        }
    }
}

/// The client of a request has gone; the application may have been told so, and returned.
fn client_has_gone(exchange: &mut AsgiExchange) -> bool {
    let gone = exchange
        .visit(|_, response, request_stream| response.client_is_gone() || request_stream.body().is_some_and(|flow| flow.is_gone));
    !matches!(gone, Visited::Done(false))
}

/// One line for a client that did not wait for the end of its answer.
fn tell_of_departure(asgi: &'static Asgi, object: &Object, described: &str) {
    let began_ms = AsgiExchange::with(object, |exchange| exchange.began_ms);
    if began_ms > 0 && !asgi.is_quiet_of_clients {
        let seconds = now_ms().saturating_sub(began_ms) as f64 / 1000.0;
        log_message(&asgi.fault_log, &format!("{described}: the client left after {seconds:.1} s"));
    }
}

/// `harakiri`: the task's stack goes to the log, and the task is cancelled. The engine answers.
pub fn cancel_overdue(object: &Object, milliseconds: u64) {
    let (asgi, task, first_line, waiters) = AsgiExchange::with(object, |exchange| {
        (exchange.asgi, exchange.task.clone(), exchange.first_line.clone(), exchange.disconnect())
    });
    waiters.wake(asgi);
    let Some(task) = task else { return };
    // SAFETY: all live; results are ours. Cancelling only schedules what the task then does.
    unsafe {
        let seconds = Object::owned(ffi::PyFloat_FromDouble(milliseconds as f64 / 1000.0));
        let request = crate::object::shown(&first_line);
        let told = seconds.zip(request).and_then(|(seconds, request)| {
            call(asgi.callbacks.log_overdue.as_ptr(), [task.as_ptr(), seconds.as_ptr(), request.as_ptr()])?;
            call_method(&asgi.names.cancel, [task.as_ptr()])
        });
        if told.is_none() {
            asgi.log_set_exception("harakiri");
        }
    }
}
