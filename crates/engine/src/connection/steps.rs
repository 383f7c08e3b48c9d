//! The next steps of a connection, after a turn and after a request. It knows neither turns nor requests. Workers run it.

use bolide_scoreboard::session_owners::Owner;

use crate::connection::multiplexer::Beginning;
use crate::exchange::relay::Relay;

/// The action that a connection asks for after a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum NextAction {
    /// It waits for events of its socket.
    Wait,
    /// As `Wait`, but there is more to send or to serve: its next turn comes after those of others.
    Again,
    /// It waits for the end of the worker's pause: the next request is not begun, and its bytes stay where they are.
    Rest,
    /// It has read a request of a session that another worker has, and has not begun to serve it.
    Move(Owner),
    Close,
}

/// Where a request is served.
pub(super) enum ServingPlace {
    Here,
    /// At this worker, to which the connection moves with it.
    Moved(Owner),
    /// At another worker, over this relay.
    Relayed(Box<Relay>),
}

/// The result of serving the bytes at hand.
pub(super) enum ServeStep {
    /// More bytes are needed.
    More,
    /// It has had its turn; there is more to serve.
    Yield,
    /// A request was answered; the next may follow.
    Next,
    Blocked,
    /// The exchange's state decides what comes next: the application's turn, or the rest of an unwanted body.
    Parked,
    /// It speaks HTTP/2 from here on, with a first request if it was upgraded.
    Http2(Box<Beginning>),
    /// The request belongs to another worker. Its bytes are not used.
    Move(Owner),
    Close,
    Linger,
}
