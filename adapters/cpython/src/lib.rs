//! The native module `bolide._native`: the door through which Python starts the master, and in which a
//! prototype and its workers run.
//!
//! It knows CPython and the engine's seam, nothing of protocols or of the master's inside. Every process of
//! Bolide that was started by Python loads it.

mod environ;
mod faults;
mod names;
mod object;
mod procname;
mod prototype;
mod start_response;
mod threads;
mod worker;
mod wsgi;

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the master and returns its exit status. `arguments` are those of the command line, without the program's name.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>, interpreter: Option<PathBuf>, package_folder: Option<PathBuf>) -> i32 {
    py.detach(|| bolide_master::main(bolide_master::Invocation { arguments, interpreter, package_folder }))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("EXIT_LOAD_FAILED", bolide_contract::message::EXIT_LOAD_FAILED)?;
    module.add("STACK_SIGNAL", bolide_contract::message::stack_signal())?;
    module.add_class::<prototype::Prototype>()?;
    module.add_class::<prototype::Assignment>()?;
    module.add_class::<threads::ThreadBody>()?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(worker::serve, module)?)?;
    module.add_function(wrap_pyfunction!(procname::set_process_name, module)?)?;
    Ok(())
}
