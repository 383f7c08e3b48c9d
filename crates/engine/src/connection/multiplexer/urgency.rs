//! The order in which the streams of a connection continue: the most urgent ones come first. Of streams with the same urgency,
//! non-incremental ones are sent one by one, in the order of their requests. Behind them, incremental ones share the room (RFC
//! 9218 section 10).
//!
//! It does not know about the connection table; the caller orders the keys in its queue. Workers run it.

use super::Multiplexer;
use crate::scheduling::connections::Key;

/// A stream's rank on its connection: urgency, whether it is incremental, its position among equals, and its number.
pub type Rank = (u8, bool, u64, u32);

/// A stream that has ended has nothing to send.
const LAST: Rank = (u8::MAX, true, u64::MAX, u32::MAX);

/// The ranks of a connection's streams, by the keys of their connections.
pub struct Ranks(Vec<(u64, Rank)>);

impl Ranks {
    pub fn among(multiplexer: &Multiplexer) -> Ranks {
        let rank_of = |number: u32, sent_bytes: u64| {
            let priority = multiplexer.session.priority(number);
            let turn = if priority.incremental { sent_bytes } else { u64::from(number) };
            (priority.urgency, priority.incremental, turn, number)
        };
        let named = multiplexer.streams.entries().filter_map(|line| Some((line.key?.0, rank_of(line.number, line.sent_bytes))));
        let mut ranks: Vec<(u64, Rank)> = named.collect();
        ranks.sort_unstable_by_key(|(key, _)| *key);
        Ranks(ranks)
    }

    pub fn of(&self, stream: Key) -> Rank {
        self.0.binary_search_by_key(&stream.0, |(key, _)| *key).map_or(LAST, |place| self.0[place].1)
    }
}
