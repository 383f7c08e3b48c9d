//! Setup of a child between fork and exec, for every program that we start: default signals, another identity, death with its
//! parent, and the things that it gives up (the root directory, capabilities). It makes async-signal-safe calls only: no
//! allocation, no lock. The child runs it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bolide_contract::confinement::Confinement;

use crate::privileges::Privileges;

/// The highest signal number of Linux.
const MAX_SIGNAL: i32 = 64;

/// User and groups in the form that the system calls need, filled before the fork.
#[derive(Debug, Clone)]
pub struct RawIdentity {
    user: libc::uid_t,
    group: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl RawIdentity {
    /// The identity of these privileges.
    pub fn of(privileges: &Privileges) -> RawIdentity {
        let groups = privileges.groups.iter().map(|group| group.as_raw()).collect();
        RawIdentity { user: privileges.uid.as_raw(), group: privileges.gid.as_raw(), groups }
    }

    /// Assumes this identity, for good.
    ///
    /// # Errors
    /// Only root may change its identity.
    pub fn take(&self) -> io::Result<()> {
        // SAFETY: plain system calls on numbers, and on a vector that was filled before the fork.
        unsafe {
            check(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            check(libc::setgid(self.group))?;
            check(libc::setuid(self.user))
        }
    }
}

/// The confinement of one of the application's programs, in the form that the system calls need, filled before the fork.
#[derive(Debug, Clone)]
pub struct RawConfinement {
    /// The new root, and the working directory within it.
    root: Option<(CString, CString)>,
    identity: Option<RawIdentity>,
    capabilities: Option<u64>,
}

/// Whether capabilities are kept at the next exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapabilitiesAtExec {
    /// The executed program keeps them.
    Kept,
    /// Only a program that runs as root keeps them.
    RootOnly,
}

impl RawConfinement {
    /// The confinement of the settings. `directory` is the working directory within another root.
    ///
    /// # Errors
    /// A path contains a NUL byte.
    pub fn of(
        confinement: &Confinement,
        directory: Option<&Path>,
        privileges: Option<&Privileges>,
    ) -> io::Result<RawConfinement> {
        let raw = |path: &Path| Ok::<CString, io::Error>(CString::new(path.as_os_str().as_bytes())?);
        let directory = directory.unwrap_or(Path::new("/"));
        let root = confinement.root.as_deref().map(|root| Ok::<_, io::Error>((raw(root)?, raw(directory)?))).transpose()?;
        Ok(RawConfinement { root, identity: privileges.map(RawIdentity::of), capabilities: confinement.capabilities })
    }

    /// Applies the confinement, for good.
    ///
    /// # Errors
    /// The process is not root, or the root or the directory does not exist.
    pub fn take(&self, at_exec: CapabilitiesAtExec) -> io::Result<()> {
        if let Some((root, directory)) = &self.root {
            // SAFETY: plain system calls on strings that were made before the fork. The working directory must not stay outside.
            unsafe {
                check(libc::chroot(root.as_ptr()))?;
                check(libc::chdir(c"/".as_ptr()))?;
                check(libc::chdir(directory.as_ptr()))?;
            }
        }
        if let Some(kept) = self.capabilities {
            drop_bounds(kept)?;
            // SAFETY: a plain system call on numbers. The change of user would drop all capabilities; an exec resets the flag.
            check(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1 as libc::c_ulong, 0, 0, 0) })?;
        }
        if let Some(identity) = &self.identity {
            identity.take()?;
        }
        self.capabilities.map_or(Ok(()), |kept| keep_capabilities(kept, at_exec))
    }
}

/// Drops the other capabilities from the bounding set: no program that is executed can regain them.
fn drop_bounds(kept: u64) -> io::Result<()> {
    for number in (0..MAX_CAPABILITIES).filter(|number| kept & (1 << number) == 0) {
        // SAFETY: a plain system call on numbers.
        match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number as libc::c_ulong, 0, 0, 0) }) {
            // The kernel is older than this capability.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            done => done?,
        }
    }
    Ok(())
}

fn keep_capabilities(kept: u64, at_exec: CapabilitiesAtExec) -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let sets =
        [kept as u32, (kept >> 32) as u32].map(|bits| CapabilitySets { effective: bits, permitted: bits, inheritable: bits });
    // SAFETY: the kernel reads a header and two sets of version 3, which live through the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) } as libc::c_int)?;
    if at_exec == CapabilitiesAtExec::Kept {
        for number in (0..MAX_CAPABILITIES).filter(|number| kept & (1 << number) != 0) {
            let raise = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
            // SAFETY: a plain system call on numbers.
            check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, number as libc::c_ulong, 0, 0) })?;
        }
    }
    Ok(())
}

/// The header of capset(2), in its version 3 with 64 bits.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
struct CapabilitySets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Capability numbers are below this.
const MAX_CAPABILITIES: u32 = 64;

/// Resets every signal to its default action, and blocks exactly the given ones.
///
/// # Errors
/// The error of the system call.
pub fn reset_signals(blocked_signals: &[i32]) -> io::Result<()> {
    // SAFETY: the default dispositions do not run our code; the set is ours and filled before it is used.
    unsafe {
        for signal in 1..=MAX_SIGNAL {
            // The C library reserves some numbers and refuses them, as the kernel refuses SIGKILL: they have no handler.
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

/// Asks the kernel to kill this process with its parent, which had this pid before the fork. Changes of identity reset this, so
/// they must come first.
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

/// Turns the negative result of a system call into its error.
///
/// # Errors
/// The error of the call.
pub fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
