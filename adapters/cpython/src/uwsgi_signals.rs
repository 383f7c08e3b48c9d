//! The native half of uWSGI's signals (`bolide/uwsgi/signals.py`): raises and registers them, waits for them, and calls the
//! Python function that runs handlers. It does not know about handlers. Workers and helpers run it; a prototype has no port, and
//! collects.

use std::sync::{Arc, OnceLock};

use bolide_contract::life::PerLife;
use bolide_contract::uwsgi_signals::{Registration, Registrations};
use bolide_engine::app::SignalOutcome;
use bolide_engine::uwsgi_signals::{SignalPort, Waited};
use bolide_scoreboard::Row;
use pyo3::exceptions::{PySystemError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::native::call;
use crate::object::Object;

static PORT: PerLife<Arc<SignalPort>> = PerLife::new();
/// The row of this process, which says whether it serves.
static ROW: PerLife<&'static Row> = PerLife::new();
/// `bolide.uwsgi.signals.Signals.run(number)`
static RUNNER: OnceLock<Object> = OnceLock::new();

/// The results of the runner.
const HANDLED: i64 = 0;
const FAILED: i64 = 1;
const FAILED_FATALLY: i64 = 2;

/// Called in a process that is about to serve or to help.
pub fn attach(port: &Arc<SignalPort>, row: &'static Row) {
    // A process serves or helps once.
    let (_port, _row) = (PORT.set(port.clone()), ROW.set(row));
}

/// Runs the handler of a signal. The calling thread holds the interpreter.
pub fn run_handler(number: u8) -> SignalOutcome {
    let Some(runner) = RUNNER.get() else { return SignalOutcome::Handled };
    // SAFETY: the thread holds the interpreter, and all objects are alive. The runner raises nothing; if memory is lacking, the
    // exception is reported like one in a callback.
    let result = unsafe {
        let result =
            Object::owned(ffi::PyLong_FromLong(number.into())).and_then(|number| call(runner.as_ptr(), [number.as_ptr()]));
        match result {
            Some(result) => ffi::PyLong_AsLong(result.as_ptr()),
            None => {
                ffi::PyErr_WriteUnraisable(runner.as_ptr());
                FAILED
            }
        }
    };
    match result {
        HANDLED => SignalOutcome::Handled,
        FAILED_FATALLY => SignalOutcome::FailedFatally,
        _ => SignalOutcome::Failed,
    }
}

/// Sets the function that runs handlers. It returns one of `SIGNAL_HANDLED`, `SIGNAL_FAILED` and `SIGNAL_FAILED_FATALLY`.
#[pyfunction]
fn set_signal_runner(runner: Bound<'_, PyAny>) {
    // SAFETY: the pointer is the reference that `into_ptr` releases to us.
    if let Some(runner) = unsafe { Object::owned(runner.into_ptr()) } {
        let _set_once = RUNNER.set(runner);
    }
}

/// Raises a signal. False: this process is a prototype, which reports the signal.
#[pyfunction]
fn raise_signal(number: u8) -> bool {
    PORT.get().map(|port| port.raise(number)).is_some()
}

/// Reports registrations, a list as JSON. False: this process is a prototype, which reports them.
#[pyfunction]
fn register_signals(list: &str) -> PyResult<bool> {
    let Some(port) = PORT.get() else { return Ok(false) };
    port.register(&registrations(list, Vec::new(), is_loading())?)?;
    Ok(true)
}

/// Whether this process does not serve yet, so that each process of the instance makes the same registrations.
#[pyfunction]
fn is_loading() -> bool {
    ROW.get().is_none_or(|row| row.started_ms.load(std::sync::atomic::Ordering::Relaxed) == 0)
}

/// Returns the report of a process that has loaded the application.
#[pyfunction]
fn signals_report(list: &str, raised: Vec<u8>) -> PyResult<Vec<u8>> {
    registrations(list, raised, true)
}

fn registrations(list: &str, raised: Vec<u8>, is_loading: bool) -> PyResult<Vec<u8>> {
    let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
    let list: Vec<Registration> = serde_json::from_str(list).map_err(wrong)?;
    serde_json::to_vec(&Registrations { is_loading, list, raised }).map_err(wrong)
}

/// Waits for a signal. None: the process must end. SystemError: it is neither a worker nor a helper.
#[pyfunction]
fn wait_for_signal(py: Python<'_>) -> PyResult<Option<u8>> {
    let Some(port) = PORT.get() else {
        return Err(PySystemError::new_err("error waiting for signal: this process is loading the application"));
    };
    loop {
        match py.detach(|| port.wait(Some(LONGEST_WAIT_MS)))? {
            Waited::Signal(number) => {
                port.note_call();
                return Ok(Some(number));
            }
            Waited::End => return Ok(None),
            // Python's own handlers of signals run now and then.
            Waited::Nothing => py.check_signals()?,
        }
    }
}

/// How long a wait lasts without a look at Python's own handlers, in milliseconds.
const LONGEST_WAIT_MS: u64 = 500;

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SIGNAL_HANDLED", HANDLED)?;
    module.add("SIGNAL_FAILED", FAILED)?;
    module.add("SIGNAL_FAILED_FATALLY", FAILED_FATALLY)?;
    module.add_function(wrap_pyfunction!(set_signal_runner, module)?)?;
    module.add_function(wrap_pyfunction!(raise_signal, module)?)?;
    module.add_function(wrap_pyfunction!(register_signals, module)?)?;
    module.add_function(wrap_pyfunction!(signals_report, module)?)?;
    module.add_function(wrap_pyfunction!(is_loading, module)?)?;
    module.add_function(wrap_pyfunction!(wait_for_signal, module)?)?;
    Ok(())
}
