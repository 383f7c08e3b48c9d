//! The cells of a rate limit: an open-addressed table in shared memory in which every worker counts without a lock. A cell has a
//! key and its theoretical arrival time (the generic cell rate algorithm, ITU-T I.371): the moment at which the key's bucket is
//! full again. One word is all that a request changes.
//!
//! A cell is two words. The state has the arrival time, and a round that changes with the cell's key. So a process that counts
//! for a key whose cell another process has given to a new key in this very moment fails, and looks again. A process claims a
//! cell by its state before it writes the key. The claim has a part of the key's hash, so that others who count for the same key
//! wait for it, or finish its work. A process that dies in between leaves a claim that costs one cell for [`CLAIM_S`].
//!
//! It knows neither memory files nor what a key is. `models` runs this file under every order in which workers can interleave, so
//! its atomics are those of `crate::atomics`. Workers run it.

use crate::atomics::{AtomicU64, Ordering, fence, spin_loop};
use crate::rate::{Counted, Rate};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Cells that may have a key.
pub const PROBES: usize = 8;

/// Attempts to count. An attempt fails only if another worker has counted in the same cell. A request that has failed as often as
/// this is one of a flood, and is refused.
const MAX_ATTEMPTS: usize = 1000;

/// Attempts for which a process waits for another one that is about to write the same key: an attempt takes some nanoseconds.
const CLAIM_ATTEMPTS: usize = 64;

/// Seconds after which a claim is one of a process that has died.
const CLAIM_S: u64 = 2;

const MICROSECONDS: u64 = 1_000_000;

/// A state is a round, a mark, and a value.
const VALUE_BITS: u32 = 50;
/// 35 years of microseconds since the system has started.
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const MARK_MASK: u64 = 0b11 << VALUE_BITS;
/// The value is the arrival time of the cell's key.
const COUNTS: u64 = 0;
/// A process is about to write the key. The value is a part of its hash, and the second of the claim.
const CLAIMED: u64 = 0b01 << VALUE_BITS;
/// The cell is free.
const EMPTY: u64 = 0b10 << VALUE_BITS;
const ROUND: u64 = 1 << (VALUE_BITS + 2);

const SECOND_BITS: u32 = 16;
const SECOND_MASK: u64 = (1 << SECOND_BITS) - 1;

/// A cell. Zeroed memory is one whose key has not been used for long.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Cell {
    state: AtomicU64,
    hash: AtomicU64,
}

/// The cells of a limit, whose number is a power of two, at least [`PROBES`].
#[derive(Debug, Clone, Copy)]
pub struct Cells<'a>(pub &'a [Cell]);

/// What a look at the cells of a key has found.
enum Found<'a> {
    /// The key has this cell, whose state is the second.
    Own(&'a Cell, u64),
    /// Another process is about to write the key.
    Claimed(&'a Cell, u64),
    /// The key needs a cell, and this is the cheapest one to take: it is free, or its key has the bucket that is full earliest.
    Replaceable(&'a Cell, u64),
    /// Every cell that the key may take belongs to a key that has reached its limit. Such a key keeps its cell, so that requests
    /// for many other keys do not free it.
    Full,
}

impl Cells<'_> {
    /// Counts a request for a key, by the system's monotonic clock in microseconds.
    pub fn count(&self, hash: u64, rate: Rate, now_us: u64) -> Counted {
        let mut waited = 0;
        for _ in 0..MAX_ATTEMPTS {
            match self.find(hash, rate, now_us) {
                Found::Own(cell, state) => {
                    let arrival_us = (state & VALUE_MASK).max(now_us);
                    let counted = counted_at(rate, arrival_us - now_us);
                    if let Counted::Refused { .. } = counted {
                        return counted;
                    }
                    let next = with_value(state, arrival_us + rate.interval_us);
                    if cell.state.compare_exchange(state, next, AcqRel, Relaxed).is_ok() {
                        return counted;
                    }
                }
                Found::Claimed(cell, state) if waited == CLAIM_ATTEMPTS => {
                    // It was interrupted, or has died, so this process does its work. The other one finds that out.
                    waited = 0;
                    if let Some(counted) = self.write(cell, state, hash, rate, now_us) {
                        return counted;
                    }
                }
                Found::Claimed(..) => {
                    waited += 1;
                    spin_loop();
                }
                Found::Replaceable(cell, state) => {
                    if let Some(counted) = self.write(cell, state, hash, rate, now_us) {
                        return counted;
                    }
                }
                Found::Full => return Counted::Uncounted,
            }
        }
        Counted::Refused { retry_us: rate.interval_us, full_us: tolerance_us(rate) + rate.interval_us }
    }

    /// How many cells are those of keys whose limit is reached.
    #[cfg(test)]
    fn reached(&self, rate: Rate, now_us: u64) -> usize {
        let is_reached = |cell: &&Cell| {
            let state = cell.state.load(Relaxed);
            state & MARK_MASK == COUNTS && (state & VALUE_MASK).saturating_sub(now_us) > tolerance_us(rate)
        };
        self.0.iter().filter(is_reached).count()
    }

    /// Looks at each cell once, so that two processes that meet a new key choose the same one: the second fails to take it.
    fn find(&self, hash: u64, rate: Rate, now_us: u64) -> Found<'_> {
        let mut cheapest: Option<(u64, &Cell, u64)> = None;
        for cell in self.window(hash) {
            let state = cell.state.load(Acquire);
            let worth = match state & MARK_MASK {
                COUNTS if cell.hash.load(Relaxed) == hash => return Found::Own(cell, state),
                COUNTS => (state & VALUE_MASK).saturating_sub(now_us),
                CLAIMED if state & VALUE_MASK & !SECOND_MASK == tag_of(hash) => return Found::Claimed(cell, state),
                CLAIMED if age_s(state, now_us) < CLAIM_S => continue,
                _ => 0,
            };
            if worth <= tolerance_us(rate) && cheapest.is_none_or(|(least, ..)| worth < least) {
                cheapest = Some((worth, cell, state));
            }
        }
        cheapest.map_or(Found::Full, |(_, cell, state)| Found::Replaceable(cell, state))
    }

    /// Gives a cell to a key, and counts its first request. `None`: another process was quicker.
    fn write(&self, cell: &Cell, state: u64, hash: u64, rate: Rate, now_us: u64) -> Option<Counted> {
        let before = cell.hash.load(Relaxed);
        let round = (state & !(MARK_MASK | VALUE_MASK)).wrapping_add(ROUND);
        let claim = round | CLAIMED | tag_of(hash) | second_of(now_us);
        cell.state.compare_exchange(state, claim, AcqRel, Relaxed).ok()?;
        // A process that was interrupted here, and whose claim another one has taken over, must not write its key later.
        cell.hash.compare_exchange(before, hash, Relaxed, Relaxed).ok();
        let counted = round | COUNTS | (now_us + rate.interval_us);
        cell.state.compare_exchange(claim, counted, Release, Relaxed).ok()?;
        self.join(hash, now_us);
        Some(counted_at(rate, 0))
    }

    /// Two processes may have given two cells to a key, because they saw others change at the same moment. The first cell counts
    /// from then on, with what the others have counted.
    fn join(&self, hash: u64, now_us: u64) {
        // Both have written their cells before either looks for the other's, so at least one of them sees both.
        fence(SeqCst);
        let is_its = |cell: &&Cell| cell.state.load(Acquire) & MARK_MASK == COUNTS && cell.hash.load(Relaxed) == hash;
        let mut cells = self.window(hash).filter(is_its);
        let Some(first) = cells.next() else { return };
        for other in cells {
            let state = other.state.load(Acquire);
            let round = (state & !(MARK_MASK | VALUE_MASK)).wrapping_add(ROUND);
            // A failure means that another process has counted there, or has joined the cells. The next one finds the first cell.
            if other.state.compare_exchange(state, round | EMPTY, AcqRel, Relaxed).is_ok() {
                add(first, hash, (state & VALUE_MASK).saturating_sub(now_us), now_us);
            }
        }
    }

    fn window(&self, hash: u64) -> impl Iterator<Item = &Cell> {
        let mask = self.0.len().wrapping_sub(1);
        let start = hash as usize;
        (0..PROBES).filter_map(move |probe| self.0.get(start.wrapping_add(probe) & mask))
    }
}

/// How far ahead of the clock an arrival time may be for a request that passes.
fn tolerance_us(rate: Rate) -> u64 {
    rate.interval_us.saturating_mul(rate.burst.saturating_sub(1))
}

/// What the limit says at this distance between the clock and the arrival time.
fn counted_at(rate: Rate, ahead_us: u64) -> Counted {
    match ahead_us.checked_sub(tolerance_us(rate) + 1) {
        None => {
            let remaining = (tolerance_us(rate) - ahead_us) / rate.interval_us.max(1);
            Counted::Passes { remaining, full_us: ahead_us + rate.interval_us }
        }
        Some(beyond_us) => Counted::Refused { retry_us: beyond_us + 1, full_us: ahead_us },
    }
}

fn with_value(state: u64, value: u64) -> u64 {
    state & !VALUE_MASK | value.min(VALUE_MASK)
}

/// The part of a hash in a claim. The lower bits of a hash choose its cells.
fn tag_of(hash: u64) -> u64 {
    hash >> (u64::BITS - VALUE_BITS) & !SECOND_MASK
}

fn second_of(now_us: u64) -> u64 {
    (now_us / MICROSECONDS) & SECOND_MASK
}

/// Seconds since a claim.
fn age_s(claim: u64, now_us: u64) -> u64 {
    (now_us / MICROSECONDS).wrapping_sub(claim) & SECOND_MASK
}

/// Adds what another cell of the same key has counted.
fn add(cell: &Cell, hash: u64, ahead_us: u64, now_us: u64) {
    for _ in 0..MAX_ATTEMPTS {
        let state = cell.state.load(Acquire);
        if state & MARK_MASK != COUNTS || cell.hash.load(Relaxed) != hash {
            return;
        }
        let next = with_value(state, (state & VALUE_MASK).max(now_us) + ahead_us);
        if cell.state.compare_exchange(state, next, AcqRel, Relaxed).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60 a minute.
    const RATE: Rate = Rate { interval_us: MICROSECONDS, burst: 10 };

    /// A moment, so that times before it exist.
    const NOW_US: u64 = 1_000 * MICROSECONDS;

    fn cells(count: usize) -> Vec<Cell> {
        (0..count).map(|_| Cell::default()).collect()
    }

    fn passes(counted: Counted) -> bool {
        matches!(counted, Counted::Passes { .. })
    }

    #[test]
    fn a_burst_passes_and_then_one_request_an_interval() {
        let cells = cells(64);
        let table = Cells(&cells);
        for left in (0..10).rev() {
            let full_us = (10 - left) * MICROSECONDS;
            assert_eq!(table.count(7, RATE, NOW_US), Counted::Passes { remaining: left, full_us });
        }
        let refused = Counted::Refused { retry_us: MICROSECONDS, full_us: 10 * MICROSECONDS };
        assert_eq!((table.count(7, RATE, NOW_US), table.count(7, RATE, NOW_US)), (refused, refused), "a refusal costs nothing");
        let soon = NOW_US + MICROSECONDS - 1;
        assert_eq!(table.count(7, RATE, soon), Counted::Refused { retry_us: 1, full_us: 9 * MICROSECONDS + 1 });
        assert!(passes(table.count(7, RATE, soon + 1)) && !passes(table.count(7, RATE, soon + 1)));
        let later = NOW_US + 100 * MICROSECONDS;
        let passed = (0..40).filter(|_| passes(table.count(7, RATE, later))).count();
        assert_eq!(passed, 10, "a pause is worth one burst, however long it is");
        assert!(passes(table.count(8, RATE, later)), "every key has its own burst");
    }

    #[test]
    fn a_burst_of_one_spaces_requests() {
        let cells = cells(PROBES);
        let rate = Rate { interval_us: 250, burst: 1 };
        let passed = (0..10_000).filter(|us| passes(Cells(&cells).count(1, rate, NOW_US + us))).count();
        assert_eq!(passed, 40);
    }

    #[test]
    fn a_full_table_gives_up_the_key_that_is_full_again_earliest_and_none_at_its_limit() {
        let cells = cells(PROBES);
        let table = Cells(&cells);
        for key in 0..PROBES as u64 {
            // The key 0 has reached its limit, and the key 5 has used least.
            let requests = if key == 0 { 10 } else { 2 + (key + 2) % PROBES as u64 };
            for _ in 0..requests.min(10) {
                assert!(passes(table.count(key, RATE, NOW_US)));
            }
        }
        assert!(passes(table.count(100, RATE, NOW_US)));
        assert!(!passes(table.count(0, RATE, NOW_US)));
        for flood in 1_000..3_000 {
            table.count(flood, RATE, NOW_US);
            assert!(!passes(table.count(0, RATE, NOW_US)), "the key 0 stays at its limit while {flood} others come");
        }
        let freed_us = NOW_US + MICROSECONDS;
        assert!(passes(table.count(0, RATE, freed_us)), "and is free again when its time has passed");
    }

    #[test]
    fn whoever_has_twice_as_many_keys_as_there_are_cells_frees_none_faster_than_by_waiting() {
        const CELLS: u64 = 1 << 16;
        let cells = cells(CELLS as usize);
        let table = Cells(&cells);
        let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let use_up = |key: u64| (0..10).all(|_| table.count(hash(key), RATE, NOW_US) != Counted::Uncounted);
        let counted: Vec<u64> = (0..2 * CELLS).filter(|key| use_up(*key)).collect();
        assert!(counted.len() as u64 > CELLS * 9 / 10, "{} keys are counted", counted.len());
        assert_eq!(table.reached(RATE, NOW_US), counted.len(), "each of them has reached its limit");
        assert!(counted.iter().all(|key| !passes(table.count(hash(*key), RATE, NOW_US))), "and not one is let through again");
        let new =
            (1 << 40..(1 << 40) + 1000).filter(|key| matches!(table.count(hash(*key), RATE, NOW_US), Counted::Refused { .. }));
        assert_eq!(new.count(), 0, "clients that are not in the table are not locked out");
    }

    #[test]
    fn a_process_that_dies_while_it_writes_a_key_costs_neither_that_key_nor_the_others() {
        let cells = cells(PROBES);
        let table = Cells(&cells);
        let hash = 0xdead_beef_0000_0001;
        let claim = CLAIMED | tag_of(hash) | second_of(NOW_US);
        cells[1].state.store(claim, Relaxed);
        let passed = (0..40).filter(|_| passes(table.count(hash, RATE, NOW_US))).count();
        assert_eq!(passed, 10, "the same key takes the cell over");
        for cell in &cells {
            cell.state.store(claim, Relaxed);
        }
        assert_eq!(table.count(5, RATE, NOW_US), Counted::Uncounted, "another key waits for no cell");
        assert!(passes(table.count(5, RATE, NOW_US + CLAIM_S * MICROSECONDS)));
        assert!(matches!(table.count(5, RATE, NOW_US + CLAIM_S * MICROSECONDS), Counted::Passes { remaining: 8, .. }));
    }

    #[test]
    fn threads_that_count_at_the_same_time_let_exactly_the_burst_through() {
        let cells = cells(1024);
        let table = Cells(&cells);
        let rate = Rate { interval_us: 3_600 * MICROSECONDS, burst: 100 };
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let count = |key: u64| passes(table.count(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), rate, NOW_US));
                    scope.spawn(move || (0..50_000).filter(|request| count(request % 50)).count())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(passed, 50 * 100);
    }
}
