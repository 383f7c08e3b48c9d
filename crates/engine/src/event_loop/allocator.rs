//! glibc's allocator: as a worker with several threads is to use it, and what it keeps for nobody. It knows nothing else. The worker's first thread
//! runs the one, the thread that leads the other.

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

/// Gives what is free back to the system (malloc_trim(3)). It takes some milliseconds for each hundred MB.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the allocator looks through what it has free, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of memory that the process has for itself: what is shared with files is not among them. `None` where the system does not say.
pub fn own_bytes() -> Option<u64> {
    // proc_pid_statm(5): size, resident, shared.
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').skip(1).map(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    let page_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(resident.saturating_sub(shared) * u64::try_from(page_bytes).ok()?)
}
