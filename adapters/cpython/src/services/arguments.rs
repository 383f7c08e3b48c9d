//! CallArguments and results of functions that Python calls by vectorcall (METH_FASTCALL), with the errors that CPython itself raises
//! for wrong ones. It knows no service. The calling threads hold the interpreter.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use pyo3::ffi;

use crate::object::new_reference;

/// The positional arguments of a call.
#[derive(Clone, Copy)]
pub struct CallArguments<'a> {
    /// The function's name, for messages.
    function: &'static str,
    given: &'a [*mut ffi::PyObject],
}

/// Bytes of an argument: of a text in UTF-8, or of an object with a buffer, which is released when they are dropped.
pub struct Bytes<'a> {
    start: *const u8,
    length: usize,
    buffer: Option<Box<ffi::Py_buffer>>,
    of: std::marker::PhantomData<&'a ()>,
}

impl<'a> CallArguments<'a> {
    /// `None`: an exception is set, because there are fewer than `least` or more than `most` arguments.
    ///
    /// # Safety
    /// Python has called the function with these arguments, which live until it returns.
    pub unsafe fn new(
        function: &'static str,
        given: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        [least, most]: [usize; 2],
    ) -> Option<CallArguments<'a>> {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the caller says so; without arguments the pointer may be null.
        let given = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(given, count) } };
        if (least..=most).contains(&count) {
            return Some(CallArguments { function, given });
        }
        let (how, bound) = match count {
            _ if least == most => ("exactly", most),
            count if count < least => ("at least", least),
            _ => ("at most", most),
        };
        let s = if bound == 1 { "" } else { "s" };
        raise(Error::Type, &format!("{function}() takes {how} {bound} argument{s} ({count} given)"))
    }

    pub fn has(&self, place: usize) -> bool {
        place < self.given.len()
    }

    /// A whole number of 64 bits. `None`: an exception is set.
    pub fn long(&self, place: usize) -> Option<i64> {
        // SAFETY: a living argument.
        unsafe { long_of(*self.given.get(place)?) }
    }

    /// A whole number of 64 bits, or this one if the argument is missing. `None`: an exception is set.
    pub fn long_or(&self, place: usize, missing: i64) -> Option<i64> {
        if self.has(place) { self.long(place) } else { Some(missing) }
    }

    /// A whole number within these bounds. `None`: an exception is set.
    pub fn within(&self, place: usize, least: i64, most: i64, kind: &str) -> Option<i64> {
        let number = self.long(place)?;
        if number < least {
            return raise(Error::Overflow, &format!("{kind} is less than minimum"));
        }
        if number > most {
            return raise(Error::Overflow, &format!("{kind} is greater than maximum"));
        }
        Some(number)
    }

    /// The low 32 bits of a whole number of any size. `None`: an exception is set.
    pub fn low_bits(&self, place: usize) -> Option<u32> {
        let object = *self.given.get(place)?;
        // SAFETY: a living argument; a second look tells the result -1 from an error.
        unsafe {
            let number = ffi::PyLong_AsUnsignedLongLongMask(object);
            (number != u64::MAX || ffi::PyErr_Occurred().is_null()).then_some(number as u32)
        }
    }

    /// A name. `None`: an exception is set.
    pub fn text(&self, place: usize) -> Option<&'a str> {
        let object = *self.given.get(place)?;
        // SAFETY: a living argument; its text lives as long.
        unsafe {
            if ffi::PyUnicode_Check(object) == 0 {
                let found = type_name(object);
                return raise(Error::Type, &format!("{}() argument {} must be str, not {found}", self.function, place + 1));
            }
            let mut length = 0;
            let start = ffi::PyUnicode_AsUTF8AndSize(object, &mut length);
            if start.is_null() {
                return None;
            }
            // CPython encodes to UTF-8 itself.
            Some(std::str::from_utf8_unchecked(std::slice::from_raw_parts(start.cast(), length as usize)))
        }
    }

    /// Text as UTF-8, or the bytes of an object with a buffer. `None`: an exception is set.
    pub fn bytes(&self, place: usize) -> Option<Bytes<'a>> {
        let object = *self.given.get(place)?;
        // SAFETY: a living argument; its bytes live as long, or as long as the buffer is exported.
        unsafe {
            if ffi::PyBytes_Check(object) != 0 {
                let (start, length) = (ffi::PyBytes_AsString(object), ffi::PyBytes_Size(object));
                return Some(Bytes::plain(start.cast(), length));
            }
            if ffi::PyUnicode_Check(object) != 0 {
                let mut length = 0;
                let start = ffi::PyUnicode_AsUTF8AndSize(object, &mut length);
                return (!start.is_null()).then(|| Bytes::plain(start.cast(), length));
            }
            let mut buffer = Box::new(ffi::Py_buffer::new());
            if ffi::PyObject_GetBuffer(object, &mut *buffer, ffi::PyBUF_SIMPLE) != 0 {
                return None;
            }
            let (start, length) = (buffer.buf.cast_const().cast(), buffer.len);
            Some(Bytes { buffer: Some(buffer), ..Bytes::plain(start, length) })
        }
    }
}

impl Bytes<'_> {
    fn plain(start: *const u8, length: ffi::Py_ssize_t) -> Self {
        Bytes { start, length: usize::try_from(length).unwrap_or(0), buffer: None, of: std::marker::PhantomData }
    }

    pub fn as_slice(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the argument, or its exported buffer, lives as long as this value. Another thread of the application may change
        // a buffer's bytes meanwhile, as with each function that takes one: they are only copied.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = &mut self.buffer {
            // SAFETY: it was exported to us, once, and the thread holds the interpreter.
            unsafe { ffi::PyBuffer_Release(&mut **buffer) };
        }
    }
}

/// # Safety
/// The object lives.
unsafe fn long_of(object: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: the caller says that it lives. Other numbers than int have an index or are no whole numbers.
    unsafe {
        let number = if ffi::PyLong_Check(object) != 0 {
            ffi::PyLong_AsLongLong(object)
        } else {
            let index = ffi::PyNumber_Index(object);
            if index.is_null() {
                return None;
            }
            let number = ffi::PyLong_AsLongLong(index);
            ffi::Py_DECREF(index);
            number
        };
        (number != -1 || ffi::PyErr_Occurred().is_null()).then_some(number)
    }
}

/// # Safety
/// The object lives.
unsafe fn type_name(object: *mut ffi::PyObject) -> String {
    // SAFETY: a type's name is a C string that lives as long as the type.
    unsafe { CStr::from_ptr((*ffi::Py_TYPE(object)).tp_name) }.to_string_lossy().into_owned()
}

/// The exceptions of these functions.
#[derive(Clone, Copy)]
pub enum Error {
    Type,
    Value,
    Overflow,
    Runtime,
    Os,
}

/// Sets an exception, and returns the result that says so.
pub fn raise<T>(error: Error, message: &str) -> Option<T> {
    let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    // SAFETY: the exceptions live as long as the interpreter, and the message through the call.
    unsafe {
        let kind = match error {
            Error::Type => ffi::PyExc_TypeError,
            Error::Value => ffi::PyExc_ValueError,
            Error::Overflow => ffi::PyExc_OverflowError,
            Error::Runtime => ffi::PyExc_RuntimeError,
            Error::Os => ffi::PyExc_OSError,
        };
        ffi::PyErr_SetString(kind, message.as_ptr());
    }
    None
}

/// The result of a function, for Python.
pub trait ToPython {
    /// A new reference; null if an exception is set.
    fn into_python(self) -> *mut ffi::PyObject;
}

impl ToPython for () {
    fn into_python(self) -> *mut ffi::PyObject {
        // SAFETY: None lives as long as the interpreter.
        unsafe { new_reference(ffi::Py_None()) }
    }
}

/// True and False.
impl ToPython for bool {
    fn into_python(self) -> *mut ffi::PyObject {
        // SAFETY: both live as long as the interpreter.
        unsafe { new_reference(if self { ffi::Py_True() } else { ffi::Py_False() }) }
    }
}

/// uWSGI's True and None.
pub struct TrueOrNone(pub bool);

impl ToPython for TrueOrNone {
    fn into_python(self) -> *mut ffi::PyObject {
        if self.0 { true.into_python() } else { ().into_python() }
    }
}

impl ToPython for i64 {
    fn into_python(self) -> *mut ffi::PyObject {
        // SAFETY: the thread holds the interpreter.
        unsafe { ffi::PyLong_FromLongLong(self) }
    }
}

impl ToPython for u64 {
    fn into_python(self) -> *mut ffi::PyObject {
        // SAFETY: the thread holds the interpreter.
        unsafe { ffi::PyLong_FromUnsignedLongLong(self) }
    }
}

/// Bytes, or None.
impl ToPython for Option<Vec<u8>> {
    fn into_python(self) -> *mut ffi::PyObject {
        let Some(bytes) = self else { return ().into_python() };
        // SAFETY: Python copies the bytes.
        unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t) }
    }
}

impl ToPython for Vec<Option<Vec<u8>>> {
    fn into_python(self) -> *mut ffi::PyObject {
        // SAFETY: a new list, which takes over the new items; a place without one is null, which a list may have until then.
        unsafe {
            let list = ffi::PyList_New(self.len() as ffi::Py_ssize_t);
            if list.is_null() {
                return list;
            }
            for (place, item) in self.into_iter().enumerate() {
                let item = item.into_python();
                if item.is_null() {
                    ffi::Py_DECREF(list);
                    return null_mut();
                }
                ffi::PyList_SetItem(list, place as ffi::Py_ssize_t, item);
            }
            list
        }
    }
}

/// An object that is the result already.
pub struct Made(pub *mut ffi::PyObject);

impl ToPython for Made {
    fn into_python(self) -> *mut ffi::PyObject {
        self.0
    }
}

/// Returns the result of a function. `None`: an exception is set.
pub fn answered(result: Option<impl ToPython>) -> *mut ffi::PyObject {
    result.map_or(null_mut(), ToPython::into_python)
}

/// Runs code that touches no Python object while other threads run Python code.
pub fn without_interpreter<R>(act: impl FnOnce() -> R) -> R {
    struct Back(*mut ffi::PyThreadState);
    impl Drop for Back {
        fn drop(&mut self) {
            // SAFETY: the state that was saved below, by this thread.
            unsafe { ffi::PyEval_RestoreThread(self.0) };
        }
    }
    // SAFETY: the thread holds the interpreter, and gets it back before anything else happens.
    let _back = Back(unsafe { ffi::PyEval_SaveThread() });
    act()
}

/// Adds functions to the native module, each by its definition.
pub fn add_functions(module: *mut ffi::PyObject, definitions: &'static [crate::native::Lasting<ffi::PyMethodDef>]) -> Option<()> {
    for definition in definitions {
        let raw = (&raw const definition.0).cast_mut();
        // SAFETY: the definition is static and Python only reads it; the name is a C string.
        let added = unsafe {
            let function = ffi::PyCFunction_NewEx(raw, null_mut(), null_mut());
            if function.is_null() {
                return None;
            }
            let name = format!("uwsgi_{}", CStr::from_ptr(definition.0.ml_name).to_string_lossy());
            let name = CString::new(name).ok()?;
            let added = ffi::PyObject_SetAttrString(module, name.as_ptr(), function);
            ffi::Py_DECREF(function);
            added
        };
        if added != 0 {
            return None;
        }
    }
    Some(())
}

/// Defines a function that Python calls by vectorcall: `function!(lock_it, "lock", 0..=1, |arguments| …)`. Its body returns an
/// `Option` of an [`ToPython`]; `None` means that an exception is set.
macro_rules! functions {
    ($table:ident: $($name:ident($least:literal..=$most:literal) $body:expr;)*) => {
        $(
            /// # Safety
            /// Called by Python only, with the interpreter held.
            unsafe extern "C" fn $name(
                _: *mut pyo3::ffi::PyObject,
                given: *mut *mut pyo3::ffi::PyObject,
                count: pyo3::ffi::Py_ssize_t,
            ) -> *mut pyo3::ffi::PyObject {
                // SAFETY: Python's own call.
                let arguments = unsafe {
                    $crate::services::arguments::CallArguments::new(stringify!($name), given, count, [$least, $most])
                };
                $crate::services::arguments::answered(arguments.and_then($body))
            }
        )*

        pub static $table: &[$crate::native::Lasting<pyo3::ffi::PyMethodDef>] = &[$(
            $crate::native::Lasting(pyo3::ffi::PyMethodDef {
                // A name of this file, with its end.
                ml_name: concat!(stringify!($name), "\0").as_ptr().cast(),
                ml_meth: pyo3::ffi::PyMethodDefPointer { PyCFunctionFast: $name },
                ml_flags: pyo3::ffi::METH_FASTCALL,
                ml_doc: std::ptr::null(),
            })
        ),*];
    };
}
pub(crate) use functions;
