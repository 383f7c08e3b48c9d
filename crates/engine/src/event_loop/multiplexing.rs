//! Streams of HTTP/2 in the connection table. They are added when their requests begin, and wake their connection when they have
//! output for it.
//!
//! It does not know about frames or the application. The threads that attend to connections run it with the table locked.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;

use crate::app::{App, Language};
use crate::app_thread::AppThread;
use crate::connection::beginning::of_stream;
use crate::connection::multiplexer::{Call, Ranks, SharedMultiplexer};
use crate::connection::{Connection, Link, NextAction};
use crate::event_loop::pausing::check_in;
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::scheduling::connections::{ConnectionTable, Key};

/// After a turn of an HTTP/2 connection: its new streams are added to the table, and streams that may continue are queued.
pub(crate) fn insert_streams<L: Language>(
    shared: &Shared<L>,
    connection: &Connection<L::App>,
    streams: &SharedMultiplexer,
    connections: &mut ConnectionTable<Connection<L::App>>,
) {
    let arrived = streams.lock().take_arrived();
    let has_arrived = !arrived.is_empty();
    for arrival in arrived {
        let number = arrival.number;
        if let Some(stream) = of_stream(connection, arrival, &shared.worker, now_ms()) {
            let due_ms = stream.due_ms();
            let key = connections.insert_stream(connection.key, Box::new(stream), due_ms);
            streams.lock().name(number, key);
        }
    }
    let mut multiplexer = streams.lock();
    let woken = multiplexer.take_woken();
    if !woken.is_empty() {
        for key in woken {
            connections.note_event(key);
        }
        // Streams that had events before, and have not had their turn yet, keep their rank.
        let mut ranks = None;
        connections.order_streams(connection.key, |key| ranks.get_or_insert_with(|| Ranks::among(&multiplexer)).of(key));
    }
    drop(multiplexer);
    if has_arrived {
        shared.worker.row.connections.store(connections.population().all() as u32, Relaxed);
    }
}

/// After a turn of a stream.
pub(crate) fn place_stream_back<L: Language>(
    shared: &Shared<L>,
    key: Key,
    mut stream: Box<Connection<L::App>>,
    (streams, number): (Arc<SharedMultiplexer>, u32),
    after: NextAction,
    state: &mut LeaderState<L::App>,
    app: &mut AppThread<L::App>,
) {
    let LeaderState { connections, housekeeping, .. } = state;
    let again = (after == NextAction::Again).then_some(number);
    if after == NextAction::Close {
        if !app.is_held() {
            app.discard(stream.leftover());
        }
        connections.remove(key);
        shared.worker.row.connections.store(connections.population().all() as u32, Relaxed);
        drop(stream);
        limit_after_last_stream(shared, &streams, connections);
    } else {
        shared.limit_time(&mut stream, housekeeping);
        check_in(shared, key, stream, after == NextAction::Rest, connections);
    }
    call_connection(shared, &streams, again, connections);
}

/// A stream has ended without a turn of its connection. The end of the last one starts the client's time for its next request.
fn limit_after_last_stream<L: Language>(
    shared: &Shared<L>,
    streams: &SharedMultiplexer,
    connections: &mut ConnectionTable<Connection<L::App>>,
) {
    let multiplexer = streams.lock();
    let (key, has_streams) = (multiplexer.key, multiplexer.has_streams());
    drop(multiplexer);
    if has_streams {
        return;
    }
    let is_here = connections.change(key, |connection| {
        connection.note_last_stream(&shared.worker);
        connection.due_ms()
    });
    if !is_here {
        // It may have checked its streams in its present turn before this one ended.
        connections.note_event(key);
    }
}

/// After a turn of a stream, or a visit of its application: queues its connection if the stream has output for it. `again` is the
/// number of a stream that wants another turn, behind other connections.
pub(crate) fn call_connection<L: Language>(
    shared: &Shared<L>,
    streams: &SharedMultiplexer,
    again: Option<u32>,
    connections: &mut ConnectionTable<Connection<L::App>>,
) {
    let mut multiplexer = streams.lock();
    if let Some(number) = again {
        multiplexer.wake_later(number);
    }
    if !multiplexer.wants_turn() {
        return;
    }
    let key = multiplexer.key;
    let is_told = match multiplexer.call(again.is_some()) {
        Call::Made => true,
        Call::Next => false,
        Call::Last => shared.rearm(key, multiplexer.transport.socket()),
    };
    drop(multiplexer);
    if !is_told {
        connections.note_event(key);
    }
}

/// The worker leaves: HTTP/2 connections get a turn to tell their clients.
pub(crate) fn wake_multiplexed<A: App>(connections: &mut ConnectionTable<Connection<A>>) {
    let keys: Vec<Key> = connections.keys(|connection| matches!(connection.link(), Link::Multiplexed(_)));
    for key in keys {
        connections.note_event(key);
    }
}
