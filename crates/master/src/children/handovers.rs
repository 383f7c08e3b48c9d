//! The kill of a worker in two steps, so that it costs only the requests that it executes: the worker is ordered to hand over its
//! connections at rest, and is killed when it has reported that it has. The wait has a bound, as a worker may not answer. The
//! master runs it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::message::{self, DOOMED_MS, HANDOVER_MS, Order};
use bolide_contract::scoreboard::{InFlight, Slot};
use bolide_supervision::logs::log_sink;

use crate::children::Children;
use crate::children::child::{Child, Handover, Kill, KillReason, State};
use crate::provision::Provision;

/// Milliseconds between two looks at workers that hand over, and the time that a worker has to give away the connection of its
/// last request before the stuck one.
const LOOK_MS: u64 = 10;

/// A worker whose loop has not turned for this many milliseconds takes no connection soon.
const RESPONSIVE_MS: u64 = 20;

impl Children {
    /// Orders a worker that will probably be killed to hand over its connections at rest, unless it was ordered a moment ago.
    pub fn order_hand_over(&mut self, id: u64, has_takers: bool, now_ms: u64) {
        let Some(child) = self.find_mut(id).filter(|child| child.is_request_worker()) else { return };
        if child.handover.is_some_and(|handover| now_ms < handover.ordered_ms + HANDOVER_MS) {
            return;
        }
        let kill = child.handover.and_then(|handover| handover.kill);
        child.handover = Some(Handover { ordered_ms: now_ms, waiting: None, kill });
        if let Some(channel) = &child.channel {
            // A worker whose socket is full, or that has exited, hands nothing over.
            let _ = message::send(channel.as_fd(), &Order::HandOver { has_takers }, None);
        }
    }

    /// Handles the report that a worker has handed over.
    pub fn note_handed_over(&mut self, id: u64, waiting: u32) {
        if let Some(handover) = self.find_mut(id).and_then(|child| child.handover.as_mut()) {
            handover.waiting = Some(waiting);
        }
    }

    /// Kills a child as soon as it has handed over what others can serve. `limit_ms`: the limit of `harakiri`; requests within it
    /// may end first. Without `has_takers` no worker follows, and connections at rest are closed.
    pub fn condemn(
        &mut self,
        id: u64,
        kill_reason: KillReason,
        limit_ms: Option<u64>,
        has_takers: bool,
        provision: &Provision,
        now_ms: u64,
    ) {
        if !self.find(id).is_some_and(|child| self.has_others_to_give(child)) {
            return self.kill_and_log(id, kill_reason, provision, now_ms);
        }
        self.order_hand_over(id, has_takers, now_ms);
        if let Some(child) = self.find_mut(id) {
            child.deadline_ms = None;
            if let Some(handover) = &mut child.handover {
                handover.kill.get_or_insert(Kill { reason: kill_reason, limit_ms, calm_ms: None });
            }
        }
        self.kill_handed_over(provision, now_ms);
    }

    /// Kills the condemned workers that have handed over, or whose time for it is over.
    pub fn kill_handed_over(&mut self, provision: &Provision, now_ms: u64) {
        for id in self.ids(|child| child.is_condemned() && child.state != State::Killed) {
            match self.next_of_condemned(id, now_ms) {
                Next::Wait => {}
                Next::Kill(kill_reason) => self.kill_and_log(id, kill_reason, provision, now_ms),
                Next::Spare => {
                    if let Some(child) = self.find(id) {
                        log_sink::line(&format!("harakiri: {child} has ended its request at the last moment: it is not killed"));
                    }
                    self.spare(id);
                }
            }
        }
    }

    /// Lets a worker live that was ordered to hand over.
    pub fn spare(&mut self, id: u64) {
        let Some(child) = self.find_mut(id).filter(|child| child.handover.is_some()) else { return };
        child.handover = None;
        if let Some(channel) = &child.channel {
            // A worker that does not get the order accepts connections again after a moment.
            let _ = message::send(channel.as_fd(), &Order::Spare, None);
        }
    }

    /// Returns the time of the next look at workers that hand over.
    pub fn wake_for_handovers(&self, now_ms: u64) -> Option<u64> {
        self.is_handing_over(now_ms).then_some(now_ms + LOOK_MS)
    }

    /// Returns whether a worker hands over, or has done so and is not killed yet.
    pub fn is_handing_over(&self, now_ms: u64) -> bool {
        self.list.iter().any(|child| hands_over(child, now_ms))
    }

    /// Returns whether a worker could take connections from the queue now.
    pub fn has_taker(&self, now_ms: u64) -> bool {
        self.list.iter().any(|child| {
            let is_ready = child.is_request_worker() && child.state.is_serving() && !hands_over(child, now_ms);
            let row = child.row().and_then(|row| self.scoreboard.row(row)).filter(|_| is_ready);
            row.is_some_and(|row| {
                let turns = row.waiting.load(Relaxed) == 1 || now_ms.saturating_sub(row.turned_ms.load(Relaxed)) <= RESPONSIVE_MS;
                row.has_room() && row.paused.load(Relaxed) == 0 && turns
            })
        })
    }

    /// Returns whether a request worker serves, even if it is stuck.
    pub fn has_serving_worker(&self) -> bool {
        self.list.iter().any(|child| child.is_request_worker() && child.state.is_serving())
    }

    /// A worker that serves has more connections than those of its requests in flight.
    fn has_others_to_give(&self, child: &Child) -> bool {
        let serves = child.is_request_worker() && child.channel.is_some() && child.ready_ms.is_some();
        let row = child.row().filter(|_| serves && child.state != State::Killed);
        row.and_then(|row| self.scoreboard.row(row)).is_some_and(|row| row.connections.load(Relaxed) > 1)
    }

    fn next_of_condemned(&mut self, id: u64, now_ms: u64) -> Next {
        let Some(child) = self.find(id) else { return Next::Wait };
        let Some(Handover { ordered_ms, waiting, kill: Some(kill) }) = child.handover else { return Next::Wait };
        let in_flight = child.row().map(|row| self.scoreboard.in_flight(row)).unwrap_or_default();
        let is_late = now_ms >= ordered_ms + HANDOVER_MS;
        let Some(limit_ms) = kill.limit_ms else {
            return if waiting.is_some() || is_late { Next::Kill(kill.reason) } else { Next::Wait };
        };
        let stuck = in_flight.iter().filter(|request| is_stuck(request, limit_ms, now_ms)).count();
        if stuck == 0 {
            return Next::Spare;
        }
        if is_late {
            return Next::Kill(kill.reason);
        }
        if waiting.is_none() || stuck < in_flight.len() {
            return Next::Wait;
        }
        // The connection of a request that has just ended moves next.
        let calm_ms = kill.calm_ms.unwrap_or(now_ms);
        if now_ms < calm_ms + LOOK_MS {
            if let Some(handover) = self.find_mut(id).and_then(|child| child.handover.as_mut()) {
                handover.kill = Some(Kill { calm_ms: Some(calm_ms), ..kill });
            }
            return Next::Wait;
        }
        Next::Kill(kill.reason)
    }
}

/// The next step against a condemned worker.
enum Next {
    Wait,
    Kill(KillReason),
    /// The stuck request has ended.
    Spare,
}

/// The request is over its time: its own limit, or that of `harakiri`.
fn is_stuck(request: &InFlight, limit_ms: u64, now_ms: u64) -> bool {
    let limit_ms = match request.limit_ms {
        Slot::UNLIMITED_MS => return false,
        0 => limit_ms,
        own => limit_ms.min(u64::from(own)),
    };
    request.began_ms.saturating_add(limit_ms) <= now_ms
}

fn hands_over(child: &Child, now_ms: u64) -> bool {
    let is_alive = child.state != State::Killed && child.state != State::Ended;
    is_alive && child.handover.is_some_and(|handover| handover.kill.is_some() || now_ms < handover.ordered_ms + DOOMED_MS)
}
