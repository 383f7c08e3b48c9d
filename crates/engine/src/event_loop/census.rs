//! The count of connections by state and protocol, and of their waits to be accepted, for scrapers (`metrics`, `stats-http`).
//!
//! The leader walks its table at most once a second, when it has had something to do. Counters that each request moves would cost
//! each request several stores; a walk costs some ten nanoseconds a connection and second, and nothing where no scraper may come.
//! A worker that has become calm wakes once more to count, so that the last numbers are true however long it sleeps then.

use std::os::fd::{AsFd, OwnedFd};

use bolide_scoreboard::census::{ConnectionKind, ConnectionState, Counted};

use crate::app::Language;
use crate::connection::{Connection, census};
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::sockets::socket;

/// Counts the connections if it is time. The leader calls it in each turn.
pub(crate) fn take_if_due<L: Language>(shared: &Shared<L>, state: &mut LeaderState<L::App>, now_ms: u64) {
    if shared.worker.has_scraper && state.housekeeping.census.is_due(now_ms) {
        count(shared, &mut state.connections, now_ms);
    }
}

#[cold]
#[inline(never)]
fn count<L: Language>(shared: &Shared<L>, connections: &mut ConnectionTable<Connection<L::App>>, now_ms: u64) {
    let mut counted = Counted::at(now_ms);
    connections.for_each_socket(|connection, kind| {
        // One that is away is inside a call, or about to be: its kind is that of the count before.
        let state = connection.map_or(ConnectionState::Request, |connection| {
            *kind = census::kind(connection, &shared.worker).number();
            census::state(connection)
        });
        counted.add(ConnectionKind::of_number(*kind), state);
    });
    // Whichever thread leads, it writes those of the first thread, under the lock of the state.
    if let Some(meters) = shared.scoreboard.meters(shared.row_number).first() {
        meters.census.publish(&counted);
    }
}

/// Counts how long an accepted connection has waited in the accept queue: one system call for each.
pub(crate) fn note_wait<L: Language>(shared: &Shared<L>, listener: usize, socket: &OwnedFd) {
    if shared.worker.has_scraper
        && shared.worker.is_tcp(listener)
        && let Some(meters) = shared.scoreboard.meters(shared.row_number).first()
        && let Some(waited_ms) = socket::waited_ms(socket.as_fd())
    {
        meters.accept_waits.note(u64::from(waited_ms) * 1000);
    }
}

/// A new connection may be inside a call until the worker counts again, or ends: it is counted immediately, with its kind.
pub(crate) fn note_new<L: Language>(shared: &Shared<L>, key: Key, connections: &mut ConnectionTable<Connection<L::App>>) {
    if shared.worker.has_scraper
        && let Some(kind) = connections.note_kind(key, |connection| census::kind(connection, &shared.worker).number())
        && let Some(meters) = shared.scoreboard.meters(shared.row_number).first()
    {
        meters.census.add(ConnectionKind::of_number(kind), ConnectionState::New);
    }
}
