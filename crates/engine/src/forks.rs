//! What becomes of the worker when its application forks: the child has all of its sockets.
//!
//! A child that runs a program of its own, or leaves with `_exit`, does no harm. One that comes back from the application would
//! answer its parent's clients. And as long as any child lives, closing a socket ends no connection. Adapters and the loop ask.
//!
//! fork(2) copies the calling thread alone, with locks as others hold them. So a worker of one thread ends its companion before a fork and
//! begins it again afterwards; CPython from 3.12 on warns where a process with several threads forks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
static BESIDE: OnceLock<Arc<dyn Beside>> = OnceLock::new();

/// What runs beside the only thread of the language.
pub(crate) trait Beside: Send + Sync {
    /// The calling thread is about to fork: no other thread is to be there.
    fn end_for_a_fork(&self);
    /// It has forked.
    fn begin_again(self: Arc<Self>);
}

/// Has this ended before each fork, and begun again.
pub(crate) fn note_beside(beside: Arc<dyn Beside>) {
    // A process is one worker.
    let _ = BESIDE.set(beside);
}

/// The application is about to fork, in the calling thread.
pub fn prepare_fork() {
    if let Some(beside) = BESIDE.get() {
        beside.end_for_a_fork();
    }
}

/// The application has forked, and its parent's thread may have others beside it again.
pub fn go_on_after_fork() {
    if let Some(beside) = BESIDE.get() {
        beside.clone().begin_again();
    }
}

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
        "a child that the application forked (pid {pid}) returned from it, and is ended: it must end with os._exit"
    ));
    bolide_log::finish();
    // SAFETY: the call ends the process, without its destructors: all that they would end is the parent's.
    unsafe { libc::_exit(0) }
}
