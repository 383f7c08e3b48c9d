//! A few words of memory that one process publishes, and others read whole. Nobody waits: the words of a version lie beside those
//! of the one before it, so that a writer that dies half-way leaves its readers the last version that was whole.
//!
//! It knows neither memory files nor what the words mean. `models` runs this very file under each order in which writer and readers
//! can meet; so its atomics are those of `crate::atomics`.

use crate::atomics::{AtomicU64, Ordering, fence};
use Ordering::{Acquire, Relaxed, Release};

/// Looks that a reader takes before it gives up. Each one fails only if two versions were published during it.
const LOOKS_MOST: u32 = 8;

/// Versions of `WORDS` words, of which the last one counts. Zeroed memory is one with nothing published.
#[repr(C)]
#[derive(Debug)]
pub struct Published<const WORDS: usize> {
    /// 0 before the first version. Version `n` lies at `n % 2`.
    version: AtomicU64,
    words: [[AtomicU64; WORDS]; 2],
}

impl<const WORDS: usize> Published<WORDS> {
    /// Publishes these words in place of the last ones. One process calls this, and one thread of it.
    pub fn publish(&self, words: &[u64; WORDS]) {
        let version = self.version.load(Relaxed).wrapping_add(1);
        // The last version was published before any word of this one is written: a reader that sees one of these words, in the place
        // of an older version, sees that this older version is over.
        fence(Release);
        for (place, word) in self.words[place_of(version)].iter().zip(words) {
            place.store(*word, Relaxed);
        }
        self.version.store(version, Release);
    }

    /// The words of the last version. `None`: nothing has been published, or versions followed one another during each look.
    pub fn read(&self) -> Option<[u64; WORDS]> {
        for _ in 0..LOOKS_MOST {
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
