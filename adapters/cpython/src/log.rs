//! The log for Python: `bolide/log.py` and all other Python code write lines through it, so that no application waits for a
//! reader of the log. Prototypes and workers run it.

use std::os::fd::{AsRawFd, RawFd};

use pyo3::prelude::*;

/// Writes whole lines, each with its newline. Never blocks: see the room `log`.
#[pyfunction]
pub fn write_log(lines: &[u8]) {
    bolide_log::write(lines);
}

/// Writes one line of the server itself, in the same form as those of other processes.
#[pyfunction]
pub fn tell_log(text: &str) {
    bolide_log::line(text);
}

/// Flushes buffered lines for a short time, at the end of the process.
#[pyfunction]
pub fn finish_log(py: Python<'_>) {
    py.detach(bolide_log::finish);
}

/// True if log lines are short and may be coloured.
#[pyfunction]
pub fn log_is_coloured() -> bool {
    bolide_log::colours_lines()
}

/// The number of the log's descriptor, for writing from a signal handler (`faulthandler`). It is above 2.
#[pyfunction]
pub fn log_descriptor() -> Option<RawFd> {
    bolide_log::raw_descriptor().map(|descriptor| descriptor.as_raw_fd())
}
