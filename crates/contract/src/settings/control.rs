//! How an instance is put into the background, and by which files it is found and told what to do. Plain data of the master's.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The ways to a running instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Control {
    /// `daemonize`, `daemonize2`: the master serves in the background.
    pub background: Option<Background>,
    /// Pidfiles beside that of `pidfile`.
    pub pidfiles: Vec<PidFile>,
    /// `master-fifo`: one of them at a time takes commands, the first at the beginning.
    pub fifos: Vec<PathBuf>,
    pub channel: Channel,
    pub origin: Origin,
}

/// What an instance was started from: it is found by that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Origin {
    /// The configuration files that were read, the first one first.
    pub configurations: Vec<PathBuf>,
    /// The folder of the start.
    pub folder: PathBuf,
}

/// `control-socket`: where the master takes questions and gives answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Channel {
    /// At a name in Linux' abstract space, made from the master's pid.
    #[default]
    Named,
    /// At a socket file.
    File(PathBuf),
    Off,
}

impl Channel {
    /// The abstract name of a master; where it is taken, those with a further number.
    pub fn name_of(pid: i32, attempt: u32) -> String {
        if attempt == 0 { format!("bolide/{pid}") } else { format!("bolide/{pid}.{attempt}") }
    }

    /// Names that are tried.
    pub const ATTEMPTS_MOST: u32 = 8;
}

/// The master leaves the terminal, once its workers serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// The log of the instance; standard output and standard error of all its processes.
    pub log: PathBuf,
    /// `daemonize2`: what is logged until workers serve is shown at the terminal too, also where the start succeeds.
    pub shows_start: bool,
}

/// A file with the master's pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidFile {
    pub path: PathBuf,
    /// `pidfile2`, `safe-pidfile2`: it is written with the rights of `uid` and `gid`.
    pub is_users: bool,
    /// `safe-pidfile`, `safe-pidfile2`: it is written when workers serve for the first time.
    pub when_ready: bool,
}
