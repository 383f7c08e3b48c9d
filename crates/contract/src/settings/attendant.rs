//! Settings of programs that run beside the application: attached daemons, and commands that run on a schedule (`cron`).
//!
//! Plain data: the options room builds it, and the attendant, a helper process of the master, acts on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// All programs that the attendant supervises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Attendant {
    pub daemons: Vec<Daemon>,
    pub jobs: Vec<Job>,
    /// `binsh`: shells for the commands, of which the first that exists is used; after them `/bin/sh`.
    pub shells: Vec<PathBuf>,
    /// Maximum time for a daemon to end before it is killed, in milliseconds.
    pub mercy_ms: u64,
}

impl Attendant {
    /// There is nothing to supervise, so no attendant is started.
    pub fn is_empty(&self) -> bool {
        self.daemons.is_empty() && self.jobs.is_empty()
    }
}

/// A program that runs as long as the instance, or longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// A command of the shell.
    pub command: String,
    /// `pidfile`: the program is the process whose pid is in this file ("smart"), and outlives the instance.
    pub pidfile: Option<PathBuf>,
    /// `daemonize`: the program stays in the foreground, and the attendant writes its pid to `pidfile`.
    pub is_detached: bool,
    /// `freq`: how many times, one second apart, the pidfile is checked before the program is started again.
    pub checks: u32,
    /// `control`: the instance exits when the program does.
    pub is_control: bool,
    /// `touch`: the program is stopped, and therefore restarted, when one of these files changes.
    pub touch: Vec<PathBuf>,
    pub stop_signal: i32,
    /// `reloadsignal`: used instead of `stop_signal` at a reload.
    pub reload_signal: Option<i32>,
    /// `notifypid`: these signals are also sent to a program with a pidfile.
    pub is_notified: bool,
    /// A name or a number, as written; `None` is the application's user.
    pub user: Option<String>,
    pub group: Option<String>,
    /// `chdir`: the working directory.
    pub directory: Option<PathBuf>,
    /// `max_throttle`: the maximum pause before a restart, in seconds.
    pub throttle_most_s: u64,
    /// `stdin`: it inherits the standard input of the instance.
    pub has_stdin: bool,
    pub origin: String,
}

/// A command that runs on a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub schedule: Schedule,
    /// A command of the shell.
    pub command: String,
    /// It is not started again while it still runs.
    pub is_unique: bool,
    /// Maximum run time in seconds; `None` is unlimited.
    pub harakiri_s: Option<u64>,
    pub origin: String,
}

/// When a job is due, in local time. 0 and above match that minute, hour and so on; -1 matches each; -N matches the multiples of
/// N.
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
