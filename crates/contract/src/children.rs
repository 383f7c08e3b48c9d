//! The kinds of processes that a prototype forks: request workers, and helpers, which work beside them (mules, spoolers and the like). A row
//! of the scoreboard and the order to fork both name the kind.

use serde::{Deserialize, Serialize};

/// The work that a process is forked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// It serves requests.
    RequestWorker,
    /// It does what its entry in the settings' `helpers` says. No request comes to it.
    Helper,
}

impl ChildKind {
    pub const ALL: [ChildKind; 2] = [ChildKind::RequestWorker, ChildKind::Helper];

    /// A row of zeroes is that of a request worker.
    pub const fn code(self) -> u32 {
        match self {
            ChildKind::RequestWorker => 0,
            ChildKind::Helper => 1,
        }
    }

    /// `None`: the number of no kind.
    pub fn from_code(code: u32) -> Option<ChildKind> {
        ChildKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// One helper that a generation has. Helpers are numbered from 1 in the order of the settings, as workers are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Helper {
    /// What the helper is to do. The language knows what it means; the master does not read it.
    pub task: String,
}
