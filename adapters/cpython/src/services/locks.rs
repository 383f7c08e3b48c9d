//! `uwsgi.lock`, `unlock` and `is_locked`: the locks that all processes of the instance share, unless `lock-engine` names a server.
//! A free lock is taken with the interpreter held; a wait releases it.

use bolide_memory::{Guard, RobustLock};

use crate::services::arguments::{CallArguments, Error, functions, raise, without_interpreter};
use crate::services::attachment::attached;
use crate::services::{engines, leased_locks};

/// How often a thread's lock of an area is released after the application was loaded.
const MAX_READ_DEPTH: u32 = 1024;

functions! { FUNCTIONS:
    lock(0..=1) |arguments: CallArguments<'_>| take(&arguments);
    unlock(0..=1) |arguments: CallArguments<'_>| release(&arguments);
    is_locked(0..=1) |arguments: CallArguments<'_>| is_held(&arguments);
}

/// The lock of a call: its number is the argument, or 0.
fn numbered(arguments: &CallArguments<'_>) -> Option<(i64, &'static RobustLock)> {
    let number = arguments.long_or(0, 0)?;
    let lock = usize::try_from(number).ok().and_then(|number| attached()?.locks.get(number));
    match lock {
        Some(lock) => Some((number, lock)),
        None => raise(Error::Value, "Invalid lock number"),
    }
}

fn take(arguments: &CallArguments<'_>) -> Option<()> {
    let (number, lock) = numbered(arguments)?;
    if let Some(locks) = engines::locks() {
        return leased_locks::lock(locks, number);
    }
    let taken = match lock.try_lock() {
        Ok(Some(guard)) => {
            guard.keep();
            Ok(())
        }
        Ok(None) => without_interpreter(|| lock.lock().map(Guard::keep)),
        Err(error) => Err(error),
    };
    match taken {
        Ok(()) => Some(()),
        // uWSGI waits for ever.
        Err(error) if error.raw_os_error() == Some(libc::EDEADLK) => {
            raise(Error::Runtime, &format!("this thread holds lock {number} already: it would wait for itself"))
        }
        Err(error) => raise(Error::Os, &format!("lock {number} can't be taken: {error}")),
    }
}

fn release(arguments: &CallArguments<'_>) -> Option<()> {
    let (number, lock) = numbered(arguments)?;
    if let Some(locks) = engines::locks() {
        leased_locks::unlock(locks, number);
        return Some(());
    }
    // As in uWSGI, a lock that this thread does not hold stays as it is.
    let _ = lock.release();
    Some(())
}

fn is_held(arguments: &CallArguments<'_>) -> Option<bool> {
    let (number, lock) = numbered(arguments)?;
    if let Some(locks) = engines::locks() {
        return leased_locks::is_locked(locks, number);
    }
    // A holder keeps it, this thread included.
    Some(!matches!(lock.try_lock(), Ok(Some(_))))
}

/// Releases the locks and areas that this thread has taken while it loaded the application.
pub fn release_own_locks() {
    let Some(memories) = attached() else { return };
    for (number, lock) in memories.locks.iter().enumerate() {
        if lock.release().is_ok() {
            bolide_log::line(&format!("the application has left lock {number} taken while it was loaded: released"));
        }
    }
    for (number, area) in memories.areas.iter().enumerate() {
        // A thread may have locked an area for reading several times.
        let times = (0..MAX_READ_DEPTH).take_while(|_| area.unlock().is_ok()).count();
        if times > 0 {
            bolide_log::line(&format!("the application has left sharedarea {number} locked while it was loaded: released"));
        }
    }
}
