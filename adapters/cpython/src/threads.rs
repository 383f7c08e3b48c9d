//! The bodies of a worker's additional threads. The Python half (`bolide/threads.py`) makes the threads. It knows nothing of the
//! engine; the worker's first thread calls it.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// The body of a thread: a callable that can be called once.
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

/// Starts a thread, as `bolide/threads.py` describes. The caller holds the interpreter.
pub fn spawn(name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
    Python::attach(|py| {
        let body = Bound::new(py, ThreadBody { body: Mutex::new(Some(body)) })?;
        py.import("bolide.threads")?.call_method1("start", (name, body))?;
        Ok(())
    })
    .map_err(|error: PyErr| error.to_string())
}
