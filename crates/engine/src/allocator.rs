//! glibc's allocator, as a worker with several threads is to use it. It knows nothing else; the worker's first thread runs it.

/// Arenas of a worker. With glibc's own bound, eight for each CPU, each thread has its own, and what was once in use in one of them for
/// slow clients is given back to the system neither soon nor to the other threads.
#[cfg(target_env = "gnu")]
const ARENAS_MOST: libc::c_int = 2;

/// Lets the threads of this process share few arenas, unless the environment says how many (mallopt(3)). To be called before they start.
pub fn share_arenas() {
    let is_said = |name| std::env::var_os(name).is_some();
    if is_said("MALLOC_ARENA_MAX") || is_said("GLIBC_TUNABLES") {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt sets a number in the allocator under the allocator's own lock, and M_ARENA_MAX takes effect for arenas to come.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MOST);
    }
}
