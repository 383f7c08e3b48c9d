//! A few words of shared memory that one process publishes, and that other processes read consistently. Neither side ever blocks:
//! two versions are stored side by side, so if the writer dies half-way, readers still find the last complete version.
//!
//! It knows neither memory files nor the meaning of the words. `models` runs this file under every order in which writer and
//! readers can interleave, so its atomics are those of `crate::atomics`. The master writes, workers read.

use crate::atomics::{AtomicU64, Ordering, fence};
use Ordering::{Acquire, Relaxed, Release};

/// Read attempts before a reader gives up. An attempt fails only if two versions were published during it.
const MAX_READS: u32 = 8;

/// Versions of `WORDS` words, of which the last one is current. Zeroed memory means that nothing has been published.
#[repr(C)]
#[derive(Debug)]
pub struct Published<const WORDS: usize> {
    /// 0 before the first version. Version `n` is stored at `n % 2`.
    version: AtomicU64,
    words: [[AtomicU64; WORDS]; 2],
}

impl<const WORDS: usize> Published<WORDS> {
    /// Publishes these words instead of the last ones. Only one thread of one process may call it.
    pub fn publish(&self, words: &[u64; WORDS]) {
        let version = self.version.load(Relaxed).wrapping_add(1);
        // The last version was published before any word of this one is written: a reader that sees one of these words, where it
        // expected an older version, also sees that the older version is obsolete.
        fence(Release);
        for (place, word) in self.words[place_of(version)].iter().zip(words) {
            place.store(*word, Relaxed);
        }
        self.version.store(version, Release);
    }

    /// Returns the words of the last version. `None`: nothing has been published, or a new version was published during each
    /// attempt.
    pub fn read(&self) -> Option<[u64; WORDS]> {
        for _ in 0..MAX_READS {
            let version = self.version.load(Acquire);
            if version == 0 {
                return None;
            }
            let words = self.words[place_of(version)].each_ref().map(|word| word.load(Relaxed));
            fence(Acquire);
            if self.version.load(Relaxed) == version {
                return Some(words);
            }
        }
        None
    }
}

impl<const WORDS: usize> Default for Published<WORDS> {
    fn default() -> Published<WORDS> {
        let empty = || std::array::from_fn(|_| AtomicU64::new(0));
        Published { version: AtomicU64::new(0), words: [empty(), empty()] }
    }
}

fn place_of(version: u64) -> usize {
    (version % 2) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_version_is_read_and_before_the_first_there_is_none() {
        let published = Published::<3>::default();
        assert_eq!(published.read(), None);
        for number in 1..6 {
            published.publish(&[number, number + 1, number + 2]);
            assert_eq!(published.read(), Some([number, number + 1, number + 2]));
        }
    }

    #[test]
    fn a_writer_that_dies_half_way_leaves_the_last_whole_version() {
        let published = Published::<2>::default();
        published.publish(&[1, 1]);
        published.words[place_of(2)][0].store(7, Relaxed);
        assert_eq!(published.read(), Some([1, 1]));
    }
}
