//! Settings of what an instance runs beside its application: attached daemons, and commands that the clock starts. Plain data; the options
//! room makes them, the master's attendant acts by them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that the attendant looks after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Attendant {
    pub daemons: Vec<Daemon>,
    pub jobs: Vec<Job>,
    /// `binsh`: shells that may run the commands, the first that is there; after them `/bin/sh`.
    pub shells: Vec<PathBuf>,
    /// Time that a daemon may take to end before it is killed, in milliseconds.
    pub mercy_ms: u64,
}

impl Attendant {
    /// There is nothing to look after, and so no attendant.
    pub fn is_empty(&self) -> bool {
        self.daemons.is_empty() && self.jobs.is_empty()
    }
}

/// A program that runs for as long as the instance, or longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// For the shell.
    pub command: String,
    /// `pidfile`: the program is the process that this file names ("smart"), and outlives the instance.
    pub pidfile: Option<PathBuf>,
    /// `daemonize`: the program stays in the foreground, and its pid is written to `pidfile` for it.
    pub is_detached: bool,
    /// `freq`: how often, a second apart, a pidfile is looked for before the program is started again.
    pub checks: u32,
    /// `control`: the instance ends when the program does.
    pub is_control: bool,
    /// `touch`: the program is stopped, and so started again, when one of these files changes.
    pub touch: Vec<PathBuf>,
    pub stop_signal: i32,
    /// `reloadsignal`: in the place of `stop_signal` at a reload.
    pub reload_signal: Option<i32>,
    /// `notifypid`: a program with a pidfile is sent these signals too.
    pub is_notified: bool,
    /// A name or a number, as written; `None` is that of the application.
    pub user: Option<String>,
    pub group: Option<String>,
    /// `chdir`: where it is started.
    pub folder: Option<PathBuf>,
    /// `max_throttle`: the longest pause before it is started again, in seconds.
    pub throttle_most_s: u64,
    /// `stdin`: it has the standard input of whoever started the instance.
    pub has_stdin: bool,
    pub origin: String,
}

/// A command that the clock starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub schedule: Schedule,
    /// For the shell.
    pub command: String,
    /// It is not started while it runs.
    pub is_unique: bool,
    /// Time that it may take, in seconds; `None` is any.
    pub harakiri_s: Option<u64>,
    pub origin: String,
}

/// When a job is due, in local time. A number from 0 on is that minute, hour and so on; -1 is each, -N each that N divides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub minute: i32,
    pub hour: i32,
    /// Of the month, from 1.
    pub day: i32,
    /// From 1.
    pub month: i32,
    /// 0 and 7 are Sunday.
    pub weekday: i32,
}

impl Schedule {
    pub const ALWAYS: Schedule = Schedule { minute: -1, hour: -1, day: -1, month: -1, weekday: -1 };
}
