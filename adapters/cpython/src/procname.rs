//! The name that `ps` and `top` show for a prototype or a worker: `auto-procname`, `procname` and their kin.

use pyo3::prelude::*;

/// Names this process.
#[pyfunction]
pub fn set_process_name(name: &str) {
    bolide_master::set_process_name(name);
}
