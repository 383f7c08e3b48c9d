//! The kill of a worker in two steps, so that it costs only the requests that it executes: the worker is ordered to hand over its
//! connections at rest, and is killed when it has reported that it has. The wait has a bound, as a worker may not answer. It also
//! decides when the master itself takes connections, which `provision/connection_queue` holds. The master runs it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::message::{self, DOOMED_MS, HANDOVER_MS, Order};
use bolide_scoreboard::{InFlight, Slot};
use bolide_supervision::log_sink;

use crate::children::Children;
use crate::children::child::{Child, Handover, Kill, KillReason, State};
use crate::owner::ConnectionMove;
use crate::provision::Provision;

/// Milliseconds between two looks at workers that hand over, and the time that a worker has to give away the connection of its
/// last request before the stuck one.
const LOOK_MS: u64 = 10;

/// A worker whose loop has not turned for this many milliseconds will not take a connection soon.
const RESPONSIVE_MS: u64 = 20;

impl Children {
    /// Orders a worker that will probably be killed to hand over its connections at rest, unless it was ordered a moment ago.
    pub fn order_hand_over(&mut self, id: u64, has_takers: bool, now_ms: u64) {
        let Some(child) = self.find_mut(id).filter(|child| child.is_request_worker()) else { return };
        // Another order would restart the time of a condemned worker.
        if child.handover.is_some_and(|handover| handover.kill.is_some() || now_ms < handover.ordered_ms + HANDOVER_MS) {
            return;
        }
        child.handover = Some(Handover { ordered_ms: now_ms, waiting: None, kill: None });
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
            // A deadline that has passed is the reason of this call. A later one stands, in case that `harakiri` spares the
            // worker.
            child.deadline_ms = child.deadline_ms.map(|deadline_ms| deadline_ms.max(now_ms + HANDOVER_MS));
            if let Some(handover) = &mut child.handover {
                handover.condemn(Kill { reason: kill_reason, limit_ms, calm_ms: None });
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
                        log_sink::line(&format!("harakiri: {child} finished its request at the last moment and is not killed"));
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
        let row = self.find(id).and_then(Child::row);
        let in_flight = row.map(|row| self.scoreboard.in_flight(row)).unwrap_or_default();
        let handover = self.find_mut(id).and_then(|child| child.handover.as_mut());
        handover.map_or(Next::Wait, |handover| handover.next(&in_flight, now_ms))
    }
}

impl Handover {
    /// A kill that spares no worker replaces that of `harakiri`, which may.
    fn condemn(&mut self, kill: Kill) {
        if self.kill.is_none_or(|before| before.limit_ms.is_some() && kill.limit_ms.is_none()) {
            self.kill = Some(kill);
        }
    }

    fn next(&mut self, in_flight: &[InFlight], now_ms: u64) -> Next {
        let Some(kill) = &mut self.kill else { return Next::Wait };
        let is_late = now_ms >= self.ordered_ms + HANDOVER_MS;
        let Some(limit_ms) = kill.limit_ms else {
            return if self.waiting.is_some() || is_late { Next::Kill(kill.reason) } else { Next::Wait };
        };
        let stuck = in_flight.iter().filter(|request| is_stuck(request, limit_ms, now_ms)).count();
        if stuck == 0 {
            return Next::Spare;
        }
        if is_late {
            return Next::Kill(kill.reason);
        }
        if self.waiting.is_none() || stuck < in_flight.len() {
            return Next::Wait;
        }
        // The connection of a request that has just ended moves next.
        let calm_ms = *kill.calm_ms.get_or_insert(now_ms);
        if now_ms < calm_ms + LOOK_MS { Next::Wait } else { Next::Kill(kill.reason) }
    }
}

/// The next step against a condemned worker.
#[derive(Debug, PartialEq, Eq)]
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

/// The instance, as far as its connections depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Prospects {
    pub is_stopping: bool,
    /// Another master's workers serve, and take connections from the queue that it has handed to us.
    pub awaits_takeover: bool,
    /// The workers of another master take connections from our queue.
    pub continues_elsewhere: bool,
}

impl Prospects {
    /// Returns whether connections of a killed worker are served by others: not at shutdown.
    pub fn has_takers(self) -> bool {
        !self.is_stopping || self.continues_elsewhere
    }

    /// Returns how connections move now. The master takes some only while a worker that is about to be killed puts them into the
    /// queue, or no worker is there, and no other worker could take them.
    pub fn next_move(self, children: &Children, now_ms: u64) -> ConnectionMove {
        let is_needed = || children.is_handing_over(now_ms) || !children.has_serving_worker();
        match self {
            Prospects { continues_elsewhere: true, .. } => ConnectionMove::Give,
            Prospects { is_stopping: true, .. } | Prospects { awaits_takeover: true, .. } => ConnectionMove::None,
            _ if children.has_taker(now_ms) => ConnectionMove::Give,
            _ if is_needed() => ConnectionMove::Take,
            _ => ConnectionMove::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Option<u64> = Some(1_000);

    fn handover(limit_ms: Option<u64>, waiting: Option<u32>) -> Handover {
        let reason = if limit_ms.is_some() { KillReason::Harakiri } else { KillReason::Mercy };
        Handover { ordered_ms: 10_000, waiting, kill: Some(Kill { reason, limit_ms, calm_ms: None }) }
    }

    fn request(began_ms: u64) -> InFlight {
        InFlight { slot: 0, thread: 1, began_ms, count: 1, limit_ms: 0, text: "GET /".to_owned(), identifier: String::new() }
    }

    #[test]
    fn a_kill_waits_for_the_report_and_for_requests_within_their_time_and_has_a_bound() {
        let (stuck, quick, late) = (request(9_000), request(9_900), 10_000 + HANDOVER_MS);
        let harakiri = || Next::Kill(KillReason::Harakiri);
        for (waiting, in_flight, now_ms, wanted) in [
            (None, vec![stuck.clone()], 10_500, Next::Wait),
            (None, vec![stuck.clone()], late, harakiri()),
            (Some(0), vec![stuck.clone(), quick.clone()], 10_500, Next::Wait),
            (Some(0), vec![stuck.clone(), request(10_900)], late, harakiri()),
            (Some(0), vec![quick], 10_500, Next::Spare),
            (Some(0), Vec::new(), late, Next::Spare),
            (Some(0), vec![InFlight { limit_ms: Slot::UNLIMITED_MS, ..stuck.clone() }], late, Next::Spare),
            // It has a shorter limit of its own.
            (None, vec![InFlight { limit_ms: 100, ..request(10_300) }], 10_500, Next::Wait),
        ] {
            assert_eq!(handover(LIMIT, waiting).next(&in_flight, now_ms), wanted, "{waiting:?} {in_flight:?} {now_ms}");
        }
        let mut calm = handover(LIMIT, Some(0));
        assert_eq!(calm.next(std::slice::from_ref(&stuck), 10_500), Next::Wait);
        assert_eq!(calm.next(&[stuck], 10_500 + LOOK_MS), harakiri());
    }

    #[test]
    fn a_kill_without_a_limit_waits_for_the_report_alone_and_spares_no_worker() {
        let mercy = || Next::Kill(KillReason::Mercy);
        assert_eq!(handover(None, None).next(&[], 10_500), Next::Wait);
        assert_eq!(handover(None, Some(2)).next(&[], 10_500), mercy());
        assert_eq!(handover(None, None).next(&[], 10_000 + HANDOVER_MS), mercy());
        let mut both = handover(LIMIT, Some(0));
        both.condemn(Kill { reason: KillReason::StopNow, limit_ms: None, calm_ms: None });
        assert_eq!(both.next(&[], 10_500), Next::Kill(KillReason::StopNow));
        both.condemn(Kill { reason: KillReason::Harakiri, limit_ms: LIMIT, calm_ms: None });
        assert_eq!(both.next(&[], 10_500), Next::Kill(KillReason::StopNow));
    }
}
