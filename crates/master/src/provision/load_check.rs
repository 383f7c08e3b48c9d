//! `bolide check --load`: the application is imported in a child, by the program that a prototype of these settings is, as its user and in
//! its folder. Nothing is bound, served or left behind. It prints nothing but what the child says; the process of the command runs it.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bolide_contract::boot::Boot;
use bolide_contract::settings::Settings;
use bolide_options::{CheckReport, Diagnostic, Location};
use bolide_supervision::error::StartError;
use bolide_supervision::processes::child_setup::{self, CapabilitiesAtExec, RawConfinement, check};
use bolide_supervision::processes::privileges::{self, Privileges};
use bolide_supervision::processes::system;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use crate::provision::configuration::Configuration;
use crate::provision::interpreter::{Program, enter_folder, not_executed};

/// What tells a prototype's program that this is one.
const WORD: &str = "--rehearse";
/// How long an application may take to load where `load-timeout` says nothing, in milliseconds.
const LOADING_MS: u64 = 60_000;
/// How long the child may go on beyond that, to show where it is stuck, in milliseconds.
const SHOWING_MS: u64 = 5_000;
/// How long a child that has reported may take for its end, in milliseconds.
const ENDING_MS: u64 = 5_000;
/// The most that a child's report has, in bytes: a line of JSON.
const REPORT_BYTES_MOST: usize = 64 * 1024;

/// Loads the applications of these settings, and adds to the report what is wrong with them.
pub fn check_load(settings: &Settings, configuration: &Configuration, report: &mut CheckReport) {
    let found = loaded(settings, configuration, report).unwrap_or_else(|error| Some(failure(&error.to_string())));
    found.into_iter().for_each(|diagnostic| report.add(diagnostic));
    // The next configuration's relative paths start from here.
    if let Err(error) = std::env::set_current_dir(configuration.folder()) {
        report.add(failure(&format!("the folder of the start can't be entered: {error}")));
    }
}

/// The diagnostic of an application that can't be loaded; `None` where it can.
fn loaded(
    settings: &Settings,
    configuration: &Configuration,
    report: &mut CheckReport,
) -> Result<Option<Diagnostic>, StartError> {
    enter_folder(settings)?;
    let program = configuration.program(settings)?;
    let privileges = match identity(settings) {
        Ok(privileges) => privileges,
        Err(error) if geteuid().is_root() => return Err(error),
        Err(error) => {
            let message = format!("the application is loaded as the current user, not as the configured one: {error}");
            report.add(Diagnostic::note(None, message).local());
            None
        }
    };
    let started = Instant::now();
    let limit_ms = settings.lifecycle.load_timeout_ms.unwrap_or(LOADING_MS);
    let mut child = spawn(&program, settings, privileges.as_ref()).map_err(|error| not_executed(&program, &error))?;
    let told = hand_over(&mut child, settings, limit_ms)
        .and_then(|mut output| read_report(&mut output, started + Duration::from_millis(limit_ms.saturating_add(SHOWING_MS))));
    let status = end(&mut child);
    let words = told.ok().and_then(|line| serde_json::from_slice::<serde_json::Value>(&line).ok());
    Ok(match words {
        Some(words) => diagnostic(&words),
        None if started.elapsed() >= Duration::from_millis(limit_ms) => Some(
            failure(&format!("it was not loaded within {} s; the stack above shows where it was stuck", limit_ms / 1000))
                .advise("`load-timeout` sets another limit"),
        ),
        None => Some(failure(&match status {
            Ok(status) => format!("its process ended while it was loaded: {status}"),
            Err(error) => format!("its process can't be waited for: {error}"),
        })),
    })
}

/// The user that workers have.
fn identity(settings: &Settings) -> Result<Option<Privileges>, StartError> {
    match privileges::resolve(&settings.identity)? {
        Some(privileges) => Ok(Some(privileges)),
        None => privileges::resolve_immediate(&settings.confinement),
    }
}

fn spawn(program: &Program, settings: &Settings, privileges: Option<&Privileges>) -> io::Result<Child> {
    let confinement = RawConfinement::of(&settings.confinement, settings.application.chdir.as_deref(), privileges)?;
    let parent = Pid::this().as_raw();
    let mut command = Command::new(&program.executable);
    command.args(&program.arguments).arg(OsStr::new(WORD));
    for name in &settings.application.removed_variables {
        command.env_remove(name);
    }
    command.envs(settings.application.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: the closure makes async-signal-safe calls only, and touches nothing but what was filled before the fork.
    unsafe {
        command.pre_exec(move || {
            // A group of its own, so that what it starts ends with it.
            check(libc::setpgid(0, 0))?;
            child_setup::reset_signals(&[])?;
            confinement.take(CapabilitiesAtExec::Kept)?;
            child_setup::die_with(parent)
        });
    }
    command.spawn()
}

/// Tells the child what to load; gives what its report comes by.
fn hand_over(child: &mut Child, settings: &Settings, limit_ms: u64) -> io::Result<ChildStdout> {
    let missing = || io::Error::other("the child has no pipes");
    let mut settings = settings.clone();
    // Sockets with their keys are none of the application's business, and requests are not made.
    settings.listeners.clear();
    settings.reloading.warmup = Default::default();
    // What does not load is reported, and no page stands in for it.
    settings.development = None;
    let boot = Boot {
        settings,
        generation: 1,
        master_pid: std::process::id(),
        at_terminal: false,
        control: -1,
        scoreboard: -1,
        scoreboard_rows: 0,
        scoreboard_slots: 0,
        rows_in_use: 0,
        slots_in_use: 0,
        ticket_keys: None,
        log: None,
        log_targets: Vec::new(),
        reason: -1,
        error_page: None,
        no_generation_serves: true,
        connection_queue: None,
        listeners: Vec::new(),
        package_folder: None,
    };
    let text = serde_json::to_vec(&serde_json::json!({ "boot": boot, "limit_ms": limit_ms }))?;
    // The child reads all of it before it does anything else; dropping the pipe says that this is all.
    child.stdin.take().ok_or_else(missing)?.write_all(&text)?;
    child.stdout.take().ok_or_else(missing)
}

/// The line that the child writes when it knows; what it has started may keep the pipe open beyond that.
fn read_report(output: &mut ChildStdout, until: Instant) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut part = [0; 4096];
    while line.last() != Some(&b'\n') && line.len() < REPORT_BYTES_MOST && is_ready(output.as_fd(), until)? {
        match output.read(&mut part)? {
            0 => break,
            count => line.extend_from_slice(&part[..count]),
        }
    }
    Ok(line)
}

/// Waits for news at a descriptor; false when the time is over.
fn is_ready(descriptor: std::os::fd::BorrowedFd<'_>, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // A wait that is too long for one call is made of several.
        let wait = PollTimeout::try_from(left.as_millis().min(i32::MAX as u128)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], wait) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for the child's own end, for a while, and ends what is left of its group.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id() as i32);
    let until = Instant::now() + Duration::from_millis(ENDING_MS);
    if let Ok(ended) = system::process_descriptor(pid) {
        is_ready(ended.as_fd(), until)?;
    }
    // Not waited for yet, so the number is still its own.
    let _ = killpg(pid, Signal::SIGKILL);
    child.wait()
}

/// What the report says: nothing where the application is there.
fn diagnostic(words: &serde_json::Value) -> Option<Diagnostic> {
    let reason = words["reason"].as_str()?;
    let mut diagnostic = failure(reason);
    if let (Some(file), Some(line)) = (words["file"].as_str(), words["line"].as_u64()) {
        let line = u32::try_from(line).unwrap_or(0);
        let text = words["text"].as_str().filter(|text| !text.trim().is_empty()).map(Into::into);
        diagnostic.location = Some(Location { text, ..Location::file(file, line) });
    }
    Some(diagnostic)
}

fn failure(reason: &str) -> Diagnostic {
    Diagnostic::error(None, format!("the application can't be loaded: {reason}"))
}
