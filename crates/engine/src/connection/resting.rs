//! A connection in a pause of its worker: whether its next request must wait, and what that costs of its time. Workers run it.

use super::{Connection, ConnectionStage, Link};
use crate::app::App;
use crate::exchange::worker::Worker;

impl<A: App> Connection<A> {
    /// It is between two requests, or the head of the next one has not come whole: in a pause, nothing begins here.
    pub fn awaits_request(&self) -> bool {
        self.exchange.is_idle()
            && !matches!(self.stage, ConnectionStage::Lingers { .. })
            && !matches!(self.link, Link::Multiplexed(_))
    }

    /// The worker's pause has lasted so long: no time limit counts that time.
    pub fn extend_time(&mut self, by_ms: u64) {
        self.deadline_ms = self.deadline_ms.saturating_add(by_ms);
        self.is_overdue = false;
    }

    /// Whether its next request must wait. A client that has left without one is let go.
    pub(super) fn must_rest(&self, worker: &Worker) -> bool {
        let has_left = || self.peer_has_ended && self.input.is_empty() && self.transport.peer_has_ended();
        worker.is_paused() && !has_left()
    }
}
