//! The further threads of a worker. They are Python's own (`threading.Thread`), so that names, `threading.enumerate()`,
//! thread-local data and debuggers are as an application expects.

use std::sync::Mutex;
use std::sync::PoisonError;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// What a thread runs: a callable for `threading.Thread`, good for one call.
#[pyclass(frozen, module = "bolide._native")]
pub struct ThreadBody {
    body: Mutex<Option<Box<dyn FnOnce() + Send + 'static>>>,
}

#[pymethods]
impl ThreadBody {
    fn __call__(&self) {
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(body) = body {
            body();
        }
    }
}

/// Starts a thread; the caller holds the interpreter.
pub fn spawn(name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
    Python::attach(|py| {
        let target = Bound::new(py, ThreadBody { body: Mutex::new(Some(body)) })?;
        let arguments = PyDict::new(py);
        arguments.set_item("name", name)?;
        arguments.set_item("target", target)?;
        // The interpreter's end does not wait for it: the worker has waited already, for as long as it will.
        arguments.set_item("daemon", true)?;
        py.import("threading")?.getattr("Thread")?.call(PyTuple::empty(py), Some(&arguments))?.call_method0("start")?;
        Ok(())
    })
    .map_err(|error: PyErr| error.to_string())
}
