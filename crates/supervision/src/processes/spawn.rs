//! Spawns a prototype: fork, the setup of the child, and exec. It does not make decisions. The master runs it, except for
//! [`become_prototype`], which runs in the child between fork and exec.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use bolide_contract::boot::Boot;
use bolide_contract::message::GROUP_SIGNALS;
use bolide_contract::settings::Process;
use bolide_contract::succession;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;

use crate::processes::child_setup::{self, CapabilitiesAtExec, RawConfinement, check};
use crate::processes::environment;

/// The variable by which applications and libraries recognize their server, as gunicorn sets it. An own one stays.
const SERVER_SOFTWARE: (&str, &str) = ("SERVER_SOFTWARE", concat!("bolide/", env!("CARGO_PKG_VERSION")));

/// Everything that is needed to execute a prototype.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program.
    pub executable: &'a Path,
    /// Its arguments, before the number of the boot descriptor.
    pub arguments: &'a [OsString],
    /// The boot message, which the prototype reads from that descriptor.
    pub boot: &'a Boot,
    /// Descriptors that the prototype inherits under their own numbers, which `boot` names.
    pub inherited: Vec<RawFd>,
    /// Its confinement.
    pub confinement: RawConfinement,
    /// It stays in our process group and has our standard input, because it is debugged at a terminal.
    pub at_terminal: bool,
}

/// Executes a prototype. The master calls it.
///
/// # Errors
/// The program can't be executed, or the child can't assume its identity.
pub fn prototype(launch: &Launch<'_>) -> io::Result<Pid> {
    let boot = sealed_memory(&serde_json::to_vec(launch.boot)?)?;
    let mut inherited = launch.inherited.clone();
    inherited.push(boot.as_raw_fd());
    let confinement = launch.confinement.clone();
    let master = Pid::this().as_raw();
    let at_terminal = launch.at_terminal;
    let process = launch.boot.settings.lifecycle.process;
    let mut command = Command::new(launch.executable);
    command.args(launch.arguments).arg(boot.as_raw_fd().to_string());
    // `env` is set here and not only inside Python: PYTHONHASHSEED and related variables are read when an interpreter starts.
    command.env_remove(succession::VARIABLE);
    if std::env::var_os(SERVER_SOFTWARE.0).is_none() {
        command.env(SERVER_SOFTWARE.0, SERVER_SOFTWARE.1);
    }
    environment::give(&mut command, &launch.boot.settings.application);
    command.stdin(if at_terminal { Stdio::inherit() } else { Stdio::null() });
    // SAFETY: the closure makes async-signal-safe calls only, and touches nothing but the vectors that were filled before the
    // fork.
    unsafe {
        command.pre_exec(move || become_prototype(&inherited, &confinement, master, at_terminal, process));
    }
    let child = command.spawn()?;
    // The supervisor reaps the child itself: dropping the handle neither waits nor kills.
    Ok(Pid::from_raw(child.id() as i32))
}

/// A sealed memory file with these bytes, positioned at its beginning.
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
    confinement: &RawConfinement,
    master: i32,
    at_terminal: bool,
    process: Process,
) -> io::Result<()> {
    // A process group of its own: ^C at a terminal reaches only the master, which stops its children in order. Only the
    // terminal's own group may read from it, so a process that is debugged there stays in that group.
    if !at_terminal {
        // SAFETY: a plain system call on numbers.
        check(unsafe { libc::setpgid(0, 0) })?;
    }
    // A signal to the whole instance stays pending until the prototype has its handlers.
    child_setup::reset_signals(&GROUP_SIGNALS)?;
    if let Some(priority) = process.priority {
        // SAFETY: a plain system call on numbers. Only root may raise the priority, so it comes before the change of identity.
        check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, priority) })?;
    }
    confinement.take(CapabilitiesAtExec::Kept)?;
    child_setup::die_with(master)?;
    // Workers inherit these limits.
    for (resource, most) in [(libc::RLIMIT_AS, process.address_space_bytes), (libc::RLIMIT_NPROC, process.processes_most)] {
        let Some(most) = most else { continue };
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: a plain system call on memory of ours.
        check(unsafe { libc::setrlimit(resource, &raw const limit) })?;
    }
    for descriptor in inherited {
        // SAFETY: a plain system call on numbers.
        check(unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) })?;
    }
    Ok(())
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
