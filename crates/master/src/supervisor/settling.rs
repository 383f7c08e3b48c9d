//! The last moment of a reload or an upgrade: new workers serve, and the old ones take their hands off the listening sockets. Who waits for the
//! outcome hears of it when they have, so no connection that is made from then on gets the old code. The master runs it.
//!
//! A worker says that it has left (`Report::Left`). One that is stuck in a call of the application says so when that has returned; it is not waited
//! for so long, since it accepts nobody any more then (`LATE_DRAIN_MS` in the room `contract`).

use std::os::fd::AsFd;

use bolide_contract::message::{self, LATE_DRAIN_MS, Order};

use crate::children::child::{Child, State};
use crate::supervisor::{PendingOutcome, Supervisor};

/// Time that old workers have to say that they have left, in milliseconds. A worker that reads its order later than [`LATE_DRAIN_MS`] accepts
/// nobody; the rest is for one that has read it in time and is kept from the processor while it accepts.
const LEAVE_MOST_MS: u64 = 5 * LATE_DRAIN_MS;

impl Supervisor {
    /// It has worked, and is told to who waits for it when the old workers have left.
    pub(crate) fn settle(&mut self, words: String, now_ms: u64) {
        self.end_settling(now_ms);
        self.control.channel.note_outcome();
        self.settling = Some(PendingOutcome { words, until_ms: now_ms + LEAVE_MOST_MS });
    }

    /// Tells it where it is time.
    pub(crate) fn tell_if_settled(&mut self, now_ms: u64) {
        let may_accept = |child: &Child| {
            child.is_request_worker()
                && !child.has_left
                && matches!(child.state, State::Ending | State::Killed)
                && child.pid.is_some()
        };
        let is_late = self.settling.as_ref().is_some_and(|settling| now_ms >= settling.until_ms);
        if is_late || !self.fleet.children.iter().any(may_accept) {
            self.end_settling(now_ms);
        }
    }

    /// Tells it now.
    pub(crate) fn end_settling(&mut self, now_ms: u64) {
        if let Some(settling) = self.settling.take() {
            self.tell_noted_outcome(&settling.words, now_ms);
        }
    }

    pub(crate) fn wake_for_settling(&self) -> Option<u64> {
        self.settling.as_ref().map(|settling| settling.until_ms)
    }

    /// A worker that was told to end accepts nothing any more. Somebody may have been waiting of whom the kernel has told that worker alone:
    /// others are to look.
    pub(crate) fn note_left(&mut self, id: u64, somebody_waits: bool) {
        if let Some(worker) = self.fleet.find_mut(id) {
            worker.has_left = true;
        }
        if !somebody_waits {
            return;
        }
        let serves = |child: &&Child| child.is_request_worker() && child.state.is_serving();
        let mut takers: Vec<&Child> = self.fleet.children.iter().filter(serves).collect();
        if takers.is_empty() {
            // Those who serve now are another master's, whom we tell nothing: it takes them itself.
            takers.extend(self.fleet.find(id));
        }
        for channel in takers.iter().filter_map(|taker| taker.channel.as_ref()) {
            // One whose socket is full has orders to read, and looks behind them; one that is gone looks no more.
            let _ = message::send(channel.as_fd(), &Order::Look, None);
        }
    }
}
