//! The start of a connection: with the session of its listener's protocol, within TLS or behind a PROXY header if the listener
//! has them. It does not know about the poll. Workers run it.

use std::os::fd::OwnedFd;

use bolide_contract::settings::Protocol;
use bolide_protocol::fastcgi::FastCgiLimits;
use bolide_protocol::session::Session;

use super::{Connection, ConnectionStage, Link};
use crate::app::App;
use crate::connection::multiplexer::{Arrival, StreamLink};
use crate::exchange::Exchange;
use crate::exchange::worker::Worker;
use crate::scheduling::connections::Key;
use crate::sessions::Travel;
use crate::sockets::client::Client;
use crate::sockets::listener::{ListeningSocket, Peer};
use crate::sockets::transport::{ReadTimes, Transport};

/// The number of connections that a reverse proxy is told it may open, if its protocol lets it ask. It is the default limit of a
/// process' descriptors (the soft limit of RLIMIT_NOFILE).
const CONNECTIONS_TOLD: u32 = 1024;

/// Creates a connection that was accepted.
pub fn accepted<A: App>(socket: OwnedFd, peer: Peer, listener: usize, worker: &Worker, now_ms: u64) -> Connection<A> {
    let listening = worker.listeners.get(listener);
    let session = session_of(listening.map(|listening| listening.protocol), worker);
    let mut transport = Transport::new(socket);
    transport.read_times = read_times(worker, listener, false);
    if let Some(tls) = worker.tls(listener) {
        transport.begin_tls(tls, &[]);
    }
    let has_fields = listening.is_none_or(|listening| listening.protocol == Protocol::Http);
    let client = Client::new(peer, has_fields, &worker.clients);
    let mut connection = bare(transport, session, client, listener);
    if listening.is_some_and(|listening| listening.has_proxy_header) {
        connection.stage = ConnectionStage::AwaitsProxyHeader;
    }
    connection.link = Link::Socket { may_be_http2: listening.is_some_and(ListeningSocket::speaks_http2) };
    connection.deadline_ms = now_ms + listening.map_or(0, |listening| listening.timeout_ms);
    connection
}

/// Creates the connection of one stream. `connection` is the one that has the socket.
pub fn of_stream<A: App>(connection: &Connection<A>, arrival: Arrival, worker: &Worker, now_ms: u64) -> Option<Connection<A>> {
    let Link::Multiplexed(multiplexer) = &connection.link else { return None };
    let Arrival { number, request, start, .. } = arrival;
    let mut transport = Transport::of_stream(&connection.transport, Box::new(StreamLink::new(multiplexer.clone(), number)));
    transport.read_times = start.map(|start| Box::new(ReadTimes::of_stream(start)));
    let session = match request {
        Ok((head, parts)) => Session::http2_stream(head, parts),
        Err(fault) => Session::refused_http2_stream(fault),
    };
    let timeout_ms = connection.timeout_ms(worker);
    let mut stream = bare(transport, session, connection.client.of_stream(), connection.listener);
    stream.note_arrival(now_ms.saturating_sub(connection.kernel_wait_ms(worker, now_ms)));
    stream.deadline_ms = now_ms + timeout_ms;
    stream.link = Link::Stream { multiplexer: multiplexer.clone(), number };
    // Its connection is registered with the poll.
    stream.is_polled = true;
    Some(stream)
}

pub(super) fn bare<A: App>(transport: Transport, session: Session, client: Client, listener: usize) -> Connection<A> {
    Connection {
        transport,
        session,
        exchange: Exchange::new(),
        memo: None,
        client,
        listener,
        link: Link::Socket { may_be_http2: false },
        input: Vec::new(),
        stage: ConnectionStage::Serves,
        travel: Travel::default(),
        has_served: false,
        is_last: false,
        is_shared: false,
        key: Key::CONTROL,
        arrived_ms: 0,
        deadline_ms: 0,
        is_overdue: false,
        is_resting: false,
        is_polled: false,
        peer_has_ended: false,
    }
}

/// Returns the times of a connection's reads, if the settings need them.
pub(super) fn read_times(worker: &Worker, listener: usize, has_served: bool) -> Option<Box<ReadTimes>> {
    let may_have_waited = || !has_served && worker.is_tcp(listener);
    worker.settings.tracing.gives_start.then(|| Box::new(ReadTimes::of_connection(may_have_waited())))
}

/// Returns the session for a listener's protocol.
pub(super) fn session_of(protocol: Option<Protocol>, worker: &Worker) -> Session {
    let limits = FastCgiLimits { parameter_bytes: worker.head_limits.head_bytes, connections: CONNECTIONS_TOLD };
    match protocol {
        Some(Protocol::Http) | None => Session::http1(),
        Some(Protocol::Uwsgi) => Session::uwsgi(false),
        Some(Protocol::PersistentUwsgi) => Session::uwsgi(true),
        Some(Protocol::Scgi) => Session::scgi(false),
        Some(Protocol::ScgiNph) => Session::scgi(true),
        Some(Protocol::FastCgi) => Session::fastcgi(limits, false),
        Some(Protocol::FastCgiNph) => Session::fastcgi(limits, true),
    }
}
