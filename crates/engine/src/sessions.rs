//! Which worker has the session of a request (`sticky`), and how often a connection moves for that. It knows clients, and neither
//! connections nor answers. Workers run it.

pub mod affinity;
pub mod relayed_head;
pub mod session_keys;

use bolide_scoreboard::session_pair::{Moves, RelayedHttp};

/// The moves of a connection.
#[derive(Debug, Default, Clone, Copy)]
pub struct Travel {
    pub moves: Moves,
    pub next: NextRequest,
    /// It is the end of a relay, whose client speaks this.
    pub relay: Option<RelayedHttp>,
}

/// What happens to the next request of a connection, whichever worker has its session.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum NextRequest {
    /// It may move.
    #[default]
    Free,
    /// It has moved here, so it is served here: no request moves twice.
    HasArrived,
    /// It could not move.
    Stays,
}
