//! Records of the generations of the application: the one that serves, and the one that forms. They decide nothing: `reload`
//! does. The master runs it.

use crate::backoff::Backoff;
use crate::failure_note::FailureNote;

/// A generation that serves, or will.
#[derive(Debug)]
pub struct Generation {
    pub number: u32,
    /// The pauses of each worker number, from 1.
    pub worker_slots: Vec<Backoff>,
    /// Which worker numbers there should be, from 1.
    pub wanted: Vec<bool>,
    /// A worker of it has served.
    pub served: bool,
}

impl Generation {
    /// How many workers there should be.
    pub fn wanted_count(&self) -> u32 {
        self.wanted.iter().filter(|wanted| **wanted).count() as u32
    }

    /// There should be no worker: the next connection starts some.
    pub fn is_empty(&self) -> bool {
        !self.wanted.contains(&true)
    }

    /// There may be more workers than there should be now.
    pub fn has_room(&self) -> bool {
        self.wanted.contains(&false)
    }

    /// The places of the numbers that are not wanted, in `wanted`.
    pub fn missing_numbers(&self) -> impl Iterator<Item = usize> {
        self.wanted.iter().enumerate().filter(|(_, wanted)| !**wanted).map(|(index, _)| index)
    }
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
