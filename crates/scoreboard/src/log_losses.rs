//! The number of lines that each log lost since the instance started, in one page of shared memory. Each process counts the
//! lines that it drops, and the counts outlive it. The master reads the sums. This file must not know lines or destinations.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use crate::sealed_memory;
use bolide_contract::settings::logging::MAX_LOGS;

type Counts = [AtomicU64; MAX_LOGS];

/// The counts, by the number of the log.
#[derive(Debug, Clone, Copy)]
pub struct LogLosses {
    counts: &'static Counts,
}

impl LogLosses {
    /// Creates the counts and the memory file that others attach to. The master calls it once.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn create() -> io::Result<(LogLosses, OwnedFd)> {
        let memory = sealed_memory::create(c"bolide log losses", size_of::<Counts>() as u64)?;
        Ok((LogLosses::attach(&memory)?, memory))
    }

    /// Maps the master's memory.
    ///
    /// # Errors
    /// The memory is of another kind, or can't be mapped.
    pub fn attach(memory: &OwnedFd) -> io::Result<LogLosses> {
        let found = nix::sys::stat::fstat(memory)?.st_size;
        let Some(length) = std::num::NonZeroUsize::new(size_of::<Counts>()).filter(|bytes| found == bytes.get() as i64) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the memory of lost lines has {found} bytes")));
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address chosen by the kernel, of a file that is long enough (checked above).
        let start: NonNull<libc::c_void> = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, memory.as_fd(), 0)? };
        // SAFETY: the mapping is page-aligned, zeroed at creation (valid for the type, which is atomics only), as long as the
        // type, never unmapped, and only accessed through atomics.
        Ok(LogLosses { counts: unsafe { start.cast::<Counts>().as_ref() } })
    }

    /// Counts lines that the log with this number has lost.
    pub fn count(&self, number: usize, lines: u64) {
        if let Some(count) = self.counts.get(number) {
            count.fetch_add(lines, Relaxed);
        }
    }

    /// The lines that the log with this number has lost.
    pub fn of(&self, number: usize) -> u64 {
        self.counts.get(number).map_or(0, |count| count.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_counts_in_the_same_place() {
        let (here, memory) = LogLosses::create().expect("made");
        let there = LogLosses::attach(&memory).expect("mapped");
        there.count(3, 5);
        here.count(3, 2);
        there.count(MAX_LOGS, 1);
        assert_eq!((here.of(3), there.of(3), here.of(2), here.of(MAX_LOGS)), (7, 7, 0, 0));
        assert!(LogLosses::attach(&sealed_memory::create(c"other", 8).expect("made")).is_err());
    }
}
