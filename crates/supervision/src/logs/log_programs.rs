//! Programs that read log lines (`logger = pipe:COMMAND`): each is started with the master's logs, and restarted when it ends: at
//! once, or after a growing pause if it failed early. The writers drop and count the lines that come meanwhile. The master runs
//! it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::Pid;

use crate::logs::log_guard::{self, Guarded};
use crate::processes::backoff::{Backoff, EARLY_FAILURE_MS};
use crate::processes::child_setup;
use crate::processes::exit_report::Cause;
use crate::processes::privileges::Privileges;
use crate::text::duration;

/// A started program, and our end of the pipe to it.
#[derive(Debug)]
pub struct Started {
    /// The program and its guard.
    pub guarded: Guarded,
    /// The write end of the pipe, which is non-blocking.
    pub input: OwnedFd,
}

/// The replacement of a log: a file, or the pipe to a program.
#[derive(Debug)]
pub struct NewLog {
    /// The log's number in the crate `log`.
    pub number: u32,
    /// The file, or the write end of the pipe.
    pub file: OwnedFd,
}

/// A program that reads the lines of one log.
#[derive(Debug)]
pub struct LogProgram {
    /// The log's number in the crate `log`.
    number: u32,
    command: String,
    /// `None` if it has ended.
    running: Option<Guarded>,
    born_ms: u64,
    backoff: Backoff,
    /// How it ended, for the line about its next start: an earlier line might have no reader.
    end: String,
}

/// All log programs.
#[derive(Debug, Default)]
pub struct LogPrograms(Vec<LogProgram>);

/// Starts a program that reads log lines. It ends when the last writer of its pipe is gone, or when its guard ends it. Lines that
/// it does not read in time are dropped and counted.
///
/// # Errors
/// No process or descriptor is available, or its user can't be assumed.
pub fn start(command: &str, privileges: Option<&Privileges>) -> io::Result<Started> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    if let Some(privileges) = privileges {
        shell.uid(privileges.uid.as_raw()).gid(privileges.gid.as_raw());
    }
    // SAFETY: the function makes async-signal-safe calls only, and touches nothing that existed before the fork.
    unsafe {
        shell.pre_exec(|| child_setup::reset_signals(&[]));
    }
    let (lines, input) = io::pipe()?;
    fcntl(&input, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK))?;
    Ok(Started { guarded: log_guard::start(shell, lines)?, input: input.into() })
}

impl LogPrograms {
    /// Adds a program that was just started.
    pub fn add(&mut self, number: u32, command: &str, running: Guarded, now_ms: u64) {
        let (command, end) = (command.to_owned(), String::new());
        self.0.push(LogProgram { number, command, running: Some(running), born_ms: now_ms, backoff: Backoff::default(), end });
    }

    /// Notes the end of a child of the master. Returns false if it was none of these programs.
    pub fn note_end(&mut self, pid: Pid, status: i32, now_ms: u64) -> bool {
        let is_of = |program: &&mut LogProgram| program.running.as_ref().is_some_and(|running| running.guard == pid);
        let Some(program) = self.0.iter_mut().find(is_of) else { return false };
        let Some(ended) = program.running.take() else { return false };
        let shown = ended.program;
        program.end = format!("(pid {shown}) {}", Cause::from_status(ended.status_of_program(status)).words());
        if now_ms.saturating_sub(program.born_ms) > EARLY_FAILURE_MS {
            program.backoff.lived();
        } else {
            let pause_ms = program.backoff.failed_early(now_ms);
            program.end += &format!(" soon after its start; it was not restarted for {}", duration(pause_ms));
        }
        true
    }

    /// Restarts the programs that have ended and whose pause is over. Returns the message or error of each for the log, and the
    /// pipes that replace the old ones.
    pub fn start_due(&mut self, privileges: Option<&Privileges>, now_ms: u64) -> Vec<Result<(String, NewLog), String>> {
        let due = |program: &&mut LogProgram| program.running.is_none() && program.backoff.over(now_ms);
        let start = |program: &mut LogProgram| program.start(privileges, now_ms);
        self.0.iter_mut().filter(due).map(start).collect()
    }

    /// When the next program is due to be restarted.
    pub fn wake_ms(&self, now_ms: u64) -> Option<u64> {
        let ended = self.0.iter().filter(|program| program.running.is_none());
        ended.map(|program| program.backoff.wake_ms(now_ms).unwrap_or(now_ms)).min()
    }
}

impl LogProgram {
    fn start(&mut self, privileges: Option<&Privileges>, now_ms: u64) -> Result<(String, NewLog), String> {
        let LogProgram { command, end, backoff, .. } = self;
        let started = start(command, privileges).map_err(|error| {
            let pause = duration(backoff.failed_early(now_ms));
            format!("the log program `{command}` {end}, and can't be restarted: {error}; next attempt in {pause}")
        })?;
        let words = format!("the log program `{command}` {end}; restarted (pid {})", started.guarded.program);
        (self.running, self.born_ms) = (Some(started.guarded), now_ms);
        Ok((words, NewLog { number: self.number, file: started.input }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_early_pauses_longer_each_time_and_one_that_has_lived_does_not() {
        // A pid that no process has: no signal is sent to it here.
        let pid = Pid::from_raw(i32::MAX);
        let mut programs = LogPrograms::default();
        let running = || Guarded::for_test(pid);
        programs.add(1, "true", running(), 0);
        assert_eq!(programs.wake_ms(5), None);
        assert!(!programs.note_end(Pid::from_raw(i32::MAX - 1), 0, 5));
        assert!(programs.note_end(pid, 3 << 8, 5));
        assert_eq!((programs.wake_ms(5), programs.0[0].backoff.over(104)), (Some(105), false));
        assert!(programs.start_due(None, 104).is_empty());
        programs.0[0].running = Some(running());
        programs.0[0].born_ms = 200;
        assert!(programs.note_end(pid, 0, 300));
        assert_eq!(programs.wake_ms(300), Some(500));
        programs.0[0].running = Some(running());
        programs.0[0].born_ms = 500;
        assert!(programs.note_end(pid, 0, 500 + EARLY_FAILURE_MS + 1));
        assert_eq!(programs.wake_ms(2000), Some(2000));
    }
}
