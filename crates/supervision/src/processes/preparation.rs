//! The process of a program that [`std::process::Command`] executes, as its new program finds it: default signals, a process
//! group, a control group, descriptors, identity and directory. Callers need no `unsafe` for it. The process that starts the
//! program runs it, except for [`Preparation::take`], which runs in the child.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::processes::child_setup::{self, RawIdentity, check};

/// What a program finds. Signals always have their default actions.
#[derive(Debug, Default)]
pub struct Preparation {
    /// The file by which it enters a control group (`cgroup.procs`), while it still has the rights of this process.
    pub control_group: Option<OwnedFd>,
    /// It leads a process group: ^C at a terminal reaches only the process that has started it.
    pub leads_group: bool,
    /// It leads a session of its own, so it has no terminal: another user could type into the one of the process that has
    /// started it.
    pub leads_session: bool,
    /// Descriptors that stay open, under their numbers.
    pub kept: Vec<OwnedFd>,
    /// A descriptor, and the number that the program knows it by.
    pub passed: Option<(OwnedFd, RawFd)>,
    /// Its user and groups, for good.
    pub identity: Option<RawIdentity>,
    /// The working directory, which its user must be allowed to enter.
    pub directory: Option<OwnedFd>,
}

impl Preparation {
    /// Lets the program of this command find it so.
    pub fn of(self, command: &mut Command) {
        // SAFETY: the closure makes async-signal-safe calls only, on numbers and on vectors that were filled before the fork.
        unsafe {
            command.pre_exec(move || self.take());
        }
    }

    /// Runs in the child, between fork and exec: async-signal-safe calls only, no allocation, no lock.
    fn take(&self) -> io::Result<()> {
        // SAFETY: plain system calls on numbers.
        unsafe {
            if let Some(group) = &self.control_group {
                // A `0` is the process that writes it (cgroups(7)).
                let written = libc::write(group.as_raw_fd(), b"0".as_ptr().cast(), 1);
                check(if written == 1 { 0 } else { -1 })?;
            }
            if self.leads_session {
                check(libc::setsid())?;
            } else if self.leads_group {
                check(libc::setpgid(0, 0))?;
            }
            for descriptor in &self.kept {
                check(libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0))?;
            }
            if let Some((descriptor, number)) = &self.passed {
                check(libc::dup2(descriptor.as_raw_fd(), *number))?;
            }
        }
        child_setup::reset_signals(&[])?;
        self.identity.as_ref().map_or(Ok(()), RawIdentity::take)?;
        match &self.directory {
            // SAFETY: as above.
            Some(directory) => check(unsafe { libc::fchdir(directory.as_raw_fd()) }),
            None => Ok(()),
        }
    }
}
