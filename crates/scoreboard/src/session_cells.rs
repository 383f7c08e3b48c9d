//! The cells of the table of session owners: an open-addressed table in shared memory that every worker reads and writes without
//! a lock. A cell says which worker owns the session of a key, and when that was last asked.
//!
//! A cell is two words. The state has the owner, and the tag is the key's hash mixed with the owner, so a reader that meets two
//! writers half-way finds a tag that does not match any key, and never a wrong owner. A writer claims a cell by its state before
//! it writes the tag. A writer that dies then leaves a claim, which the next one takes over after [`CLAIM_S`].
//!
//! It knows neither memory files nor what a key is. `models` runs this file under every order in which workers can interleave, so
//! its atomics are those of `crate::atomics`. Workers run it.

use crate::atomics::{AtomicU64, Ordering, fence};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Cells that may have a key. If all of them are taken, the one that was asked for longest ago is replaced.
pub const PROBES: usize = 8;

/// Attempts to write a key. An attempt fails only if another worker has written to the same cell.
const MAX_ATTEMPTS: usize = 16;

/// Seconds after which a claim is one of a worker that has died.
const CLAIM_S: u64 = 10;

const ROW_SHIFT: u32 = 48;
const PID_SHIFT: u32 = 26;
const PID_MASK: u64 = (1 << 22) - 1;
const SIDE_BIT: u64 = 1 << 25;
const MADE_BIT: u64 = 1 << 24;
const TIME_MASK: u64 = (1 << 24) - 1;

/// The owner's part of a state, with which a tag is mixed.
const OWNER_MASK: u64 = !(MADE_BIT | TIME_MASK);

/// Spreads the owner over all bits of a tag.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A worker, as the owner of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its row of the scoreboard. A row is used again, so the pid says which of its workers is meant.
    pub row: u16,
    /// Below 2²², the kernel's limit (proc(5), `pid_max`).
    pub pid: u32,
    /// Which of the two generations that serve at the same time it is of.
    pub side: bool,
}

/// What makes a worker the owner of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A client has sent it. Any client can send any number of keys.
    Request,
    /// The application has made it. A key of a request never replaces it while there is another one to replace.
    Answer,
}

/// A cell. Zeroed memory is an empty one.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Cell {
    state: AtomicU64,
    tag: AtomicU64,
}

/// The cells of a table, whose number is a power of two, at least [`PROBES`].
#[derive(Debug, Clone, Copy)]
pub struct Cells<'a>(pub &'a [Cell]);

impl Owner {
    fn bits(self) -> u64 {
        u64::from(self.row) << ROW_SHIFT | (u64::from(self.pid) & PID_MASK) << PID_SHIFT | if self.side { SIDE_BIT } else { 0 }
    }

    /// The owner in a state; `None` if the cell is empty or claimed.
    fn of(state: u64) -> Option<Owner> {
        let pid = (state >> PID_SHIFT & PID_MASK) as u32;
        (pid != 0).then_some(Owner { row: (state >> ROW_SHIFT) as u16, pid, side: state & SIDE_BIT != 0 })
    }
}

impl Cells<'_> {
    /// Returns the owner of a key, if there is one that lives.
    pub fn find(&self, hash: u64, now_s: u64, lives: impl Fn(Owner) -> bool) -> Option<Owner> {
        self.window(hash).find_map(|cell| {
            let (state, owner) = holder(cell, hash)?;
            lives(owner).then(|| {
                touch(cell, state, now_s);
                owner
            })
        })
    }

    /// Makes a worker the owner of a key, unless another one that lives owns it already. Returns the owner. If all of
    /// its cells are being written by others, the owner counts for this request only.
    pub fn learn(&self, hash: u64, owner: Owner, reason: Reason, now_s: u64, lives: impl Fn(Owner) -> bool) -> Owner {
        for _ in 0..MAX_ATTEMPTS {
            let known = self.window(hash).find_map(|cell| Some((cell, holder(cell, hash)?)));
            let (cell, state) = match known {
                Some((cell, (state, known))) if lives(known) => {
                    if reason == Reason::Answer && state & MADE_BIT == 0 {
                        // A failure means that another worker has touched the cell. Then it may be replaced earlier.
                        let _ = cell.state.compare_exchange(state, state | MADE_BIT, Relaxed, Relaxed);
                    }
                    return known;
                }
                Some((cell, (state, _))) => (cell, state),
                None => match self.replaceable(hash, now_s, &lives) {
                    Some(found) => found,
                    None => return owner,
                },
            };
            let claim = MADE_BIT | now_s & TIME_MASK;
            if cell.state.compare_exchange(state, claim, AcqRel, Relaxed).is_err() {
                continue;
            }
            cell.tag.store(tag_of(hash, owner.bits()), Relaxed);
            let made = if reason == Reason::Answer { MADE_BIT } else { 0 };
            if cell.state.compare_exchange(claim, owner.bits() | made | now_s & TIME_MASK, Release, Relaxed).is_err() {
                return owner;
            }
            return self.settle(hash, owner, lives);
        }
        owner
    }

    /// How many keys have an owner, whether or not it lives.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.0.iter().filter(|cell| Owner::of(cell.state.load(Relaxed)).is_some()).count()
    }

    /// Two workers may have learned a key at the same moment. The first cell counts, as for all later requests, and the others
    /// are emptied.
    fn settle(&self, hash: u64, owner: Owner, lives: impl Fn(Owner) -> bool) -> Owner {
        // Both have written their cells before either looks for the other's, so at least one of them sees both.
        fence(SeqCst);
        let mut first = None;
        for cell in self.window(hash) {
            let Some((state, holder)) = holder(cell, hash).filter(|(_, holder)| lives(*holder)) else { continue };
            match first {
                None => first = Some(holder),
                Some(_) => {
                    // A failure means that it was written again.
                    let _ = cell.state.compare_exchange(state, 0, Relaxed, Relaxed);
                }
            }
        }
        first.unwrap_or(owner)
    }

    /// The cell whose loss costs least: an empty one, one of an owner that is gone, or the one that was asked for longest ago.
    fn replaceable(&self, hash: u64, now_s: u64, lives: &impl Fn(Owner) -> bool) -> Option<(&Cell, u64)> {
        let rated = self.window(hash).filter_map(|cell| {
            let state = cell.state.load(Relaxed);
            let age_s = now_s.wrapping_sub(state) & TIME_MASK;
            let worth = match Owner::of(state) {
                None if state == 0 || age_s >= CLAIM_S => 0,
                // Another worker is about to write it.
                None => return None,
                Some(owner) if !lives(owner) => 1,
                Some(_) => 2 + (TIME_MASK - age_s) + if state & MADE_BIT == 0 { 0 } else { TIME_MASK + 1 },
            };
            Some((worth, cell, state))
        });
        rated.min_by_key(|(worth, ..)| *worth).map(|(_, cell, state)| (cell, state))
    }

    fn window(&self, hash: u64) -> impl Iterator<Item = &Cell> {
        let mask = self.0.len().wrapping_sub(1);
        let start = hash as usize;
        (0..PROBES).filter_map(move |probe| self.0.get(start.wrapping_add(probe) & mask))
    }
}

fn tag_of(hash: u64, owner: u64) -> u64 {
    hash ^ owner.wrapping_mul(MIX)
}

/// The state of a cell and its owner, if the cell is this key's.
fn holder(cell: &Cell, hash: u64) -> Option<(u64, Owner)> {
    let state = cell.state.load(Acquire);
    let owner = Owner::of(state)?;
    (cell.tag.load(Relaxed) == tag_of(hash, state & OWNER_MASK)).then_some((state, owner))
}

/// Notes that the key was asked for, at most once a second.
fn touch(cell: &Cell, state: u64, now_s: u64) {
    let now_s = now_s & TIME_MASK;
    if state & TIME_MASK != now_s {
        // A failure means that another worker has done so, or has replaced the key.
        let _ = cell.state.compare_exchange(state, state & !TIME_MASK | now_s, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYONE: fn(Owner) -> bool = |_| true;

    fn owner(row: u16) -> Owner {
        Owner { row, pid: 4_194_303 - u32::from(row), side: row % 2 == 1 }
    }

    fn cells(count: usize) -> Vec<Cell> {
        (0..count).map(|_| Cell::default()).collect()
    }

    #[test]
    fn a_key_has_the_owner_that_learned_it_first_while_that_lives() {
        let cells = cells(64);
        let table = Cells(&cells);
        assert_eq!(table.find(7, 0, EVERYONE), None);
        assert_eq!(table.learn(7, owner(1), Reason::Request, 0, EVERYONE), owner(1));
        assert_eq!(table.learn(7, owner(2), Reason::Answer, 0, EVERYONE), owner(1));
        assert_eq!(table.find(7, 5, EVERYONE), Some(owner(1)));
        let survivors = |candidate| candidate != owner(1);
        assert_eq!(table.find(7, 5, survivors), None);
        assert_eq!(table.learn(7, owner(2), Reason::Request, 5, survivors), owner(2));
        assert_eq!((table.find(7, 6, EVERYONE), table.used()), (Some(owner(2)), 1));
    }

    #[test]
    fn owners_at_the_limits_of_their_fields_come_back_whole() {
        let cells = cells(64);
        let table = Cells(&cells);
        for (hash, row, pid, side) in [(1, 0, 1, false), (2, u16::MAX, 4_194_303, true), (3, 0x8000, 1 << 21, false)] {
            let owner = Owner { row, pid, side };
            table.learn(hash, owner, Reason::Answer, u64::MAX, EVERYONE);
            assert_eq!(table.find(hash, 0, EVERYONE), Some(owner));
        }
    }

    #[test]
    fn the_key_that_was_asked_for_longest_ago_is_replaced_and_those_of_answers_last() {
        let cells = cells(PROBES);
        let table = Cells(&cells);
        for hash in 0..PROBES as u64 {
            let reason = if hash == 0 { Reason::Answer } else { Reason::Request };
            table.learn(hash, owner(hash as u16), reason, 100 + hash, EVERYONE);
        }
        table.find(1, 200, EVERYONE);
        table.learn(50, owner(50), Reason::Request, 201, EVERYONE);
        let found: Vec<u64> = (0..PROBES as u64).filter(|hash| table.find(*hash, 201, EVERYONE).is_some()).collect();
        assert_eq!(found, [0, 1, 3, 4, 5, 6, 7], "the key 2 has waited longest of those that clients have sent");
        for flood in 1000..2000 {
            table.learn(flood, owner(9), Reason::Request, 202, EVERYONE);
        }
        assert_eq!(table.find(0, 203, EVERYONE), Some(owner(0)), "a key of the application outlives a flood of others");
        table.learn(60, owner(60), Reason::Request, 204, |candidate| candidate != owner(0));
        assert_eq!(table.find(0, 204, EVERYONE), None, "an owner that is gone is replaced before one that lives");
    }

    #[test]
    fn a_writer_that_dies_half_way_blocks_its_cell_for_a_moment_and_others_never() {
        let cells = cells(PROBES);
        for cell in &cells {
            cell.state.store(MADE_BIT | 100, Relaxed);
        }
        let table = Cells(&cells);
        assert_eq!(table.learn(1, owner(1), Reason::Request, 101, EVERYONE), owner(1));
        assert_eq!(table.find(1, 101, EVERYONE), None, "there is no cell, so the next request begins again");
        table.learn(1, owner(1), Reason::Request, 100 + CLAIM_S, EVERYONE);
        assert_eq!(table.find(1, 111, EVERYONE), Some(owner(1)));
    }

    #[test]
    fn threads_that_learn_the_same_keys_agree_about_their_owners() {
        let cells = cells(4096);
        let table = Cells(&cells);
        std::thread::scope(|scope| {
            for row in 1..5u16 {
                scope.spawn(move || {
                    for hash in 0..1000u64 {
                        table.learn(hash.wrapping_mul(MIX), owner(row), Reason::Request, 1, EVERYONE);
                    }
                });
            }
        });
        for hash in 0..1000u64 {
            let found = table.find(hash.wrapping_mul(MIX), 1, EVERYONE).expect("a cell for each key");
            let is_one_of_them = (1..5).any(|row| found == owner(row));
            assert!(is_one_of_them, "{found:?} never learned a key");
        }
        assert_eq!(table.used(), 1000, "no key has two owners");
    }
}
