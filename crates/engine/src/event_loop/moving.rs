//! Connections move between workers. A connection that this worker can't serve now, or not any more, is put into the queue that
//! the workers of an instance share, and a worker with a free thread takes it from there. A connection moves only between two
//! requests, before any byte of the next one is read, so no state but the socket has to move.
//!
//! It does not know about protocols. The threads that lead run it with the table locked, and so does the companion while all of
//! them are inside of calls.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_scoreboard::connection_queue::{self, MovedConnection, Put, Taken};

use crate::app::{App, Language};
use crate::app_thread::AppThread;
use crate::connection::moving::{Arrived, arrive, to_move};
use crate::connection::{Connection, beginning};
use crate::event_loop::descriptors::begin_shortage;
use crate::event_loop::worker_state::{LeaderState, QUEUE, Shared};
use crate::logging::access_log::complain;
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::sockets::listener::{ListeningSocket, Peer, PeerOrigin, above_standard};

/// Maximum number of connections taken from the queue in a turn: idle ones need no thread.
const MAX_TAKEN_TURN: usize = 64;

/// The same if no worker would take them later: more than the queue has room for.
const MAX_TAKEN_LAST: usize = 4096;

/// Milliseconds after which connections that found the queue full are tried again: a tick of the coarse clock.
const AGAIN_MS: u64 = 4;

/// The outcome of moving a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// It is in the queue, and no longer here.
    Gone,
    /// It is in the middle of a request, or of a kind that can't move.
    Stays,
    /// The queue is full.
    NoRoom,
}

/// Takes connections from the queue: of those with a request, as many as there are free threads.
pub(crate) fn take_moved<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) {
    let Some(queue) = &shared.queue else { return };
    let LeaderState { connections, housekeeping, .. } = state;
    // A worker that hands over takes back nothing.
    if shared.worker.is_told_to_drain() || shared.worker.is_paused() || housekeeping.doom.is_at_work() {
        return;
    }
    let mut free_threads = shared.free_threads().saturating_sub(connections.ready_count()).max(1);
    let mut taken = 0;
    for _ in 0..MAX_TAKEN_TURN {
        match connection_queue::take(queue.take.as_fd()) {
            Ok(Taken::Connection(moved, socket)) => {
                insert_moved(shared, &moved, socket, connections);
                housekeeping.descriptors.note_free(shared.worker.row);
                taken += 1;
                free_threads -= usize::from(moved.has_input);
                if free_threads == 0 {
                    break;
                }
            }
            Ok(Taken::Nothing) => break,
            Ok(Taken::NoDescriptor) => {
                begin_shortage(shared, None, connections.population().all(), housekeeping, now_ms);
                break;
            }
            Ok(Taken::Lost) => {
                let advice = "raise the limit of open files (ulimit -n, LimitNOFILE)";
                complain(
                    shared.worker.number,
                    &format!("lost a connection of another worker, because no file descriptors are left; {advice}"),
                );
            }
            Err(error) => {
                complain(shared.worker.number, &format!("can't take over connections of other workers: {error}"));
                shared.unwatch_queue();
                break;
            }
        }
    }
    // They have waited in the queue as long as others have in the table.
    connections.bring_forward(taken);
    if taken > 0 && !housekeeping.descriptors.are_missing() && housekeeping.pauses.iter().all(|pause| pause.listener != QUEUE) {
        // From here on the kernel wakes the other workers that wait for the queue before this one. Otherwise the worker that
        // began to wait first would get every connection that the others pass on, and keep those that can't move again.
        shared.unwatch_queue();
        shared.watch_queue();
    }
}

/// For a worker that exits, possibly as the last one: it serves all connections that are in the queue.
pub(crate) fn take_all_moved<L: Language>(shared: &Shared<L>, connections: &mut ConnectionTable<Connection<L::App>>) {
    let Some(queue) = &shared.queue else { return };
    for _ in 0..MAX_TAKEN_LAST {
        let Ok(Taken::Connection(moved, socket)) = connection_queue::take(queue.take.as_fd()) else { return };
        insert_moved(shared, &moved, socket, connections);
    }
}

fn insert_moved<L: Language>(
    shared: &Shared<L>,
    moved: &MovedConnection,
    socket: OwnedFd,
    connections: &mut ConnectionTable<Connection<L::App>>,
) {
    // A socket that can't be copied above the standard streams is closed: no descriptor is left for it.
    let Ok(socket) = above_standard(socket) else { return };
    let connection = match arrived(shared, moved) {
        // It begins here.
        Arrived::Through(number) if moved.is_untouched() => {
            beginning::accepted(socket, Peer::moved(moved.client), number, &shared.worker, now_ms())
        }
        arrived => arrive(socket, moved, arrived, &shared.worker, now_ms()),
    };
    let connection = Box::new(connection);
    let due_ms = connection.due_ms();
    connections.insert(connection, due_ms);
    shared.worker.row.connections.store(connections.population().all() as u32, Relaxed);
}

/// Finds the listening socket that a connection came through. Listeners are compared by their sockets, as another generation may
/// have different ones.
pub(crate) fn arrived<L: Language>(shared: &Shared<L>, moved: &MovedConnection) -> Arrived {
    let listeners = &shared.worker.listeners;
    let speaks = |number: &usize| {
        listeners.get(*number).is_some_and(|listener| listener.protocol == moved.protocol && listener.tls.is_none())
    };
    match came_through(shared, moved).filter(|number| moved.is_untouched() || speaks(number)) {
        Some(number) => Arrived::Through(number),
        None => Arrived::Formerly((0..listeners.len()).find(speaks).unwrap_or(0)),
    }
}

/// As [`arrived`], for an end of a relay, which is in plain whatever its client speaks.
pub(crate) fn arrived_over_relay<L: Language>(shared: &Shared<L>, moved: &MovedConnection) -> Arrived {
    came_through(shared, moved).map_or_else(|| arrived(shared, moved), Arrived::Through)
}

fn came_through<L: Language>(shared: &Shared<L>, moved: &MovedConnection) -> Option<usize> {
    shared.worker.listeners.iter().position(|listener| listener.inode == moved.listener)
}

/// Puts a connection that was just accepted, of any kind, into the queue: nothing of it was read. Returns `false` if it must be
/// served here.
pub(crate) fn pass_on<L: Language>(
    shared: &Shared<L>,
    socket: &OwnedFd,
    peer: &Peer,
    listener: &ListeningSocket,
    now_ms: u64,
) -> bool {
    let Some(queue) = &shared.queue else { return false };
    let moved = MovedConnection {
        listener: listener.inode,
        protocol: listener.protocol,
        has_served: false,
        has_input: true,
        proxy_header_was_read: false,
        is_shared: false,
        client: match (peer.origin, peer.port.parse()) {
            (PeerOrigin::Address(address), Ok(port)) => Some(SocketAddr::new(address, port)),
            (PeerOrigin::Unix, _) => None,
            _ => return false,
        },
        deadline_ms: now_ms + listener.timeout_ms,
    };
    matches!(connection_queue::put(queue.put.as_fd(), &moved, socket.as_fd()), Ok(Put::Done))
}

/// Puts a connection into the queue, if it may move.
pub(crate) fn move_away<L: Language>(shared: &Shared<L>, key: Key, has_input: bool, state: &mut LeaderState<L::App>) -> Move {
    let (Some(queue), Some(mut connection)) = (&shared.queue, state.connections.check_out(key)) else { return Move::Stays };
    // A client that has ended its side after a request waits for its answer. One that has left without a request is closed here.
    let moved = match state.connections.has_ended(key) && connection.peer_has_left() {
        true => None,
        false => to_move(&connection, &shared.worker, has_input, now_ms()),
    };
    let Some(moved) = moved else {
        put_back(key, connection, state);
        return Move::Stays;
    };
    if connection.is_polled {
        // The worker that takes it registers it with its own poll; this poll would continue to report it while it is in the
        // queue.
        let _known_to_be_there = shared.poll.delete(connection.socket());
    }
    match connection_queue::put(queue.put.as_fd(), &moved, connection.socket()) {
        Ok(Put::Done) => {
            state.connections.remove(key);
            shared.worker.row.connections.store(state.connections.population().all() as u32, Relaxed);
            state.moved_leftovers.push(connection.leftover());
            return Move::Gone;
        }
        Ok(Put::Full) => {}
        Err(error) => complain(shared.worker.number, &format!("can't hand over a connection: {error}")),
    }
    // The new registration reports pending input again.
    if connection.is_polled && !shared.register(key, &mut connection) {
        state.connections.remove(key);
        return Move::Gone;
    }
    put_back(key, connection, state);
    Move::NoRoom
}

fn put_back<A: App>(key: Key, connection: Box<Connection<A>>, state: &mut LeaderState<A>) {
    let due_ms = connection.due_ms();
    state.connections.check_in(key, connection, due_ms);
}

/// For a worker that is about to end or to be killed: puts all connections that may move into the queue. The rest is tried again
/// soon if the queue is full.
pub(crate) fn move_all<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>) {
    state.housekeeping.moves_at_ms = None;
    for key in state.connections.keys(|connection| connection.is_idle()) {
        let has_input = state.connections.peek(key).is_some_and(Connection::has_unread);
        if move_away(shared, key, has_input, state) == Move::NoRoom {
            state.housekeeping.moves_at_ms = Some(now_ms() + AGAIN_MS);
            return;
        }
    }
}

/// Drops the objects that threads without the language had to leave when they moved connections.
pub(crate) fn drop_moved_leftovers<A: App>(state: &mut LeaderState<A>, app: &mut AppThread<A>) {
    if !state.moved_leftovers.is_empty() {
        for leftover in std::mem::take(&mut state.moved_leftovers) {
            app.discard(leftover);
        }
    }
}
