//! The log as Python reaches it: `bolide/log.py` and whatever else writes lines goes through here, so that no application waits
//! for a reader of the log. Prototypes and workers run it.

use std::os::fd::{AsRawFd, RawFd};

use pyo3::prelude::*;

/// Writes whole lines, each with its line end. Never waits: see the room `log`.
#[pyfunction]
pub fn write_log(lines: &[u8]) {
    bolide_log::write(lines);
}

/// Writes one line of the server's own, in the form that such lines have wherever they come from.
#[pyfunction]
pub fn tell_log(text: &str) {
    bolide_log::line(text);
}

/// Gives lines that wait for a reader a last moment, at the end of the process.
#[pyfunction]
pub fn finish_log(py: Python<'_>) {
    py.detach(bolide_log::finish);
}

/// Lines of the log are short ones that may have colours.
#[pyfunction]
pub fn log_is_coloured() -> bool {
    bolide_log::colours_lines()
}

/// The number of the log's descriptor, for what writes from a signal handler (`faulthandler`). It is none of 0, 1 and 2.
#[pyfunction]
pub fn log_descriptor() -> Option<RawFd> {
    bolide_log::raw_descriptor().map(|descriptor| descriptor.as_raw_fd())
}
