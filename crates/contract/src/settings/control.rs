//! Settings of daemonizing, and of the files by which an instance is found and controlled. Plain data; the master acts on it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The means to control a running instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Control {
    /// `daemonize`, `daemonize2`: the master runs in the background.
    pub background: Option<Background>,
    /// Pidfiles in addition to `pidfile`.
    pub pidfiles: Vec<PidFile>,
    /// `master-fifo`: one of them at a time receives commands, initially the first.
    pub fifos: Vec<PathBuf>,
    pub channel: Channel,
    /// `heartbeat`: how often the master tells its emperor that it is alive.
    pub heartbeat_ms: Option<u64>,
    pub origin: Origin,
}

/// The configuration and directory of startup, by which commands find the instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Origin {
    /// The configuration files that were read, in this order.
    pub configurations: Vec<PathBuf>,
    /// The working directory of startup.
    pub directory: PathBuf,
}

/// `control-socket`: where the master answers commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Channel {
    /// A name in Linux' abstract namespace, made from the master's pid.
    #[default]
    Named,
    /// A socket file.
    File(PathBuf),
    Off,
}

impl Channel {
    /// The abstract name of a master's control socket; if it is in use, more attempts append a number.
    pub fn name_of(pid: i32, attempt: u32) -> String {
        if attempt == 0 { format!("bolide/{pid}") } else { format!("bolide/{pid}.{attempt}") }
    }

    /// The number of names that are tried.
    pub const MAX_ATTEMPTS: u32 = 8;
}

/// The master detaches from the terminal after its workers serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// The log of the instance: standard output and standard error of all its processes.
    pub log: PathBuf,
    /// `daemonize2`: log lines up to the moment when workers serve are also shown at the terminal, even if startup succeeds.
    pub shows_start: bool,
}

/// A file with the master's pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidFile {
    pub path: PathBuf,
    /// `pidfile2`, `safe-pidfile2`: written with the privileges of `uid` and `gid`.
    pub is_users: bool,
    /// `safe-pidfile`, `safe-pidfile2`: written when workers serve for the first time.
    pub when_ready: bool,
}
