//! `environ["wsgi.early_hints"]`, as under gunicorn: sends `103 Early Hints` (RFC 8297) before the answer. One callable serves
//! all requests, so those that don't use it pay nothing. The thread that holds the interpreter runs it.

use bolide_engine::answer::Interim;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::call::current::CurrentRequest;

/// RFC 8297.
const EARLY_HINTS: u16 = 103;
/// Maximum number of fields of one call.
const MAX_FIELDS: usize = 128;

/// Sends 103 with these fields, a list of (name, value); `environ["wsgi.early_hints"]`.
#[pyfunction]
pub fn early_hints(headers: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(request) = CurrentRequest::of_this_thread() else {
        return Err(PyRuntimeError::new_err("wsgi.early_hints was called outside of its request"));
    };
    let mut fields = Vec::new();
    for pair in headers.try_iter()? {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
        if fields.len() == MAX_FIELDS {
            return Err(PyValueError::new_err(format!("wsgi.early_hints takes at most {MAX_FIELDS} fields")));
        }
        fields.push((latin1(&name)?, latin1(&value)?));
    }
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    match request.with(|answer| answer.inform(Interim::Status(EARLY_HINTS, &fields))) {
        Some(Err(refusal)) => Err(PyValueError::new_err(format!("the early hint is refused: {refusal}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

/// The bytes of a str of latin-1 characters, or of bytes.
fn latin1(text: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = text.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    let Ok(text) = text.cast::<PyString>() else {
        return Err(PyTypeError::new_err("wsgi.early_hints takes pairs of str"));
    };
    let byte = |letter: char| u8::try_from(letter).map_err(|_| PyValueError::new_err("an early hint is not latin-1"));
    text.to_str()?.chars().map(byte).collect()
}
