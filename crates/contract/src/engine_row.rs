//! The row of an engine on the network (a Redis or Valkey server): what the processes of an instance know about it together.
//!
//! Each number is written by any process at any time, and none is ever held, so the death of a process leaves the row whole. The
//! crate `distributed` decides with it; the master reads its state for `bolide status`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Times are those of [`crate::clock::now_ms`]; 0 is never.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EngineRow {
    /// When the first fault of the present absence was. 0: the engine is there.
    pub away_since_ms: AtomicU64,
    /// No call is sent before.
    pub resting_until_ms: AtomicU64,
    /// Faults in a row.
    pub streak: AtomicU64,
    /// When the log had its last line about an absence, and the calls that have failed since.
    pub line_at_ms: AtomicU64,
    pub unreported: AtomicU64,
    /// Calls that have failed in this absence.
    pub missed: AtomicU64,
    /// 1: the log contains a line about this absence, so another one reports its end.
    pub is_told: AtomicU64,
    /// When the log had its last line about a command that was refused, and such commands since.
    pub refusal_line_at_ms: AtomicU64,
    pub refusals_unreported: AtomicU64,
    /// The last answer, to the second.
    pub answered_at_ms: AtomicU64,
    /// Calls since the start of the instance, those of them that failed, and commands that the engine refused.
    pub calls: AtomicU64,
    pub failed: AtomicU64,
    pub refused: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineState {
    /// No process has called it yet.
    Unused,
    Connected,
    Away {
        for_ms: u64,
    },
}

impl EngineRow {
    pub fn state(&self, now_ms: u64) -> EngineState {
        match (self.away_since_ms.load(Relaxed), self.answered_at_ms.load(Relaxed)) {
            (0, 0) => EngineState::Unused,
            (0, _) => EngineState::Connected,
            (since, _) => EngineState::Away { for_ms: now_ms.saturating_sub(since) },
        }
    }
}
