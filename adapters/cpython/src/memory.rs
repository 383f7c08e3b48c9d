//! CPython's memory, which the C library's numbers do not show. Its own allocator has the objects in use, for `leak-report`.
//! The callbacks of its garbage collector measure each collection: the worker adds ours to `gc.callbacks` only where a scraper
//! may come.
//!
//! It does not know about requests or series. Threads that hold the interpreter run it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::precise_us;
use bolide_engine::app::{Collection, Objects};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};

use crate::object::Object;
use crate::uwsgi_module;

/// Free objects of a type that CPython keeps: 80 lists, dictionaries and tables of small dictionaries, and 100 floating point
/// numbers.
const MAX_FREE: usize = 100;

/// Free tuples: 2,000 of each length. Longer ones are rare.
const FREE_TUPLE_LENGTHS: isize = 2;
const MAX_FREE_TUPLES: isize = 2000 * FREE_TUPLE_LENGTHS;

/// `sys.getallocatedblocks`, `gc.collect` and `gc.isenabled`.
static FUNCTIONS: PyOnceLock<[Py<PyAny>; 3]> = PyOnceLock::new();

/// When the collection in progress has begun, in microseconds of the monotonic clock; 0: there is none. Only one runs at a time.
static BEGAN_US: AtomicU64 = AtomicU64::new(0);

/// Collects, if the application has not turned that off, and counts the objects. No exception is left set.
pub fn objects(collection: Collection) -> Objects {
    // The thread holds the interpreter already.
    Python::attach(|py| {
        count(py, collection).unwrap_or_else(|error| {
            error.write_unraisable(py, None);
            Objects::default()
        })
    })
}

/// Adds the function to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(note_collection, module)?)
}

fn count(py: Python<'_>, collection: Collection) -> PyResult<Objects> {
    let [blocks, collect, is_enabled] = FUNCTIONS.get_or_try_init(py, || {
        let (sys, gc) = (py.import("sys")?, py.import("gc")?);
        let function = |module: &Bound<'_, PyModule>, name: &str| module.getattr(name).map(Bound::unbind);
        Ok::<_, PyErr>([function(&sys, "getallocatedblocks")?, function(&gc, "collect")?, function(&gc, "isenabled")?])
    })?;
    let generation = match collection {
        Collection::Nothing => None,
        Collection::Young => Some(0),
        Collection::Full => Some(2),
    };
    let mut collector_is_off = false;
    if let Some(generation) = generation {
        collector_is_off = !is_enabled.call0(py)?.is_truthy(py)?;
        if !collector_is_off {
            collect.call1(py, (generation,))?;
        }
    }
    fill_free_lists(py, collection);
    Ok(Objects { count: blocks.call0(py)?.extract(py)?, collector_is_off })
}

/// Fills the interpreter's lists of free objects, which count as in use: what one request has freed into them and another one
/// takes out of them is not growth of the other one.
fn fill_free_lists(py: Python<'_>, collection: Collection) {
    let mut made = Vec::with_capacity(3 * MAX_FREE);
    // A full collection has emptied these, and requests would fill them for a long time.
    let tuples = if collection == Collection::Full { MAX_FREE_TUPLES } else { 0 };
    for length in (0..tuples).map(|number| number % FREE_TUPLE_LENGTHS + 1) {
        // SAFETY: the thread holds the interpreter; the result is ours, or null without memory.
        made.push(unsafe { Object::owned(ffi::PyTuple_New(length)) });
    }
    for number in 0..MAX_FREE {
        // SAFETY: the thread holds the interpreter; each result is ours, or null without memory.
        unsafe {
            let dictionary = ffi::PyDict_New();
            // An empty dictionary has no table of its own, and only tables for texts are kept.
            if !dictionary.is_null() {
                ffi::PyDict_SetItem(dictionary, intern!(py, "key").as_ptr(), ffi::Py_None());
            }
            made.extend([
                Object::owned(ffi::PyList_New(0)),
                Object::owned(dictionary),
                Object::owned(ffi::PyFloat_FromDouble(number as f64)),
            ]);
        }
    }
    drop(made);
    // SAFETY: the thread holds the interpreter.
    unsafe { ffi::PyErr_Clear() };
}

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
