//! A worker that the master is about to kill hands over what others can serve: it stops listening, gives its connections at rest
//! to the queue, and closes in order those that can't move. A worker that lives on nevertheless listens again.
//!
//! It does not know about protocols or the reason for the kill. The thread that leads a worker runs it, or the companion while
//! all threads are inside of calls.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::message::{DOOMED_MS, Report};

use crate::app::Language;
use crate::connection::Link;
use crate::event_loop::accepting::{pause_queue, pause_sessions, pause_until};
use crate::event_loop::moving::{Move, move_all, move_away};
use crate::event_loop::worker_state::{Housekeeping, LeaderState, Shared};
use crate::scheduling::connections::Key;
use crate::scheduling::handover::Doom;

/// Carries out the order to hand over.
pub(crate) fn begin_handover<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, has_takers: bool) {
    let until_ms = now_ms() + DOOMED_MS;
    let can_give = has_takers && shared.queue.is_some();
    state.housekeeping.doom = if can_give { Doom::HandsOver { until_ms } } else { Doom::Closes { until_ms } };
    state.housekeeping.has_handed_over = false;
    if !shared.is_held.load(Relaxed) && !shared.worker.is_draining() && !shared.worker.is_paused() {
        stand_aside(shared, &mut state.housekeeping);
    }
    state.housekeeping.moves_at_ms = None;
    if can_give {
        move_all(shared, state);
    }
    report_if_handed_over(shared, state);
}

/// Does not take connections until the worker is killed or spared. A worker that is paused does so when its pause ends.
pub(crate) fn stand_aside<L: Language>(shared: &Shared<L>, housekeeping: &mut Housekeeping) {
    let Some(until_ms) = housekeeping.doom.until_ms() else { return };
    for number in 0..shared.worker.listeners.len() {
        pause_until(shared, number, until_ms, housekeeping);
    }
    shared.leave_queue();
    pause_queue(until_ms, housekeeping);
    pause_sessions(shared, until_ms, housekeeping);
}

/// Hands over connections that found the queue full before.
pub(crate) fn move_rest<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) {
    if state.housekeeping.moves_at_ms.is_some_and(|when_ms| when_ms <= now_ms) {
        move_all(shared, state);
        report_if_handed_over(shared, state);
    }
}

/// The worker is not killed: it listens again.
pub(crate) fn end_handover(housekeeping: &mut Housekeeping) {
    if std::mem::take(&mut housekeeping.doom) != Doom::None {
        let now_ms = now_ms();
        housekeeping.pauses.iter_mut().for_each(|pause| pause.until_ms = pause.until_ms.min(now_ms));
    }
}

/// Closes what can't move and reports to the master, once, as soon as everything that can move has moved.
fn report_if_handed_over<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>) {
    let housekeeping = &mut state.housekeeping;
    let is_over = housekeeping.moves_at_ms.is_none() && housekeeping.doom.is_at_work();
    if !is_over || std::mem::replace(&mut housekeeping.has_handed_over, true) {
        return;
    }
    let mut waiting = 0;
    for key in state.connections.keys(|connection| connection.is_idle()) {
        waiting += u32::from(close_at_rest(shared, key, state) == Closed::RequestWaits);
    }
    shared.report(|row, _| Report::HandedOver { row, waiting });
}

/// Hands over a connection that has come to rest, or closes it in order.
pub(crate) fn give_up_rested<L: Language>(shared: &Shared<L>, key: Key, state: &mut LeaderState<L::App>) {
    match state.housekeeping.doom {
        Doom::Closes { .. } => {
            close_at_rest(shared, key, state);
        }
        _ => match move_away(shared, key, false, state) {
            Move::Gone => {}
            Move::NoRoom => {
                state.housekeeping.moves_at_ms.get_or_insert(now_ms());
            }
            Move::Stays if state.housekeeping.doom.is_at_work() => {
                close_at_rest(shared, key, state);
            }
            Move::Stays => {}
        },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Closed {
    Gone,
    /// Input of a request is unread: it is lost if the worker is killed, but the call may still end in time.
    RequestWaits,
    /// It is a stream, and ends with its connection.
    Stays,
}

/// Closes a connection at rest, unless a request waits on it.
fn close_at_rest<L: Language>(shared: &Shared<L>, key: Key, state: &mut LeaderState<L::App>) -> Closed {
    let Some(connection) = state.connections.peek(key).filter(|connection| !matches!(connection.link(), Link::Stream { .. }))
    else {
        return Closed::Stays;
    };
    if !connection.tells_unprocessed() && connection.has_unread() && !connection.peer_has_left() {
        return Closed::RequestWaits;
    }
    let Some(mut connection) = state.connections.check_out(key) else { return Closed::Stays };
    connection.end_at_rest();
    state.connections.remove(key);
    shared.worker.row.connections.store(state.connections.population().all() as u32, Relaxed);
    state.moved_leftovers.push(connection.leftover());
    Closed::Gone
}
