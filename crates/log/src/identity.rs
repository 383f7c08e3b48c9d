//! Which process writes: its pid, and the number of the worker or the name of the helper. It does not know forms. Every process
//! runs it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Once, OnceLock};

/// The pid, or 0 before it is asked for: the C library asks the kernel each time.
static PID: AtomicU32 = AtomicU32::new(0);
/// The worker's number; 0 in other processes.
static WORKER: AtomicU32 = AtomicU32::new(0);
/// The name of a helper, such as `mule 1`.
static HELPER: OnceLock<String> = OnceLock::new();

pub fn pid() -> u32 {
    match PID.load(Relaxed) {
        0 => {
            watch_forks();
            PID.store(std::process::id(), Relaxed);
            std::process::id()
        }
        pid => pid,
    }
}

pub fn worker() -> u32 {
    WORKER.load(Relaxed)
}

pub fn helper() -> Option<&'static str> {
    HELPER.get().map(String::as_str)
}

/// This process is the worker with this number. It calls it once, after the fork.
pub fn set_worker(number: u32) {
    WORKER.store(number, Relaxed);
}

/// This process is the helper with this name. It calls it once, after the fork.
pub fn set_helper(name: &str) {
    // A second call can't change it, and none comes.
    let _ = HELPER.set(name.to_owned());
}

/// In a forked child the pid is another one.
fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function stores an atomic, which is safe in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(forget_pid)) };
    });
}

extern "C" fn forget_pid() {
    PID.store(0, Relaxed);
}

/// Returns the text without the name of this process at its beginning, for forms that have it in a field.
pub fn without_name(text: &[u8]) -> &[u8] {
    let own = match (helper(), worker()) {
        (Some(helper), _) => format!("{helper}: "),
        (None, 0) => return text,
        (None, worker) => format!("worker {worker}: "),
    };
    text.strip_prefix(own.as_bytes()).unwrap_or(text)
}
