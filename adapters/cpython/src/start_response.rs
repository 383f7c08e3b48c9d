//! `start_response` and the `write` that it returns: native callables, made once for a thread and armed with the answer of the
//! current request. An application that keeps one beyond its request gets an error, not another client's connection. The thread
//! that holds the interpreter runs it.

use std::ffi::CStr;
use std::os::fd::IntoRawFd;
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use bolide_engine::answer::{Answer, Field, Pushed, ServerFields, Stage, Status, When};
use bolide_scoreboard::{Recorder, Slot};
use pyo3::ffi;

use crate::call::context::AnswerRules;
use crate::call::cooperation::{Cooperation, cooperation};
use crate::call::current as current_request;
use crate::call::state::{CallState, Place};
use crate::exceptions::{assertion_error, client_disconnected, raise, runtime_error, type_error, value_error};
use crate::native::{Lasting, bound, without_interpreter};
use crate::object::{Object, bytes_of};
use crate::uwsgi_module;

const CAPSULE_NAME: &CStr = c"bolide.start_response";

/// The pair of callables and their shared state.
pub struct StartResponse {
    pub callable: Object,
    write: Object,
    /// The owner of `state`.
    capsule: Object,
    state: *const CallState,
}

// SAFETY: the pointer is to memory that `capsule` owns, and only threads that hold the interpreter follow it, as with all of it.
unsafe impl Send for StartResponse {}

impl StartResponse {
    /// `None`: out of memory, an exception is set.
    pub fn new(rules: &'static AnswerRules) -> Option<StartResponse> {
        let state = Box::into_raw(Box::new(CallState::new(rules)));
        // SAFETY: the state was just made; from here on the capsule owns it and frees it in `free_state`.
        let capsule = unsafe { Object::owned(ffi::PyCapsule_New(state.cast(), CAPSULE_NAME.as_ptr(), Some(free_state))) };
        let Some(capsule) = capsule else {
            // SAFETY: no capsule took it over.
            drop(unsafe { Box::from_raw(state) });
            return None;
        };
        let callable = bound(&START_RESPONSE, &capsule)?;
        let write = bound(&WRITE, &capsule)?;
        let made = StartResponse { callable, write, capsule, state };
        made.state().write.set(made.write.as_ptr());
        Some(made)
    }

    pub fn state(&self) -> &CallState {
        // SAFETY: the capsule owns the state, and lives as long as we do.
        unsafe { &*self.state }
    }

    /// Points the callables at an answer, until [`StartResponse::disarm`].
    ///
    /// # Safety
    /// `answer` lives until it is disarmed, and the caller uses it only while no code of the application runs and, once the
    /// application's call has returned, only after [`StartResponse::call_has_returned`].
    pub unsafe fn arm(&self, answer: *mut Answer<'_>, has_returned: bool) {
        let state = self.state();
        state.place.set(Place::Lent(answer.cast()));
        state.has_returned.set(has_returned);
        state.has_ended.set(false);
        // SAFETY: pthread_self has no preconditions.
        state.thread.set(unsafe { libc::pthread_self() });
    }

    /// A request in a greenlet begins. `arm_at` follows, more than once.
    pub fn begin(&self) {
        let state = self.state();
        state.has_returned.set(false);
        state.has_ended.set(false);
    }

    /// Points the callables at the answer of a request in a greenlet.
    pub fn arm_at(&self, place: Place) {
        let state = self.state();
        state.place.set(place);
        // SAFETY: pthread_self has no preconditions.
        state.thread.set(unsafe { libc::pthread_self() });
    }

    /// The application's call has returned, in a greenlet.
    pub fn note_return(&self) {
        self.state().has_returned.set(true);
    }

    /// Like [`StartResponse::arm`], for work after the answer is complete. Only we hold references to it.
    ///
    /// # Safety
    /// Like there.
    pub unsafe fn arm_ended(&self, answer: *mut Answer<'_>) {
        debug_assert!(self.is_unshared(), "the callables of a response that has ended");
        // SAFETY: as the caller promises.
        unsafe { self.arm(answer, true) };
        self.state().has_ended.set(true);
    }

    /// Returns a callable that gives the application a descriptor of its own for the connection, which the server then forgets.
    /// `None`: out of memory, an exception is set.
    pub fn taker(&self) -> Option<Object> {
        self.state().is_spent.set(true);
        bound(&TAKE_SOCKET, &self.capsule)
    }

    /// Notes the scoreboard's slot of a request that may take over its connection.
    pub fn note_slot(&self, slot: Recorder<'static>) {
        self.state().slot.set(Some(slot));
    }

    /// Keeps the `environ` of a request with a chunked body or an Upgrade field, for the module `uwsgi`.
    pub fn keep_environ(&self, environ: &Object) {
        self.state().extras().environ = Some(environ.clone());
    }

    /// Makes this the current request of the calling thread, for the module `uwsgi`.
    pub fn make_current(&self) {
        current_request::make_current(self.state);
    }

    /// Forgets the thread's slot, which shows other requests from now on.
    pub fn leave_slot(&self) {
        if let Some(extras) = &mut *self.state().extras.borrow_mut() {
            extras.restore_limit();
        }
    }

    /// The request has ended, whatever the application does with its connection.
    pub fn end_offer(&self) {
        self.leave_slot();
        drop(self.state().extras.take());
        if let Some(slot) = self.state().slot.take()
            && slot.limit_ms.load(Relaxed) == Slot::UNLIMITED_MS
        {
            slot.limit_ms.store(0, Relaxed);
        }
    }

    /// The application's call has returned. If another thread of it is still in `write`, its part is sent first: it owns the
    /// response until then.
    pub fn call_has_returned(&self) {
        let state = self.state();
        state.has_returned.set(true);
        while state.is_writing.get() {
            let (lock, ended) = &state.quiet;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: this thread holds the interpreter, and takes it again before it accesses Python objects. The guard is
            // released before that: threads that hold the interpreter wait for the lock, never the other way round.
            unsafe {
                let thread = ffi::PyEval_SaveThread();
                drop(ended.wait(guard));
                ffi::PyEval_RestoreThread(thread);
            }
        }
    }

    /// Ends the WebSocket with the application's call.
    pub fn end_websocket(&self) {
        let state = self.state();
        let websocket = state.extras.borrow_mut().as_mut().and_then(|extras| extras.websocket.take());
        if let Some(websocket) = websocket {
            state.with(|answer| websocket.end(answer));
        }
    }

    pub fn disarm(&self) {
        debug_assert!(!self.state().is_writing.get(), "a response is taken away from a thread that writes");
        self.state().place.set(Place::Nowhere);
    }

    /// True if only we hold references to it: it may serve the next request.
    pub fn is_unshared(&self) -> bool {
        !self.state().is_spent.get() && self.callable.is_unshared() && self.write.is_unshared()
    }
}

impl Drop for StartResponse {
    fn drop(&mut self) {
        current_request::forget(self.state);
    }
}

static START_RESPONSE: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"start_response".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: start_response },
    ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
    ml_doc: c"start_response(status, headers, exc_info=None) -> write (PEP 3333)".as_ptr(),
});

static WRITE: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"write".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: write },
    ml_flags: ffi::METH_O,
    ml_doc: c"write(body_data): sends a part of the body (PEP 3333)".as_ptr(),
});

static TAKE_SOCKET: Lasting<ffi::PyMethodDef> = Lasting(ffi::PyMethodDef {
    ml_name: c"take_socket".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: take_socket },
    ml_flags: ffi::METH_NOARGS,
    ml_doc: c"take_socket(): the number of a descriptor for the connection, which the caller owns from now on".as_ptr(),
});

fn state_of<'a>(capsule: *mut ffi::PyObject) -> Option<&'a CallState> {
    // SAFETY: only capsules of this name reach here, and their pointer is the state until the capsule is freed; the callable that
    // Python is calling holds a reference to the capsule. The result is a shared reference: several threads may be in `write`.
    unsafe { ffi::PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<CallState>().as_ref() }
}

/// # Safety
/// Called by Python only, as the destructor of our capsule.
unsafe extern "C" fn free_state(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, when no reference to the capsule is left.
    unsafe {
        let state = ffi::PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<CallState>();
        if !state.is_null() {
            drop(Box::from_raw(state));
        }
    }
}

/// # Safety
/// Called by Python only, with our capsule and the arguments of a fast call.
unsafe extern "C" fn start_response(
    capsule: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls with `count` positional arguments followed by those of `keywords`.
    let arguments = unsafe { Arguments::read(arguments, count as usize, keywords) };
    let started = arguments.and_then(|arguments| start(capsule, &arguments));
    started.unwrap_or(null_mut())
}

struct Arguments {
    status: *mut ffi::PyObject,
    headers: *mut ffi::PyObject,
    /// Null when it is missing or None.
    exc_info: *mut ffi::PyObject,
}

impl Arguments {
    /// # Safety
    /// As CPython's fast call promises: `count` positional arguments, then one for each name in `keywords`.
    unsafe fn read(given: *const *mut ffi::PyObject, count: usize, keywords: *mut ffi::PyObject) -> Option<Arguments> {
        let mut places = [null_mut(); 3];
        // SAFETY: see above; the tuple of names has as many entries as values follow the positional ones.
        unsafe {
            let named = if keywords.is_null() { 0 } else { ffi::PyTuple_Size(keywords) as usize };
            if count + named > 3 {
                return raise(type_error(), "start_response takes two or three arguments: status, headers, exc_info=None");
            }
            for (number, place) in places.iter_mut().enumerate().take(count) {
                *place = *given.add(number);
            }
            for number in 0..named {
                let name = ffi::PyTuple_GetItem(keywords, number as ffi::Py_ssize_t);
                let place = [c"status", c"headers", c"exc_info"]
                    .iter()
                    .position(|known| ffi::PyUnicode_CompareWithASCIIString(name, known.as_ptr()) == 0);
                match place {
                    Some(place) if places[place].is_null() => places[place] = *given.add(count + number),
                    _ => return raise(type_error(), "start_response got an unknown argument, or one twice"),
                }
            }
            let [status, headers, exc_info] = places;
            if status.is_null() || headers.is_null() {
                return raise(type_error(), "start_response takes two or three arguments: status, headers, exc_info=None");
            }
            let exc_info = if exc_info == ffi::Py_None() { null_mut() } else { exc_info };
            Some(Arguments { status, headers, exc_info })
        }
    }
}

/// `None`: an exception is set.
fn start(capsule: *mut ffi::PyObject, arguments: &Arguments) -> Option<*mut ffi::PyObject> {
    let state = state_of(capsule)?;
    if state.is_of_another_thread() {
        return raise(
            runtime_error(),
            "start_response was called by another thread after the application had returned (PEP 3333)",
        );
    }
    let begun = state.with(|answer| {
        if !arguments.exc_info.is_null() {
            if answer.stage() >= Stage::Body {
                return raise_again(arguments.exc_info);
            }
        } else if answer.stage() > Stage::Fresh {
            return raise(assertion_error(), "start_response was called a second time without exc_info (PEP 3333)");
        }
        let written = write_head(state, answer, arguments.status, arguments.headers);
        if written.is_none() {
            answer.retract();
        }
        written
    });
    match begun {
        Some(written) => written?,
        None if state.place.get() == Place::Nowhere => {
            return raise(runtime_error(), "start_response was called after its request had ended");
        }
        // The client has left a request that goes on, so there is no answer.
        None => {}
    }
    // SAFETY: we are armed, so the StartResponse that owns `write` lives; the caller gets a reference of its own.
    unsafe { ffi::Py_INCREF(state.write.get()) };
    Some(state.write.get())
}

fn write_head(state: &CallState, answer: &mut Answer<'_>, status: *mut ffi::PyObject, headers: *mut ffi::PyObject) -> Option<()> {
    with_latin1(status, |bytes| answer.begin(Status::Line(bytes)), "the status")?;
    // SAFETY: `headers` is an argument and lives through the call; items of a list or tuple are borrowed and used immediately.
    unsafe {
        let is_list = ffi::PyList_Check(headers) != 0;
        if !is_list && ffi::PyTuple_Check(headers) == 0 {
            return raise(type_error(), "the headers of start_response must be a list of (name, value) tuples (PEP 3333)");
        }
        let mut number = 0;
        // The size is read each time: no code of the application runs here, but the list belongs to the application.
        while number < if is_list { ffi::PyList_Size(headers) } else { ffi::PyTuple_Size(headers) } {
            let pair = if is_list { ffi::PyList_GetItem(headers, number) } else { ffi::PyTuple_GetItem(headers, number) };
            if pair.is_null() || ffi::PyTuple_Check(pair) == 0 || ffi::PyTuple_Size(pair) != 2 {
                return raise(
                    type_error(),
                    &format!("header number {number} of start_response is not a tuple of name and value"),
                );
            }
            let (name, value) = (ffi::PyTuple_GetItem(pair, 0), ffi::PyTuple_GetItem(pair, 1));
            with_latin1(name, |name| with_value(state, answer, name, value), "a header's name")??;
            number += 1;
        }
    }
    Some(())
}

/// `Ok(None)`: an exception is set already.
fn with_value(
    state: &CallState,
    answer: &mut Answer<'_>,
    name: &[u8],
    value: *mut ffi::PyObject,
) -> Result<Option<()>, &'static str> {
    let what = || format!("the header {:?}", String::from_utf8_lossy(name));
    let Some(text) = latin1_text(value, &what) else { return Ok(None) };
    let server_fields = match state.rules.is_strict {
        true => ServerFields::Refused,
        false => ServerFields::Dropped { frames_chunks: state.rules.frames_chunks },
    };
    match answer.field(name, text.bytes(), server_fields) {
        Ok(Field::Set) => Ok(Some(())),
        Ok(Field::Dropped) => {
            state.rules.note_dropped(state.application.get(), name);
            Ok(Some(()))
        }
        Err(refusal) => Ok(raise(value_error(), &format!("{} was refused: {refusal}", what()))),
    }
}

fn with_latin1<T>(text: *mut ffi::PyObject, act: impl FnOnce(&[u8]) -> Result<T, &'static str>, what: &str) -> Option<T> {
    let text = latin1_text(text, &|| what.to_owned())?;
    match act(text.bytes()) {
        Ok(result) => Some(result),
        Err(refusal) => raise(value_error(), &format!("{what} of start_response was refused: {refusal}")),
    }
}

/// The latin-1 bytes of a str: its own memory if it is ASCII, as nearly always, else a copy.
enum Latin1Text<'a> {
    Own(&'a [u8]),
    Copy(Object),
}

impl Latin1Text<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Latin1Text::Own(bytes) => bytes,
            // SAFETY: it is a bytes object that lives as long as `self`.
            Latin1Text::Copy(object) => unsafe { bytes_of(object.as_ptr()) },
        }
    }
}

fn latin1_text<'a>(text: *mut ffi::PyObject, what: &dyn Fn() -> String) -> Option<Latin1Text<'a>> {
    // SAFETY: `text` lives through the call of start_response; the memory of an ASCII str does not move.
    unsafe {
        if ffi::PyUnicode_Check(text) == 0 {
            return raise(type_error(), &format!("{} must be a str (PEP 3333, \"Unicode Issues\")", what()));
        }
        let mut length = 0;
        let start = ffi::PyUnicode_AsUTF8AndSize(text, &mut length);
        if !start.is_null() {
            // The UTF-8 of a str has as many bytes as the str has characters only if all of them are ASCII.
            if length == ffi::PyUnicode_GET_LENGTH(text) {
                return Some(Latin1Text::Own(std::slice::from_raw_parts(start.cast::<u8>(), length as usize)));
            }
        }
        ffi::PyErr_Clear();
        match Object::owned(ffi::PyUnicode_AsLatin1String(text)) {
            Some(bytes) => Some(Latin1Text::Copy(bytes)),
            None => {
                ffi::PyErr_Clear();
                raise(value_error(), &format!("{} has characters that are not latin-1 (PEP 3333, \"Unicode Issues\")", what()))
            }
        }
    }
}

/// # Safety
/// Called by Python only, with our capsule and one argument.
unsafe extern "C" fn write(capsule: *mut ffi::PyObject, data: *mut ffi::PyObject) -> *mut ffi::PyObject {
    match write_part(capsule, data) {
        // SAFETY: None is immortal; the caller gets a reference of its own.
        Some(()) => unsafe {
            let none = ffi::Py_None();
            ffi::Py_INCREF(none);
            none
        },
        None => null_mut(),
    }
}

fn write_part(capsule: *mut ffi::PyObject, data: *mut ffi::PyObject) -> Option<()> {
    let state = state_of(capsule)?;
    // SAFETY: `data` lives through the call.
    if unsafe { ffi::PyBytes_Check(data) } == 0 {
        return raise(type_error(), "write takes bytes");
    }
    if state.is_writing.get() {
        return raise(runtime_error(), "write was called while it was running in another thread: it takes one part at a time");
    }
    if state.is_of_another_thread() {
        // The application's result is being sent, and a part of another thread would split it.
        return raise(runtime_error(), "write was called by another thread after the application had returned (PEP 3333)");
    }
    if state.place.get() == Place::Nowhere {
        return raise(runtime_error(), "write was called after its request had ended");
    }
    // SAFETY: checked above; the caller holds a reference, also while the interpreter is released below.
    let part = unsafe { bytes_of(data) };
    match (state.with(|answer| answer.write(part)), cooperation()) {
        (Some(Pushed::All), _) => Some(()),
        (Some(Pushed::Gone) | None, _) => client_is_gone(state.rules.write_errors),
        (Some(Pushed::Part(taken)), None) => write_rest(state, &part[taken..]),
        (Some(Pushed::Part(taken)), Some(worker)) => write_rest_in_turns(state, &part[taken..], worker),
    }
}

/// As [`write_rest`], in a worker whose requests share a thread.
fn write_rest_in_turns(state: &CallState, mut rest: &[u8], worker: &dyn Cooperation) -> Option<()> {
    state.is_writing.set(true);
    let sent = loop {
        // The engine sends what it has accepted.
        if rest.is_empty() {
            break Some(true);
        }
        if worker.wait(&state.client).is_none() {
            break None;
        }
        match state.with(|answer| answer.push(rest, When::Now)) {
            Some(Pushed::All) => break Some(true),
            Some(Pushed::Gone) | None => break Some(false),
            Some(Pushed::Part(taken)) => rest = &rest[taken..],
        }
    };
    state.is_writing.set(false);
    if sent? { Some(()) } else { client_is_gone(state.rules.write_errors) }
}

/// Waits for a slow client until it has the rest of a part, and all data that was buffered before.
fn write_rest(state: &CallState, mut rest: &[u8]) -> Option<()> {
    state.is_writing.set(true);
    let sent = loop {
        // The answer exists: the engine's thread takes none away during a `write`.
        let Some(wait) = state.with(|answer| answer.room()) else { break false };
        if let Some(wait) = wait {
            // No reference of ours to the answer is used during the wait, which owns all that it needs.
            let has_room = without_interpreter(|| wait.wait(state.rules.write_timeout));
            state.with(|answer| answer.waited(has_room));
            continue;
        }
        match state.with(|answer| answer.write(rest)) {
            Some(Pushed::All) => break true,
            Some(Pushed::Gone) | None => break false,
            Some(Pushed::Part(taken)) => rest = &rest[taken..],
        }
    };
    state.is_writing.set(false);
    let (lock, ended) = &state.quiet;
    drop(lock.lock());
    ended.notify_all();
    if sent { Some(()) } else { client_is_gone(state.rules.write_errors) }
}

/// # Safety
/// Called by Python only, with our capsule.
unsafe extern "C" fn take_socket(capsule: *mut ffi::PyObject, _nothing: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the result is new, or an exception is set.
    taken_socket(capsule).map_or(null_mut(), |number| unsafe { ffi::PyLong_FromLong(number.into()) })
}

fn taken_socket(capsule: *mut ffi::PyObject) -> Option<i32> {
    let state = state_of(capsule)?;
    if state.is_of_another_thread() {
        return raise(runtime_error(), "the connection's socket was used by another thread after the application had returned");
    }
    let given = state.with(|answer| match uwsgi_module::taken_connections() {
        Some(taken) => answer.take_over(taken, state.slot.get()),
        None => Err(std::io::ErrorKind::NotConnected.into()),
    });
    let Some(given) = given else {
        return raise(runtime_error(), "the connection's socket was used after its request had ended");
    };
    match given {
        Ok(own) => {
            state.is_given_away.set(true);
            // The application may use the connection without a time limit: `harakiri` applies to requests only.
            if let Some(slot) = state.slot.get() {
                slot.limit_ms.store(Slot::UNLIMITED_MS, Relaxed);
            }
            Some(own.into_raw_fd())
        }
        Err(error) => raise(runtime_error(), &format!("the connection's socket is not available: {error}")),
    }
}

fn client_is_gone(write_errors: bool) -> Option<()> {
    if !write_errors {
        return Some(());
    }
    raise(client_disconnected(), "write error: the client has disconnected, or stopped reading")
}

/// Raises the exception of `sys.exc_info()`: the head has been sent, so only the application's error can be reported.
#[allow(deprecated, reason = "the call that replaces PyErr_Restore came with 3.12, and 3.9 is supported")]
fn raise_again<T>(exc_info: *mut ffi::PyObject) -> Option<T> {
    // SAFETY: `exc_info` lives through the call; PyErr_Restore takes references, so each is made first.
    unsafe {
        if ffi::PyTuple_Check(exc_info) == 0 || ffi::PyTuple_Size(exc_info) != 3 {
            return raise(type_error(), "exc_info must be a tuple as sys.exc_info() returns it");
        }
        let [kind, value, traceback] = [0, 1, 2].map(|place| {
            let item = ffi::PyTuple_GetItem(exc_info, place);
            let item = if item == ffi::Py_None() { null_mut() } else { item };
            ffi::Py_XINCREF(item);
            item
        });
        ffi::PyErr_Restore(kind, value, traceback);
    }
    None
}
