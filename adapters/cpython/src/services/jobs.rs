//! What writing jobs and working on them share: the dict of a job, and the names of directories. Every process of the application
//! runs it.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// As uWSGI names a directory in the paths of jobs: without links. A directory that is missing keeps its name.
pub fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The dict of a job for the application: as in uWSGI, bytes for bytes, and two names that are text.
pub fn task<'py, 'a>(
    py: Python<'py>,
    name: &[u8],
    variables: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    body: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let task = PyDict::new(py);
    task.set_item("spooler_task_name", PyBytes::new(py, name))?;
    for (name, value) in variables {
        task.set_item(PyBytes::new(py, name), PyBytes::new(py, value))?;
    }
    if !body.is_empty() {
        task.set_item("body", PyBytes::new(py, body))?;
    }
    Ok(task)
}
