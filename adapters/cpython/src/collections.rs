//! Measures the collections of CPython's garbage collector: its callbacks call this around each one. The worker adds it to
//! `gc.callbacks` only where a scraper may come. It knows no series.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bolide_contract::clock::precise_us;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::uwsgi_module;

/// When the collection in progress has begun, in microseconds of the monotonic clock; 0: there is none. Only one runs at a time.
static BEGAN_US: AtomicU64 = AtomicU64::new(0);

/// A callback of `gc`: `phase` is `start` or `stop`.
#[pyfunction]
#[pyo3(signature = (phase, info, /))]
fn note_collection(phase: &str, info: &Bound<'_, PyDict>) -> PyResult<()> {
    if phase == "start" {
        BEGAN_US.store(precise_us(), Relaxed);
        return Ok(());
    }
    let began_us = BEGAN_US.swap(0, Relaxed);
    let generation = info.get_item("generation")?.and_then(|number| number.extract::<usize>().ok()).unwrap_or(0);
    if let Some(meters) = uwsgi_module::meters_of_worker().filter(|_| began_us > 0) {
        meters.note_collection(generation, precise_us().saturating_sub(began_us));
    }
    Ok(())
}

/// Adds the function to the native module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(note_collection, module)?)
}
