//! Connections move to the worker that has the session of the request that they bring (`sticky`), with everything that was read
//! of it. A worker takes them from a pair of its own. A request moves once: the worker that gets it serves it.
//!
//! It does not know how a worker is chosen. The threads that lead run it with the table locked.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_scoreboard::connection_queue::Put;
use bolide_scoreboard::session_owners::Owner;
use bolide_scoreboard::session_pair::{ArrivedSession, SessionBytes, SessionPair, TakenSession};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::app::Language;
use crate::app_thread::AppThread;
use crate::connection::Connection;
use crate::connection::moving::{arrive, to_move_with_input};
use crate::event_loop::accepting::pause_sessions;
use crate::event_loop::descriptors::begin_shortage;
use crate::event_loop::moving::{arrived, arrived_over_relay};
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::exchange::relay::RelayWatch;
use crate::logging::access_log::complain;
use crate::scheduling::connections::Key;
use crate::sockets::listener::above_standard;

/// Maximum number of connections taken from the pair in a turn. A pair has room for about as many.
const MAX_TAKEN_TURN: usize = 128;

/// Milliseconds after which a worker looks again whether the one that it replaces takes its connections itself.
const ELDER_MS: u64 = 2;

impl<L: Language> Shared<L> {
    /// This worker's pair.
    fn session_pair(&self) -> Option<&'static SessionPair> {
        self.worker.affinity.and_then(|affinity| affinity.own_pair())
    }

    /// Registers the pair with the poll.
    pub(crate) fn watch_sessions(&self) {
        if let Some(pair) = self.session_pair() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, Key::SESSIONS.0);
            if let Err(errno) = self.poll.add(&pair.take, event)
                && errno != Errno::EEXIST
            {
                complain(self.worker.number, &format!("can't watch for connections of this worker's sessions: {errno}"));
            }
        }
    }

    pub(crate) fn leave_sessions(&self) {
        if let Some(pair) = self.session_pair() {
            let _may_be_unknown = self.poll.delete(&pair.take);
        }
    }
}

/// Takes connections of this worker's sessions: as many as there are free threads, so that the others survive this worker. One
/// that drains takes all, as it will not come back. Returns how many it has taken.
pub(crate) fn take_sessions<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) -> usize {
    let Some(pair) = shared.session_pair() else { return 0 };
    let is_leaving = shared.worker.is_draining();
    if shared.worker.is_paused() || state.housekeeping.doom.is_at_work() && !is_leaving {
        return 0;
    }
    if !is_leaving && shared.worker.affinity.is_some_and(|affinity| affinity.has_elder()) {
        pause_sessions(shared, now_ms + ELDER_MS, &mut state.housekeeping);
        return 0;
    }
    let free_threads = shared.free_threads().saturating_sub(state.connections.ready_count()).max(1);
    let taken = take_from(shared, pair, if is_leaving { MAX_TAKEN_TURN } else { free_threads }, state, now_ms);
    // They have waited in the pair as long as others have in the table.
    state.connections.bring_forward(taken);
    taken
}

/// After a turn of a connection: if it relays a request, the poll reports the events of the other worker's end that it waits for.
/// Returns `false` if epoll refuses it.
pub(crate) fn watch_relay<L: Language>(
    shared: &Shared<L>,
    key: Key,
    connection: &mut Connection<L::App>,
    state: &mut LeaderState<L::App>,
) -> bool {
    let Some(relay) = connection.unwatched_relay() else { return true };
    let wanted = relay.wanted_watch();
    let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    flags.set(EpollFlags::EPOLLOUT, wanted == RelayWatch::InputAndRoom);
    let mut event = EpollEvent::new(flags, key.of_relay().0);
    let before = std::mem::replace(&mut relay.watched, wanted);
    let is_watched = match before {
        RelayWatch::Nothing => shared.poll.add(relay.socket(), event),
        RelayWatch::Input | RelayWatch::InputAndRoom => shared.poll.modify(relay.socket(), &mut event),
    };
    if let Err(errno) = is_watched {
        complain(shared.worker.number, &format!("closing a connection whose relay can't be added to epoll: {errno}"));
        return false;
    }
    if before == RelayWatch::Nothing {
        take_from_one_that_left(shared, relay.owner, state);
    }
    true
}

/// A worker that has left in this very moment does not look at its pair any more, so what was put in is taken here.
fn take_from_one_that_left<L: Language>(shared: &Shared<L>, owner: Owner, state: &mut LeaderState<L::App>) {
    if let Some(affinity) = shared.worker.affinity
        && let Some(pair) = affinity.pair_of(owner)
        && !affinity.lives(owner)
    {
        take_from(shared, pair, MAX_TAKEN_TURN, state, now_ms());
    }
}

/// Nothing is left to serve: a worker that drains looks a last time for connections that came in the meantime.
pub(crate) fn has_drained<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>) -> bool {
    shared.worker.is_draining() && state.connections.population().all() == 0 && take_sessions(shared, state, now_ms()) == 0
}

fn take_from<L: Language>(
    shared: &Shared<L>,
    pair: &SessionPair,
    most: usize,
    state: &mut LeaderState<L::App>,
    now_ms: u64,
) -> usize {
    let mut taken = 0;
    while taken < most {
        match pair.take(&mut state.housekeeping.session_bytes) {
            Ok(TakenSession::Connection(arrived)) => {
                insert(shared, *arrived, state);
                state.housekeeping.descriptors.note_free(shared.worker.row);
                taken += 1;
            }
            Ok(TakenSession::Nothing) => break,
            Ok(TakenSession::NoDescriptor) => {
                let open = state.connections.population().all();
                begin_shortage(shared, None, open, &mut state.housekeeping, now_ms);
                break;
            }
            Ok(TakenSession::Lost) => {
                let advice = "raise the limit of open files (ulimit -n, LimitNOFILE)";
                let what = "lost a connection of one of its sessions, because no file descriptors are left";
                complain(shared.worker.number, &format!("{what}; {advice}"));
            }
            Err(error) => {
                complain(shared.worker.number, &format!("can't take over connections of its sessions: {error}"));
                shared.leave_sessions();
                break;
            }
        }
    }
    taken
}

fn insert<L: Language>(shared: &Shared<L>, session: ArrivedSession, state: &mut LeaderState<L::App>) {
    let ArrivedSession { moved, socket, facts, input } = session;
    // A socket that can't be copied above the standard streams is closed: no descriptor is left for it.
    let Ok(socket) = above_standard(socket) else { return };
    let place = match moved.relay {
        Some(_) => arrived_over_relay(shared, &moved.connection),
        None => arrived(shared, &moved.connection),
    };
    let mut connection = Box::new(arrive(socket, &moved.connection, place, &shared.worker, now_ms()));
    connection.begin_with(&moved, &facts, input, &shared.worker);
    let due_ms = connection.due_ms();
    state.connections.insert(connection, due_ms);
    shared.worker.row.connections.store(state.connections.population().all() as u32, Relaxed);
}

/// Moves a connection that has read a request of another worker's session. If it can't move, it is served here.
pub(crate) fn move_to_owner<L: Language>(
    shared: &Shared<L>,
    key: Key,
    mut connection: Box<Connection<L::App>>,
    owner: Owner,
    state: &mut LeaderState<L::App>,
    app: &mut AppThread<L::App>,
) {
    if connection.is_polled {
        // The other worker registers it with its own poll.
        let _known_to_be_there = shared.poll.delete(connection.socket());
        connection.is_polled = false;
    }
    let pair = shared.worker.affinity.and_then(|affinity| affinity.pair_of(owner));
    let is_put = match (pair, to_move_with_input(&connection, &shared.worker, now_ms())) {
        (Some(pair), Some(moved)) => {
            match pair.put(&moved, connection.socket(), SessionBytes { facts: b"", input: connection.input() }) {
                Ok(put) => put == Put::Done,
                Err(error) => {
                    complain(shared.worker.number, &format!("can't move a connection to the worker of its session: {error}"));
                    false
                }
            }
        }
        _ => false,
    };
    if !is_put {
        return serve_here(shared, key, connection, state);
    }
    match app.is_held() {
        true => drop(connection),
        false => app.discard(connection.leftover()),
    }
    state.connections.remove(key);
    state.housekeeping.descriptors.note_end(now_ms());
    shared.worker.row.connections.store(state.connections.population().all() as u32, Relaxed);
    take_from_one_that_left(shared, owner, state);
}

fn serve_here<L: Language>(
    shared: &Shared<L>,
    key: Key,
    mut connection: Box<Connection<L::App>>,
    state: &mut LeaderState<L::App>,
) {
    connection.stay(&shared.worker);
    if !shared.register(key, &mut connection) {
        state.connections.remove(key);
        return;
    }
    let due_ms = connection.due_ms();
    state.connections.check_in(key, connection, due_ms);
    // Its input is here already.
    state.connections.note_event(key);
}
