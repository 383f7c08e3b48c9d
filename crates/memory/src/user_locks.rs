//! The locks of the application (`locks`, `uwsgi.lock`): numbered locks that any process of the instance may take, and that no
//! dead process holds up. It does not know languages. The master makes them and takes none, because their
//! memory is the application's, which may have written anything there; the processes with the application take them.

use std::io;

use bolide_contract::boot::MemoryKind;

use crate::mapping::{Identity, Mapping, fingerprint};
use crate::robust_lock::{Left, Recovery, RobustLock};

/// The version of the layout.
const VERSION: u32 = 1;

/// What the memory of `locks` locks and lock 0 holds.
pub fn identity(locks: u32) -> Identity {
    let count = locks as usize + 1;
    Identity {
        kind: MemoryKind::Locks,
        version: VERSION,
        shape: fingerprint(&[count as u64]),
        bytes: size_of::<RobustLock>().saturating_mul(count),
    }
}

/// Makes the locks.
///
/// # Errors
/// The system has no robust mutexes.
pub fn begin(mapping: &Mapping) -> io::Result<()> {
    all(mapping).iter().try_for_each(RobustLock::begin)
}

/// Frees the locks of an exited process.
pub fn recover(mapping: &Mapping, pid: u32) -> Vec<Recovery> {
    let is_left = |lock: &RobustLock| matches!(lock.recover(pid), Ok(Left::Held(_) | Left::Recovered));
    let left = all(mapping).iter().enumerate().filter(|(_, lock)| is_left(lock));
    left.map(|(number, _)| Recovery { what: format!("lock {number}"), lost: String::new() }).collect()
}

/// The pids that stand beside the locks, in the order of their numbers: those of their holders, and 0 for a free one. A process
/// that has died inside a lock stands there until the lock is taken or recovered.
pub fn owners(mapping: &Mapping) -> Vec<u32> {
    all(mapping).iter().map(RobustLock::owner).collect()
}

/// The locks, in the order of their numbers.
pub fn all(mapping: &Mapping) -> &[RobustLock] {
    let count = mapping.body_bytes() / size_of::<RobustLock>();
    // SAFETY: the memory is aligned and long enough, and is zeroed or holds locks, which are atomics and a mutex.
    unsafe { std::slice::from_raw_parts(mapping.body().cast().as_ptr(), count) }
}
