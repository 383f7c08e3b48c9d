//! The further threads of a worker: what they run. Python's half (`bolide/threads.py`) makes them.

use std::sync::Mutex;
use std::sync::PoisonError;

use pyo3::prelude::*;

/// What a thread runs: a callable, good for one call.
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

/// Starts a thread; the caller holds the interpreter. How is said in `bolide/threads.py`.
pub fn spawn(name: String, body: Box<dyn FnOnce() + Send + 'static>) -> Result<(), String> {
    Python::attach(|py| {
        let body = Bound::new(py, ThreadBody { body: Mutex::new(Some(body)) })?;
        py.import("bolide.threads")?.call_method1("start", (name, body))?;
        Ok(())
    })
    .map_err(|error: PyErr| error.to_string())
}
