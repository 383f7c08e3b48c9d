//! The process title that `ps` and `top` show for a prototype or a worker: `auto-procname`, `procname` and the related options.

use pyo3::prelude::*;

/// Sets the title of this process.
#[pyfunction]
pub fn set_process_name(name: &str) {
    bolide_master::set_process_name(name);
}
