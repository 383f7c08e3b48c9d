//! The few system calls without a safe interface. It does not make decisions. The master, its attendant and the guards of log
//! programs run it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use bolide_services::cron::LocalMinute;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use rustix::process::{self, PidfdFlags, WaitOptions, pidfd_open, waitpid};

/// Takes ownership of a descriptor that another process opened, and sets close-on-exec. The master calls it.
///
/// # Errors
/// The descriptor is not open.
pub fn adopt(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: reading the flags of a number is harmless, open or not.
    if descriptor < 0 || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open (checked above), and its number was given to us to own: by `fd://N`, or by the kernel a moment ago.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl(&owned, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    Ok(owned)
}

/// Locks a whole file for this process and those that inherit the descriptor, for as long as one of them has it open. Returns
/// false if another open file of the same name has the lock. The master calls it.
///
/// # Errors
/// The file system has no locks.
pub fn lock_file(file: &impl AsRawFd) -> io::Result<bool> {
    // SAFETY: a plain system call on an open descriptor, which does not wait.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// Sets the queue length of TCP Fast Open for a listening socket (RFC 7413). The master calls it.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_fast_open(socket: &OwnedFd, queue: u32) -> io::Result<()> {
    let queue = queue as libc::c_int;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an integer that lives through the call, and the length is that of the integer.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, (&raw const queue).cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether the other side of a UNIX socket has not read all that was sent (SIOCOUTQ, the kernel's `unix_ioctl`).
pub fn has_unread(socket: &impl AsRawFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one number, to a local.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    answer == 0 && bytes > 0
}

/// Duplicates a descriptor that another process opened, above the standard ones and with close-on-exec. The master calls it.
///
/// # Errors
/// The descriptor is not open.
pub fn copy_of(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicating a number is harmless, open or not.
    match unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        number => adopt(number),
    }
}

/// Sets the supplementary groups of this thread. The C library's setgroups(3) sets those of all threads.
///
/// # Errors
/// The error of setgroups(2).
pub fn set_groups_of_thread(groups: &[nix::unistd::Gid]) -> io::Result<()> {
    let groups: Vec<libc::gid_t> = groups.iter().map(|group| group.as_raw()).collect();
    // SAFETY: the kernel reads the stated number of gids, from memory that lives through the call.
    let answer = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether all user identifiers of a process are this one (proc_pid_status(5)).
pub fn is_of_user(process: Pid, user: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.is_some_and(|line| line.split_whitespace().all(|number| number.parse() == Ok(user)))
}

/// Sends a signal to one thread of a process. The master calls it.
///
/// # Errors
/// The process has no such thread.
pub fn signal_thread(process: Pid, thread: u32, signal: i32) -> io::Result<()> {
    // SAFETY: numbers only; the kernel checks that the thread belongs to the process.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, process.as_raw(), thread as libc::pid_t, signal) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A stop or continuation of a living child by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Stopped by this signal, until SIGCONT.
    Stopped(i32),
    /// Continued.
    Continued,
}

/// The next child that was stopped or continued, if there is one. Never blocks. It is found and consumed in one call, so that no
/// event in between is mistaken for it. The master calls it.
pub fn next_pause() -> Option<(Pid, Pause)> {
    let (pid, code, status) = wait_for_any(libc::WSTOPPED | libc::WCONTINUED)?;
    Some((pid, if code == libc::CLD_CONTINUED { Pause::Continued } else { Pause::Stopped(status) }))
}

/// The next child that has exited, if there is one. Never blocks. The child keeps its pid, and its process group's number, until
/// [`take_status`]. The master calls it.
pub fn next_end() -> Option<Pid> {
    wait_for_any(libc::WEXITED | libc::WNOWAIT).map(|(pid, _, _)| pid)
}

/// The pid of a child with an event of this kind, and the code and status that the kernel reports.
fn wait_for_any(which: i32) -> Option<(Pid, i32, i32)> {
    // SAFETY: all zeroes is a valid value for the result.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is ours and lives through the call.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, which | libc::WNOHANG) } != 0 {
        return None;
    }
    // SAFETY: waitid fills these fields, or leaves them zero if no child has an event.
    let (pid, status) = unsafe { (found.si_pid(), found.si_status()) };
    (pid > 0).then(|| (Pid::from_raw(pid), found.si_code, status))
}

/// Reaps a child and returns its raw wait status; 0 if there is none to reap. `nix` would lose the status of a child that was
/// ended by a real-time signal. The master calls it.
pub fn take_status(child: Pid) -> i32 {
    let child = process::Pid::from_raw(child.as_raw());
    let taken = child.and_then(|child| waitpid(Some(child), WaitOptions::NOHANG).ok().flatten());
    taken.map_or(0, |(_, status)| status.as_raw())
}

/// A pidfd of a process, which keeps referring to it when its pid is reused. The master calls it.
///
/// # Errors
/// There is no such process, or no descriptor is left.
pub fn process_descriptor(process: Pid) -> io::Result<OwnedFd> {
    let process = process::Pid::from_raw(process.as_raw()).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// Sends a signal to the process of a pidfd; signal 0 checks whether it exists. The master calls it.
///
/// # Errors
/// `ESRCH` if it is gone; otherwise as for kill(2).
pub fn signal_process(process: &OwnedFd, signal: i32) -> nix::Result<()> {
    // SAFETY: numbers only, and no information beyond the signal itself.
    let answer = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    nix::errno::Errno::result(answer).map(drop)
}

/// Sends a signal with a value (sigqueue(3)) to a process by its descriptor. The master calls it.
///
/// # Errors
/// The error of the system call.
pub fn signal_process_with(process: &OwnedFd, signal: i32, value: u64) -> nix::Result<()> {
    /// The kernel's `siginfo_t` of a signal with a value: three numbers, then the sender and the value, aligned to a pointer.
    #[repr(C)]
    struct Queued {
        numbers: [i32; 3],
        padding: i32,
        pid: i32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());
    let (pid, uid) = (Pid::this().as_raw(), nix::unistd::getuid().as_raw());
    let queued = Queued { numbers: [signal, 0, libc::SI_QUEUE], padding: 0, pid, uid, value, rest: [0; 12] };
    // SAFETY: the structure is that of the kernel (checked above), and lives through the call, which reads it.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, &raw const queued, 0) };
    nix::errno::Errno::result(answer).map(drop)
}

/// Sends a signal of any number to a process group, or to the process with this pid if it leads none. The attendant calls it.
pub fn signal_group(leader: Pid, signal: i32) {
    // SAFETY: numbers only.
    unsafe {
        if libc::kill(-leader.as_raw(), signal) != 0 {
            // It may have ended in the meantime, which is the purpose of most signals.
            libc::kill(leader.as_raw(), signal);
        }
    }
}

/// Forks this process, without exec. `None` in the child. The master calls it to create its attendant.
///
/// # Errors
/// The error of fork(2).
pub fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the master has one thread, so no other thread holds a lock and memory is consistent in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(Pid::from_raw(child))),
    }
}

/// Closes the descriptors of the master: its sockets, its locks. The standard descriptors stay open, for programs that outlive
/// us. A child that was forked without exec calls it.
pub fn close_others(kept: &[RawFd]) {
    let Ok(listing) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<RawFd> = listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2 && !kept.contains(number)) {
        // The descriptor of the listing itself is in the list, and is closed by now.
        let _ = nix::unistd::close(number);
    }
}

/// Waits for a child that is about to end, for `most_ms` milliseconds at most, and reaps it. The master calls it, before and
/// after its loop.
pub fn wait_for(child: Pid, most_ms: u64) {
    if let Ok(handle) = process_descriptor(child) {
        let mut poll_fds = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        // A child that does not end is reaped by the process that inherits it. An interrupted wait at worst leaves a zombie.
        let _ = poll(&mut poll_fds, PollTimeout::from(most_ms.min(u64::from(u16::MAX)) as u16));
    }
    let _ = take_status(child);
}

/// Ends this process immediately, without running inherited destructors or exit handlers. The last call of the attendant.
pub fn leave(status: i32) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// The time of day, in whole seconds since 1970.
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Sets or removes a variable of this process. The master calls it.
pub fn set_variable(name: &str, value: Option<&std::ffi::OsStr>) {
    // SAFETY: the master has one thread, and so has the process that reads a configuration.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

/// Has the C library read the variable TZ again: localtime_r(3) need not. The master calls it.
pub fn read_time_zone() {
    // SAFETY: this is its declaration in time.h(0P).
    unsafe extern "C" {
        fn tzset();
    }
    // SAFETY: the function takes nothing, and no other thread reads the variable.
    unsafe { tzset() };
}

/// The minute of local time that contains this second since 1970. The attendant calls it.
pub fn local_minute(seconds: i64) -> Option<LocalMinute> {
    // SAFETY: all zeroes is a valid value for the result.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals that live through the call.
    let found = unsafe { libc::localtime_r(&raw const seconds, &raw mut time) };
    (!found.is_null()).then_some(LocalMinute {
        minute: time.tm_min,
        hour: time.tm_hour,
        day: time.tm_mday,
        month: time.tm_mon + 1,
        weekday: time.tm_wday,
    })
}

/// Resets SIGCHLD to its default action: if it is ignored (which a parent may pass on), the kernel discards wait statuses. The
/// master calls it, before it starts anything.
///
/// # Errors
/// The error of signal(2).
pub fn default_child_signal() -> io::Result<()> {
    // SAFETY: the default action does not run our code.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives memory back to the system that only the reading of a configuration needs: what the allocator keeps, and the pages of
/// code and constants of this program, which the kernel maps again where they are used. It takes less than a millisecond. The
/// master calls it when a generation has begun to serve.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim walks the allocator's free memory under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
    // SAFETY: the function has the type that dl_iterate_phdr(3) calls, and does not keep its arguments.
    unsafe {
        libc::dl_iterate_phdr(Some(give_back_code), std::ptr::null_mut());
    }
}

/// Gives the pages of one loaded object back if this code is in it. Returns 0 to see the next object.
// SAFETY: only the loader may call it, because it trusts the pointer.
unsafe extern "C" fn give_back_code(object: *mut libc::dl_phdr_info, _: libc::size_t, _: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the loader passes a valid object, whose headers stay mapped during the call.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    let range = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    };
    let mut loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let here = give_back_memory as *const () as usize;
    if !loaded.clone().any(|header| range(header).contains(&here)) {
        return 0;
    }
    let Ok(Some(page)) = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE) else { return 1 };
    let page = page as usize;
    loaded.by_ref().filter(|header| header.p_flags & libc::PF_W == 0).for_each(|header| {
        let range = range(header);
        let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
        // SAFETY: the range is within a segment that is never written to, not even by the loader: its pages are those of the
        // file, and the kernel reads them again. A failure leaves them where they are.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end.saturating_sub(start), libc::MADV_DONTNEED);
        }
    });
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_constants_are_the_same_after_their_pages_were_given_back() {
        let text = "a constant";
        let before = (text.to_owned(), local_minute(0));
        give_back_memory();
        assert_eq!((text.to_owned(), local_minute(0)), before);
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_not_adopted() {
        assert!(adopt(-1).is_err());
        assert!(adopt(987_654).is_err());
    }

    #[test]
    fn what_was_sent_is_unread_until_the_other_side_reads_it() {
        let kind = nix::sys::socket::SockType::SeqPacket;
        let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
        let (near, far) = nix::sys::socket::socketpair(nix::sys::socket::AddressFamily::Unix, kind, None, flags).expect("a pair");
        assert!(!has_unread(&near));
        nix::unistd::write(&near, b"order").expect("sent");
        assert_eq!((has_unread(&near), has_unread(&far)), (true, false));
        nix::unistd::read(&far, &mut [0; 8]).expect("read");
        assert!(!has_unread(&near));
    }

    #[test]
    fn a_thread_of_another_process_gets_no_signal() {
        assert!(signal_thread(Pid::this(), 1, 0).is_err());
        assert!(signal_thread(Pid::this(), nix::unistd::gettid().as_raw() as u32, 0).is_ok());
    }
}
