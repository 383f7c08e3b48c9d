//! The numbers of a cache: of its mapping, or of its file without a mapping, since another process may cut the file, and a read
//! behind its end would end this process (SIGBUS). The master runs it.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use crate::atomics::AtomicU64;
use crate::atomics::Ordering::Relaxed;
use crate::cache::layout::{AT_COUNTERS, COUNTER_LINES, Counters, Facts, Parts};
use crate::mapping::HEAD_BYTES;

/// The numbers of a cache, for the statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub items: u64,
    pub hits: u64,
    pub misses: u64,
    pub full: u64,
    /// Keys and values that were too large, or found no room on the disk.
    pub refused: u64,
    pub changed_s: u64,
}

/// Returns the numbers of a cache.
pub fn of_parts(parts: &Parts<'_>) -> Counts {
    // The application may have written any numbers.
    let sum = |field: fn(&Counters) -> &AtomicU64| {
        parts.counters.iter().map(|line| field(line).load(Relaxed)).fold(0, u64::wrapping_add)
    };
    let facts = parts.facts;
    Counts {
        items: facts.items.load(Relaxed),
        hits: sum(|line| &line.hits),
        misses: sum(|line| &line.misses),
        full: facts.full.load(Relaxed),
        refused: facts.refused.load(Relaxed),
        changed_s: facts.changed_s.load(Relaxed),
    }
}

/// Returns the numbers of a cache with a file.
///
/// # Errors
/// The file was cut, or can't be read.
pub fn of_file(file: &File) -> io::Result<Counts> {
    let mut bytes = [0; AT_COUNTERS + COUNTER_LINES * size_of::<Counters>()];
    file.read_exact_at(&mut bytes, HEAD_BYTES as u64)?;
    let number = |place: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[place + byte]));
    // Another process may have written any numbers.
    let sum = |place: usize| {
        let lines = (0..COUNTER_LINES).map(|line| number(AT_COUNTERS + line * size_of::<Counters>() + place));
        lines.fold(0, u64::wrapping_add)
    };
    Ok(Counts {
        items: number(offset_of!(Facts, items)),
        hits: sum(offset_of!(Counters, hits)),
        misses: sum(offset_of!(Counters, misses)),
        full: number(offset_of!(Facts, full)),
        refused: number(offset_of!(Facts, refused)),
        changed_s: number(offset_of!(Facts, changed_s)),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::cache::layout::identity;
    use crate::cache::repair;
    use crate::cache::testing::settings;
    use crate::mapping::Mapping;

    #[test]
    fn the_numbers_of_a_file_are_those_of_its_mapping_and_a_cut_file_is_an_error() {
        let settings = settings(10);
        let path = std::env::temp_dir().join(format!("bolide-counts-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("made");
        std::fs::remove_file(&path).expect("removed");
        file.set_len(crate::mapping::whole_bytes(&identity(&settings)) as u64).expect("extended");
        let descriptor: OwnedFd = file.try_clone().expect("copied").into();
        let mapping = Mapping::of(&descriptor, &identity(&settings)).expect("mapped");
        let parts = Parts::of(&settings, &mapping);
        repair::begin(&parts, 7, 7).expect("made");
        parts.facts.items.store(3, Relaxed);
        parts.facts.full.store(4, Relaxed);
        parts.facts.refused.store(5, Relaxed);
        parts.facts.changed_s.store(6, Relaxed);
        parts.counters[0].hits.store(8, Relaxed);
        parts.counters[COUNTER_LINES - 1].hits.store(1, Relaxed);
        parts.counters[2].misses.store(2, Relaxed);
        let expected = Counts { items: 3, hits: 9, misses: 2, full: 4, refused: 5, changed_s: 6 };
        assert_eq!((of_file(&file).expect("read"), of_parts(&parts)), (expected.clone(), expected));
        file.set_len(0).expect("cut");
        assert!(of_file(&file).is_err());
    }
}
