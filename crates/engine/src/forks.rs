//! Handling of forks by the application: the child inherits all sockets of the worker.
//!
//! A child that executes another program, or ends with `_exit`, is harmless. One that returns from the application would answer
//! its parent's clients. And as long as any child lives, closing a socket does not end the connection. Adapters and the event
//! loop call it, in workers.
//!
//! fork(2) copies only the calling thread, and locks in whatever state other threads hold them. So a worker with one thread ends
//! its companion thread before a fork and restarts it afterwards; CPython from 3.12 on warns if a process with several threads
//! forks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bolide_contract::life::PerLife;

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
/// Those of this worker, as long as it serves.
static FORK_HOOKS: PerLife<Weak<dyn ForkHooks>> = PerLife::new();

/// Ends and restarts the threads beside the only thread that runs the language.
pub(crate) trait ForkHooks: Send + Sync {
    /// The calling thread is about to fork: no other thread may exist.
    fn before_fork(&self);
    /// The calling thread has forked.
    fn after_fork(self: Arc<Self>);
}

/// Registers the hooks for each fork.
pub(crate) fn set_fork_hooks(hooks: Weak<dyn ForkHooks>) {
    // A process is one worker, so this is called once in its life.
    let _ = FORK_HOOKS.set(hooks);
}

/// The application is about to fork, in the calling thread.
pub fn prepare_fork() {
    if let Some(hooks) = FORK_HOOKS.get().and_then(Weak::upgrade) {
        hooks.before_fork();
    }
}

/// The application has forked, and the parent may have other threads again.
pub fn resume_after_fork() {
    if let Some(hooks) = FORK_HOOKS.get().and_then(Weak::upgrade) {
        hooks.after_fork();
    }
}

/// The application forked this process.
pub fn note_child() {
    IS_CHILD.store(true, Relaxed);
}

/// The application has forked a child of this process.
pub fn note_fork() {
    HAS_FORKED.store(true, Relaxed);
}

/// A prototype has forked this process, or it becomes one itself: whatever a worker before it has forked is not its own.
pub fn begin_process() {
    IS_CHILD.store(false, Relaxed);
    HAS_FORKED.store(false, Relaxed);
}

/// Other processes may have the sockets open too.
pub(crate) fn has_forked() -> bool {
    HAS_FORKED.load(Relaxed)
}

/// Whether the application forked this process.
#[inline]
pub fn is_child() -> bool {
    IS_CHILD.load(Relaxed)
}

/// Ends this process if it is a child that returned from the application.
#[inline]
pub fn leave_if_child() {
    if is_child() {
        leave();
    }
}

#[cold]
fn leave() -> ! {
    let pid = std::process::id();
    bolide_log::line(&format!(
        "a child that the application forked (pid {pid}) returned from it, and was terminated: it must call os._exit"
    ));
    bolide_log::finish();
    // SAFETY: the call ends the process without running destructors, whose resources belong to the parent.
    unsafe { libc::_exit(0) }
}
