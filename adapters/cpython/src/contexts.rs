//! Context variables (PEP 567) of suspended answers: the iterator of an answer continues in the context in which it began, and
//! requests that the thread serves in the meantime do not see its variables. Flask's `stream_with_context` relies on that.
//!
//! A thread is always in a context of its own. A suspended answer keeps that context, and the thread goes on in a new one. So a
//! request that is never suspended pays nothing. The thread holds the interpreter throughout.

use pyo3::ffi;

use crate::object::Object;

/// The contexts of a thread that runs the application.
pub struct Contexts {
    /// The context before the first request; never entered.
    base: Object,
    /// The context that the thread has entered.
    current: Object,
    /// The thread's own context, while it runs in that of an answer.
    resting: Option<Object>,
}

impl Contexts {
    /// Enters a context of the thread's own. `None`: an exception is set.
    pub fn enter() -> Option<Contexts> {
        // SAFETY: the thread holds the interpreter; what is made is ours.
        unsafe {
            let base = Object::owned(ffi::PyContext_CopyCurrent())?;
            let current = Object::owned(ffi::PyContext_Copy(base.as_ptr()))?;
            if ffi::PyContext_Enter(current.as_ptr()) < 0 {
                return None;
            }
            Some(Contexts { base, current, resting: None })
        }
    }

    /// Leaves the current context to a suspended answer. `None`: there is no memory for another context, so both share it.
    pub fn suspend(&mut self) -> Option<Object> {
        let next = self.resting.take().or_else(|| {
            // SAFETY: a context of ours; the copy is new.
            unsafe { Object::owned(ffi::PyContext_Copy(self.base.as_ptr())) }
        });
        match next {
            Some(next) => self.change_to(next),
            None => {
                forget_exception();
                None
            }
        }
    }

    /// Continues in an answer's context.
    pub fn resume(&mut self, context: Option<Object>) {
        self.resting = context.and_then(|context| self.change_to(context));
    }

    /// Returns to the thread's own context: the answer has ended.
    pub fn rest(&mut self) {
        if let Some(own) = self.resting.take() {
            self.change_to(own);
        }
    }

    /// Returns the context that was left. `None`: the application has left the thread in a context of its own, and the thread
    /// stays there.
    fn change_to(&mut self, context: Object) -> Option<Object> {
        // SAFETY: both live, and the thread holds the interpreter.
        unsafe {
            if ffi::PyContext_Exit(self.current.as_ptr()) < 0 || ffi::PyContext_Enter(context.as_ptr()) < 0 {
                forget_exception();
                return None;
            }
        }
        Some(std::mem::replace(&mut self.current, context))
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: the thread holds the interpreter when it ends its work.
        if unsafe { ffi::PyContext_Exit(self.current.as_ptr()) } < 0 {
            forget_exception();
        }
    }
}

fn forget_exception() {
    // SAFETY: the thread holds the interpreter.
    unsafe { ffi::PyErr_Clear() };
}
