//! glibc's allocator: its settings in a worker with several threads, and the return of free memory to the system. It knows
//! nothing else. The worker's first thread runs the first, the thread that leads the second.

/// Arenas of a worker. With glibc's default of eight arenas for each CPU, each thread has its own, and memory that one of them
/// used for slow clients returns neither to the system soon nor to the other threads.
#[cfg(target_env = "gnu")]
const ARENAS_MOST: libc::c_int = 2;

/// Makes the threads of this process share few arenas, unless the environment sets their number (mallopt(3)). It must be called
/// before the threads start.
pub fn share_arenas() {
    let is_said = |name| std::env::var_os(name).is_some();
    if is_said("MALLOC_ARENA_MAX") || is_said("GLIBC_TUNABLES") {
        return;
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt sets a number in the allocator under the allocator's own lock. M_ARENA_MAX takes effect for arenas to come.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MOST);
    }
}

/// Returns free memory to the system (malloc_trim(3)). It takes some milliseconds for each hundred MB.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim walks the allocator's free memory under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the bytes of memory that belong to the process alone, without pages shared with files. `None` if the system does not
/// say.
pub fn own_bytes() -> Option<u64> {
    // proc_pid_statm(5): size, resident, shared.
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').skip(1).map(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    let page_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    Some(resident.saturating_sub(shared) * u64::try_from(page_bytes).ok()?)
}
