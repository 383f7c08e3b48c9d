//! A counted reference for the hot path, like `Py<T>`, but without checks that the interpreter is held. Everything in this file
//! must be called, and every [`Object`] dropped, by a thread that holds the interpreter.

use std::ptr::NonNull;

use pyo3::ffi;

/// An owned reference to a Python object.
pub struct Object(NonNull<ffi::PyObject>);

// SAFETY: a reference may move between threads; it is only counted by a thread that holds the interpreter, which the engine
// guarantees: it runs an adapter, and drops the objects that an adapter left with it, between `acquire` and `release` only.
unsafe impl Send for Object {}
// SAFETY: as above; a shared `Object` gives out nothing but the pointer.
unsafe impl Sync for Object {}

impl Object {
    /// Takes over a new reference. `None` for a null pointer, which means that an exception is set.
    ///
    /// # Safety
    /// `pointer` is null or a reference that the caller owns and gives away.
    pub unsafe fn owned(pointer: *mut ffi::PyObject) -> Option<Object> {
        NonNull::new(pointer).map(Object)
    }

    /// Makes a new reference from a borrowed one. `None` for a null pointer.
    ///
    /// # Safety
    /// `pointer` is null or refers to a living object.
    pub unsafe fn borrowed(pointer: *mut ffi::PyObject) -> Option<Object> {
        // SAFETY: the caller says that it lives, or is null, which this form allows.
        unsafe { ffi::Py_XINCREF(pointer) };
        NonNull::new(pointer).map(Object)
    }

    pub fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// Releases ownership of the reference to the caller.
    pub fn into_ptr(self) -> *mut ffi::PyObject {
        let pointer = self.as_ptr();
        std::mem::forget(self);
        pointer
    }

    /// True if this is the only reference: then no other code can see the object.
    pub fn is_unshared(&self) -> bool {
        // SAFETY: the object lives as long as we refer to it.
        unsafe { ffi::Py_REFCNT(self.as_ptr()) == 1 }
    }

    /// True if the object's type is exactly this one.
    pub fn is_exactly(&self, kind: *mut ffi::PyTypeObject) -> bool {
        // SAFETY: the object lives as long as we refer to it.
        unsafe { ffi::Py_TYPE(self.as_ptr()) == kind }
    }
}

impl Clone for Object {
    fn clone(&self) -> Object {
        // SAFETY: the object lives as long as we refer to it.
        unsafe { ffi::Py_INCREF(self.as_ptr()) };
        Object(self.0)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: this reference is ours, and the thread holds the interpreter (see above).
        unsafe { ffi::Py_DECREF(self.as_ptr()) };
    }
}

/// Makes another reference, for Python to own. The interpreter's own function for this is missing before 3.10.
///
/// # Safety
/// `pointer` refers to a living object.
pub unsafe fn new_reference(pointer: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller says that it lives.
    unsafe { ffi::Py_INCREF(pointer) };
    pointer
}

/// The bytes of a `bytes` object (or of a subclass of it).
///
/// # Safety
/// `pointer` refers to such an object, and it lives as long as the slice is used.
pub unsafe fn bytes_of<'a>(pointer: *mut ffi::PyObject) -> &'a [u8] {
    // SAFETY: the caller says that it is a bytes object, whose memory does not move.
    unsafe {
        let start = ffi::PyBytes_AsString(pointer).cast::<u8>();
        let length = ffi::PyBytes_Size(pointer);
        if start.is_null() || length <= 0 { &[] } else { std::slice::from_raw_parts(start, length as usize) }
    }
}

/// Returns a `str` as PEP 3333 requires: each byte is a latin-1 character. `None`: out of memory, an exception is set.
pub fn latin1(bytes: &[u8]) -> Option<Object> {
    // SAFETY: the pointer and length are those of a slice; the result is new.
    unsafe { Object::owned(ffi::PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), bytes.len() as isize, std::ptr::null())) }
}

/// Returns a `str` from bytes that should be UTF-8; invalid ones become U+FFFD. `None`: out of memory, an exception is set.
pub fn utf8_lossy(bytes: &[u8]) -> Option<Object> {
    // SAFETY: the pointer and length are those of a slice; the result is new.
    unsafe { Object::owned(ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, c"replace".as_ptr())) }
}

pub fn none() -> Object {
    // SAFETY: None lives as long as the interpreter and is never null.
    unsafe { Object::borrowed(ffi::Py_None()) }.unwrap_or_else(|| unreachable!("None is there"))
}

/// A `str` from UTF-8. `None`: an exception is set.
pub fn utf8(bytes: &[u8]) -> Option<Object> {
    // SAFETY: the pointer and length are those of a slice; the result is new.
    unsafe { Object::owned(ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, std::ptr::null())) }
}

/// A `bytes` object. `None`: out of memory, an exception is set.
pub fn new_bytes(bytes: &[u8]) -> Option<Object> {
    // SAFETY: the pointer and length are those of a slice; the result is new.
    unsafe { Object::owned(ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as isize)) }
}
