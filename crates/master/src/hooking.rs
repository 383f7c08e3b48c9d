//! The hooks of the master. A child runs each of them, so that a hook that hangs does not block the master: a signal that
//! requests the end kills the hook, with all processes that it started. The master itself runs hooks that change its process (a
//! directory, an exit). A child that has become the application's user runs the hooks of that user. It does not know what a hook
//! does. The master runs it, before and after its event loop.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use bolide_contract::clock::now_ms;
use bolide_contract::confinement::Confinement;
use bolide_contract::hooks::{Hook, HookAction, HookPhase};
use bolide_contract::settings::Settings;
use bolide_hooks::{Files, Means, OwnFiles, no_functions};
use bolide_supervision::error::StartError;
use bolide_supervision::files::guarded_files::{HookFiles, Rights};
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::processes::child_setup::RawConfinement;
use bolide_supervision::processes::environment;
use bolide_supervision::processes::forking::{self, Forked};
use bolide_supervision::processes::leash::Leash;
use bolide_supervision::processes::signals::{EndSignals, name};
use bolide_supervision::text::duration;
use bolide_supervision::{log_sink, system};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;

use crate::control::signals::end_signals;
use crate::supervisor::ending::StopProgress;

/// Time limit for all exit hooks together, in milliseconds.
const MAX_END_MS: u64 = 30_000;
/// How long a killed hook may take to exit, in milliseconds: a disk that does not respond holds it longer.
const MAX_KILLED_MS: u64 = 5000;
/// The longest single wait for hooks, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;
/// Maximum bytes of a failure message.
const MAX_WORDS_BYTES: u64 = 4096;

/// Why hooks were not completed.
enum HookError {
    Failed(String),
    /// They were killed because of a signal.
    Ended(String),
}

impl HookError {
    fn of_start(self) -> StartError {
        match self {
            HookError::Failed(words) => StartError::new(words),
            HookError::Ended(words) => StartError::told_to_stop(words),
        }
    }
}

/// Runs the hooks of a phase of startup, with the rights that the master was started with.
///
/// # Errors
/// The first hook that fails, or a signal that ends startup.
pub fn at_start(settings: &Settings, phase: HookPhase) -> Result<(), StartError> {
    let hooks: Vec<&Hook> = of_phase(settings, phase).collect();
    if hooks.is_empty() {
        return Ok(());
    }
    // A user that does not exist yet, because a hook creates it, does not own files. Startup reports other errors about the user
    // later.
    let user = privileges::resolve(&settings.identity).unwrap_or_default();
    let guarded = HookFiles { rights: Rights::root_first(user.as_ref()) };
    let files: &dyn Files = if guarded.rights.is_own() { &OwnFiles } else { &guarded };
    let confinement = Confinement::default();
    if phase == HookPhase::AsRoot && settings.confinement.root.is_some() {
        // As in uWSGI, root's last hooks run within the jail; the master does not.
        let jail = Confinement { root: settings.confinement.root.clone(), ..confinement };
        let runner = Runner { confinement: &jail, privileges: None, files };
        return in_child(settings, phase, &hooks, &runner, WaitLimit::OfStart).map_err(HookError::of_start);
    }
    let runner = Runner { confinement: &confinement, privileges: None, files };
    for hook in hooks {
        match hook.action {
            HookAction::ChangeDirectory(_) | HookAction::Exit(_) => run(settings, &[hook], files).map_err(StartError::new)?,
            _ => in_child(settings, phase, &[hook], &runner, WaitLimit::OfStart).map_err(HookError::of_start)?,
        }
    }
    Ok(())
}

/// Returns the phases that run after the instance has entered its namespaces, if it has any.
pub fn phases_in_namespaces(confinement: &Confinement) -> &'static [HookPhase] {
    match confinement.namespaces.is_empty() {
        true => &[],
        false => &[HookPhase::PostJail, HookPhase::InJail, HookPhase::AsRoot],
    }
}

/// Runs the hooks of the master's startup, as the user of the application.
///
/// # Errors
/// The first hook that fails, a child that can't be created, or a signal that ends startup.
pub fn at_master_start(settings: &Settings, privileges: Option<&Privileges>) -> Result<(), StartError> {
    let phase = HookPhase::MasterStart;
    let hooks: Vec<&Hook> = of_phase(settings, phase).collect();
    in_child(settings, phase, &hooks, &Runner::user(settings, privileges), WaitLimit::OfStart).map_err(HookError::of_start)
}

/// Runs the exit hooks, as the user of the application, until another signal requests the end. A failure is logged and has no
/// other effect.
pub fn at_end(settings: &Settings, privileges: Option<&Privileges>, progress: Option<StopProgress>) {
    let phase = HookPhase::AsUserAtExit;
    let hooks: Vec<&Hook> = of_phase(settings, phase).collect();
    let limit = WaitLimit::OfEnd { end_ms: now_ms() + MAX_END_MS, progress };
    match in_child(settings, phase, &hooks, &Runner::user(settings, privileges), limit) {
        Ok(()) => {}
        Err(HookError::Failed(words) | HookError::Ended(words)) => log_sink::line(&words),
    }
}

fn of_phase(settings: &Settings, phase: HookPhase) -> impl Iterator<Item = &Hook> {
    settings.hooks.iter().filter(move |hook| hook.phase == phase)
}

/// The identity that a child takes before it runs hooks, and its access to files.
struct Runner<'a> {
    confinement: &'a Confinement,
    privileges: Option<&'a Privileges>,
    files: &'a dyn Files,
}

impl<'a> Runner<'a> {
    /// The user of the application, permanently.
    fn user(settings: &'a Settings, privileges: Option<&'a Privileges>) -> Runner<'a> {
        Runner { confinement: &settings.confinement, privileges, files: &OwnFiles }
    }
}

fn run(settings: &Settings, hooks: &[&Hook], files: &dyn Files) -> Result<(), String> {
    let mut call = no_functions;
    // A child that has become the application's user is not root any more.
    let application = match geteuid().is_root() {
        true => &environment::for_root(&settings.application),
        false => &settings.application,
    };
    let (environment, removed) = (&application.environment, &application.removed_variables);
    let mut means = Means { shells: &settings.attendant.shells, environment, removed, files, call: &mut call };
    hooks.iter().try_for_each(|hook| bolide_hooks::run_one(hook, &mut means)).map_err(|error| error.to_string())
}

/// Runs hooks in a child, which takes the identity permanently and drops the configured rights. The child reports a failure
/// through a pipe.
fn in_child(
    settings: &Settings,
    phase: HookPhase,
    hooks: &[&Hook],
    runner: &Runner<'_>,
    limit: WaitLimit,
) -> Result<(), HookError> {
    if hooks.is_empty() {
        return Ok(());
    }
    let words = |error: io::Error| format!("hooks ({}) can't be executed: {error}", phase.name());
    let trouble = |error: io::Error| HookError::Failed(words(error));
    let (reader, mut writer) = io::pipe().map_err(trouble)?;
    let confinement =
        RawConfinement::of(runner.confinement, settings.application.chdir.as_deref(), runner.privileges).map_err(trouble)?;
    // From here on, these signals are not lost and do not end the process before the hook.
    let signals = EndSignals::take(&end_signals()).map_err(|error| trouble(error.into()))?;
    let kept = [writer.as_raw_fd()];
    let forked = forking::on_leash(&confinement, &kept, |prepared| {
        let outcome = prepared.map_err(words).and_then(|()| run(settings, hooks, runner.files));
        if let Err(words) = &outcome {
            // The master waits for the text, and it fits into the pipe's buffer.
            let _ = writer.write_all(words.as_bytes());
        }
        i32::from(outcome.is_err())
    });
    let Forked { pid: child, leash, .. } = forked.map_err(trouble)?;
    drop(writer);
    let outcome = wait_for_outcome(reader, &signals, limit);
    match outcome {
        // Processes that hooks leave in the background are not ours.
        Ok(Waited::Done(_)) => leash.into_iter().for_each(Leash::let_go),
        _ => {
            system::signal_group(child, libc::SIGKILL);
            drop(leash);
        }
    }
    system::wait_for(child, MAX_KILLED_MS);
    match outcome.map_err(trouble)? {
        Waited::Done(words) if words.is_empty() => Ok(()),
        Waited::Done(words) => Err(HookError::Failed(words)),
        Waited::TooLong => {
            let most = duration(MAX_END_MS);
            Err(HookError::Failed(format!("the hooks ({}) take longer than {most}: killing them", phase.name())))
        }
        Waited::Signal(number) => {
            Err(HookError::Ended(format!("{} arrived: killing the hooks ({})", name(number), phase.name())))
        }
    }
}

/// How long hooks are waited for, and which signals end the wait.
#[derive(Clone, Copy)]
enum WaitLimit {
    /// Without a limit, until a signal arrives.
    OfStart,
    /// Until `end_ms`, or until a signal that does not belong to the previous request.
    OfEnd { end_ms: u64, progress: Option<StopProgress> },
}

impl WaitLimit {
    fn is_ended_by(self, signal: i32) -> bool {
        match self {
            WaitLimit::OfEnd { progress: Some(progress), .. } if signal != libc::SIGQUIT => progress.is_new_request(now_ms()),
            _ => true,
        }
    }

    fn left_ms(self) -> u64 {
        match self {
            WaitLimit::OfStart => u64::MAX,
            WaitLimit::OfEnd { end_ms, .. } => end_ms.saturating_sub(now_ms()),
        }
    }
}

/// How the wait for hooks was over.
enum Waited {
    /// They are done; the text is empty unless one failed.
    Done(String),
    TooLong,
    Signal(i32),
}

fn wait_for_outcome(mut reader: PipeReader, signals: &EndSignals, limit: WaitLimit) -> io::Result<Waited> {
    let mut words = Vec::new();
    loop {
        while let Some(number) = signals.next() {
            if limit.is_ended_by(number) {
                return Ok(Waited::Signal(number));
            }
        }
        let left_ms = limit.left_ms();
        if left_ms == 0 {
            return Ok(Waited::TooLong);
        }
        let mut poll_fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut poll_fds, PollTimeout::from(left_ms.min(MAX_WAIT_MS) as u16)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if poll_fds[0].any() != Some(true) {
            continue;
        }
        // Data or end of file is available, so the read does not block.
        let mut part = [0; 512];
        match reader.read(&mut part)? {
            0 => return Ok(Waited::Done(String::from_utf8_lossy(&words).into_owned())),
            length => words.extend(&part[..length.min(MAX_WORDS_BYTES as usize - words.len())]),
        }
    }
}
