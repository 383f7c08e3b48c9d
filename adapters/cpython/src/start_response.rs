//! `start_response` and the `write` that it returns: native callables, made once for a thread and armed with the reply
//! of the request that is being served. An application that keeps one beyond its request gets an error, not another
//! client's connection.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::time::Duration;

use bolide_engine::reply::{Pushed, Reply, When};
use pyo3::ffi;

use crate::object::{Object, bytes_of};

const CAPSULE_NAME: &CStr = c"bolide.start_response";

/// The pair of callables and the state that they share.
pub struct StartResponse {
    pub callable: Object,
    write: Object,
    capsule: Object,
}

struct State {
    /// The reply that is being written; null between requests.
    reply: *mut Reply,
    /// Borrowed from the [`StartResponse`], and used only while that has armed us.
    write: *mut ffi::PyObject,
    /// Whether a client that left is the application's business (`ignore-write-errors`, `disable-write-exception`).
    write_errors: bool,
    write_timeout: Duration,
}

impl StartResponse {
    /// `None`: out of memory, an exception is set.
    pub fn new(write_errors: bool, write_timeout: Duration) -> Option<StartResponse> {
        let state = Box::new(State { reply: null_mut(), write: null_mut(), write_errors, write_timeout });
        let state = Box::into_raw(state);
        // SAFETY: the state was just made; from here on the capsule owns it and frees it in `free_state`.
        let capsule = unsafe { Object::owned(ffi::PyCapsule_New(state.cast(), CAPSULE_NAME.as_ptr(), Some(free_state))) };
        let Some(capsule) = capsule else {
            // SAFETY: no capsule took it over.
            drop(unsafe { Box::from_raw(state) });
            return None;
        };
        let callable = function(&START_RESPONSE, &capsule)?;
        let write = function(&WRITE, &capsule)?;
        state_of(capsule.as_ptr())?.write = write.as_ptr();
        Some(StartResponse { callable, write, capsule })
    }

    /// Points the callables at a reply, until [`StartResponse::disarm`].
    ///
    /// # Safety
    /// `reply` lives, and is not used by anybody else while the application runs, until it is disarmed.
    pub unsafe fn arm(&self, reply: *mut Reply) {
        if let Some(state) = state_of(self.capsule.as_ptr()) {
            state.reply = reply;
        }
    }

    pub fn disarm(&self) {
        if let Some(state) = state_of(self.capsule.as_ptr()) {
            state.reply = null_mut();
        }
    }

    /// Nobody but us refers to it: it may serve the next request.
    pub fn is_unshared(&self) -> bool {
        self.callable.is_unshared() && self.write.is_unshared()
    }
}

/// A method definition that Python may keep a pointer to.
struct Definition(ffi::PyMethodDef);

// SAFETY: the definition is constant data: C strings and a function pointer.
unsafe impl Sync for Definition {}

static START_RESPONSE: Definition = Definition(ffi::PyMethodDef {
    ml_name: c"start_response".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: start_response },
    ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
    ml_doc: c"start_response(status, headers, exc_info=None) -> write (PEP 3333)".as_ptr(),
});

static WRITE: Definition = Definition(ffi::PyMethodDef {
    ml_name: c"write".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: write },
    ml_flags: ffi::METH_O,
    ml_doc: c"write(body_data): sends a part of the body (PEP 3333)".as_ptr(),
});

fn function(definition: &'static Definition, capsule: &Object) -> Option<Object> {
    let definition = (&raw const definition.0).cast_mut();
    // SAFETY: the definition is static; Python reads it only. The function takes its own reference to the capsule.
    unsafe { Object::owned(ffi::PyCFunction_NewEx(definition, capsule.as_ptr(), null_mut())) }
}

fn state_of<'a>(capsule: *mut ffi::PyObject) -> Option<&'a mut State> {
    // SAFETY: only capsules of this name reach here, and their pointer is the state until the capsule is freed.
    // One thread at a time uses it: the one that runs the application with the interpreter in hand.
    unsafe { ffi::PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<State>().as_mut() }
}

/// # Safety
/// Called by Python only, as the destructor of our capsule.
unsafe extern "C" fn free_state(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, when nobody refers to the capsule any more.
    unsafe {
        let state = ffi::PyCapsule_GetPointer(capsule, CAPSULE_NAME.as_ptr()).cast::<State>();
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
                    _ => return raise(type_error(), "start_response got an argument that it does not know, or one twice"),
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
    // SAFETY: null, or the reply that the thread armed us with and is not using while the application runs.
    let Some(reply) = (unsafe { state.reply.as_mut() }) else {
        return raise(runtime_error(), "start_response was called when its request had ended");
    };
    if !arguments.exc_info.is_null() {
        if reply.head_has_left() {
            return raise_again(arguments.exc_info);
        }
    } else if reply.has_head() {
        return raise(assertion_error(), "start_response was called a second time without exc_info (PEP 3333)");
    }
    if write_head(reply, arguments.status, arguments.headers).is_none() {
        reply.drop_head();
        return None;
    }
    // SAFETY: we are armed, so the StartResponse that owns `write` lives; the caller gets a reference of its own.
    unsafe { ffi::Py_INCREF(state.write) };
    Some(state.write)
}

fn write_head(reply: &mut Reply, status: *mut ffi::PyObject, headers: *mut ffi::PyObject) -> Option<()> {
    with_latin1(status, |bytes| reply.status(bytes), "the status")?;
    // SAFETY: `headers` is an argument and lives through the call; items of a list or tuple are borrowed and used at once.
    unsafe {
        let is_list = ffi::PyList_Check(headers) != 0;
        if !is_list && ffi::PyTuple_Check(headers) == 0 {
            return raise(type_error(), "the headers of start_response must be a list of (name, value) tuples (PEP 3333)");
        }
        let mut number = 0;
        // The size is asked for each time: nothing here runs the application's code, but a list is not ours to trust.
        while number < if is_list { ffi::PyList_Size(headers) } else { ffi::PyTuple_Size(headers) } {
            let pair = if is_list { ffi::PyList_GetItem(headers, number) } else { ffi::PyTuple_GetItem(headers, number) };
            if pair.is_null() || ffi::PyTuple_Check(pair) == 0 || ffi::PyTuple_Size(pair) != 2 {
                return raise(
                    type_error(),
                    &format!("header number {number} of start_response is not a tuple of name and value"),
                );
            }
            let (name, value) = (ffi::PyTuple_GetItem(pair, 0), ffi::PyTuple_GetItem(pair, 1));
            with_latin1(name, |name| with_value(reply, name, value), "a header's name")??;
            number += 1;
        }
    }
    Some(())
}

/// `Ok(None)`: an exception is set already.
fn with_value(reply: &mut Reply, name: &[u8], value: *mut ffi::PyObject) -> Result<Option<()>, &'static str> {
    let what = || format!("the header {:?}", String::from_utf8_lossy(name));
    let Some(text) = latin1_text(value, &what) else { return Ok(None) };
    match reply.field(name, text.bytes()) {
        Ok(()) => Ok(Some(())),
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

/// The latin-1 bytes of a str: its own memory when it is ASCII, which is nearly always, else a copy.
enum Text<'a> {
    Own(&'a [u8]),
    Copy(Object),
}

impl Text<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Text::Own(bytes) => bytes,
            // SAFETY: it is a bytes object that lives as long as `self`.
            Text::Copy(object) => unsafe { bytes_of(object.as_ptr()) },
        }
    }
}

fn latin1_text<'a>(text: *mut ffi::PyObject, what: &dyn Fn() -> String) -> Option<Text<'a>> {
    // SAFETY: `text` lives through the call of start_response; the memory of an ASCII str does not move.
    unsafe {
        if ffi::PyUnicode_Check(text) == 0 {
            return raise(type_error(), &format!("{} must be a str (PEP 3333, \"Unicode Issues\")", what()));
        }
        let mut length = 0;
        let start = ffi::PyUnicode_AsUTF8AndSize(text, &mut length);
        if !start.is_null() {
            let bytes = std::slice::from_raw_parts(start.cast::<u8>(), length as usize);
            if bytes.is_ascii() {
                return Some(Text::Own(bytes));
            }
        }
        ffi::PyErr_Clear();
        match Object::owned(ffi::PyUnicode_AsLatin1String(text)) {
            Some(bytes) => Some(Text::Copy(bytes)),
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
        // SAFETY: None lives for ever; the caller gets a reference of its own.
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
    // SAFETY: as in `start`.
    let Some(reply) = (unsafe { state.reply.as_mut() }) else {
        return raise(runtime_error(), "write was called when its request had ended");
    };
    // SAFETY: `data` lives through the call.
    if unsafe { ffi::PyBytes_Check(data) } == 0 {
        return raise(type_error(), "write takes bytes");
    }
    // SAFETY: checked above; the caller holds a reference, also while the interpreter is released below.
    let part = unsafe { bytes_of(data) };
    let mut taken = 0;
    loop {
        match reply.push(&part[taken..], When::Now) {
            Pushed::All => return Some(()),
            Pushed::Gone => return client_is_gone(state.write_errors),
            Pushed::Part(count) => taken += count,
        }
        // SAFETY: this thread holds the interpreter; it is given back before Python is used again.
        let drained = unsafe {
            let thread = ffi::PyEval_SaveThread();
            let drained = reply.wait_until_drained(state.write_timeout);
            ffi::PyEval_RestoreThread(thread);
            drained
        };
        if !drained {
            return client_is_gone(state.write_errors);
        }
    }
}

fn client_is_gone(write_errors: bool) -> Option<()> {
    if !write_errors {
        return Some(());
    }
    // SAFETY: the exception type lives as long as the interpreter.
    raise(unsafe { ffi::PyExc_OSError }, "write error: the client has gone, or takes nothing any more")
}

/// Raises what `sys.exc_info()` gave: the head has left, and the application's error is all that can be told.
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

fn raise<T>(kind: *mut ffi::PyObject, message: &str) -> Option<T> {
    // SAFETY: the type lives as long as the interpreter; the message is copied.
    unsafe {
        if let Some(text) = Object::owned(ffi::PyUnicode_FromStringAndSize(message.as_ptr().cast(), message.len() as isize)) {
            ffi::PyErr_SetObject(kind, text.as_ptr());
        }
    }
    None
}

fn type_error() -> *mut ffi::PyObject {
    // SAFETY: the exception types live as long as the interpreter.
    unsafe { ffi::PyExc_TypeError }
}

fn value_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_ValueError }
}

fn runtime_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_RuntimeError }
}

fn assertion_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_AssertionError }
}
