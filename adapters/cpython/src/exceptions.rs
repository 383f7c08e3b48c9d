//! Python's exceptions, raised from native code. It knows nothing of requests; threads that hold the interpreter run it.

use std::ptr::null_mut;

use pyo3::exceptions::PyOSError;
use pyo3::{PyTypeInfo, Python, ffi};

use crate::native::call;
use crate::object::{Object, latin1};

pyo3::create_exception!(
    bolide,
    ClientDisconnected,
    PyOSError,
    "The client has disconnected, or stopped reading, and the application sends to it (ASGI 2.4: \"a server-specific subclass of \
    OSError\"; `write` of WSGI; WebSockets of `uwsgi`)."
);

/// Clears the exception that is set if it is the one that tells a WSGI application that its client has left. Such a request has
/// not failed, and its line in the log says what became of it. True: it was that exception.
pub fn clear_client_disconnected() -> bool {
    // SAFETY: an exception is set, so the thread holds the interpreter; the type lives as long as it does.
    unsafe {
        let is_ours = ffi::PyErr_ExceptionMatches(client_disconnected()) != 0;
        if is_ours {
            ffi::PyErr_Clear();
        }
        is_ours
    }
}

/// The type of [`ClientDisconnected`].
pub fn client_disconnected() -> *mut ffi::PyObject {
    // SAFETY: only threads that hold the interpreter call Python's exceptions.
    let python = unsafe { Python::assume_attached() };
    ClientDisconnected::type_object_raw(python).cast()
}

/// Sets an exception with this text, and returns `None` for the caller to return.
pub fn raise<T>(kind: *mut ffi::PyObject, text: &str) -> Option<T> {
    // SAFETY: the type lives as long as the interpreter; the text is copied, or an exception is set already.
    unsafe {
        if let Some(text) = Object::owned(ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as isize)) {
            ffi::PyErr_SetObject(kind, text.as_ptr());
        }
    }
    None
}

/// Sets an OSError: Python chooses its subclass by the number (PEP 3151).
pub fn raise_os<T>(errno: Option<i32>, text: &str) -> Option<T> {
    // SAFETY: the type lives; the arguments are ours.
    unsafe {
        let text = latin1(text.as_bytes())?;
        let number = Object::owned(ffi::PyLong_FromLong(errno.unwrap_or(nix::libc::EINVAL).into()))?;
        if let Some(exception) = call(ffi::PyExc_OSError, [number.as_ptr(), text.as_ptr()]) {
            ffi::PyErr_SetObject(ffi::Py_TYPE(exception.as_ptr()).cast(), exception.as_ptr());
        }
    }
    None
}

/// Calls Python while another exception may be set: after a refused message of the application, the engine may have work left.
#[allow(deprecated, reason = "the calls that replace these came with 3.12, and 3.9 is supported")]
pub fn keeping_exception(act: impl FnOnce()) {
    let (mut kind, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the thread holds the interpreter. What is fetched is ours until it is given back; all three may be null.
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback) };
    act();
    // SAFETY: as above.
    unsafe { ffi::PyErr_Restore(kind, value, traceback) };
}

pub fn type_error() -> *mut ffi::PyObject {
    // SAFETY: the exception types live as long as the interpreter.
    unsafe { ffi::PyExc_TypeError }
}

pub fn value_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_ValueError }
}

pub fn runtime_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_RuntimeError }
}

pub fn lookup_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_LookupError }
}

pub fn assertion_error() -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { ffi::PyExc_AssertionError }
}
