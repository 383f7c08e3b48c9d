//! The signal at which a thread writes its Python stack to the log: Python's `faulthandler` does that without the interpreter's
//! lock.
//!
//! Its handler loses `errno`, and the interrupted call may be about to read it: `os.stat` of a missing file would then raise
//! `OSError(0, 'Error')` in the application. So a handler of ours surrounds it. Prototypes set it, and their forks inherit it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bolide_contract::message::stack_signal;
use bolide_prototype::signals::keep_errno;
use nix::libc::{self, c_int};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::log::log_descriptor;

/// The handler of `faulthandler`; 0 before it is known.
static WRITER: AtomicUsize = AtomicUsize::new(0);

/// From here on a thread that gets the signal writes its stack to the log.
///
/// # Errors
/// `faulthandler` refuses, or the system does.
#[pyfunction]
pub fn write_stack_at_signal(py: Python<'_>) -> PyResult<()> {
    register(py, stack_signal(), log_descriptor(), false)?;
    // SAFETY: all zeros are a valid value of this type of integers and null pointers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes the current action to `action`, and changes nothing.
    let mut answer = unsafe { libc::sigaction(stack_signal(), std::ptr::null(), &raw mut action) };
    let handler = on_stack_signal as *const () as usize;
    if answer == 0 && action.sa_sigaction != handler {
        WRITER.store(action.sa_sigaction, Relaxed);
        action.sa_sigaction = handler;
        // SAFETY: the handler has the signature of the one that it replaces, and calls nothing but that one.
        answer = unsafe { libc::sigaction(stack_signal(), &raw const action, std::ptr::null_mut()) };
    }
    if answer == 0 { Ok(()) } else { Err(PyOSError::new_err(std::io::Error::last_os_error().to_string())) }
}

/// Has `faulthandler` write to this descriptor, or to `sys.stderr`, at a signal.
///
/// # Errors
/// Those of `faulthandler.register`.
pub fn register(py: Python<'_>, signal: c_int, file: Option<RawFd>, all_threads: bool) -> PyResult<()> {
    let options = PyDict::new(py);
    options.set_item("file", file)?;
    options.set_item("all_threads", all_threads)?;
    options.set_item("chain", false)?;
    py.import("faulthandler")?.call_method("register", (signal,), Some(&options)).map(drop)
}

extern "C" fn on_stack_signal(signal: c_int) {
    keep_errno(|| {
        let writer = WRITER.load(Relaxed);
        if writer != 0 {
            // SAFETY: the address is that of the handler that `faulthandler` had set for this signal, without SA_SIGINFO.
            let writer = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(writer) };
            writer(signal);
        }
    });
}
