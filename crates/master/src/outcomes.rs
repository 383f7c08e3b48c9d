//! How reloads and upgrades have ended, and who is told: the clients of the control socket that wait for that, and the statistics.
//!
//! In the last moment of one that works new workers serve, and the old ones take their hands off the listening sockets. Who waits for the
//! outcome hears of it when they have, so no connection that is made from then on gets the old code. The master runs it.
//!
//! A worker says that it has left (`Report::Left`). One that is stuck in a call of the application says so when that has returned; it is not waited
//! for so long, since it accepts nobody any more then (`LATE_DRAIN_MS` in the room `contract`).

use bolide_contract::message::LATE_DRAIN_MS;
use bolide_contract::scoreboard::now_ms as clock_ms;
use bolide_services::statistics::ReloadFacts;
use bolide_supervision::sockets::control_socket::ControlSocket;
use serde_json::json;

use crate::children::Children;
use crate::children::child::{Child, State};
use bolide_supervision::processes::system::seconds_since_1970;

/// Time that old workers have to say that they have left, in milliseconds. A worker that reads its order later than [`LATE_DRAIN_MS`] accepts
/// nobody; the rest is for one that has read it in time and is kept from the processor while it accepts.
const LEAVE_MOST_MS: u64 = 5 * LATE_DRAIN_MS;

/// The outcome of a reload or an upgrade that is known and not told yet.
#[derive(Debug)]
struct PendingOutcome {
    words: String,
    /// When it is told at the latest, in monotonic milliseconds.
    until_ms: u64,
}

/// The outcomes of reloads and upgrades.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// How the reloads that somebody asked for have ended.
    reloads: ReloadFacts,
    /// One that has worked, while old workers may still accept.
    settling: Option<PendingOutcome>,
}

impl Outcomes {
    pub fn reloads(&self) -> &ReloadFacts {
        &self.reloads
    }

    /// Counts a reload of which nobody waits for the end.
    pub fn count_reload(&mut self) {
        self.reloads.note(seconds_since_1970(), None);
    }

    /// Notes how a reload has ended, and tells who waits for that.
    pub fn note_reload(&mut self, result: Result<u32, String>, channel: &mut ControlSocket) {
        match &result {
            Ok(generation) => self.settle(format!("generation {generation} serves"), channel, clock_ms()),
            Err(why) => tell_failure(&format!("the reload has failed: {why}"), channel),
        }
        self.reloads.note(seconds_since_1970(), result.err());
    }

    /// It has worked, and is told to who waits for it when the old workers have left.
    pub fn settle(&mut self, words: String, channel: &mut ControlSocket, now_ms: u64) {
        self.end_settling(channel, now_ms);
        channel.note_outcome();
        self.settling = Some(PendingOutcome { words, until_ms: now_ms + LEAVE_MOST_MS });
    }

    /// Tells it where it is time.
    pub fn tell_if_settled(&mut self, children: &Children, channel: &mut ControlSocket, now_ms: u64) {
        let may_accept = |child: &Child| {
            child.is_request_worker()
                && !child.has_left
                && matches!(child.state, State::Ending | State::Killed)
                && child.pid.is_some()
        };
        let is_late = self.settling.as_ref().is_some_and(|settling| now_ms >= settling.until_ms);
        if is_late || !children.iter().any(may_accept) {
            self.end_settling(channel, now_ms);
        }
    }

    /// Tells it now to the clients that waited when the outcome was noted.
    pub fn end_settling(&mut self, channel: &mut ControlSocket, now_ms: u64) {
        if let Some(settling) = self.settling.take() {
            channel.answer_noted(&json!({"ok": true, "message": settling.words}), now_ms);
        }
    }

    pub fn wake_ms(&self) -> Option<u64> {
        self.settling.as_ref().map(|settling| settling.until_ms)
    }
}

/// A reload or an upgrade has failed: answers the clients that wait for that.
pub fn tell_failure(words: &str, channel: &mut ControlSocket) {
    channel.answer_waiting(&json!({"ok": false, "message": words}), clock_ms());
}
