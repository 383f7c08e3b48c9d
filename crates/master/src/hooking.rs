//! The hooks of the master: those of the start in the master itself, and those that are the application's user's in a child that has become
//! that user. The master runs it, before and after its loop.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use bolide_contract::confinement::Confinement;
use bolide_contract::hooks::HookPhase;
use bolide_contract::settings::Settings;
use bolide_hooks::{HookError, Means, no_functions};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use crate::between::{Heir, RawConfinement};
use crate::error::StartError;
use crate::log_sink;
use crate::privileges::Privileges;
use crate::system;

/// Time that all hooks of the end together may take, in milliseconds.
const END_MOST_MS: u16 = 30_000;
/// Bytes of the words about a failure.
const WORDS_MOST_BYTES: u64 = 4096;

/// Does what belongs to a step of the start, with the rights that the master was started with.
///
/// # Errors
/// The first that fails.
pub fn at_start(settings: &Settings, phase: HookPhase) -> Result<(), StartError> {
    if phase == HookPhase::AsRoot && settings.confinement.root.is_some() {
        // As in uWSGI, the last of root's hooks are within the jail; the master is not.
        let root = Confinement { root: settings.confinement.root.clone(), ..Confinement::default() };
        return in_child(settings, phase, &root, None, PollTimeout::NONE).map_err(StartError::new);
    }
    run(settings, phase).map_err(|error| StartError::new(error.to_string()))
}

/// Steps of the start that come when the instance is in name spaces of its own, where it is to have some.
pub fn phases_in_namespaces(confinement: &Confinement) -> &'static [HookPhase] {
    match confinement.namespaces.is_empty() {
        true => &[],
        false => &[HookPhase::PostJail, HookPhase::InJail, HookPhase::AsRoot],
    }
}

/// Does what belongs to the master's begin, as the user of the application.
///
/// # Errors
/// The first that fails, or a child that can't be had.
pub fn at_begin(settings: &Settings, privileges: Option<&Privileges>) -> Result<(), StartError> {
    in_child(settings, HookPhase::MasterStart, &settings.confinement, privileges, PollTimeout::NONE).map_err(StartError::new)
}

/// Does what belongs to the end, as the user of the application. A failure is told, and changes nothing.
pub fn at_end(settings: &Settings, privileges: Option<&Privileges>) {
    if let Err(words) =
        in_child(settings, HookPhase::AsUserAtExit, &settings.confinement, privileges, PollTimeout::from(END_MOST_MS))
    {
        log_sink::line(&words);
    }
}

fn run(settings: &Settings, phase: HookPhase) -> Result<(), HookError> {
    let mut call = no_functions;
    let environment = &settings.python.environment;
    bolide_hooks::run(&settings.hooks, phase, &mut Means { shells: &settings.attendant.shells, environment, call: &mut call })
}

/// A child takes on the identity for good, gives up what is to be given up, and does it; what failed comes back by a pipe.
fn in_child(
    settings: &Settings,
    phase: HookPhase,
    confinement: &Confinement,
    privileges: Option<&Privileges>,
    most: PollTimeout,
) -> Result<(), String> {
    if !settings.hooks.iter().any(|hook| hook.phase == phase) {
        return Ok(());
    }
    let trouble = |error: io::Error| format!("hooks ({}) can't be done: {error}", phase.name());
    let (reader, mut writer) = io::pipe().map_err(trouble)?;
    let confinement = RawConfinement::of(confinement, settings.python.chdir.as_deref(), privileges).map_err(trouble)?;
    let Some(child) = system::fork().map_err(trouble)? else {
        let log = bolide_log::descriptor().map(|log| log.as_raw_fd());
        let kept: Vec<i32> = log.into_iter().chain([writer.as_raw_fd()]).collect();
        system::close_others(&kept);
        let outcome = match confinement.take(Heir::Nobody) {
            Ok(()) => run(settings, phase).map_err(|error| error.to_string()),
            Err(error) => Err(trouble(error)),
        };
        bolide_log::finish();
        if let Err(words) = &outcome {
            // The master waits for it, and a pipe has room for it.
            let _ = writer.write_all(words.as_bytes());
        }
        system::leave(i32::from(outcome.is_err()));
    };
    drop(writer);
    let words = words_of(child, reader, most);
    system::wait_for(child);
    match words {
        Ok(words) if words.is_empty() => Ok(()),
        Ok(words) => Err(words),
        Err(error) => Err(trouble(error)),
    }
}

/// What the child says until its end; one that takes too long is killed.
fn words_of(child: Pid, reader: io::PipeReader, most: PollTimeout) -> io::Result<String> {
    let mut poll_fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    if poll(&mut poll_fds, most)? == 0 {
        system::signal_group(child, libc::SIGKILL);
        return Err(io::Error::other("they took too long, and were killed"));
    }
    let mut words = String::new();
    reader.take(WORDS_MOST_BYTES).read_to_string(&mut words)?;
    Ok(words)
}
