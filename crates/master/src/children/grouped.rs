//! The fork of a child that leads a process group of its own, is the application's user within its jail, and dies with the
//! master. It may write to the log and raise alarms. It knows nothing about what the child does then. The master runs it.

use std::io;
use std::os::fd::AsRawFd;

use bolide_contract::settings::Settings;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::child_setup::{self, CapabilitiesAtExec, RawConfinement};
use bolide_supervision::processes::leash::{self, Leash};
use bolide_supervision::system;
use nix::unistd::{Pid, setpgid};

/// Which of the two processes a fork has returned in.
#[derive(Debug)]
pub enum Side {
    /// The master, which has the child and the leash of its group.
    Master(Pid, Leash),
    /// The child, with the error if it could not become the user or be put on the leash. It must leave by itself.
    Child(io::Result<()>),
}

/// Forks the child.
///
/// # Errors
/// No process or descriptor is left.
pub fn fork(settings: &Settings, privileges: Option<&Privileges>) -> io::Result<Side> {
    let confinement = RawConfinement::of(&settings.confinement, settings.application.chdir.as_deref(), privileges)?;
    let leash = Leash::new()?;
    let end_of_leash = leash.end_for_group();
    let master = Pid::this().as_raw();
    if let Some(child) = system::fork()? {
        return Ok(Side::Master(child, leash));
    }
    let log = bolide_log::descriptor().map(|log| log.as_raw_fd());
    let alarms = bolide_log::alarms::descriptor().map(|alarms| alarms.as_raw_fd());
    let kept = log.into_iter().chain(alarms).chain(bolide_log::targets()).chain([end_of_leash]);
    system::close_others(&kept.collect::<Vec<i32>>());
    // A process group of its own, which is killed as a whole. The call fails if the group is already ours.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    leash.wear();
    let prepared = leash::put_on(end_of_leash).and_then(|()| confinement.take(CapabilitiesAtExec::RootOnly));
    Ok(Side::Child(prepared.and_then(|()| child_setup::die_with(master))))
}
