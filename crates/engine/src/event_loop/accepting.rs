//! Accepting connections: how many at a time, when to leave them to other workers, and what to do when no file descriptor is
//! left.
//!
//! Workers share the listening sockets. The kernel wakes one of the workers that wait for a connection (EPOLLEXCLUSIVE), not the
//! least busy one. So a worker that is ahead of the others stops polling the socket until it no longer is.
//!
//! If connections arrive one by one, the kernel wakes the worker that began to wait first, again and again. While the master
//! compares the answers of the workers (`reload-canary`), a worker that has accepted a connection goes to the end of the kernel's
//! wait queue. Workers inside another event loop are all woken, as the kernel does not see which processes wait for a nested
//! poll; there, workers that have had their turn stand back.
//!
//! It does not know about protocols or the application. The threads that lead run it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::message::LATE_DRAIN_MS;
use bolide_scoreboard::connection_queue;
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::app::{App, Language};
use crate::connection::{Connection, beginning};
use crate::event_loop::census::{note_new, note_wait};
use crate::event_loop::descriptors::begin_shortage;
use crate::event_loop::moving::{pass_on, take_moved};
use crate::event_loop::signal_pools::leave_signal_pools;
use crate::event_loop::worker_state::{Housekeeping, LeaderState, Pause, QUEUE, SESSIONS, Shared};
use crate::exchange::context::ThreadContext;
use crate::logging::access_log::complain;
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::scheduling::deadlines::NEVER_MS;
use crate::scheduling::fairness::{has_had_its_turn, is_ahead};
use crate::sockets::listener::Accepted;
use crate::sockets::socket;

/// Maximum number of connections that a worker without others accepts from one socket in a turn, so that open connections have
/// their turn too. If there are others, or may be, a worker accepts only as many as its free threads can begin to serve
/// immediately: the first free worker serves connections in the listen queue, and they are not lost with a worker that is killed
/// for a stuck call.
const MAX_ACCEPTED_TURN: usize = 64;

/// Milliseconds after which a worker that is ahead looks whether a connection is still waiting: the kernel may have woken no
/// other worker for it.
const STAND_BACK_MS: u64 = 2;

/// The time doubles while no connection waits, up to this many milliseconds.
const MAX_STAND_BACK_MS: u64 = 64;

/// Maximum number of connections accepted from one listening socket before it is shut down because the master is gone.
const MAX_LAST_ACCEPTS: usize = 4096;

/// Maximum number of connections that wait in a worker because its companion has accepted them for their health checks, and that
/// a paused worker accepts for theirs. Others wait in the listen queue.
pub(crate) const MAX_CHECKED: usize = 256;

/// Milliseconds after which a paused worker that has accepted [`MAX_CHECKED`] connections looks whether some have left.
const FULL_PAUSE_MS: u64 = 50;

/// Registers a listening socket with the poll.
pub(crate) fn listen<L: Language>(shared: &Shared<L>, number: usize) -> io::Result<()> {
    let Some(listener) = shared.worker.listeners.get(number) else { return Ok(()) };
    let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, Key::listener(number).0);
    match shared.poll.add(&listener.descriptor, event) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`listen`], but a failure ends the worker: its replacement may succeed.
pub(crate) fn listen_or_leave<L: Language>(shared: &Shared<L>, number: usize) {
    if let Err(error) = listen(shared, number) {
        complain(shared.worker.number, &format!("can't add a listening socket to epoll; the worker exits: {error}"));
        shared.worker.availability.ask_to_leave();
    }
}

/// A listening socket has an event. The poll is level-triggered for these and reports connections that are left waiting again.
pub(crate) fn accept<L: Language>(shared: &Shared<L>, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) {
    // The order to drain may not be read yet: connections that could get the new code are not accepted any more.
    if shared.worker.is_told_to_drain()
        || state.housekeeping.descriptors.are_missing()
        || state.housekeeping.pauses.iter().any(|pause| pause.listener == number)
    {
        return;
    }
    if shared.worker.is_paused() {
        return accept_in_pause(shared, number, state, thread);
    }
    if shared.worker.availability.is_full() {
        return pause_until_room(shared, number, &mut state.housekeeping);
    }
    let has_accepted = accept_some(shared, number, state, thread);
    if has_accepted && shared.takes_turns() {
        requeue_listener(shared, number, &state.housekeeping);
    }
}

/// A paused worker accepts a connection: it has a health check, or its request waits for the end of the pause, unread.
fn accept_in_pause<L: Language>(shared: &Shared<L>, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) {
    if !shared.worker.accepts_checks_at(number) {
        return;
    }
    if is_full_in_pause(state) {
        return pause(shared, number, FULL_PAUSE_MS, &mut state.housekeeping, thread);
    }
    accept_one(shared, number, &mut state.connections, &mut state.housekeeping, thread);
}

/// A paused worker has accepted as many connections as it may.
pub(crate) fn is_full_in_pause<A: App>(state: &LeaderState<A>) -> bool {
    state.connections.population().all() >= state.housekeeping.pause_began.population + MAX_CHECKED
}

/// A paused worker waits for health checks.
pub(crate) fn listen_for_checks<L: Language>(shared: &Shared<L>) {
    for number in (0..shared.worker.listeners.len()).filter(|number| shared.worker.accepts_checks_at(*number)) {
        listen_or_leave(shared, number);
    }
}

/// From here on the kernel wakes other workers that wait for this socket before this one. The poll reports a connection that
/// arrives in between immediately.
fn requeue_listener<L: Language>(shared: &Shared<L>, number: usize, housekeeping: &Housekeeping) {
    if housekeeping.descriptors.are_missing() || housekeeping.pauses.iter().any(|pause| pause.listener == number) {
        // The socket is not being polled. When it is again, this worker is behind the others.
        return;
    }
    if let Some(listener) = shared.worker.listeners.get(number) {
        let _known_to_be_there = shared.poll.delete(&listener.descriptor);
        listen_or_leave(shared, number);
    }
}

/// Returns `true` if a connection was accepted.
fn accept_some<L: Language>(shared: &Shared<L>, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) -> bool {
    let has_more_to_do = L::App::KEEPS_EXCHANGES || state.connections.has_ready();
    let most = match shared.has_other_workers() {
        // The first one is accepted in any case: the kernel may have woken no other worker for it.
        true => shared.free_threads().saturating_sub(state.connections.ready_count()).max(1),
        false if has_more_to_do => MAX_ACCEPTED_TURN,
        // The poll comes next, and reports those that are left.
        false => state.housekeeping.accepts.count(MAX_ACCEPTED_TURN),
    };
    let mut accepted = 0;
    while accepted < most {
        if should_stand_back(shared, thread) {
            leave_to_others(shared, number, state, thread);
            break;
        }
        let LeaderState { connections, housekeeping, .. } = &mut *state;
        match accept_one(shared, number, connections, housekeeping, thread) {
            Entered::One(_) => accepted += 1,
            Entered::Nothing => break,
        }
    }
    state.housekeeping.accepts.note(accepted);
    // They have waited in the listen queue as long as others have in the table, so it is their turn now.
    state.connections.bring_forward(accepted);
    accepted > 0
}

/// The next connection is for another worker, which may not know of it, as the kernel wakes one of those that wait. So it is
/// accepted and handed over if its kind can move. Otherwise the socket is not polled for a moment, so that another worker can
/// accept it.
fn leave_to_others<L: Language>(shared: &Shared<L>, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) {
    let LeaderState { connections, housekeeping, .. } = &mut *state;
    let Some(listener) = shared.worker.listeners.get(number).filter(|_| shared.may_move()) else {
        return pause(shared, number, STAND_BACK_MS, housekeeping, thread);
    };
    let now_ms = thread.clock.now_ms;
    match listener.accept() {
        Accepted::Connection(socket, peer) if pass_on(shared, &socket, &peer, listener, now_ms) => {
            // This worker is awake, and would be the first to take it back. Another one is awake for the queue now.
            shared.unwatch_queue();
            pause_queue(now_ms + STAND_BACK_MS, housekeeping);
        }
        // A connection that can't be handed over is served here.
        accepted => {
            enter(shared, accepted, number, connections, housekeeping, now_ms);
        }
    }
}

/// Looks whether there are descriptors again, when it is time. Connections in the queue come first: their clients were accepted
/// before those that wait in the listen queue.
pub(crate) fn end_shortage_if_due<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) {
    if !state.housekeeping.descriptors.take_due(now_ms) || shared.worker.is_told_to_drain() || shared.worker.is_paused() {
        return;
    }
    if let Some(queue) = &shared.queue {
        if socket::has_events(queue.take.as_fd()) {
            take_moved(shared, state, now_ms);
            if state.housekeeping.descriptors.are_missing() {
                return;
            }
        }
        if connection_queue::has_free_descriptors(queue.take.as_fd()) {
            state.housekeeping.descriptors.note_free(shared.worker.row);
        }
    }
    let is_paused = |number| state.housekeeping.pauses.iter().any(|pause| pause.listener == number);
    if !is_paused(QUEUE) {
        shared.watch_queue();
    }
    shared.watch_sessions();
    for number in (0..shared.worker.listeners.len()).filter(|number| !is_paused(*number)) {
        listen_or_leave(shared, number);
    }
}

/// Ends pauses whose time has passed. A worker that is still ahead accepts a connection that is still waiting: an uneven load is
/// better than a delay.
pub(crate) fn end_pauses<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
    thread: &ThreadContext,
) {
    let now = thread.clock.now_ms;
    if housekeeping.descriptors.are_missing() {
        return;
    }
    for mut pause in std::mem::take(&mut housekeeping.pauses) {
        if shared.worker.is_told_to_drain() {
            continue;
        }
        if housekeeping.descriptors.are_missing() {
            // The pause before this one has ended with the last descriptor.
            housekeeping.pauses.push(pause);
            continue;
        }
        if pause.until_ms == NEVER_MS {
            match shared.worker.availability.is_full() {
                true => housekeeping.pauses.push(pause),
                false => listen_or_leave(shared, pause.listener),
            }
            continue;
        }
        if pause.until_ms > now {
            housekeeping.pauses.push(pause);
            continue;
        }
        if pause.listener == QUEUE {
            shared.watch_queue();
        } else if pause.listener == SESSIONS {
            shared.watch_sessions();
        } else if !shared.worker.is_paused() && should_stand_back(shared, thread) {
            pause.length_ms = match accept_one(shared, pause.listener, connections, housekeeping, thread) {
                Entered::One(_) => STAND_BACK_MS,
                Entered::Nothing => (pause.length_ms * 2).min(MAX_STAND_BACK_MS),
            };
            pause.until_ms = now + pause.length_ms;
            housekeeping.pauses.push(pause);
        } else {
            listen_or_leave(shared, pause.listener);
        }
    }
}

fn should_stand_back<L: Language>(shared: &Shared<L>, thread: &ThreadContext) -> bool {
    let (own, rows, now) = (shared.worker.row, shared.scoreboard.rows(), thread.clock.now_ms);
    is_ahead(own, rows, now) || L::App::KEEPS_EXCHANGES && shared.takes_turns() && has_had_its_turn(own, rows, now)
}

/// The application serves as many requests as it may: the socket is not polled until one of them has ended.
fn pause_until_room<L: Language>(shared: &Shared<L>, number: usize, housekeeping: &mut Housekeeping) {
    if let Some(listener) = shared.worker.listeners.get(number) {
        let _known_to_be_there = shared.poll.delete(&listener.descriptor);
        housekeeping.pauses.push(Pause { listener: number, until_ms: NEVER_MS, length_ms: 0 });
    }
}

pub(crate) fn pause<L: Language>(
    shared: &Shared<L>,
    number: usize,
    length_ms: u64,
    housekeeping: &mut Housekeeping,
    thread: &ThreadContext,
) {
    if let Some(listener) = shared.worker.listeners.get(number) {
        let _known_to_be_there = shared.poll.delete(&listener.descriptor);
        housekeeping.pauses.push(Pause { listener: number, until_ms: thread.clock.now_ms + length_ms, length_ms });
    }
}

/// Does not poll a listening socket until this time, so that other workers accept from it.
pub(crate) fn pause_until<L: Language>(shared: &Shared<L>, number: usize, until_ms: u64, housekeeping: &mut Housekeeping) {
    if let Some(listener) = shared.worker.listeners.get(number) {
        let _may_be_paused = shared.poll.delete(&listener.descriptor);
        housekeeping.pauses.retain(|pause| pause.listener != number);
        housekeeping.pauses.push(Pause { listener: number, until_ms, length_ms: STAND_BACK_MS });
    }
}

/// As [`pause_until`], for the queue of connections, which the caller has left.
pub(crate) fn pause_queue(until_ms: u64, housekeeping: &mut Housekeeping) {
    housekeeping.pauses.retain(|pause| pause.listener != QUEUE);
    housekeeping.pauses.push(Pause { listener: QUEUE, until_ms, length_ms: STAND_BACK_MS });
}

/// As [`pause_until`], for connections of this worker's sessions.
pub(crate) fn pause_sessions<L: Language>(shared: &Shared<L>, until_ms: u64, housekeeping: &mut Housekeeping) {
    shared.leave_sessions();
    housekeeping.pauses.retain(|pause| pause.listener != SESSIONS);
    housekeeping.pauses.push(Pause { listener: SESSIONS, until_ms, length_ms: STAND_BACK_MS });
}

/// The master has accepted a connection before it closed its sockets, and hands it over.
pub(crate) fn accept_handed_over<L: Language>(
    shared: &Shared<L>,
    number: u32,
    socket: OwnedFd,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    if let Some(listener) = shared.worker.listeners.get(number as usize) {
        enter(shared, listener.take(socket), number as usize, connections, housekeeping, now_ms());
    }
}

/// Stops listening. Connections in the listen queue are accepted first: the kernel wakes one worker for a connection, and no
/// other worker knows of it if this was the one. A worker that is late leaves them to others. Returns whether a connection was
/// left waiting.
pub(crate) fn leave_listeners<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) -> bool {
    housekeeping.pauses.clear();
    housekeeping.descriptors.forget(shared.worker.row);
    shared.leave_queue();
    leave_signal_pools(shared);
    if shared.is_held.load(Relaxed) {
        // No connection waits for a worker that has never listened.
        return false;
    }
    let told_ms = shared.worker.row.drained_ms.load(Relaxed);
    let is_late = told_ms != 0 && now_ms() >= told_ms + LATE_DRAIN_MS;
    let mut somebody_waits = false;
    for (number, listener) in shared.worker.listeners.iter().enumerate() {
        // From here on the kernel wakes other workers.
        let _may_be_paused = shared.poll.delete(&listener.descriptor);
        if is_late {
            somebody_waits |= listener.has_pending_connection();
        } else {
            accept_waiting(shared, MAX_ACCEPTED_TURN, number, connections, housekeeping);
        }
    }
    somebody_waits
}

/// Accepts connections that the kernel has announced only to a worker that no longer listens.
pub(crate) fn recheck_listeners<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    if shared.worker.is_paused() || shared.is_held.load(Relaxed) {
        return;
    }
    for number in 0..shared.worker.listeners.len() {
        if shared.worker.is_draining() {
            // The master may know of no other worker that could serve them.
            accept_waiting(shared, MAX_ACCEPTED_TURN, number, connections, housekeeping);
        } else {
            // A socket that is added to the poll is checked for pending events immediately (epoll_ctl(2)).
            requeue_listener(shared, number, housekeeping);
        }
    }
}

fn accept_waiting<L: Language>(
    shared: &Shared<L>,
    most: usize,
    number: usize,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    let Some(listener) = shared.worker.listeners.get(number) else { return };
    for _ in 0..most {
        if !matches!(enter(shared, listener.accept(), number, connections, housekeeping, now_ms()), Entered::One(_)) {
            return;
        }
    }
}

/// The master is gone, and no other one takes over: waiting clients are accepted, later ones are refused immediately, and the
/// address is free.
pub(crate) fn shut_listeners<L: Language>(
    shared: &Shared<L>,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
) {
    if shared.is_held.load(Relaxed) {
        return;
    }
    for (number, listener) in shared.worker.listeners.iter().enumerate().filter(|(_, listener)| listener.is_ours) {
        accept_waiting(shared, MAX_LAST_ACCEPTS, number, connections, housekeeping);
        listener.shut();
    }
}

fn accept_one<L: Language>(
    shared: &Shared<L>,
    number: usize,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
    thread: &ThreadContext,
) -> Entered {
    let Some(listener) = shared.worker.listeners.get(number) else { return Entered::Nothing };
    enter(shared, listener.accept(), number, connections, housekeeping, thread.clock.now_ms)
}

pub(crate) fn enter<L: Language>(
    shared: &Shared<L>,
    accepted: Accepted,
    number: usize,
    connections: &mut ConnectionTable<Connection<L::App>>,
    housekeeping: &mut Housekeeping,
    now_ms: u64,
) -> Entered {
    match accepted {
        Accepted::Connection(socket, peer) => {
            note_wait(shared, number, &socket);
            let connection = Box::new(beginning::accepted(socket, peer, number, &shared.worker, now_ms));
            let due_ms = connection.due_ms();
            let key = connections.insert(connection, due_ms);
            note_new(shared, key, connections);
            housekeeping.descriptors.note_free(shared.worker.row);
            shared.worker.row.connections.store(connections.population().all() as u32, Relaxed);
            if shared.takes_turns() {
                shared.worker.row.turns.fetch_add(1, Relaxed);
            }
            Entered::One(key)
        }
        Accepted::Nothing => Entered::Nothing,
        Accepted::Exhausted(error) => {
            begin_shortage(shared, Some(error), connections.population().all(), housekeeping, now_ms);
            Entered::Nothing
        }
    }
}

/// The result of accepting: the key of a connection that is in the table now.
pub(crate) enum Entered {
    One(Key),
    Nothing,
}
