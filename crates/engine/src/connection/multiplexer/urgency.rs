//! Which streams of a connection go on first: the most urgent ones. Of those that are as urgent each is sent as a whole, in the order of the
//! requests, and behind them those of which parts are of use share the room (RFC 9218 section 10).
//!
//! It knows no table of connections; who has it asks for the order of the names in its queue.

use super::Multiplexer;
use crate::scheduling::connections::Key;

/// A stream's place among those of its connection: urgency, whether parts are of use, whose turn it is then, and its number.
pub type Rank = (u8, bool, u64, u32);

/// A stream that has ended has nothing to send.
const LAST: Rank = (u8::MAX, true, u64::MAX, u32::MAX);

/// The places of a connection's streams, by the names of their own connections.
pub struct Ranks(Vec<(u64, Rank)>);

impl Ranks {
    pub fn among(multiplexer: &Multiplexer) -> Ranks {
        let rank_of = |number: u32, sent_bytes: u64| {
            let priority = multiplexer.session.priority(number);
            let turn = if priority.incremental { sent_bytes } else { u64::from(number) };
            (priority.urgency, priority.incremental, turn, number)
        };
        let named = multiplexer.lines.iter().filter_map(|line| Some((line.key?.0, rank_of(line.number, line.sent_bytes))));
        let mut ranks: Vec<(u64, Rank)> = named.collect();
        ranks.sort_unstable_by_key(|(key, _)| *key);
        Ranks(ranks)
    }

    pub fn of(&self, stream: Key) -> Rank {
        self.0.binary_search_by_key(&stream.0, |(key, _)| *key).map_or(LAST, |place| self.0[place].1)
    }
}
