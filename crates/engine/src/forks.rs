//! What becomes of the worker when its application forks: the child has all of its sockets.
//!
//! A child that runs a program of its own, or leaves with `_exit`, does no harm. One that comes back from the application would
//! answer its parent's clients. And as long as any child lives, closing a socket ends no connection. Adapters and the loop ask.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// This process was forked by the application.
pub fn note_child() {
    IS_CHILD.store(true, Relaxed);
}

/// The application has forked a child of this process.
pub fn note_fork() {
    HAS_FORKED.store(true, Relaxed);
}

/// Others may have our sockets open too.
pub(crate) fn has_forked() -> bool {
    HAS_FORKED.load(Relaxed)
}

/// Ends this process if it is a child that came back from the application.
#[inline]
pub fn leave_if_child() {
    if IS_CHILD.load(Relaxed) {
        leave();
    }
}

#[cold]
fn leave() -> ! {
    let pid = std::process::id();
    bolide_log::line(&format!(
        "a child that the application forked (pid {pid}) came back from it, and is ended: it must end by os._exit"
    ));
    bolide_log::finish();
    // SAFETY: the call ends the process, without its destructors: all that they would end is the parent's.
    unsafe { libc::_exit(0) }
}
