//! Requests that wait for a permit of their bulkhead. Each worker knows its own, in the order in which they came. A permit that
//! is given back rings at all workers with such requests, and the one whose request has waited for longest takes it. A request
//! that would use the last thread of its worker counts as younger, because that thread serves the other routes.
//!
//! While all threads of a worker are in calls, its companion ends the waits that are over. It does not know about requests. The
//! threads that attend to connections run it with the table locked, and so does the companion.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::bulkheads::Holder;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::app::{App, Language};
use crate::connection::Connection;
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::exchange::bulkheads::Bulkhead;
use crate::logging::access_log::complain;
use crate::scheduling::clock::Clock;
use crate::scheduling::connections::Key;
use crate::scheduling::waiting_requests::WaitingRequests;

/// Whether a free permit is left to another worker whose request comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Kept,
    /// It was left, and is still free: that worker is busy, or its settings allow fewer requests.
    TimeIsOver,
}

/// What the first of a list needs.
enum First {
    /// Its request waits since this time.
    Waits { key: Key, since_ms: u64 },
    /// A thread attends to it, and looks for a permit when it puts it back.
    Away,
}

/// A connection is back whose request waits for a permit: it is put at the end of the list if it is not there, and permits are
/// looked for, because one may have been given back before the request had its place.
pub(crate) fn note_waiting<L: Language>(
    shared: &Shared<L>,
    key: Key,
    number: usize,
    state: &mut LeaderState<L::App>,
    now_ms: u64,
) {
    let Some(bulkhead) = shared.worker.bulkheads.and_then(|bulkheads| bulkheads.list().get(number)) else { return };
    let mut was_listed = true;
    let is_here = state.connections.change(key, |connection| {
        was_listed = connection.note_listed();
        connection.due_ms()
    });
    if is_here && !was_listed {
        let lists = &mut state.housekeeping.waiting;
        if lists.len() <= number {
            lists.resize_with(number + 1, WaitingRequests::default);
        }
        let list = &mut lists[number];
        list.keys.push_back(key);
        if !list.is_watched {
            // Edge-triggered: each ring is reported once, so the counter is never read.
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, Key::BULKHEADS.0);
            match shared.poll.add(bulkhead.bell(), event) {
                Ok(()) => list.is_watched = true,
                Err(errno) => complain(shared.worker.number, &format!("can't watch for permits of a bulkhead: {errno}")),
            }
        }
        // If the next call is long, it must end the wait.
        shared.call_companion(state);
    }
    give_permits_of(shared, bulkhead, state, Order::Kept, now_ms);
}

/// A permit was given back: takes those that are free for requests of this worker, as many as it can begin.
pub(crate) fn give_permits<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) {
    for bulkhead in shared.worker.bulkheads.into_iter().flat_map(|bulkheads| bulkheads.list()) {
        give_permits_of(shared, bulkhead, state, Order::Kept, now_ms);
    }
}

/// Takes permits that were left to other workers, which have had their time.
pub(crate) fn give_left_permits<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) {
    let Some(bulkheads) = shared.worker.bulkheads.filter(|bulkheads| bulkheads.look_ms() <= now_ms) else { return };
    bulkheads.note_look();
    for bulkhead in bulkheads.list() {
        give_permits_of(shared, bulkhead, state, Order::TimeIsOver, now_ms);
    }
}

fn give_permits_of<L: Language>(
    shared: &Shared<L>,
    bulkhead: &'static Bulkhead,
    state: &mut LeaderState<L::App>,
    order: Order,
    now_ms: u64,
) {
    let threads = |holder: Holder| {
        let slots = shared.scoreboard.slots(u32::from(holder.row)).iter();
        slots.filter(|slot| slot.thread.load(Relaxed) != 0)
    };
    let can_begin = |holder: Holder| {
        // A worker that the bell has just woken does not wait any more, and its thread is in no call yet.
        let has_free_thread = || threads(holder).any(|slot| slot.began_ms.load(Relaxed) == 0);
        let row = shared.scoreboard.row(u32::from(holder.row)).filter(|row| row.pid.load(Relaxed) == holder.pid);
        row.is_some_and(|row| row.waiting.load(Relaxed) == 1 || has_free_thread())
    };
    let is_embedded = shared.worker.row.is_embedded.load(Relaxed) == 1;
    let mut free = match is_embedded {
        true => usize::MAX,
        false => shared.free_threads().saturating_sub(state.connections.ready_count()).max(1),
    };
    while free > 0 {
        let (key, since_ms) = match first(bulkhead.number, state) {
            Some(First::Waits { key, since_ms }) => (key, since_ms),
            Some(First::Away) => return,
            None => return leave_bell(shared, bulkhead, state),
        };
        if order == Order::Kept && bulkhead.is_left(since_ms, now_ms, can_begin, |holder| threads(holder).count()) {
            return shared.worker.bulkheads.into_iter().for_each(|bulkheads| bulkheads.look_again(now_ms));
        }
        let Some(permit) = bulkhead.take() else { return };
        state.housekeeping.waiting[bulkhead.number].keys.pop_front();
        state.connections.change(key, |connection| {
            connection.grant(permit);
            connection.due_ms()
        });
        state.connections.note_event(key);
        free -= 1;
    }
}

/// Whether requests of this worker may wait for permits.
pub(crate) fn may_wait<A: App>(state: &LeaderState<A>) -> bool {
    state.housekeeping.waiting.iter().any(|list| !list.keys.is_empty())
}

/// No thread of the worker is free, so its companion ends waits: those that have lasted as long as they may, and those whose
/// clients have left. The next free thread counts and logs these requests.
pub(crate) fn end_waits<L: Language>(shared: &Shared<L>, clock: &mut Clock, state: &mut LeaderState<L::App>) {
    if !may_wait(state) {
        return;
    }
    clock.tick();
    let LeaderState { connections, housekeeping, .. } = state;
    for list in &mut housekeeping.waiting {
        list.keys.retain(|key| {
            let has_ended = connections.has_ended(*key);
            let mut is_over = false;
            connections.change(*key, |connection| {
                is_over = connection.end_wait(has_ended, &shared.worker, clock);
                connection.due_ms()
            });
            if is_over {
                connections.note_event(*key);
            }
            !is_over
        });
    }
}

/// The first connection of a list whose request waits. Those before it are taken off.
fn first<A: App>(number: usize, state: &mut LeaderState<A>) -> Option<First> {
    let LeaderState { connections, housekeeping, .. } = state;
    let list = housekeeping.waiting.get_mut(number)?;
    loop {
        let key = *list.keys.front()?;
        if connections.is_checked_out(key) {
            return Some(First::Away);
        }
        let waits_here = |connection: &Connection<A>| {
            connection.ticket().filter(|ticket| ticket.bulkhead.number == number).map(|it| it.since_ms)
        };
        if let Some(since_ms) = connections.peek(key).and_then(waits_here) {
            return Some(First::Waits { key, since_ms });
        }
        list.keys.pop_front();
    }
}

fn leave_bell<L: Language>(shared: &Shared<L>, bulkhead: &Bulkhead, state: &mut LeaderState<L::App>) {
    if let Some(list) = state.housekeeping.waiting.get_mut(bulkhead.number)
        && std::mem::take(&mut list.is_watched)
    {
        let _known_to_be_there = shared.poll.delete(bulkhead.bell());
    }
}
