//! The hooks of the master. A child does each of them, so that one that hangs leaves the master its ears: a signal that asks for an end kills
//! the hook, with all that it has started. What changes the process itself (a folder, an exit) the master does. Those of the application's
//! user are done by a child that has become that user. The master runs it, before and after its loop.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use bolide_contract::confinement::Confinement;
use bolide_contract::hooks::{Hook, HookAction, HookPhase};
use bolide_contract::scoreboard::now_ms;
use bolide_contract::settings::Settings;
use bolide_hooks::{Files, Means, OwnFiles, no_functions};
use bolide_supervision::error::StartError;
use bolide_supervision::files::guarded_files::{HookFiles, Rights};
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::child_setup::{CapabilitiesAtExec, RawConfinement};
use bolide_supervision::processes::leash::{self, Leash};
use bolide_supervision::processes::privileges::{self, Privileges};
use bolide_supervision::processes::signals::{EndSignals, name};
use bolide_supervision::processes::system;
use bolide_supervision::text::duration;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, setpgid};

use crate::control::signals::end_signals;
use crate::supervisor::ending::StopProgress;

/// Time that all hooks of the end together may take, in milliseconds.
const END_MOST_MS: u64 = 30_000;
/// Time that a hook may take to be gone when it was killed, in milliseconds: a disk that does not answer holds it longer.
const KILLED_MOST_MS: u64 = 5000;
/// The longest wait for hooks in one piece, in milliseconds.
const WAIT_MOST_MS: u64 = 60_000;
/// Bytes of the words about a failure.
const WORDS_MOST_BYTES: u64 = 4096;

/// Why hooks were not done.
enum Trouble {
    Failed(String),
    /// They were killed, since this signal came.
    Ended(String),
}

impl Trouble {
    fn of_start(self) -> StartError {
        match self {
            Trouble::Failed(words) => StartError::new(words),
            Trouble::Ended(words) => StartError::told_to_stop(words),
        }
    }
}

/// Does what belongs to a step of the start, with the rights that the master was started with.
///
/// # Errors
/// The first that fails, or a signal that ends the start.
pub fn at_start(settings: &Settings, phase: HookPhase) -> Result<(), StartError> {
    let hooks: Vec<&Hook> = of_phase(settings, phase).collect();
    if hooks.is_empty() {
        return Ok(());
    }
    // A user that is not there yet, since a hook makes it, has laid nothing; the start says later what is wrong with another one.
    let user = privileges::resolve(&settings.identity).unwrap_or_default();
    let guarded = HookFiles { rights: Rights::root_first(user.as_ref()) };
    let files: &dyn Files = if guarded.rights.is_own() { &OwnFiles } else { &guarded };
    let confinement = Confinement::default();
    if phase == HookPhase::AsRoot && settings.confinement.root.is_some() {
        // As in uWSGI, the last of root's hooks are within the jail; the master is not.
        let jail = Confinement { root: settings.confinement.root.clone(), ..confinement };
        let doer = Doer { confinement: &jail, privileges: None, files };
        return in_child(settings, phase, &hooks, &doer, Patience::OfStart).map_err(Trouble::of_start);
    }
    let doer = Doer { confinement: &confinement, privileges: None, files };
    for hook in hooks {
        match hook.action {
            HookAction::ChangeFolder(_) | HookAction::Exit(_) => run(settings, &[hook], files).map_err(StartError::new)?,
            _ => in_child(settings, phase, &[hook], &doer, Patience::OfStart).map_err(Trouble::of_start)?,
        }
    }
    Ok(())
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
/// The first that fails, a child that can't be had, or a signal that ends the start.
pub fn at_begin(settings: &Settings, privileges: Option<&Privileges>) -> Result<(), StartError> {
    let phase = HookPhase::MasterStart;
    let hooks: Vec<&Hook> = of_phase(settings, phase).collect();
    in_child(settings, phase, &hooks, &Doer::user(settings, privileges), Patience::OfStart).map_err(Trouble::of_start)
}

/// Does what belongs to the end, as the user of the application, for so long as nobody asks for the end once more. A failure is told, and
/// changes nothing.
pub fn at_end(settings: &Settings, privileges: Option<&Privileges>, progress: Option<StopProgress>) {
    let phase = HookPhase::AsUserAtExit;
    let hooks: Vec<&Hook> = of_phase(settings, phase).collect();
    let patience = Patience::OfEnd { end_ms: now_ms() + END_MOST_MS, progress };
    match in_child(settings, phase, &hooks, &Doer::user(settings, privileges), patience) {
        Ok(()) => {}
        Err(Trouble::Failed(words) | Trouble::Ended(words)) => log_sink::line(&words),
    }
}

fn of_phase(settings: &Settings, phase: HookPhase) -> impl Iterator<Item = &Hook> {
    settings.hooks.iter().filter(move |hook| hook.phase == phase)
}

/// What a child becomes before it does hooks, and how it reaches files then.
struct Doer<'a> {
    confinement: &'a Confinement,
    privileges: Option<&'a Privileges>,
    files: &'a dyn Files,
}

impl<'a> Doer<'a> {
    /// The user of the application, for good.
    fn user(settings: &'a Settings, privileges: Option<&'a Privileges>) -> Doer<'a> {
        Doer { confinement: &settings.confinement, privileges, files: &OwnFiles }
    }
}

fn run(settings: &Settings, hooks: &[&Hook], files: &dyn Files) -> Result<(), String> {
    let mut call = no_functions;
    let environment = &settings.application.environment;
    let mut means = Means { shells: &settings.attendant.shells, environment, files, call: &mut call };
    hooks.iter().try_for_each(|hook| bolide_hooks::run_one(hook, &mut means)).map_err(|error| error.to_string())
}

/// A child takes on the identity for good, gives up what is to be given up, and does it; what failed comes back by a pipe.
fn in_child(settings: &Settings, phase: HookPhase, hooks: &[&Hook], doer: &Doer<'_>, patience: Patience) -> Result<(), Trouble> {
    if hooks.is_empty() {
        return Ok(());
    }
    let words = |error: io::Error| format!("hooks ({}) can't be executed: {error}", phase.name());
    let trouble = |error: io::Error| Trouble::Failed(words(error));
    let (reader, mut writer) = io::pipe().map_err(trouble)?;
    let leash = Leash::new().map_err(trouble)?;
    let confinement =
        RawConfinement::of(doer.confinement, settings.application.chdir.as_deref(), doer.privileges).map_err(trouble)?;
    // From here on none of these signals is lost, nor ends us before the hook.
    let signals = EndSignals::take(&end_signals()).map_err(|error| trouble(error.into()))?;
    let master = Pid::this();
    let Some(child) = system::fork().map_err(trouble)? else {
        let log = bolide_log::descriptor().map(|log| log.as_raw_fd());
        let end_of_leash = leash.end_for_group();
        let kept: Vec<i32> = log.into_iter().chain([writer.as_raw_fd(), end_of_leash]).collect();
        system::close_others(&kept);
        let outcome = match lead_group(end_of_leash, master).and_then(|()| confinement.take(CapabilitiesAtExec::RootOnly)) {
            Ok(()) => run(settings, hooks, doer.files),
            Err(error) => Err(words(error)),
        };
        bolide_log::finish();
        if let Err(words) = &outcome {
            // The master waits for it, and a pipe has room for it.
            let _ = writer.write_all(words.as_bytes());
        }
        system::leave(i32::from(outcome.is_err()));
    };
    drop(writer);
    let outcome = wait_for_words(reader, &signals, patience);
    match outcome {
        // What they have left in the background is no concern of ours.
        Ok(Waited::Said(_)) => leash.let_go(),
        _ => {
            system::signal_group(child, libc::SIGKILL);
            drop(leash);
        }
    }
    system::wait_for(child, KILLED_MOST_MS);
    match outcome.map_err(trouble)? {
        Waited::Said(words) if words.is_empty() => Ok(()),
        Waited::Said(words) => Err(Trouble::Failed(words)),
        Waited::TooLong => {
            let most = duration(END_MOST_MS);
            Err(Trouble::Failed(format!("the hooks ({}) take longer than {most}: killing them", phase.name())))
        }
        Waited::Signal(number) => Err(Trouble::Ended(format!("{} arrived: killing the hooks ({})", name(number), phase.name()))),
    }
}

/// In the child: a group of its own, which dies with the master.
fn lead_group(end_of_leash: i32, master: Pid) -> io::Result<()> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    leash::put_on(end_of_leash)?;
    // It may have gone before there was a leash.
    if Pid::parent() == master { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

/// How long hooks are waited for, and what ends that.
#[derive(Clone, Copy)]
enum Patience {
    /// As long as it takes, until a signal comes.
    OfStart,
    /// Until then, or a signal that is not the wish of before.
    OfEnd { end_ms: u64, progress: Option<StopProgress> },
}

impl Patience {
    fn ends_by(self, signal: i32) -> bool {
        match self {
            Patience::OfEnd { progress: Some(progress), .. } if signal != libc::SIGQUIT => {
                progress.is_older_than_one_wish(now_ms())
            }
            _ => true,
        }
    }

    fn left_ms(self) -> u64 {
        match self {
            Patience::OfStart => u64::MAX,
            Patience::OfEnd { end_ms, .. } => end_ms.saturating_sub(now_ms()),
        }
    }
}

/// How the wait for hooks has ended.
enum Waited {
    /// They are done, and this is what failed.
    Said(String),
    TooLong,
    Signal(i32),
}

fn wait_for_words(mut reader: PipeReader, signals: &EndSignals, patience: Patience) -> io::Result<Waited> {
    let mut words = Vec::new();
    loop {
        while let Some(number) = signals.next() {
            if patience.ends_by(number) {
                return Ok(Waited::Signal(number));
            }
        }
        let left_ms = patience.left_ms();
        if left_ms == 0 {
            return Ok(Waited::TooLong);
        }
        let mut poll_fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut poll_fds, PollTimeout::from(left_ms.min(WAIT_MOST_MS) as u16)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if poll_fds[0].any() != Some(true) {
            continue;
        }
        // A part is there, or the end: the read does not wait.
        let mut part = [0; 512];
        match reader.read(&mut part)? {
            0 => return Ok(Waited::Said(String::from_utf8_lossy(&words).into_owned())),
            length => words.extend(&part[..length.min(WORDS_MOST_BYTES as usize - words.len())]),
        }
    }
}
