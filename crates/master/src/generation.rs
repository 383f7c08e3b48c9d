//! Records of the generations of the application: the one that serves, and the one that forms. They decide nothing: `reload`
//! does. The master runs it.

use std::time::SystemTime;

use crate::backoff::Backoff;
use crate::failure_note::FailureNote;

/// A generation that serves, or will.
#[derive(Debug)]
pub struct Generation {
    pub number: u32,
    /// The pauses of each worker number, from 1.
    pub worker_slots: Vec<Backoff>,
    /// A worker of it has served.
    pub served: bool,
}

/// Why a generation forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    First,
    Ordered,
    PrototypeDied,
}

/// A generation that does not serve with all its workers yet.
#[derive(Debug)]
pub struct Forming {
    pub generation: Generation,
    pub reason: Reason,
    pub began_ms: u64,
    /// Time that the prototype took to load the application.
    pub loaded_in_ms: Option<u64>,
    /// Where its prototype or its workers say why they can't load the application.
    pub note: FailureNote,
    pub deaths_at_birth: u32,
    pub notice_ms: u64,
}

/// How the last reload that somebody asked for has ended, for whoever asks afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadOutcome {
    pub at: SystemTime,
    /// The generation that serves by it, or why the one before it goes on.
    pub result: Result<u32, String>,
}
