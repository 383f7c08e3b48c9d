//! The outcomes of reloads and upgrades, reported to the waiting clients of the control socket and to the statistics. It does not
//! know how a reload works.
//!
//! At the end of a successful reload, new workers serve while old ones still stop accepting. The outcome is reported when they
//! have, so that no later connection gets the old code. The master runs it.
//!
//! A worker reports when it has stopped accepting (`Report::Left`). A worker that is stuck in a call of the application reports
//! it after the call; the outcome does not wait that long, because such a worker does not accept connections any more
//! (`LATE_DRAIN_MS` in the crate `contract`).

use bolide_contract::clock::now_ms as clock_ms;
use bolide_contract::message::LATE_DRAIN_MS;
use bolide_services::reloads::{ReloadCause, ReloadFacts};
use bolide_supervision::sockets::control_socket::ControlSocket;
use bolide_supervision::system::seconds_since_1970;
use serde_json::json;

use crate::children::Children;
use crate::children::child::{Child, State};
use crate::generations::generation::Reason;
use crate::owner::{Owner, Turn, Waits};

/// How long old workers may take to report that they have stopped accepting, in milliseconds. A worker that reads its order later
/// than [`LATE_DRAIN_MS`] does not accept connections; the rest of the time is for a worker that has read it in time and does not
/// get CPU time while it accepts.
const MAX_LEAVE_MS: u64 = 5 * LATE_DRAIN_MS;

/// Most warnings that a client gets with the outcome of a reload.
const MAX_WARNINGS: usize = 20;

/// The outcome of a reload or an upgrade that is known but not reported yet.
#[derive(Debug)]
struct PendingOutcome {
    words: String,
    warnings: Vec<String>,
    /// The latest time to report it, in monotonic milliseconds.
    until_ms: u64,
}

/// The source of a command: the words for the log, and the cause of the reload if it is one.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    pub words: &'a str,
    pub cause: ReloadCause,
}

/// The outcomes of reloads and upgrades.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// The results of the reloads that were requested.
    reloads: ReloadFacts,
    /// What has asked for the last of them. A new request abandons the one before, which is not counted.
    cause: ReloadCause,
    /// Warnings about the configuration of the reload that forms.
    warnings: Vec<String>,
    /// A success that is not reported yet, because old workers may still accept connections.
    pending: Option<PendingOutcome>,
}

impl Outcomes {
    pub fn reloads(&self) -> &ReloadFacts {
        &self.reloads
    }

    /// Notes what asks for the reload whose result comes next.
    pub fn note_cause(&mut self, cause: ReloadCause) {
        self.cause = cause;
    }

    /// Returns the empty list for the warnings about the configuration of the next generation. Clients that wait for its outcome
    /// get them with it.
    pub fn fresh_warnings(&mut self) -> &mut Vec<String> {
        self.warnings.clear();
        &mut self.warnings
    }

    /// Counts an upgrade.
    pub fn count_upgrade(&mut self, is_done: bool) {
        self.reloads.note_upgrade(is_done);
    }

    /// Counts a reload without waiting clients.
    pub fn count_reload(&mut self) {
        self.reloads.note(seconds_since_1970(), self.cause, None);
    }

    /// Records the result of a reload, and reports it to waiting clients.
    pub fn note_reload(&mut self, result: Result<u32, String>, channel: &mut ControlSocket) {
        match &result {
            Ok(generation) => self.settle(format!("generation {generation} serves"), channel, clock_ms()),
            Err(why) => {
                let words = format!("the reload has failed: {why}");
                channel.answer_waiting(&json!({"ok": false, "message": words}), clock_ms());
            }
        }
        self.reloads.note(seconds_since_1970(), self.cause, result.err());
    }

    /// Records that a generation has taken over. The first one counts as no reload, but clients that asked for a reload during
    /// startup wait for it.
    pub fn note_serving(&mut self, number: u32, reason: Reason, channel: &mut ControlSocket) {
        match reason {
            Reason::Ordered => self.note_reload(Ok(number), channel),
            Reason::First => self.settle(format!("generation {number} serves"), channel, clock_ms()),
            Reason::PrototypeDied => {}
        }
    }

    /// Records a success. Waiting clients are notified when the old workers have stopped accepting.
    pub fn settle(&mut self, words: String, channel: &mut ControlSocket, now_ms: u64) {
        self.report_pending(channel, now_ms);
        channel.note_outcome();
        let mut warnings = std::mem::take(&mut self.warnings);
        let more = warnings.len().saturating_sub(MAX_WARNINGS);
        warnings.truncate(MAX_WARNINGS);
        warnings.extend((more > 0).then(|| format!("{more} more warnings are in the log")));
        self.pending = Some(PendingOutcome { words, warnings, until_ms: now_ms + MAX_LEAVE_MS });
    }

    /// Reports a pending success if the old workers have stopped accepting, or at its deadline. Returns whether nothing is
    /// pending.
    pub fn report_if_settled(&mut self, children: &Children, channel: &mut ControlSocket, now_ms: u64) -> bool {
        let may_accept = |child: &Child| {
            child.is_request_worker()
                && !child.stopped_accepting
                && matches!(child.state, State::Ending | State::Killed)
                && child.pid.is_some()
        };
        let is_late = self.pending.as_ref().is_some_and(|pending| now_ms >= pending.until_ms);
        if is_late || !children.iter().any(may_accept) {
            self.report_pending(channel, now_ms);
        }
        self.pending.is_none()
    }

    /// Reports a pending success now, to the clients that waited when it was recorded.
    pub fn report_pending(&mut self, channel: &mut ControlSocket, now_ms: u64) {
        if let Some(pending) = self.pending.take() {
            channel.answer_noted(&json!({"ok": true, "message": pending.words, "warnings": pending.warnings}), now_ms);
        }
    }
}

/// Reports to all waiting clients that what they wait for does not come.
pub fn report_failure(words: &str, channel: &mut ControlSocket) {
    channel.begin_next_wait();
    channel.answer_waiting(&json!({"ok": false, "message": words}), clock_ms());
}

impl Owner for Outcomes {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::until(self.pending.as_ref().map(|pending| pending.until_ms))
    }
}
