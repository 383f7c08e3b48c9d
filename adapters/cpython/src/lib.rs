//! The native module `bolide._native`: Python starts the master through it, and a prototype and its workers run in it.
//!
//! It knows CPython and the engine's interface, but no protocols and no internals of the master. Every Bolide process that was
//! started by Python loads it, and so does the program of the package, for the master in it.

mod asgi;
mod call;
mod contexts;
mod crash_handler;
mod environ;
mod event_loop;
mod exceptions;
mod faults;

mod gevent;
mod helper;
mod log;
mod memory;
mod messages;
mod names;
mod native;
mod object;
mod prototype;
mod sampling;
mod services;
mod stack_signal;
mod start_response;
mod threads;
mod uwsgi_module;
mod uwsgi_request;
mod uwsgi_signals;
mod worker;
mod wsgi;

use std::ffi::{OsString, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bolide_master::Invocation;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The arguments of the master, kept from the call of [`main`] to the interpreter's end.
static INVOCATION: Mutex<Option<Invocation>> = Mutex::new(None);

/// Makes this process the master when the interpreter has ended; the caller returns to Python and exits. The process executes
/// the package's program, which has no Python. Without one it gives the interpreter's memory back to the system. `arguments` are
/// those of the command line, without the program's name. `imports` has the entries of `sys.path`, and the script that this
/// interpreter executes.
#[pyfunction]
fn main(
    arguments: Vec<OsString>,
    interpreter: Option<PathBuf>,
    package_directory: Option<PathBuf>,
    imports: Vec<PathBuf>,
) -> PyResult<()> {
    let language = Python::version_str().split(' ').next().map(|version| format!("CPython {version}"));
    let command = std::env::args_os().collect();
    let invocation = Invocation { arguments, command, interpreter, package_directory, imports, language };
    *INVOCATION.lock().unwrap_or_else(PoisonError::into_inner) = Some(invocation);
    // SAFETY: the function is an `extern "C" fn()` that lives as long as the process and does not use Python.
    match unsafe { pyo3::ffi::Py_AtExit(Some(run_master)) } {
        0 => Ok(()),
        _ => Err(PyRuntimeError::new_err("can't register another function that the interpreter runs at its exit")),
    }
}

/// Runs the program `bolide` in a process without Python, and returns the exit status. The program of the package calls it by its
/// name (packaging/build/program.c). Nothing that it reaches may use Python.
#[unsafe(no_mangle)]
extern "C" fn bolide_run_program() -> c_int {
    bolide_program::main(|| {
        let mut invocation = Invocation::of_program();
        invocation.language.get_or_insert_with(|| format!("CPython {}", env!("BOLIDE_PYTHON")));
        invocation
    })
}

/// Returns the command-line arguments for a keyword of `bolide.run` with these values. `switch` is set if the value is a bool.
#[pyfunction]
fn keyword_words(name: &str, switch: Option<bool>, texts: Vec<String>) -> PyResult<Vec<String>> {
    bolide_master::keyword_words(name, switch, &texts).map_err(|error| match error.is_value {
        true => PyValueError::new_err(error.message),
        false => PyTypeError::new_err(error.message),
    })
}

/// Has the kernel send this process SIGTERM when its parent ends. False: the parent has ended already.
#[pyfunction]
fn end_with_parent(parent: i32) -> PyResult<bool> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).map_err(std::io::Error::from)?;
    Ok(nix::unistd::getppid().as_raw() == parent)
}

/// This process was forked by the application, from a worker.
#[pyfunction]
fn note_child() {
    bolide_engine::forks::note_child();
}

/// The application is about to fork a child of this worker.
#[pyfunction]
fn prepare_fork() {
    bolide_engine::forks::prepare_fork();
}

/// The application has forked a child of this worker.
#[pyfunction]
fn note_fork() {
    bolide_engine::forks::note_fork();
    // From 3.13 on, `os.fork` counts the threads for its warning after the hooks have run, so the rest must come later. SAFETY:
    // the function does not take an argument, and the interpreter is held.
    if unsafe { pyo3::ffi::Py_AddPendingCall(Some(resume_after_fork), std::ptr::null_mut()) } != 0 {
        bolide_engine::forks::resume_after_fork();
    }
}

extern "C" fn resume_after_fork(_: *mut c_void) -> c_int {
    bolide_engine::forks::resume_after_fork();
    0
}

extern "C" fn run_master() {
    let invocation = INVOCATION.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(invocation) = invocation {
        // SAFETY: the call takes a number.
        let has_rights_of_the_file = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        // Another program would lose the rights of the interpreter's file (setcap).
        if !has_rights_of_the_file {
            // Whatever the reason, the master runs here then.
            let Err(_) = bolide_master::execute_program(&invocation);
        }
        // SAFETY: the call takes a number and invalidates no reference.
        unsafe { libc::malloc_trim(0) };
        std::process::exit(bolide_master::main(invocation));
    }
}

// The interpreter's lock protects the data that threads share. A free-threaded Python enables the lock again for a module that
// declares this.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("EXIT_LOAD_FAILED", bolide_contract::message::EXIT_LOAD_FAILED)?;
    module.add("EXIT_RECYCLED", bolide_contract::message::EXIT_RECYCLED)?;
    module.add("GROUP_SIGNALS", bolide_contract::message::GROUP_SIGNALS)?;
    module.add("HELPER_SIGNAL", bolide_contract::message::helper_signal())?;
    // Made here: a type can't be made while an exception is set, and it is compared with those of applications.
    module.add("ClientDisconnected", module.py().get_type::<exceptions::ClientDisconnected>())?;
    module.add_class::<helper::HelperLink>()?;
    module.add_class::<services::spooler_work::SpoolerWork>()?;
    module.add_class::<prototype::Assignment>()?;
    module.add_class::<event_loop::hosted::LoopWorker>()?;
    module.add_function(wrap_pyfunction!(asgi::worker::asgi_worker, module)?)?;
    module.add_function(wrap_pyfunction!(gevent::worker::gevent_worker, module)?)?;
    module.add_class::<gevent::context::RequestContext>()?;
    module.add_function(wrap_pyfunction!(gevent::context::uwsgi_request_context, module)?)?;
    module.add_class::<threads::ThreadBody>()?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(keyword_words, module)?)?;
    module.add_function(wrap_pyfunction!(end_with_parent, module)?)?;
    module.add_function(wrap_pyfunction!(log::write_log, module)?)?;
    module.add_function(wrap_pyfunction!(log::write_output, module)?)?;
    module.add_function(wrap_pyfunction!(log::report_log, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_event, module)?)?;
    module.add_function(wrap_pyfunction!(log::name_log, module)?)?;
    module.add_function(wrap_pyfunction!(call::early_hints::early_hints, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_is_json, module)?)?;
    module.add_function(wrap_pyfunction!(log::judge_requests, module)?)?;
    module.add_function(wrap_pyfunction!(log::tell_log, module)?)?;
    module.add_function(wrap_pyfunction!(log::finish_log, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_descriptor, module)?)?;
    module.add_function(wrap_pyfunction!(stack_signal::write_stack_at_signal, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_is_colored, module)?)?;
    module.add_function(wrap_pyfunction!(prototype::run_prototype, module)?)?;
    module.add_function(wrap_pyfunction!(worker::serve, module)?)?;
    module.add_function(wrap_pyfunction!(prototype::set_process_name, module)?)?;
    module.add_function(wrap_pyfunction!(note_child, module)?)?;
    module.add_function(wrap_pyfunction!(prototype::ask_for_replacement, module)?)?;
    module.add_function(wrap_pyfunction!(prepare_fork, module)?)?;
    module.add_function(wrap_pyfunction!(note_fork, module)?)?;
    memory::add_to(module)?;
    messages::add_to(module)?;
    uwsgi_module::add_to(module)?;
    services::add_to(module)?;
    uwsgi_signals::add_to(module)?;
    uwsgi_request::add_to(module)
}
