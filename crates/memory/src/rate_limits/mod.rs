//! Rate limits in memory that all workers share (`rate-limit`, the action `ratelimit`): a table of cells for each limit, with a
//! secret of its own for the hashes of keys, so that no client can choose keys that share cells. It does not know requests, nor
//! what is done with one that is refused. Workers count, and the master reads how often a limit has acted.

pub mod cells;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::boot::MemoryKind;
use bolide_scoreboard::keyed_hash::keyed_hash;

use crate::mapping::{Identity, Mapping, fingerprint};
use crate::rate::{Counted, Rate};
use cells::{Cell, Cells};

/// The version of the layout.
const VERSION: u32 = 1;

/// The keys that a limit counts at a time, 16 bytes each.
pub const CELLS: usize = 65_536;

/// Seconds between two lines in the log about the same limit, by all workers together.
const SAY_EVERY_S: u64 = 60;

const MICROSECONDS: u64 = 1_000_000;

#[repr(C)]
struct LimitTable {
    secret: [AtomicU64; 2],
    refused: AtomicU64,
    uncounted: AtomicU64,
    /// The second of the last line about it, by the monotonic clock, plus one; and what it had counted then.
    said_s: AtomicU64,
    said: [AtomicU64; 2],
    /// Fills a cache line, so that what refusals write is not beside a cell.
    _unused: AtomicU64,
    cells: [Cell; CELLS],
}

/// A limit of the instance.
#[derive(Clone, Copy)]
pub struct RateLimit<'m> {
    table: &'m LimitTable,
    secret: [u64; 2],
}

/// How often a limit has acted since the instance has begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acts {
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that have passed without being counted.
    pub uncounted: u64,
}

/// What the memory of a limit holds. Its rate is not part of it: a limit with another rate goes on with its counts.
pub fn identity() -> Identity {
    let shape = fingerprint(&[CELLS as u64]);
    Identity { kind: MemoryKind::RateLimit, version: VERSION, shape, bytes: size_of::<LimitTable>() }
}

/// Writes the secret.
pub fn begin(mapping: &Mapping, secret: [u64; 2]) {
    let table = table(mapping);
    for (place, word) in table.secret.iter().zip(secret) {
        place.store(word, Relaxed);
    }
}

fn table(mapping: &Mapping) -> &LimitTable {
    // SAFETY: the memory has the size of a table (`identity`), is zeroed or was written as one (atomics, for which any bits are
    // valid), is aligned for it, and stays mapped as long as the mapping lives.
    unsafe { mapping.body().cast::<LimitTable>().as_ref() }
}

impl std::fmt::Debug for RateLimit<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of messages.
        formatter.debug_struct("RateLimit").field("acts", &self.acts()).finish_non_exhaustive()
    }
}

impl<'m> RateLimit<'m> {
    pub fn of(mapping: &'m Mapping) -> RateLimit<'m> {
        let table = table(mapping);
        RateLimit { table, secret: table.secret.each_ref().map(|word| word.load(Relaxed)) }
    }

    /// Counts a request for a key, by the system's monotonic clock in microseconds.
    pub fn count(&self, key: &[u8], rate: Rate, now_us: u64) -> Counted {
        let counted = Cells(&self.table.cells).count(keyed_hash(self.secret, key), rate, now_us);
        match counted {
            Counted::Passes { .. } => {}
            Counted::Refused { .. } => _ = self.table.refused.fetch_add(1, Relaxed),
            Counted::Uncounted => _ = self.table.uncounted.fetch_add(1, Relaxed),
        }
        counted
    }

    pub fn acts(&self) -> Acts {
        Acts { refused: self.table.refused.load(Relaxed), uncounted: self.table.uncounted.load(Relaxed) }
    }

    /// After an act: whether this process writes a line about the limit now, and how often the limit has acted since the last
    /// one, of whatever process. Processes that ask at the same moment write one line.
    pub fn acts_to_say(&self, now_us: u64) -> Option<Acts> {
        let now_s = now_us / MICROSECONDS + 1;
        let said_s = self.table.said_s.load(Relaxed);
        let is_due = said_s == 0 || now_s.saturating_sub(said_s) >= SAY_EVERY_S;
        if !is_due || self.table.said_s.compare_exchange(said_s, now_s, Relaxed, Relaxed).is_err() {
            return None;
        }
        let acts = self.acts();
        let since = |place: &AtomicU64, count: u64| count.saturating_sub(place.swap(count, Relaxed));
        let [refused, uncounted] = &self.table.said;
        Some(Acts { refused: since(refused, acts.refused), uncounted: since(uncounted, acts.uncounted) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { interval_us: MICROSECONDS, burst: 1 };

    #[test]
    fn processes_share_a_limit_and_its_secret_and_one_of_them_says_what_it_does() {
        let identity = identity();
        let (mapping, file) = Mapping::create("login", &identity).expect("made");
        begin(&mapping, [1, 2]);
        mapping.finish(&identity);
        let there = Mapping::attach(&file, &identity).expect("mapped");
        let (here, there) = (RateLimit::of(&mapping), RateLimit::of(&there));
        let now_us = 50 * MICROSECONDS;
        assert_eq!(here.count(b"10.0.0.1", RATE, now_us), Counted::Passes { remaining: 0, full_us: MICROSECONDS });
        let refused = Counted::Refused { retry_us: MICROSECONDS, full_us: MICROSECONDS };
        assert_eq!(there.count(b"10.0.0.1", RATE, now_us), refused);
        assert_eq!(there.acts_to_say(now_us), Some(Acts { refused: 1, uncounted: 0 }));
        assert_eq!(here.count(b"10.0.0.1", RATE, now_us), refused);
        let soon_us = now_us + (SAY_EVERY_S - 1) * MICROSECONDS;
        assert_eq!((here.acts_to_say(now_us), there.acts_to_say(soon_us)), (None, None));
        assert_eq!(here.acts_to_say(soon_us + MICROSECONDS), Some(Acts { refused: 1, uncounted: 0 }));
        assert_eq!(there.acts(), Acts { refused: 2, uncounted: 0 });
    }
}
