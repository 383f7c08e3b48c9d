//! How a connection begins: with the session of its listener's protocol, within TLS or behind a PROXY header where that is asked for.
//! Workers run it.

use std::os::fd::OwnedFd;

use bolide_contract::settings::Protocol;
use bolide_protocol::fastcgi::FastCgiLimits;
use bolide_protocol::session::Session;

use super::{Connection, ConnectionStage, Link};
use crate::app::App;
use crate::exchange::Exchange;
use crate::exchange::worker::Worker;
use crate::scheduling::connections::Key;
use crate::sockets::client::Client;
use crate::sockets::listener::{ListeningSocket, Peer};
use crate::sockets::transport::Transport;

/// Connections that a front server is told it may open, where its protocol lets it ask: as many as a process has descriptors for, by
/// default (the soft limit of RLIMIT_NOFILE).
const CONNECTIONS_TOLD: u32 = 1024;

impl<A: App> Connection<A> {
    pub fn new(socket: OwnedFd, peer: Peer, listener: usize, worker: &Worker, now_ms: u64) -> Connection<A> {
        let listening = worker.listeners.get(listener);
        let session = session_of(listening.map(|listening| listening.protocol), worker);
        let mut transport = Transport::new(socket);
        if let Some(tls) = worker.tls(listener) {
            transport.begin_tls(tls, &[]);
        }
        let has_fields = listening.is_none_or(|listening| listening.protocol == Protocol::Http);
        let client = Client::new(peer, has_fields, &worker.clients);
        let mut connection = Connection::with(transport, session, client, listener);
        if listening.is_some_and(|listening| listening.has_proxy_header) {
            connection.stage = ConnectionStage::AwaitsProxyHeader;
        }
        connection.link = Link::Socket { may_be_http2: listening.is_some_and(ListeningSocket::speaks_http2) };
        connection.deadline_ms = now_ms + listening.map_or(0, |listening| listening.timeout_ms);
        connection
    }

    pub(super) fn with(transport: Transport, session: Session, client: Client, listener: usize) -> Connection<A> {
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
            has_served: false,
            is_last: false,
            is_shared: false,
            key: Key::CONTROL,
            deadline_ms: 0,
            is_overdue: false,
            is_resting: false,
            is_polled: false,
            peer_has_ended: false,
        }
    }
}

/// The session of a connection at a listener of this protocol.
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
