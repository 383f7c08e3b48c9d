//! A connection that moves to another worker: whether it can move, the state that moves with it, and its start in the new worker.
//! It does not know about the queue. Workers run it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use bolide_contract::settings::Protocol;
use bolide_scoreboard::connection_queue::MovedConnection;
use bolide_scoreboard::session_pair::{Moves, RelayedHttp, SessionMove};

use super::beginning::{bare, read_times, session_of};
use super::{Connection, ConnectionStage, Link};
use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::worker::Worker;
use crate::forks;
use crate::sockets::client::Client;
use crate::sockets::listener::{Peer, PeerOrigin};
use crate::sockets::transport::Transport;

/// The listener of a connection that came from another worker, as this worker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// It came through this one.
    Through(usize),
    /// It came through one that is gone, or speaks another protocol now: this one is the most similar. The next answer is the
    /// last.
    Formerly(usize),
}

/// Returns the state that another worker needs to continue with the connection, if it may move.
pub fn to_move<A: App>(connection: &Connection<A>, worker: &Worker, has_input: bool, now_ms: u64) -> Option<MovedConnection> {
    if !connection.may_move() {
        return None;
    }
    state_of(connection, worker, has_input, now_ms)
}

/// Returns the state that the worker which has the session of its next request needs, if it may move there. Its input, which was
/// read, goes with it.
pub fn to_move_with_input<A: App>(connection: &Connection<A>, worker: &Worker, now_ms: u64) -> Option<SessionMove> {
    let moves = connection.travel().moves.next(now_ms)?;
    let connection_state = state_of(connection, worker, true, now_ms)?;
    let arrived_us = connection.transport.read_times.as_ref().map_or(0, |times| times.begun_us());
    Some(SessionMove { connection: connection_state, moves, arrived_us, relay: None })
}

/// Returns the state that the worker needs to which a request of the connection is relayed. Its client speaks `http`.
pub fn to_relay<A: App>(
    connection: &Connection<A>,
    http: RelayedHttp,
    has_served: bool,
    context: &Context<'_, A>,
) -> Option<SessionMove> {
    let state = state_of(connection, context.worker, true, context.thread.clock.now_ms)?;
    let arrived_us = connection.transport.read_times.as_ref().map_or(0, |times| times.begun_us());
    let connection_state = MovedConnection { has_served, proxy_header_was_read: true, is_shared: false, ..state };
    Some(SessionMove { connection: connection_state, moves: Moves::default(), arrived_us, relay: Some(http) })
}

/// The state of a connection that can't be read from its socket.
fn state_of<A: App>(connection: &Connection<A>, worker: &Worker, has_input: bool, now_ms: u64) -> Option<MovedConnection> {
    let listener = worker.listeners.get(connection.listener)?;
    let peer = connection.client.connection_peer();
    let client = match peer.origin {
        PeerOrigin::Address(address) => Some(SocketAddr::new(address, peer.port.parse().ok()?)),
        PeerOrigin::Unix => None,
        PeerOrigin::Unknown => return None,
    };
    Some(MovedConnection {
        listener: listener.inode,
        protocol: listener.protocol,
        has_served: connection.has_served,
        has_input,
        proxy_header_was_read: listener.has_proxy_header && connection.stage == ConnectionStage::Serves,
        is_shared: connection.is_shared || forks::has_forked(),
        client: if peer.front_tls.is_some() { return None } else { client },
        deadline_ms: deadline_elsewhere_ms(connection, worker, now_ms),
    })
}

/// Returns until when the other worker keeps it. A draining worker has given it less time than others do.
fn deadline_elsewhere_ms<A: App>(connection: &Connection<A>, worker: &Worker, now_ms: u64) -> u64 {
    match (worker.is_draining(), connection.has_served) {
        (false, _) => connection.deadline_ms,
        (true, true) => now_ms + worker.settings.limits.keepalive_ms,
        (true, false) => now_ms + connection.timeout_ms(worker),
    }
}

/// Creates a connection that another worker had before.
pub fn arrive<A: App>(socket: OwnedFd, moved: &MovedConnection, arrived: Arrived, worker: &Worker, now_ms: u64) -> Connection<A> {
    let (Arrived::Through(number) | Arrived::Formerly(number)) = arrived;
    let peer = Peer::moved(moved.client);
    let listening = worker.listeners.get(number);
    let has_fields = moved.protocol == Protocol::Http || moved.proxy_header_was_read;
    let client = Client::new(peer, has_fields, &worker.clients);
    let session = session_of(Some(moved.protocol), worker);
    let mut transport = Transport::new(socket);
    transport.read_times = read_times(worker, number, moved.has_served);
    let mut connection = bare(transport, session, client, number);
    connection.is_last = matches!(arrived, Arrived::Formerly(_));
    connection.has_served = moved.has_served;
    connection.is_shared = moved.is_shared;
    let speaks_http2 = listening.is_some_and(|listening| listening.speaks_http2());
    connection.link = Link::Socket { may_be_http2: !moved.has_served && !connection.is_last && speaks_http2 };
    if listening.is_some_and(|listening| listening.has_proxy_header) && !moved.proxy_header_was_read && !connection.is_last {
        connection.stage = ConnectionStage::AwaitsProxyHeader;
    }
    // The time that it has waited for a worker does not count against its client.
    connection.deadline_ms = match moved.has_input {
        true => now_ms + listening.map_or(0, |listening| listening.timeout_ms),
        false => moved.deadline_ms,
    };
    connection
}
