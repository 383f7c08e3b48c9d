//! Functions of the module `uwsgi` that Python calls by vectorcall (METH_FASTCALL): their arguments, with uWSGI's errors for
//! wrong ones (those of CPython's `PyArg_ParseTuple`), and their results. A `#[pyfunction]` would word these errors in its own
//! way, and take 20 ns more for a call. It does not know about services. The calling threads hold the interpreter.

use std::ffi::CStr;
use std::ops::{Deref, RangeInclusive};
use std::ptr::null_mut;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use pyo3::{Borrowed, IntoPyObjectExt, ffi};

use crate::native::Lasting;

/// The positional arguments of a call.
#[derive(Clone, Copy)]
pub struct CallArguments<'a, 'py> {
    pub python: Python<'py>,
    /// The function's name, for messages.
    function: &'static str,
    /// Living objects.
    given: &'a [*mut ffi::PyObject],
}

/// Bytes of an argument: of a text in UTF-8, or of an object with a buffer, which is released when they are dropped.
pub enum GivenBytes<'a> {
    Plain(&'a [u8]),
    Exported(PyUntypedBuffer),
}

/// uWSGI's True and None. Functions without a result return None.
pub type TrueOrNone = Option<bool>;

impl<'a, 'py> CallArguments<'a, 'py> {
    fn checked(self, count: RangeInclusive<usize>) -> PyResult<Self> {
        let (given, least, most) = (self.given.len(), *count.start(), *count.end());
        if count.contains(&given) {
            return Ok(self);
        }
        let (how, bound) = match given {
            _ if least == most => ("exactly", most),
            given if given < least => ("at least", least),
            _ => ("at most", most),
        };
        let s = if bound == 1 { "" } else { "s" };
        Err(PyTypeError::new_err(format!("{}() takes {how} {bound} argument{s} ({given} given)", self.function)))
    }

    pub fn has(&self, place: usize) -> bool {
        place < self.given.len()
    }

    #[inline]
    fn object(&self, place: usize) -> Borrowed<'a, 'py, PyAny> {
        // SAFETY: a living argument.
        unsafe { Borrowed::from_ptr(self.python, self.given[place]) }
    }

    /// A whole number of 64 bits.
    #[inline]
    pub fn long(&self, place: usize) -> PyResult<i64> {
        let object = self.object(place);
        if !object.is_instance_of::<PyInt>() {
            return object.extract();
        }
        // PyO3 converts an int as a C long, with another message for one that is too large.
        // SAFETY: a living argument.
        let number = unsafe { ffi::PyLong_AsLongLong(object.as_ptr()) };
        match number {
            // A second look tells the result -1 from an error.
            -1 => PyErr::take(self.python).map_or(Ok(-1), Err),
            number => Ok(number),
        }
    }

    /// A whole number of 64 bits, or this one if the argument is missing.
    #[inline]
    pub fn long_or(&self, place: usize, missing: i64) -> PyResult<i64> {
        if self.has(place) { self.long(place) } else { Ok(missing) }
    }

    /// A whole number within these bounds.
    pub fn within(&self, place: usize, least: i64, most: i64, kind: &str) -> PyResult<i64> {
        match self.long(place)? {
            number if number < least => Err(PyOverflowError::new_err(format!("{kind} is less than minimum"))),
            number if number > most => Err(PyOverflowError::new_err(format!("{kind} is greater than maximum"))),
            number => Ok(number),
        }
    }

    /// The low 32 bits of a whole number of any size.
    pub fn low_bits(&self, place: usize) -> PyResult<u32> {
        // SAFETY: a living argument.
        let number = unsafe { ffi::PyLong_AsUnsignedLongLongMask(self.object(place).as_ptr()) };
        match number {
            u64::MAX => PyErr::take(self.python).map_or(Ok(u32::MAX), Err),
            number => Ok(number as u32),
        }
    }

    /// A name.
    #[inline]
    pub fn text(&self, place: usize) -> PyResult<&'a str> {
        let object = self.object(place);
        if object.is_instance_of::<PyString>() {
            return object.extract();
        }
        // SAFETY: a type's name is a C string that lives as long as the type.
        let found = unsafe { CStr::from_ptr((*object.get_type_ptr()).tp_name) }.to_string_lossy();
        let message = format!("{}() argument {} must be str, not {found}", self.function, place + 1);
        Err(PyTypeError::new_err(message))
    }

    /// Text as UTF-8, or the bytes of an object with a buffer.
    #[inline]
    pub fn bytes(&self, place: usize) -> PyResult<GivenBytes<'a>> {
        let object = self.object(place);
        if object.is_instance_of::<PyBytes>() {
            return Ok(GivenBytes::Plain(object.extract()?));
        }
        if object.is_instance_of::<PyString>() {
            return Ok(GivenBytes::Plain(object.extract::<&str>()?.as_bytes()));
        }
        let buffer = PyUntypedBuffer::get(&object)?;
        match buffer.is_c_contiguous() {
            true => Ok(GivenBytes::Exported(buffer)),
            false => Err(PyBufferError::new_err("memoryview: underlying buffer is not C-contiguous")),
        }
    }
}

impl Deref for GivenBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            GivenBytes::Plain(bytes) => bytes,
            GivenBytes::Exported(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous, and lives as long as this value. Another thread of the application may change its
            // bytes in the meantime, as with each function that takes one: they are only copied.
            GivenBytes::Exported(buffer) => unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) },
        }
    }
}

/// Runs a function with the arguments of its call. Returns a new reference; null if an exception is set.
///
/// # Safety
/// Python has called the function with these arguments, which live until it returns.
pub unsafe fn answer<'py, R: IntoPyObject<'py>>(
    function: &'static str,
    (given, count): (*mut *mut ffi::PyObject, ffi::Py_ssize_t),
    permitted: RangeInclusive<usize>,
    act: impl FnOnce(&CallArguments<'_, 'py>) -> PyResult<R>,
) -> *mut ffi::PyObject {
    // SAFETY: the thread that Python calls with holds the interpreter.
    let python = unsafe { Python::assume_attached() };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller guarantees it; without arguments the pointer may be null.
    let given = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(given, count) } };
    let arguments = CallArguments { python, function, given }.checked(permitted);
    match arguments.and_then(|arguments| act(&arguments)?.into_py_any(python)) {
        Ok(result) => result.into_ptr(),
        Err(error) => {
            error.restore(python);
            null_mut()
        }
    }
}

/// Adds functions to the native module, each by its definition.
pub fn add_functions(module: &Bound<'_, PyModule>, definitions: &'static [Lasting<ffi::PyMethodDef>]) -> PyResult<()> {
    for definition in definitions {
        let raw = (&raw const definition.0).cast_mut();
        // SAFETY: the definition is static and Python only reads it; the name is a C string.
        let (name, function) = unsafe {
            let function = ffi::PyCFunction_NewEx(raw, null_mut(), null_mut());
            (CStr::from_ptr(definition.0.ml_name), Bound::from_owned_ptr_or_err(module.py(), function)?)
        };
        module.setattr(format!("uwsgi_{}", name.to_string_lossy()), function)?;
    }
    Ok(())
}

/// Defines a table of functions, each with the permitted numbers of its arguments and its body, which returns a `PyResult`:
/// `functions! { FUNCTIONS: is_locked(0..=1) is_held; … }`.
macro_rules! functions {
    ($table:ident: $($name:ident($permitted:expr) $body:expr;)*) => {
        $(
            /// # Safety
            /// Called by Python only, with the interpreter held.
            unsafe extern "C" fn $name(
                _: *mut pyo3::ffi::PyObject,
                given: *mut *mut pyo3::ffi::PyObject,
                count: pyo3::ffi::Py_ssize_t,
            ) -> *mut pyo3::ffi::PyObject {
                // SAFETY: Python's own call.
                unsafe { $crate::services::arguments::answer(stringify!($name), (given, count), $permitted, $body) }
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
