//! The memory of a bulkhead (`bulkhead`), which the master makes and every worker of every generation writes: permits, places of
//! requests that wait, and what was counted since the memory was made. The algorithm is in `bulkhead_permits`.
//!
//! It does not know requests, routes or how a waiter is woken.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::mman::{MapFlags, ProtFlags, mmap};

pub use crate::bulkhead_permits::Holder;
use crate::bulkhead_permits::{PLACES_PER_MARK, Permits};
use crate::sealed_memory;

/// The most requests of a bulkhead that may be in progress.
pub const MAX_PERMITS: usize = 1024;
/// The most requests that may wait for one.
pub const MAX_WAITING: usize = 1024;

#[repr(C)]
#[derive(Debug)]
struct BulkheadWords {
    passed: AtomicU64,
    refused_at_once: AtomicU64,
    refused_later: AtomicU64,
    marks: [AtomicU64; MAX_WAITING / PLACES_PER_MARK],
    permits: [AtomicU64; MAX_PERMITS],
    places: [AtomicU64; MAX_WAITING],
}

/// A process' view of a bulkhead's memory.
#[derive(Debug, Clone, Copy)]
pub struct BulkheadMemory {
    words: &'static BulkheadWords,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// As many others waited as may.
    QueueFull,
    /// It has waited as long as it may.
    WaitedTooLong,
}

/// What a bulkhead does, and what it has done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BulkheadCounts {
    pub in_flight: u64,
    pub waiting: u64,
    pub passed: u64,
    pub refused_at_once: u64,
    pub refused_later: u64,
}

impl BulkheadMemory {
    /// Creates the memory of a bulkhead of which all permits are free. The master calls it.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn create() -> io::Result<OwnedFd> {
        sealed_memory::create(c"bolide-bulkhead", size_of::<BulkheadWords>() as u64)
    }

    /// Maps the master's memory.
    ///
    /// # Errors
    /// The memory is of another kind, or can't be mapped.
    pub fn attach(memory: &impl AsFd) -> io::Result<BulkheadMemory> {
        let found = nix::sys::stat::fstat(memory)?.st_size;
        let Some(length) = std::num::NonZeroUsize::new(size_of::<BulkheadWords>()).filter(|bytes| found == bytes.get() as i64)
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the memory of a bulkhead has {found} bytes")));
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address chosen by the kernel, of a file that is long enough (checked above).
        let start: NonNull<libc::c_void> = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, memory.as_fd(), 0)? };
        // SAFETY: the mapping is page-aligned, zeroed at creation (valid for the type, which is atomics only), as long as the
        // type, never unmapped, and only accessed through atomics.
        Ok(BulkheadMemory { words: unsafe { start.cast::<BulkheadWords>().as_ref() } })
    }

    /// The permits and places.
    #[inline(always)]
    pub fn permits(&self) -> Permits<'static> {
        let BulkheadWords { permits, places, marks, .. } = self.words;
        Permits { permits, places, marks }
    }

    /// Counts a request that has its permit.
    #[inline(always)]
    pub fn note_passed(&self) {
        self.words.passed.fetch_add(1, Relaxed);
    }

    /// Counts a request that was refused.
    pub fn note_refused(&self, why: Refused) {
        let counter = match why {
            Refused::QueueFull => &self.words.refused_at_once,
            Refused::WaitedTooLong => &self.words.refused_later,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub fn counts(&self) -> BulkheadCounts {
        let permits = self.permits();
        BulkheadCounts {
            in_flight: permits.taken() as u64,
            waiting: permits.waiting() as u64,
            passed: self.words.passed.load(Relaxed),
            refused_at_once: self.words.refused_at_once.load(Relaxed),
            refused_later: self.words.refused_later.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_permits_places_and_counts() {
        let memory = BulkheadMemory::create().expect("made");
        let (here, there) = (BulkheadMemory::attach(&memory).expect("mapped"), BulkheadMemory::attach(&memory).expect("mapped"));
        let holder = Holder { row: 2, pid: 9 };
        here.permits().take(1, holder).expect("free");
        assert_eq!(there.permits().take(1, holder), None);
        there.permits().wait(MAX_WAITING, holder, 1).expect("free");
        here.note_passed();
        there.note_refused(Refused::WaitedTooLong);
        let counts = BulkheadCounts { in_flight: 1, waiting: 1, passed: 1, refused_at_once: 0, refused_later: 1 };
        assert_eq!((here.counts(), there.counts()), (counts, counts));
        assert!(BulkheadMemory::attach(&sealed_memory::create(c"other", 8).expect("made")).is_err());
    }
}
