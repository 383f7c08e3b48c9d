//! What a child does between fork and exec, for every program that we start: signals as they were at birth, another identity, the end
//! with its parent. Async-signal-safe calls only, no allocation, no lock. The child runs it.

use std::io;

use crate::privileges::Privileges;

/// The highest signal number of Linux.
const SIGNAL_MOST: i32 = 64;

/// User and groups as the calls take them: filled before the fork.
#[derive(Debug, Clone)]
pub struct RawIdentity {
    user: libc::uid_t,
    group: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl RawIdentity {
    pub fn of(privileges: &Privileges) -> RawIdentity {
        let groups = privileges.groups.iter().map(|group| group.as_raw()).collect();
        RawIdentity { user: privileges.uid.as_raw(), group: privileges.gid.as_raw(), groups }
    }

    /// Becomes this user, for good.
    ///
    /// # Errors
    /// Only root may.
    pub fn take(&self) -> io::Result<()> {
        // SAFETY: plain system calls on numbers, and on a vector that was filled before the fork.
        unsafe {
            check(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            check(libc::setgid(self.group))?;
            check(libc::setuid(self.user))
        }
    }
}

/// Gives every signal its default meaning, and blocks these and no others.
///
/// # Errors
/// What the calls say.
pub fn reset_signals(blocked_signals: &[i32]) -> io::Result<()> {
    // SAFETY: the default dispositions run no code of ours; the set is ours and filled before it is used.
    unsafe {
        for signal in 1..=SIGNAL_MOST {
            // The C library keeps some numbers for itself and refuses them, as the kernel does SIGKILL: nothing to undo there.
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        check(libc::sigemptyset(&raw mut blocked))?;
        for signal in blocked_signals {
            check(libc::sigaddset(&raw mut blocked, *signal))?;
        }
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut()))
    }
}

/// Has the kernel kill this process with its parent, whose pid this was before the fork. Changes of identity undo it, so it comes after them.
///
/// # Errors
/// The parent is gone already.
pub fn die_with(parent: i32) -> io::Result<()> {
    // SAFETY: plain system calls on numbers.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0))?;
        if libc::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

/// The error of a call that tells it by a negative answer.
///
/// # Errors
/// The call's.
pub fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
