//! Programs that read log lines (`logger = pipe:COMMAND`): each is started with the master's logs, and restarted when it exits,
//! immediately or after a growing pause if it failed early. All programs of a command read the same pipe one after the other, so
//! the lines that one has not read wait for the next. The master runs it.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use bolide_contract::settings::ApplicationSettings;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Pid, geteuid};

use crate::log_sink;
use crate::logs::log_guard::{self, GuardedProgram};
use crate::privileges::Privileges;
use crate::processes::auxiliary::AuxiliaryProcess;
use crate::processes::backoff::Backoff;
use crate::processes::environment;
use crate::processes::exit_report::Cause;
use crate::processes::forking::Forked;
use crate::processes::preparation::Preparation;
use crate::text::duration;

/// A program that reads the lines of one log.
#[derive(Debug)]
pub struct LogProgram {
    /// The log's number in the crate `log`.
    number: u32,
    command: String,
    /// The end of the pipe that each program reads from.
    lines: PipeReader,
    /// `None` if it has ended.
    running: Option<AuxiliaryProcess<GuardedProgram>>,
    backoff: Backoff,
    /// How it ended or why it could not be started, for the line about its restart: an earlier line might have no reader.
    end: String,
}

/// All log programs.
#[derive(Debug, Default)]
pub struct LogPrograms(Vec<LogProgram>);

/// What a program starts with.
#[derive(Clone, Copy, Debug)]
pub struct LaunchMeans<'a> {
    /// Its user; `None`: the master's.
    pub privileges: Option<&'a Privileges>,
    /// It has the variables of the configuration.
    pub application: &'a ApplicationSettings,
}

/// Starts a program that reads log lines. It ends when the last writer of its pipe is gone, or when its guard ends it.
fn start(command: &str, lines: &PipeReader, means: LaunchMeans<'_>) -> io::Result<(Pid, GuardedProgram)> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    let user = means.privileges.map_or_else(geteuid, |privileges| privileges.uid);
    environment::give_with_rights(&mut shell, means.application, user.is_root());
    if let Some(privileges) = means.privileges {
        shell.uid(privileges.uid.as_raw()).gid(privileges.gid.as_raw());
    }
    Preparation::default().of(&mut shell);
    log_guard::start(shell, lines.try_clone()?)
}

impl LogPrograms {
    /// Starts a program, and returns the end of its pipe to write to, which is non-blocking. One that can't be started is tried
    /// again later, and its lines wait.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open(&mut self, number: u32, command: &str, means: LaunchMeans<'_>, now_ms: u64) -> io::Result<OwnedFd> {
        let (lines, input) = io::pipe()?;
        fcntl(&input, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK))?;
        let mut program = LogProgram::of(number, command, lines);
        if let Err(words) = program.start(means, now_ms) {
            log_sink::line(&words);
        }
        self.0.push(program);
        Ok(input.into())
    }

    /// Notes the end of a child of the master. Returns false if it was none of these programs.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        let is_of = |program: &&mut LogProgram| program.running.as_ref().is_some_and(|running| running.pid() == pid);
        let Some(program) = self.0.iter_mut().find(is_of) else { return false };
        let Some(running) = program.running.take() else { return false };
        let guard = running.ended(Cause::from_status(status), now_ms);
        let shown = guard.process.record.pid;
        program.end = format!("(pid {shown}) {}", guard.process.record.cause(guard.cause).words());
        let pause_ms = program.backoff.ended(guard.lived_ms, now_ms);
        if pause_ms > 0 {
            program.end += &format!(" soon after startup; it was not restarted for {}", duration(pause_ms));
        }
        true
    }

    /// Restarts the exited programs whose pause is over. Returns the message or error of each for the log.
    pub fn start_due(&mut self, means: LaunchMeans<'_>, now_ms: u64) -> Vec<String> {
        let due = |program: &&mut LogProgram| program.running.is_none() && program.backoff.over(now_ms);
        let start = |program: &mut LogProgram| program.start(means, now_ms).unwrap_or_else(|words| words);
        self.0.iter_mut().filter(due).map(start).collect()
    }

    /// Why the program of the log with this number does not run; `None` if it does.
    pub fn absence(&self, number: u32) -> Option<&str> {
        let absent = self.0.iter().find(|program| program.number == number && program.running.is_none());
        absent.map(|program| program.end.as_str())
    }

    /// When the next program is due to be restarted.
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        let ended = self.0.iter().filter(|program| program.running.is_none());
        ended.map(|program| program.backoff.wake_ms(now_ms).unwrap_or(now_ms)).min()
    }
}

impl LogProgram {
    fn of(number: u32, command: &str, lines: PipeReader) -> LogProgram {
        let (command, end) = (command.to_owned(), String::new());
        LogProgram { number, command, lines, running: None, backoff: Backoff::default(), end }
    }

    fn start(&mut self, means: LaunchMeans<'_>, now_ms: u64) -> Result<String, String> {
        let LogProgram { command, lines, end, backoff, .. } = self;
        let (guard, guarded) = start(command, lines, means).map_err(|error| {
            let pause = duration(backoff.failed_early(now_ms));
            if end.is_empty() {
                *end = format!("could not be started: {error}");
                return format!(
                    "WARNING: the log program `{command}` could not be started: {error}; its lines wait; next attempt in {pause}"
                );
            }
            format!("the log program `{command}` {end}, and can't be restarted: {error}; next attempt in {pause}")
        })?;
        let words = format!("the log program `{command}` {end}; restarted (pid {})", guarded.pid);
        let guard = Forked { pid: guard, channel: None, leash: None };
        self.running = Some(AuxiliaryProcess::new("the guard of a log program", guard, guarded, now_ms));
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::backoff::EARLY_FAILURE_MS;

    #[test]
    fn a_program_that_fails_early_pauses_longer_each_time_and_one_that_has_lived_does_not() {
        // A pid that no process has: no signal is sent to it here.
        let pid = Pid::from_raw(i32::MAX);
        let mut programs = LogPrograms::default();
        let running = |born_ms: u64| {
            let guard = Forked { pid, channel: None, leash: None };
            Some(AuxiliaryProcess::new("a guard", guard, GuardedProgram::for_test(pid), born_ms))
        };
        let (lines, _input) = io::pipe().expect("made");
        programs.0.push(LogProgram { running: running(0), ..LogProgram::of(1, "true", lines) });
        assert_eq!(programs.wake_ms(5), None);
        assert!(!programs.note_end(Pid::from_raw(i32::MAX - 1), 0, 5));
        assert!(programs.note_end(pid, 3 << 8, 5));
        assert_eq!((programs.wake_ms(5), programs.0[0].backoff.over(104)), (Some(105), false));
        let means = LaunchMeans { privileges: None, application: &ApplicationSettings::default() };
        assert!(programs.start_due(means, 104).is_empty());
        programs.0[0].running = running(200);
        assert!(programs.note_end(pid, 0, 300));
        assert_eq!(programs.wake_ms(300), Some(500));
        programs.0[0].running = running(500);
        assert!(programs.note_end(pid, 0, 500 + EARLY_FAILURE_MS + 1));
        assert_eq!(programs.wake_ms(2000), Some(2000));
    }
}
