//! The exec of a prototype, with all that a child does between fork and exec.
//! It decides nothing. The master runs it, except for [`become_prototype`], which runs in the child between fork and exec.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
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
    let address_space = launch.boot.settings.lifecycle.address_space_bytes;
    let mut command = Command::new(&launch.program.executable);
    command.args(&launch.program.arguments).arg(boot.as_raw_fd().to_string());
    // `env` is set here and not only inside Python: PYTHONHASHSEED and its kin are read when an interpreter starts.
    let environment = &launch.boot.settings.python.environment;
    for variable in socket_activation::VARIABLES.into_iter().chain([notify::VARIABLE]) {
        command.env_remove(variable);
    }
    for name in &launch.boot.settings.python.removed_variables {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value))).stdin(if at_terminal {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    // SAFETY: the closure makes async-signal-safe calls only, and touches nothing but the vectors that were filled before the fork.
    unsafe {
        command.pre_exec(move || become_prototype(&inherited, identity.as_ref(), master, at_terminal, address_space));
    }
    let child = command.spawn()?;
    // The child is waited for by the supervisor's own reaping: dropping the handle neither waits nor kills.
    Ok(Pid::from_raw(child.id() as i32))
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
    address_space: Option<u64>,
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
        // `limit-as`: workers inherit it.
        if let Some(bytes) = address_space {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            check(libc::setrlimit(libc::RLIMIT_AS, &raw const limit))?;
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
}
