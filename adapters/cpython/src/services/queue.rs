//! `uwsgi.queue_push` and the related functions, on the queue that all processes of the instance share. They exist where the
//! configuration has a `queue`.

use std::time::SystemTime;

use bolide_memory::queue::{Items, Queue};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::services::arguments::{CallArguments, TrueOrNone, functions};
use crate::services::attachment::attached;

functions! { FUNCTIONS:
    queue_push(1..=1) push;
    queue_set(2..=2) set;
    queue_pull(0..=1) |arguments| with_items(arguments.python, |items| items.pull());
    queue_pop(0..=1) |arguments| with_items(arguments.python, |items| items.pop());
    queue_get(1..=1) get;
    queue_last(0..=1) last;
    queue_slot(0..=1) |_| the_queue().map(Queue::push_position);
    queue_pull_slot(0..=1) |_| the_queue().map(Queue::pull_position);
}

fn the_queue() -> PyResult<&'static Queue<'static>> {
    let queue = attached().and_then(|attached| attached.queue.as_ref());
    queue.ok_or_else(|| PyRuntimeError::new_err("there is no queue: set `queue` in the configuration"))
}

/// Acts on the items while the lock is held.
fn with_items<R: Send>(python: Python<'_>, act: impl FnOnce(Items<'_>) -> R + Send) -> PyResult<R> {
    let queue = the_queue()?;
    let done = match queue.lock().try_lock() {
        Ok(Some(guard)) => Ok(act(queue.items(&guard))),
        Ok(None) => python.detach(|| queue.lock().lock().map(|guard| act(queue.items(&guard)))),
        Err(error) => Err(error),
    };
    done.map_err(|error| PyOSError::new_err(format!("the queue can't be locked: {error}")))
}

fn push(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let item = &*arguments.bytes(0)?;
    with_items(arguments.python, |items| items.push(item, now_s()).then_some(true))
}

fn set(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let (slot, item) = (arguments.long(0)?, &*arguments.bytes(1)?);
    let Ok(slot) = u64::try_from(slot) else { return Ok(None) };
    with_items(arguments.python, |items| items.set(slot, item, now_s()).then_some(true))
}

fn get(arguments: &CallArguments<'_, '_>) -> PyResult<Option<Vec<u8>>> {
    let Ok(slot) = u64::try_from(arguments.long(0)?) else { return Ok(None) };
    with_items(arguments.python, |items| items.get(slot))
}

/// The newest item, or with a number a list of this length.
fn last(arguments: &CallArguments<'_, '_>) -> PyResult<Py<PyAny>> {
    let count = arguments.long_or(0, 0)?;
    let Ok(count) = u64::try_from(count) else {
        return Err(PyValueError::new_err(format!("queue_last({count}): the number of items must not be negative")));
    };
    let found = with_items(arguments.python, |items| items.last(count.max(1)))?;
    match count {
        0 => found.into_iter().next().flatten().into_py_any(arguments.python),
        _ => found.into_py_any(arguments.python),
    }
}

/// Seconds since 1970, which uWSGI writes beside each item.
fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
