//! The permits of a bulkhead, and the places of the requests that wait for one: words in shared memory that every worker reads
//! and writes without a lock. Zero is a free word. Another one says which worker has it, so one compare-and-swap counts a
//! request and identifies its holder, and the words of a worker that was killed can be freed.
//!
//! A release never loses a waiter. The waiter marks its place and then looks for a permit, and the one that releases a permit
//! frees it and then looks for marks. `models` runs this file under every order in which workers can interleave, so its atomics
//! are those of `crate::atomics`. It knows neither memory files nor how a waiter is woken. Workers run it, and the master frees
//! what the dead held.

use crate::atomics::{AtomicU64, Ordering, fence};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

const ROW_SHIFT: u32 = 48;
const PID_SHIFT: u32 = 26;
const PID_MASK: u64 = (1 << 22) - 1;
/// The time at which a request began to wait, in milliseconds. It wraps after 18 hours, and no request waits that long.
const TIME_MASK: u64 = (1 << PID_SHIFT) - 1;

/// Places whose marks share a word.
pub const PLACES_PER_MARK: usize = 64;

/// A worker that has permits or places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its row of the scoreboard. A row is used again, so the pid says which of its workers is meant.
    pub row: u16,
    /// Below 2²², the kernel's limit (proc(5), `pid_max`).
    pub pid: u32,
}

/// The words of a bulkhead.
#[derive(Debug, Clone, Copy)]
pub struct Permits<'a> {
    pub permits: &'a [AtomicU64],
    pub places: &'a [AtomicU64],
    /// A bit for each place that is taken, so that a release does not read all places.
    pub marks: &'a [AtomicU64],
}

impl Holder {
    fn bits(self) -> u64 {
        u64::from(self.row) << ROW_SHIFT | (u64::from(self.pid) & PID_MASK) << PID_SHIFT
    }

    fn of(word: u64) -> Option<Holder> {
        let pid = (word >> PID_SHIFT & PID_MASK) as u32;
        (pid != 0).then_some(Holder { row: (word >> ROW_SHIFT) as u16, pid })
    }

    fn has(self, word: u64) -> bool {
        word & !TIME_MASK == self.bits()
    }
}

impl Permits<'_> {
    /// Takes one of the first `most` permits. Returns its number; `None` if none is free.
    pub fn take(&self, most: usize, holder: Holder) -> Option<usize> {
        take_word(self.permits, most, holder, holder.bits())
    }

    /// Frees a permit. Returns whether a request waits for one, which must be woken then.
    #[must_use = "a request that waits must be woken"]
    pub fn release(&self, number: usize) -> bool {
        if let Some(permit) = self.permits.get(number) {
            permit.store(0, Release);
        }
        fence(SeqCst);
        self.has_waiting()
    }

    /// Takes one of the first `most` places for a request that waits since this monotonic time. The caller must look for a permit
    /// afterwards: one may have been freed before the place was marked. `None`: as many wait as may.
    pub fn wait(&self, most: usize, holder: Holder, since_ms: u64) -> Option<usize> {
        let number = take_word(self.places, most, holder, holder.bits() | since_ms & TIME_MASK)?;
        if let Some(marks) = self.marks.get(number / PLACES_PER_MARK) {
            marks.fetch_or(bit(number), Relaxed);
        }
        fence(SeqCst);
        Some(number)
    }

    /// Gives a place back.
    pub fn leave(&self, number: usize) {
        // A marked place is always taken: its mark goes first.
        if let Some(marks) = self.marks.get(number / PLACES_PER_MARK) {
            marks.fetch_and(!bit(number), Relaxed);
        }
        if let Some(place) = self.places.get(number) {
            place.store(0, Release);
        }
    }

    /// Whether a request waits.
    pub fn has_waiting(&self) -> bool {
        self.marks.iter().any(|marks| marks.load(Relaxed) != 0)
    }

    /// The workers in which requests wait, each with the milliseconds that its first one has waited for.
    pub fn longest_waits(&self, now_ms: u64) -> Vec<(Holder, u64)> {
        let mut found: Vec<(Holder, u64)> = Vec::new();
        for word in self.waiting_words() {
            let waited_ms = now_ms.wrapping_sub(word) & TIME_MASK;
            match found.iter_mut().find(|(holder, _)| holder.has(word)) {
                Some((_, longest_ms)) => *longest_ms = waited_ms.max(*longest_ms),
                None => found.extend(Holder::of(word).map(|holder| (holder, waited_ms))),
            }
        }
        found
    }

    /// The number of permits that a worker has.
    pub fn held_by(&self, holder: Holder) -> usize {
        self.permits.iter().filter(|permit| holder.has(permit.load(Relaxed))).count()
    }

    /// Frees everything that a worker holds, which has exited. Returns whether a request waits that must be woken.
    #[must_use = "a request that waits must be woken"]
    pub fn free(&self, holder: Holder) -> bool {
        for (number, place) in self.places.iter().enumerate() {
            if holder.has(place.load(Acquire)) {
                self.leave(number);
            }
        }
        let held = self.permits.iter().filter(|permit| holder.has(permit.load(Acquire)));
        let freed = held.map(|permit| permit.store(0, Release)).count();
        fence(SeqCst);
        freed > 0 && self.has_waiting()
    }

    /// The number of permits that are taken.
    pub fn taken(&self) -> usize {
        self.permits.iter().filter(|permit| permit.load(Relaxed) != 0).count()
    }

    /// The number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.marks.iter().map(|marks| marks.load(Relaxed).count_ones() as usize).sum()
    }

    fn waiting_words(&self) -> impl Iterator<Item = u64> {
        let marked = self.marks.iter().enumerate().filter(|(_, marks)| marks.load(Relaxed) != 0);
        let places = marked.flat_map(|(word, _)| self.places.iter().skip(word * PLACES_PER_MARK).take(PLACES_PER_MARK));
        places.map(|place| place.load(Relaxed)).filter(|word| *word != 0)
    }
}

/// Takes one of the first `most` words. Workers begin at different ones, so that they meet less often.
fn take_word(words: &[AtomicU64], most: usize, holder: Holder, value: u64) -> Option<usize> {
    let most = most.min(words.len());
    let start = if most == 0 { 0 } else { usize::from(holder.row) % most };
    (start..most).chain(0..start).find(|number| {
        let word = &words[*number];
        word.load(Relaxed) == 0 && word.compare_exchange(0, value, AcqRel, Relaxed).is_ok()
    })
}

fn bit(number: usize) -> u64 {
    1 << (number % PLACES_PER_MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words([Vec<AtomicU64>; 3]);

    impl Words {
        fn new(permits: usize, places: usize) -> Words {
            Words(
                [permits, places, places.div_ceil(PLACES_PER_MARK)].map(|count| (0..count).map(|_| AtomicU64::new(0)).collect()),
            )
        }

        fn permits(&self) -> Permits<'_> {
            let [permits, places, marks] = &self.0;
            Permits { permits, places, marks }
        }
    }

    fn holder(row: u16) -> Holder {
        Holder { row, pid: 4_194_303 - u32::from(row) }
    }

    #[test]
    fn as_many_permits_are_taken_as_there_are_and_a_released_one_is_free_again() {
        let words = Words::new(8, 4);
        let permits = words.permits();
        let mut taken: Vec<usize> = (0..3).filter_map(|row| permits.take(3, holder(row))).collect();
        assert_eq!((permits.take(3, holder(7)), permits.taken()), (None, 3));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        assert!(!permits.release(1), "no request waits");
        assert_eq!(permits.take(3, holder(u16::MAX)), Some(1));
        assert_eq!(permits.take(0, holder(1)), None);
    }

    #[test]
    fn a_release_tells_of_requests_that_wait_until_they_have_left() {
        let words = Words::new(1, 200);
        let permits = words.permits();
        permits.take(1, holder(1)).expect("free");
        let places: Vec<usize> = (0..130).filter_map(|_| permits.wait(130, holder(2), 5)).collect();
        assert_eq!((permits.wait(130, holder(2), 5), permits.waiting()), (None, 130));
        assert!(permits.release(0));
        for place in places {
            assert!(permits.has_waiting());
            permits.leave(place);
        }
        assert!(!permits.has_waiting());
    }

    #[test]
    fn the_longest_wait_of_each_worker_is_found_also_when_the_time_wraps() {
        let words = Words::new(1, 8);
        let permits = words.permits();
        let wraps_ms = TIME_MASK + 1;
        assert_eq!(permits.longest_waits(wraps_ms), []);
        for (row, since_ms) in [(2, wraps_ms + 10), (1, wraps_ms + 20), (1, wraps_ms - 10), (1, wraps_ms + 5)] {
            permits.wait(8, holder(row), since_ms).expect("a place");
        }
        let mut found = permits.longest_waits(wraps_ms + 50);
        found.sort_unstable_by_key(|(holder, _)| holder.row);
        assert_eq!(found, [(holder(1), 60), (holder(2), 40)]);
    }

    #[test]
    fn what_a_dead_worker_held_is_free_and_nothing_else() {
        let words = Words::new(4, 4);
        let permits = words.permits();
        let (dead, next) = (holder(1), Holder { row: 1, pid: 77 });
        for owner in [dead, next, dead] {
            permits.take(4, owner).expect("free");
            permits.wait(4, owner, 9).expect("free");
        }
        assert!(permits.free(dead), "another one waits");
        assert_eq!((permits.taken(), permits.waiting()), (1, 1));
        assert_eq!(permits.longest_waits(10), [(next, 1)]);
        assert_eq!((permits.held_by(dead), permits.held_by(next)), (0, 1));
    }
}
