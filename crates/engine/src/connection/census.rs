//! What a connection is in the count of connections (`metrics`): its kind and its state. Workers run it, between requests.

use bolide_protocol::session::Session;
use bolide_scoreboard::census::{ConnectionKind, ConnectionProtocol, ConnectionState};

use super::{Connection, ConnectionStage, Link};
use crate::app::App;
use crate::exchange::ExchangeState;
use crate::exchange::worker::Worker;

pub fn kind<A: App>(connection: &Connection<A>, worker: &Worker) -> ConnectionKind {
    let protocol = match (&connection.link, &connection.session) {
        (Link::Multiplexed(_), _) => ConnectionProtocol::Http2,
        _ if connection.exchange.is_websocket() => ConnectionProtocol::WebSocket,
        (_, Session::Http2Stream(_)) => ConnectionProtocol::Http2,
        (_, Session::Http1(_)) => ConnectionProtocol::Http1,
        (_, Session::Uwsgi(_)) => ConnectionProtocol::Uwsgi,
        (_, Session::Scgi(_)) => ConnectionProtocol::Scgi,
        (_, Session::FastCgi(_)) => ConnectionProtocol::FastCgi,
    };
    ConnectionKind::new(protocol, worker.tls(connection.listener).is_some())
}

pub fn state<A: App>(connection: &Connection<A>) -> ConnectionState {
    if matches!(connection.stage, ConnectionStage::Lingers { .. }) {
        return ConnectionState::Closing;
    }
    match &connection.exchange.state {
        ExchangeState::Suspended(_) => ConnectionState::Writing,
        ExchangeState::Streaming(_) | ExchangeState::Relayed(_) if connection.has_unsent() => ConnectionState::Writing,
        ExchangeState::Streaming(_) | ExchangeState::Relayed(_) => ConnectionState::Request,
        ExchangeState::Waiting(_) => ConnectionState::Request,
        ExchangeState::Collecting(_) | ExchangeState::Draining { .. } => ConnectionState::Reading,
        ExchangeState::Idle if matches!(connection.link, Link::Multiplexed(_)) => match connection.is_idle() {
            true if connection.has_served => ConnectionState::Idle,
            true => ConnectionState::New,
            false => ConnectionState::Request,
        },
        ExchangeState::Idle if connection.has_part_of_request() => ConnectionState::Reading,
        ExchangeState::Idle if connection.has_served => ConnectionState::Idle,
        ExchangeState::Idle => ConnectionState::New,
    }
}
