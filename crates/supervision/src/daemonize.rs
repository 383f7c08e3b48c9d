//! `daemonize`: the instance goes on in a session of its own, and its parent, the command that was typed, waits until workers
//! serve or startup has failed. Then the parent shows the outcome and ends with its status. It does not know other options. The
//! process of the command line runs it before it becomes a master; the parent in the foreground runs `wait_for_start`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};

use bolide_contract::control::Background;
use bolide_contract::logging::Logging;
use bolide_contract::settings::Settings;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, dup2_stdin, fork, pipe2, setsid};

use crate::error::{EXIT_START_FAILED, StartError};
use crate::files::guarded_files::{self, How, Rights};
use crate::log_sink;
use crate::logs::log_files::{self, OpenedLog};
use crate::privileges::{self, Privileges};

/// Bytes of the log, counted from its end, that the terminal shows of startup.
const MAX_SHOWN_BYTES: u64 = 64 * 1024;
/// Characters of a reason, each of four bytes at most, and bytes of the whole report.
const MAX_WHY_CHARACTERS: usize = 800;
const MAX_OUTCOME_BYTES: u64 = 4096;
/// Exit status if the background process exited without a report.
const EXIT_LOST: i32 = 1;

/// The two processes after the fork.
#[derive(Debug)]
pub enum Side {
    /// The command that was typed, which ends with this status.
    Foreground {
        /// The exit status.
        status: i32,
    },
    /// The process that becomes the master.
    Background(ParentPipe),
}

/// The pipe to the `daemonize` parent, which waits in the foreground.
#[derive(Debug)]
pub struct ParentPipe(File);

impl ParentPipe {
    /// Reports that workers serve: the command exits with status 0.
    pub fn ready(self) {
        self.tell(0, "");
    }

    /// Reports a failed start: the command shows the reason, and ends with this status. For the command, an instance that was
    /// told to stop before it served (status 0) is a failure as well.
    pub fn failed(self, status: i32, why: &str) {
        self.tell(if status == 0 { EXIT_START_FAILED } else { status }, why);
    }

    fn tell(mut self, status: i32, why: &str) {
        let why: String = why.chars().take(MAX_WHY_CHARACTERS).collect();
        // The write fails if the command was killed. The pipe has room for the one report.
        let _ = self.0.write_all(format!("{status}\n{why}").as_bytes());
    }
}

/// Forks the process that goes on in the background. Returns which of the two processes the caller is.
///
/// # Errors
/// No other process can be created.
pub fn detach(background: &Background, settings: &Settings, warnings: &[String]) -> Result<Side, StartError> {
    let trouble = |error: Errno| StartError::new(format!("can't go to the background (daemonize): {error}"));
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere = nowhere.map_err(|error| StartError::new(format!("/dev/null can't be opened: {error}")))?;
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(trouble)?;
    let privileges = privileges::resolve(&settings.identity)?;
    let privileges = privileges.as_ref();
    let shown_from = guarded_files::look(&background.log, Rights::root_first(privileges)).map_or(0, |found| found.st_size);
    let shown_from = shown_from.max(0).cast_unsigned();
    let shown = ShownLog { background, privileges, from: shown_from };
    // SAFETY: this process has one thread: nothing was started yet, and the interpreter of a console script has exited.
    match unsafe { fork() }.map_err(trouble)? {
        ForkResult::Parent { child } => {
            drop(writer);
            let status = wait_for_start(&shown, child, &reader, warnings);
            bolide_log::finish();
            Ok(Side::Foreground { status })
        }
        ForkResult::Child => {
            let starter = ParentPipe(writer.into());
            let left = leave_terminal(background, privileges, &nowhere);
            if let Err(error) = left {
                // The command in the foreground shows the error, so this process exits without a line of its own.
                starter.failed(EXIT_START_FAILED, &format!("not started: {error}"));
                return Ok(Side::Foreground { status: EXIT_START_FAILED });
            }
            Ok(Side::Background(starter))
        }
    }
}

/// Leaves the terminal: from here on all output goes to the log.
fn leave_terminal(background: &Background, privileges: Option<&Privileges>, nowhere: &File) -> Result<(), StartError> {
    let trouble = |error: Errno| StartError::new(format!("can't detach from the terminal: {error}"));
    setsid().map_err(trouble)?;
    dup2_stdin(nowhere).map_err(trouble)?;
    let opened = log_files::open_log(&background.log, &Logging::default(), privileges)?;
    let log = match &opened {
        OpenedLog::File(file) => file,
        // Startup opens the log again, and knows how to write to a pipe.
        OpenedLog::Pipe(_) => nowhere,
    };
    log_sink::redirect(log).map_err(|error| StartError::new(format!("the log can't replace standard error: {error}")))?;
    Ok(())
}

/// Waits for the outcome of startup and shows it. Returns the exit status. Ctrl-C stops the instance that is being started.
fn wait_for_start(shown: &ShownLog<'_>, child: Pid, reader: &OwnedFd, warnings: &[String]) -> i32 {
    let outcome = read_outcome(child, reader);
    let log = shown.background.log.display();
    match outcome.split_once('\n').and_then(|(status, why)| status.parse().ok().map(|status: i32| (status, why))) {
        Some((0, _)) => {
            if shown.background.shows_start {
                shown.show();
            } else {
                log_sink::lines(warnings);
            }
            log_sink::line(&format!("serving in the background, master pid {child}, log {log}"));
            0
        }
        Some((status, why)) => {
            if !shown.show() {
                log_sink::line(why);
            }
            status
        }
        None => {
            shown.show();
            log_sink::line(&format!(
                "not started: process {child}, which was to run in the background, exited without a message"
            ));
            EXIT_LOST
        }
    }
}

fn read_outcome(child: Pid, reader: &OwnedFd) -> String {
    let mut interrupts = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        interrupts.add(signal);
    }
    let signals = interrupts.thread_block().and_then(|()| SignalFd::with_flags(&interrupts, SfdFlags::SFD_CLOEXEC));
    loop {
        let mut sources = vec![PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        sources.extend(signals.as_ref().ok().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
        match poll(&mut sources, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => break,
        }
        if sources[0].any().unwrap_or(true) {
            break;
        }
        let came = signals.as_ref().ok().and_then(|signals| signals.read_signal().ok().flatten());
        if came.is_some() {
            // The instance is in another process group than the terminal's, so it is signaled here; its report is still awaited.
            let _ = kill(child, Signal::SIGTERM);
        }
    }
    let mut said = String::new();
    // An outcome that can't be read counts as none.
    let _ = reader.try_clone().map(|reader| File::from(reader).take(MAX_OUTCOME_BYTES).read_to_string(&mut said));
    said
}

/// The part of the log that belongs to startup, as the command in the foreground shows it.
struct ShownLog<'a> {
    background: &'a Background,
    privileges: Option<&'a Privileges>,
    /// Its length before startup.
    from: u64,
}

impl ShownLog<'_> {
    /// Prints the log lines since startup. Returns false if there is nothing to show: the log is not a readable file, or has no
    /// new lines.
    fn show(&self) -> bool {
        let opened = guarded_files::open(&self.background.log, How::Read, Rights::root_first(self.privileges));
        let Ok(mut log) = opened.map(|opened| opened.file) else { return false };
        let Ok(length) = log.metadata().map(|found| found.len()) else { return false };
        let first = self.from.max(length.saturating_sub(MAX_SHOWN_BYTES));
        let mut text = Vec::new();
        let read = log.seek(SeekFrom::Start(first)).and_then(|_| log.take(MAX_SHOWN_BYTES).read_to_end(&mut text));
        if read.is_err() || text.is_empty() {
            return false;
        }
        bolide_log::write(&text);
        true
    }
}
