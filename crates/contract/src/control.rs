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
