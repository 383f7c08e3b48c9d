//! The exec of a prototype, and the few system calls that no safe interface offers. The one file of this room with `unsafe`.
//! It decides nothing. The master runs it, except for [`become_prototype`], which runs in the child between fork and exec.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use bolide_contract::boot::Boot;
use bolide_contract::message::GROUP_SIGNALS;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;

use crate::interpreter::Program;
use crate::notify;
use crate::privileges::Privileges;
use crate::socket_activation;

/// The highest signal number of Linux.
const SIGNAL_MOST: i32 = 64;

/// Everything that the exec of a prototype takes.
#[derive(Debug)]
pub struct Launch<'a> {
    pub program: &'a Program,
    pub boot: &'a Boot,
    /// Descriptors that the prototype inherits under their own numbers: those that `boot` names.
    pub inherited: Vec<RawFd>,
    pub privileges: Option<&'a Privileges>,
    /// It stays in our process group and has our standard input: somebody at a terminal debugs it.
    pub at_terminal: bool,
}

/// Executes a prototype. The master's call.
///
/// # Errors
/// The program can't be executed, or the child can't take on its identity.
pub fn prototype(launch: &Launch<'_>) -> io::Result<Pid> {
    let boot = sealed_memory(&serde_json::to_vec(launch.boot)?)?;
    let mut inherited = launch.inherited.clone();
    inherited.push(boot.as_raw_fd());
    let groups: Vec<libc::gid_t> =
        launch.privileges.map(|privileges| privileges.groups.iter().map(|group| group.as_raw()).collect()).unwrap_or_default();
    let identity = launch.privileges.map(|privileges| (privileges.uid.as_raw(), privileges.gid.as_raw(), groups));
    let master = Pid::this().as_raw();
    let at_terminal = launch.at_terminal;
    let mut command = Command::new(&launch.program.executable);
    command.args(&launch.program.arguments).arg(boot.as_raw_fd().to_string());
    // `env` is set here and not only inside Python: PYTHONHASHSEED and its kin are read when an interpreter starts.
    let environment = &launch.boot.settings.python.environment;
    for variable in socket_activation::VARIABLES.into_iter().chain([notify::VARIABLE]) {
        command.env_remove(variable);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value))).stdin(if at_terminal {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    // SAFETY: the closure makes async-signal-safe calls only, and touches nothing but the vectors that were filled before the fork.
    unsafe {
        command.pre_exec(move || become_prototype(&inherited, identity.as_ref(), master, at_terminal));
    }
    let child = command.spawn()?;
    // The child is waited for by the supervisor's own reaping: dropping the handle neither waits nor kills.
    Ok(Pid::from_raw(child.id() as i32))
}

/// Takes over a descriptor that somebody else opened, and keeps it from programs that we execute. The master's call.
///
/// # Errors
/// No such descriptor is open.
pub fn adopt(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asking for the flags of a number is harmless, open or not.
    if descriptor < 0 || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open (checked above), and its number was given to us to own: by `fd://N`, or by the kernel a moment ago.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl(&owned, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    Ok(owned)
}

/// Sends a signal to one thread of a process. The master's call.
///
/// # Errors
/// There is no such thread in that process.
pub fn signal_thread(process: Pid, thread: u32, signal: i32) -> io::Result<()> {
    // SAFETY: numbers only; the kernel checks that the thread belongs to the process.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, process.as_raw(), thread as libc::pid_t, signal) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a signal has done to a child that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// By this signal; it goes on at SIGCONT.
    Stopped(i32),
    Continued,
}

/// The next child that was stopped or goes on, if there is one; never waits. Looked for and taken in one call: what
/// happens in between can't be taken for it. The master's call.
pub fn next_pause() -> Option<(Pid, Pause)> {
    let (pid, code, status) = wait_for_any(libc::WSTOPPED | libc::WCONTINUED)?;
    Some((pid, if code == libc::CLD_CONTINUED { Pause::Continued } else { Pause::Stopped(status) }))
}

/// The next child that has ended, if there is one; never waits. It keeps its pid, and its process group's number, until
/// [`take_status`]. The master's call.
pub fn next_end() -> Option<Pid> {
    wait_for_any(libc::WEXITED | libc::WNOWAIT).map(|(pid, _, _)| pid)
}

/// The pid of a child with news of this kind, and what the kernel says of it: a code and a status.
fn wait_for_any(which: i32) -> Option<(Pid, i32, i32)> {
    // SAFETY: all zeroes is a valid place for the answer.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is ours and lives through the call.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut found, which | libc::WNOHANG) } != 0 {
        return None;
    }
    // SAFETY: waitid fills these fields of the answer, or leaves zeroes where no child has news.
    let (pid, status) = unsafe { (found.si_pid(), found.si_status()) };
    (pid > 0).then(|| (Pid::from_raw(pid), found.si_code, status))
}

/// Takes the end of a child, as a raw wait status: the safe interface loses the status of a child that a real-time signal ended.
/// The master's call.
pub fn take_status(child: Pid) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is ours and lives through the call.
    unsafe { libc::waitpid(child.as_raw(), &raw mut status, libc::WNOHANG) };
    status
}

/// A descriptor of a process, which names it still when its number is another's. The master's call.
///
/// # Errors
/// There is no such process, or no descriptor is left.
pub fn process_descriptor(process: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and flags, and makes a new descriptor, closed on exec.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Sends a signal to the process of a descriptor; 0 asks whether there is one. The master's call.
///
/// # Errors
/// `ESRCH` when it is gone; others as `kill` has them.
pub fn signal_process(process: &OwnedFd, signal: i32) -> nix::Result<()> {
    // SAFETY: numbers only, and no information beyond the signal itself.
    let answer = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    nix::errno::Errno::result(answer).map(drop)
}

/// Gives SIGCHLD its default meaning: where it is ignored (a parent may hand that down), the kernel throws wait statuses away.
/// The master's call, before it starts anything.
///
/// # Errors
/// What `signal` says.
pub fn default_child_signal() -> io::Result<()> {
    // SAFETY: the default disposition runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A memory file with these bytes, which nobody can change any more, at its beginning.
fn sealed_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create(c"bolide-boot", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(bytes)?;
    file.rewind()?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

/// Runs in the child, between fork and exec: async-signal-safe calls only, no allocation, no lock.
fn become_prototype(
    inherited: &[RawFd],
    identity: Option<&(u32, u32, Vec<libc::gid_t>)>,
    master: i32,
    at_terminal: bool,
) -> io::Result<()> {
    // SAFETY: plain system calls, all async-signal-safe (signal-safety(7)), on numbers and on memory filled before the fork.
    unsafe {
        // A group of its own: a terminal's ^C reaches the master only, which stops its children in order.
        // Only one in the terminal's own group may read from it, so one that is debugged there stays.
        if !at_terminal {
            check(libc::setpgid(0, 0))?;
        }
        for signal in 1..=SIGNAL_MOST {
            // The C library keeps some numbers for itself and refuses them, as the kernel does SIGKILL: nothing to undo there.
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        check(libc::sigemptyset(&raw mut blocked))?;
        // A signal to the whole instance waits until the prototype has its handlers.
        for signal in GROUP_SIGNALS {
            check(libc::sigaddset(&raw mut blocked, signal))?;
        }
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut()))?;
        if let Some((uid, gid, groups)) = identity {
            check(libc::setgroups(groups.len(), groups.as_ptr()))?;
            check(libc::setgid(*gid))?;
            check(libc::setuid(*uid))?;
        }
        // After the change of identity, because that change clears it (prctl(2), PR_SET_PDEATHSIG).
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0))?;
        if libc::getppid() != master {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for descriptor in inherited {
            check(libc::fcntl(*descriptor, libc::F_SETFD, 0))?;
        }
    }
    Ok(())
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_boot_memory_reads_from_its_beginning_and_can_not_be_changed() {
        let memory = sealed_memory(b"{\"settings\": 1}").expect("made");
        let mut file = File::from(memory);
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "{\"settings\": 1}");
        assert!(file.write_all(b"x").is_err());
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_not_adopted() {
        assert!(adopt(-1).is_err());
        assert!(adopt(987_654).is_err());
    }

    #[test]
    fn a_thread_of_another_process_gets_no_signal() {
        assert!(signal_thread(Pid::this(), 1, 0).is_err());
        assert!(signal_thread(Pid::this(), nix::unistd::gettid().as_raw() as u32, 0).is_ok());
    }
}
