//! Forks of the master without exec. The child leads a process group of its own, does not keep descriptors that it was not given,
//! and never returns to the code that the master was running. It knows nothing about what the child does then. The master runs
//! it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::unistd::{Pid, setpgid};

use crate::processes::channel::{self, ChildChannel, MasterChannel};
use crate::processes::child_setup::{self, CapabilitiesAtExec, RawConfinement};
use crate::processes::leash::{self, Leash};
use crate::processes::process_attributes;
use crate::system;

/// The exit status of a child that has panicked.
const PANICKED: i32 = 1;

/// A child that was forked, and what ties it to us.
#[derive(Debug)]
pub struct Forked {
    /// The child.
    pub pid: Pid,
    /// For orders to it, and reports from it.
    pub channel: Option<ChildChannel>,
    /// Kills its process group when this process is gone.
    pub leash: Option<Leash>,
}

/// Forks a child that keeps these descriptors in addition to the standard ones. It ends with the status that `work` returns.
///
/// # Errors
/// No process is left.
pub fn fork(kept: &[RawFd], work: impl FnOnce() -> i32) -> io::Result<Pid> {
    if let Some(child) = system::fork()? {
        return Ok(child);
    }
    system::close_others(kept);
    // A terminal's ^C reaches the master only, and a kill reaches the group as a whole. The call fails if the group is already
    // ours.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    system::leave(catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED))
}

/// Forks a child with a channel to the master, under this name. It has no log: its lines are reports.
///
/// # Errors
/// No process or descriptor is left.
pub fn with_channel(process_name: &str, kept: &[RawFd], work: impl FnOnce(MasterChannel) -> i32) -> io::Result<Forked> {
    let (near, far) = channel::pair()?;
    let kept = [kept, &[far.as_fd().as_raw_fd()]].concat();
    let pid = fork(&kept, || {
        process_attributes::set_name(process_name);
        work(far)
    })?;
    Ok(Forked { pid, channel: Some(near), leash: None })
}

/// Forks a child that is within this confinement and dies with the master, and its process group with it. It may write to the log
/// and raise alarms. `work` gets the error if the child could not be confined or be put on the leash; then it must do nothing.
///
/// # Errors
/// No process or descriptor is left.
pub fn on_leash(confinement: &RawConfinement, kept: &[RawFd], work: impl FnOnce(io::Result<()>) -> i32) -> io::Result<Forked> {
    let leash = Leash::new()?;
    let end_of_leash = leash.end_for_group();
    let master = Pid::this().as_raw();
    let log = [bolide_log::descriptor(), bolide_log::alarms::descriptor()].into_iter().flatten().map(|log| log.as_raw_fd());
    let kept: Vec<RawFd> = log.chain(bolide_log::targets()).chain(kept.iter().copied()).chain([end_of_leash]).collect();
    // The child keeps its end of the leash open, and what it executes inherits that end: the leash is dropped here only.
    let pid = fork(&kept, || {
        let prepared = leash::put_on(end_of_leash).and_then(|()| confinement.take(CapabilitiesAtExec::RootOnly));
        let status = work(prepared.and_then(|()| child_setup::die_with(master)));
        bolide_log::finish();
        status
    })?;
    Ok(Forked { pid, channel: None, leash: Some(leash) })
}
