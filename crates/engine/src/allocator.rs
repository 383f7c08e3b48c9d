//! glibc's allocator: its settings in a worker with several threads, the return of free memory to the system, and the memory that
//! it has given out. It knows nothing else. The worker's first thread runs the first, the thread that leads the second, and
//! threads that measure the last (`leak-report`).

use std::ffi::CStr;
use std::sync::OnceLock;

/// Arenas of a worker. With glibc's default of eight arenas for each CPU, each thread has its own, and memory that one of them
/// used for slow clients returns neither to the system soon nor to the other threads.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 2;

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
        libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS);
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

/// The sizes of glibc's cache of a thread, and the pieces of each that it keeps (`glibc.malloc.tcache_count`).
#[cfg(target_env = "gnu")]
const MAX_CACHED_BYTES: usize = 1032;
#[cfg(target_env = "gnu")]
const CACHED_OF_SIZE: usize = 7;

/// Fills the calling thread's cache of free pieces, which count as given out. It takes about 5 microseconds.
pub fn fill_thread_cache() {
    #[cfg(target_env = "gnu")]
    for bytes in (24..=MAX_CACHED_BYTES).step_by(16) {
        // SAFETY: each piece is freed once; a null pointer may be freed.
        let pieces = [(); CACHED_OF_SIZE].map(|()| std::hint::black_box(unsafe { libc::malloc(bytes) }));
        for piece in pieces {
            // SAFETY: as above.
            unsafe { libc::free(piece) };
        }
    }
}

/// Names that only other allocators have: jemalloc, mimalloc and tcmalloc. glibc's numbers say nothing where one is loaded.
const OTHERS: [&CStr; 3] = [c"mallctl", c"mi_version", c"tc_version"];

/// The functions of glibc that return what it has given out, and what it has mapped for large pieces.
enum Numbers {
    #[cfg(target_env = "gnu")]
    Wide(unsafe extern "C" fn() -> libc::mallinfo2),
    /// glibc before 2.33: numbers of 32 bits that wrap.
    #[cfg(target_env = "gnu")]
    Narrow(unsafe extern "C" fn() -> libc::mallinfo),
    Unknown,
}

/// Returns the bytes that the allocator has given out and not got back. With another allocator than glibc's, the memory of the
/// process; 0 if the system does not say.
pub fn bytes_in_use() -> u64 {
    static NUMBERS: OnceLock<Numbers> = OnceLock::new();
    match NUMBERS.get_or_init(numbers) {
        #[cfg(target_env = "gnu")]
        Numbers::Wide(mallinfo2) => {
            // SAFETY: mallinfo2 has no arguments, and walks the allocator's memory under the allocator's own locks.
            let numbers = unsafe { mallinfo2() };
            (numbers.uordblks + numbers.hblkhd) as u64
        }
        #[cfg(target_env = "gnu")]
        Numbers::Narrow(mallinfo) => {
            // SAFETY: as above.
            let numbers = unsafe { mallinfo() };
            u64::from(numbers.uordblks.cast_unsigned()) + u64::from(numbers.hblkhd.cast_unsigned())
        }
        Numbers::Unknown => own_bytes().unwrap_or(0),
    }
}

#[cfg(target_env = "gnu")]
fn numbers() -> Numbers {
    // SAFETY: dlsym takes a name that ends with a zero.
    let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if OTHERS.iter().any(|name| !find(name).is_null()) {
        return Numbers::Unknown;
    }
    let (wide, narrow) = (find(c"mallinfo2"), find(c"mallinfo"));
    // SAFETY: the functions of these names in glibc have these types (mallinfo(3)).
    unsafe {
        match (wide.is_null(), narrow.is_null()) {
            (false, _) => {
                Numbers::Wide(std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> libc::mallinfo2>(wide))
            }
            (true, false) => {
                Numbers::Narrow(std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn() -> libc::mallinfo>(narrow))
            }
            (true, true) => Numbers::Unknown,
        }
    }
}

#[cfg(not(target_env = "gnu"))]
fn numbers() -> Numbers {
    Numbers::Unknown
}
