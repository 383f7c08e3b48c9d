//! `bolide check --load`: imports the application in a child, with the program that a prototype of these settings would run, as
//! its user and in its directory. It binds nothing, serves nothing and leaves nothing behind. It prints only the child's report.
//! The process of the command runs it.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bolide_command_line::CheckReport;
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::boot::Boot;
use bolide_contract::settings::Settings;
use bolide_supervision::error::StartError;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::processes::child_setup::{self, CapabilitiesAtExec, RawConfinement, check};
use bolide_supervision::processes::environment;
use bolide_supervision::system;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use crate::provision::configuration::Configuration;
use crate::provision::program::{Program, enter_directory, not_executed};

/// The argument that selects the load check in a prototype's program.
const LOAD_CHECK_FLAG: &str = "--rehearse";
/// Time limit for loading an application without `load-timeout`, in milliseconds.
const LOADING_MS: u64 = 60_000;
/// How long the child may continue beyond the limit, to show where it is stuck, in milliseconds.
const SHOW_STACK_MS: u64 = 5_000;
/// How long a child that has reported may take to exit, in milliseconds.
const ENDING_MS: u64 = 5_000;
/// Maximum size of a child's report, a line of JSON, in bytes.
const MAX_REPORT_BYTES: usize = 64 * 1024;

/// Loads the applications of these settings, and adds their errors to the report.
pub fn check_load(settings: &Settings, configuration: &Configuration, report: &mut CheckReport) {
    if settings.language.programs().is_some() {
        // Programs are executed for requests, and `check` has looked for their files: nothing is loaded.
        return;
    }
    let found = loaded(settings, configuration, report).unwrap_or_else(|error| vec![failure(&error.to_string())]);
    found.into_iter().for_each(|diagnostic| report.add(diagnostic));
    // The relative paths of the next configuration start from here.
    if let Err(error) = std::env::set_current_dir(configuration.directory()) {
        report.add(failure(&format!("the startup directory can't be entered: {error}")));
    }
}

/// Returns the diagnostic of an application that can't be loaded, and with `refork-after` whether its workers can be forked.
fn loaded(settings: &Settings, configuration: &Configuration, report: &mut CheckReport) -> Result<Vec<Diagnostic>, StartError> {
    enter_directory(settings)?;
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
    let report_line = send_settings(&mut child, settings, limit_ms)
        .and_then(|mut output| read_report(&mut output, started + Duration::from_millis(limit_ms.saturating_add(SHOW_STACK_MS))));
    let status = end(&mut child);
    let words = report_line.ok().and_then(|line| serde_json::from_slice::<serde_json::Value>(&line).ok());
    Ok(match words {
        Some(words) => diagnostic(&words).or_else(|| on_refork(&words, settings)).into_iter().collect(),
        None if started.elapsed() >= Duration::from_millis(limit_ms) => vec![
            failure(&format!("it was not loaded within {} s; the stack above shows where it was stuck", limit_ms / 1000))
                .advise("`load-timeout` sets another limit"),
        ],
        None => vec![failure(&match status {
            Ok(status) => format!("its process exited while it was loaded: {status}"),
            Err(error) => format!("its process can't be waited for: {error}"),
        })],
    })
}

/// Returns the user that workers run as.
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
    command.args(&program.arguments).arg(OsStr::new(LOAD_CHECK_FLAG));
    environment::give(&mut command, &settings.application);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: the closure makes async-signal-safe calls only, and touches only memory that was filled before the fork.
    unsafe {
        command.pre_exec(move || {
            // A process group of its own, so that processes that it starts end with it.
            check(libc::setpgid(0, 0))?;
            child_setup::reset_signals(&[])?;
            confinement.take(CapabilitiesAtExec::Kept)?;
            child_setup::die_with(parent)
        });
    }
    command.spawn()
}

/// Sends the child the settings to load. Returns the pipe for its report.
fn send_settings(child: &mut Child, settings: &Settings, limit_ms: u64) -> io::Result<ChildStdout> {
    let missing = || io::Error::other("the child has no pipes");
    let mut settings = settings.clone();
    // The application must not get sockets and their keys, and no requests are made, unless they show what a worker opens.
    settings.listeners.clear();
    if settings.recycling.refork_after.is_none() {
        settings.reloading.warmup = Default::default();
    }
    // A failure is reported instead of being replaced by an error page.
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
        memories: Vec::new(),
        message_queues: Vec::new(),
        log: None,
        log_targets: Vec::new(),
        log_losses: None,
        alarms: None,
        spans: None,
        reason: -1,
        error_page: None,
        no_generation_serves: true,
        reader_secret: 0,
        connection_queue: None,
        sessions: None,
        bulkheads: Vec::new(),
        listeners: Vec::new(),
        package_directory: None,
    };
    let text = serde_json::to_vec(&serde_json::json!({ "boot": boot, "limit_ms": limit_ms }))?;
    // The child reads all of it first; dropping the pipe marks its end.
    child.stdin.take().ok_or_else(missing)?.write_all(&text)?;
    child.stdout.take().ok_or_else(missing)
}

/// Reads the line with the child's report; processes that the child started may keep the pipe open after it.
fn read_report(output: &mut ChildStdout, until: Instant) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut part = [0; 4096];
    while line.last() != Some(&b'\n') && line.len() < MAX_REPORT_BYTES && is_ready(output.as_fd(), until)? {
        match output.read(&mut part)? {
            0 => break,
            count => line.extend_from_slice(&part[..count]),
        }
    }
    Ok(line)
}

/// Waits until a descriptor is readable. Returns false at the time limit.
fn is_ready(descriptor: std::os::fd::BorrowedFd<'_>, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // A wait that is too long for one call is split into several.
        let wait = PollTimeout::try_from(left.as_millis().min(i32::MAX as u128)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], wait) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for the child to exit by itself until a time limit, and kills the rest of its process group.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id() as i32);
    let until = Instant::now() + Duration::from_millis(ENDING_MS);
    if let Ok(ended) = system::process_descriptor(pid) {
        is_ready(ended.as_fd(), until)?;
    }
    // The child was not reaped yet, so its pid was not reused.
    let _ = killpg(pid, Signal::SIGKILL);
    child.wait()
}

/// Returns the diagnostic of a report, or `None` if the application was loaded.
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

/// Returns whether the report says that a worker can be forked (`refork-after`) after the requests of `warmup`.
fn on_refork(words: &serde_json::Value, settings: &Settings) -> Option<Diagnostic> {
    let held: Vec<&str> = words["held"].as_array()?.iter().filter_map(serde_json::Value::as_str).collect();
    let requests = &settings.reloading.warmup;
    let after = if requests.is_empty() { "when it is loaded" } else { "after the requests of `warmup`" };
    let diagnostic = match held.is_empty() {
        true => Diagnostic::note(None, format!("refork-after: {after}, the application holds nothing that forks can't share")),
        false => Diagnostic::warning(
            None,
            format!("refork-after: {after}, the application holds what forks can't share: {}", held.join("; ")),
        ),
    };
    Some(if requests.is_empty() { diagnostic.advise("`warmup = PATH` has this check make requests too") } else { diagnostic })
}

fn failure(reason: &str) -> Diagnostic {
    Diagnostic::error(None, format!("the application can't be loaded: {reason}"))
}
