//! `uwsgi.lock`, `unlock` and `is_locked`: the locks that all processes of the instance share, unless `lock-engine` names a
//! server. A free lock is taken with the interpreter held; a wait releases it.

use bolide_memory::{Guard, RobustLock};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::services::arguments::{CallArguments, TrueOrNone, functions};
use crate::services::attachment::attached;
use crate::services::{engines, leased_locks};

/// How often a thread's lock of an area is released after the application was loaded.
const MAX_READ_DEPTH: u32 = 1024;

functions! { FUNCTIONS:
    lock(0..=1) take;
    unlock(0..=1) release;
    is_locked(0..=1) is_held;
}

/// The lock of a call: its number is the argument, or 0.
#[inline]
fn numbered(arguments: &CallArguments<'_, '_>) -> PyResult<(i64, &'static RobustLock)> {
    let number = arguments.long_or(0, 0)?;
    let lock = usize::try_from(number).ok().and_then(|number| attached()?.locks.get(number));
    Ok((number, lock.ok_or_else(|| PyValueError::new_err("Invalid lock number"))?))
}

fn take(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let (number, lock) = numbered(arguments)?;
    if let Some(locks) = engines::locks() {
        return leased_locks::lock(arguments.python, locks, number).map(|()| None);
    }
    let taken = match lock.try_lock() {
        Ok(Some(guard)) => {
            guard.keep();
            Ok(None)
        }
        Ok(None) => arguments.python.detach(|| lock.lock().map(Guard::keep)).map(|()| None),
        Err(error) => Err(error),
    };
    taken.map_err(|error| match error.raw_os_error() {
        // uWSGI waits for ever.
        Some(libc::EDEADLK) => {
            PyRuntimeError::new_err(format!("this thread already holds lock {number}, and would wait for itself"))
        }
        _ => PyOSError::new_err(format!("lock {number} can't be taken: {error}")),
    })
}

fn release(arguments: &CallArguments<'_, '_>) -> PyResult<TrueOrNone> {
    let (number, lock) = numbered(arguments)?;
    match engines::locks() {
        Some(locks) => leased_locks::unlock(arguments.python, locks, number),
        // As in uWSGI, a lock that this thread does not hold stays as it is.
        None => _ = lock.release(),
    }
    Ok(None)
}

fn is_held(arguments: &CallArguments<'_, '_>) -> PyResult<bool> {
    let (number, lock) = numbered(arguments)?;
    match engines::locks() {
        Some(locks) => leased_locks::is_locked(arguments.python, locks, number),
        // A holder keeps it, this thread included.
        None => Ok(!matches!(lock.try_lock(), Ok(Some(_)))),
    }
}

/// Releases the locks and areas that this thread has taken, and that would never be free for the forks of this process. `when` is
/// for the log.
pub fn release_own_locks(when: &str) {
    let Some(memories) = attached() else { return };
    for (number, lock) in memories.locks.iter().enumerate() {
        if lock.release().is_ok() {
            bolide_log::line(&format!("lock {number} was still held {when}: released"));
        }
    }
    for (number, area) in memories.areas.iter().enumerate() {
        // A thread may have locked an area for reading several times.
        let times = (0..MAX_READ_DEPTH).take_while(|_| area.unlock().is_ok()).count();
        if times > 0 {
            bolide_log::line(&format!("sharedarea {number} was still locked {when}: released"));
        }
    }
}
