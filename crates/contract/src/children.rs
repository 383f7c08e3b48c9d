//! The kinds of processes that a prototype forks: request workers, and helpers that run beside them (mules, spoolers and
//! similar).
//!
//! A scoreboard row and the order to fork both name the kind. Master, prototype and workers use it.

use serde::{Deserialize, Serialize};

/// The purpose of a forked process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// It serves requests.
    RequestWorker,
    /// It does the work of its entry in the settings' `helpers`. It receives no requests.
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
    /// The helper's work. The language adapter interprets it; the master does not read it.
    pub task: String,
}
