//! The kinds of processes that a prototype forks: request workers, and helpers that run beside them (mules, spoolers and
//! similar).
//!
//! A scoreboard row and the order to fork both name the kind. Master, prototype and workers use it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The purpose of a forked process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// It serves requests.
    RequestWorker,
    /// It does the work of its entry in the settings' `helpers`. It does not receive requests.
    Helper,
}

impl ChildKind {
    pub const ALL: [ChildKind; 2] = [ChildKind::RequestWorker, ChildKind::Helper];

    /// 0 is a request worker, so a zeroed row is one.
    pub const fn code(self) -> u32 {
        match self {
            ChildKind::RequestWorker => 0,
            ChildKind::Helper => 1,
        }
    }

    /// Returns `None` for an unknown code.
    pub fn from_code(code: u32) -> Option<ChildKind> {
        ChildKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// A helper of a generation. Helpers are numbered from 1 in the order of the settings, as workers are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Helper {
    /// The helper's work. The language adapter interprets it; the master reads its name alone.
    pub task: Task,
    /// Maximum time for work in progress at shutdown or a reload, in milliseconds; `None` is that of workers.
    pub reload_mercy_ms: Option<u64>,
    /// Maximum time for one piece of its work, in milliseconds; `None` means unlimited.
    pub harakiri_ms: Option<u64>,
    /// It is replaced between two pieces of work if it has more memory than this; `None` means unlimited.
    pub most_resident_bytes: Option<u64>,
}

/// The work of a helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// `mule`: it waits for messages and signals, or executes code of its own.
    Mule {
        /// From 1, as in uWSGI.
        number: u32,
        code: Option<MuleCode>,
    },
    /// `spooler`: it works on the jobs of a directory.
    Spooler {
        /// From 1.
        number: u32,
        directory: PathBuf,
    },
    /// `pyrun`: it executes a file, and the instance exits with it.
    Script { file: PathBuf },
    /// A word that only the language knows: a test.
    Word(String),
}

/// The code that a mule executes instead of waiting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MuleCode {
    /// A file, which is executed as `__main__`.
    File(PathBuf),
    /// `module:function`
    Function(String),
}

impl Helper {
    /// A helper with the times of workers.
    pub fn new(task: Task) -> Helper {
        Helper { task, reload_mercy_ms: None, harakiri_ms: None, most_resident_bytes: None }
    }

    /// Its name in logs, statistics and `ps`: `mule 1`. `place` is its position in the settings, from 1.
    pub fn name(&self, place: u32) -> String {
        let (kind, number) = self.kind(place);
        format!("{kind} {number}")
    }

    /// Its kind, and its number within it. `place` is its position in the settings, from 1.
    pub fn kind(&self, place: u32) -> (&'static str, u32) {
        match &self.task {
            Task::Mule { number, .. } => ("mule", *number),
            Task::Spooler { number, .. } => ("spooler", *number),
            Task::Script { .. } => ("script", 1),
            Task::Word(_) => ("helper", place),
        }
    }

    /// The option that sets its time for work in progress at shutdown or a reload.
    pub fn mercy_option(&self) -> &'static str {
        match (&self.task, self.reload_mercy_ms) {
            (Task::Mule { .. }, Some(_)) => "mule-reload-mercy",
            _ => "reload-mercy",
        }
    }
}
