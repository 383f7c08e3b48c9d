//! `uwsgi.lock`, `unlock` and `is_locked` on the engine of `lock-engine`: locks that the processes of several machines share, and
//! that outlive a dead holder by a bounded time. It does not know about locks of this machine.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use bolide_contract::clock;
use bolide_distributed::Lease;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::services::engines::{Locks, error_of, take};

/// Milliseconds between two lines about locks that have ended too early.
const LINE_MS: u64 = 60_000;

/// The locks that this process holds, each with its thread.
static HELD: Mutex<Option<HashMap<i64, (Lease, ThreadId)>>> = Mutex::new(None);
/// The time of the last line about a lock that has ended too early.
static LINE_AT_MS: AtomicU64 = AtomicU64::new(0);

/// Waits until no other process holds the lock.
pub fn lock(python: Python<'_>, locks: &'static Locks, number: i64) -> PyResult<()> {
    let is_own = with_held(|held| {
        held.get(&number).is_some_and(|(lease, thread)| *thread == thread::current().id() && !lease.remaining().is_zero())
    });
    if is_own {
        let message = format!("this thread already holds lock {number}, and would wait for itself");
        return Err(PyRuntimeError::new_err(message));
    }
    if let Some(lease) = take(python, locks, &name_of(number), locks.hold, None)? {
        with_held(|held| held.insert(number, (lease, thread::current().id())));
    }
    Ok(())
}

/// A lock that this process does not hold stays as it is. While the engine is away, the lock ends at its time.
pub fn unlock(python: Python<'_>, locks: &'static Locks, number: i64) {
    let Some((lease, _)) = with_held(|held| held.remove(&number)) else { return };
    if !lease.is_own() {
        return;
    }
    let released = python.detach(|| locks.leases.release(&lease));
    let (now, last) = (clock::now_ms(), LINE_AT_MS.load(Relaxed));
    if released == Ok(false) && (last == 0 || now.saturating_sub(last) >= LINE_MS) {
        LINE_AT_MS.store(now, Relaxed);
        bolide_log::line(&format!(
            "WARNING: lock {number} expired before it was unlocked, after {} s, so another process may have held it too: raise \
            hold-seconds in lock-engine (logged once a minute)",
            locks.hold.as_secs()
        ));
    }
}

pub fn is_locked(python: Python<'_>, locks: &'static Locks, number: i64) -> PyResult<bool> {
    let is_held = python.detach(|| locks.leases.is_held(&name_of(number)));
    is_held.map_err(|fault| error_of(&locks.leases, &fault))
}

fn name_of(number: i64) -> String {
    format!("lock:{number}")
}

fn with_held<R>(act: impl FnOnce(&mut HashMap<i64, (Lease, ThreadId)>) -> R) -> R {
    act(HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}
