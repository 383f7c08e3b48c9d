//! What a thread lends its adapter for the time of a call: one request and one answer, behind pointers that stay valid as long as
//! the process. So an adapter that uses one too late, in another thread, or from within another use, gets an error instead of
//! memory that is something else by now.
//!
//! It does not know what is lent, or the adapter. Worker threads run it.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many wrong uses are logged. A broken adapter would fill the log.
const MAX_LOGGED_FAULTS: u32 = 20;

static FAULTS: AtomicU32 = AtomicU32::new(0);

/// The place behind a pointer that an adapter has.
pub struct Place<T> {
    lent: Cell<*mut T>,
}

impl<T> Place<T> {
    /// A place for a thread. It is never freed, so the pointer of an adapter never dangles.
    pub fn lasting() -> &'static Place<T> {
        Box::leak(Box::new(Place { lent: Cell::new(null_mut()) }))
    }

    /// Lends a value for the time of a call.
    ///
    /// # Safety
    /// The value lives during the call, and nothing else uses it.
    pub unsafe fn lend<R>(&self, value: *mut T, call: impl FnOnce() -> R) -> R {
        // Within a loop, a call may visit another exchange.
        let before = self.lent.replace(value);
        let result = call();
        self.lent.set(before);
        result
    }

    /// Looks at what is lent, which stays there.
    ///
    /// # Safety
    /// Only the thread of the place may call it, and nothing changes the value.
    pub unsafe fn share<'a>(&self) -> Option<&'a T> {
        // SAFETY: `lend` has put it here, and takes it away before its value ends.
        NonNull::new(self.lent.get()).map(|lent| unsafe { lent.as_ref() })
    }

    /// Uses what is lent. The place is empty in the meantime.
    ///
    /// # Safety
    /// Only the thread of the place may call it, so that the value that it has lent is not used elsewhere.
    pub unsafe fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut lent = NonNull::new(self.lent.replace(null_mut()))?;
        // SAFETY: `lend` has put it here, and takes it away before its value ends. It is not lent twice, since the place was
        // empty from the line above on.
        let result = act(unsafe { lent.as_mut() });
        self.lent.set(lent.as_ptr());
        Some(result)
    }
}

/// Logs that an adapter has used something that it does not have.
pub fn log_fault(function: &str, what: &str) {
    let before = FAULTS.fetch_add(1, Relaxed);
    if before < MAX_LOGGED_FAULTS {
        bolide_log::line(&format!(
            "the plugin called `{function}` with {what} that this thread does not have at that moment: a bug of the plugin"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lent_is_there_during_the_call_alone_and_not_twice() {
        let place = Place::<u32>::lasting();
        // SAFETY: the place belongs to this thread.
        let use_it = || unsafe { place.with(|value| (*value, place.with(|again| *again).is_some())) };
        assert_eq!(use_it(), None, "before");
        let mut value = 7;
        // SAFETY: the value outlives the call.
        unsafe { place.lend(&raw mut value, || assert_eq!(use_it(), Some((7, false)), "during, and not within a use")) };
        assert_eq!(use_it(), None, "after");
    }
}
