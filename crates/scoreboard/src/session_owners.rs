//! The table of session owners (`sticky`), in shared memory that the master makes and every worker of every generation writes:
//! the keys of sessions, as hashes, and the worker that has each. The hash is keyed with a secret of the instance, so no client
//! can choose keys that share cells.
//!
//! It does not know what a key is in a request, or which workers live. The algorithm is in `session_cells`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap};

use crate::keyed_hash::KeyedHash;
use crate::sealed_memory;
use crate::session_cells::{Cell, Cells};
pub use crate::session_cells::{Owner, Reason};

/// The most keys in the table, 16 bytes each.
pub const MAX_KEYS: usize = 65_536;

/// Words of the hash's secret.
const SECRET_WORDS: usize = 2;

#[repr(C)]
struct OwnersTable {
    secret: [AtomicU64; SECRET_WORDS],
    cells: [Cell; MAX_KEYS],
}

/// A process' view of the table.
#[derive(Clone, Copy)]
pub struct SessionOwners {
    table: &'static OwnersTable,
    secret: [u64; SECRET_WORDS],
}

impl SessionOwners {
    /// Creates an empty table with this secret. The master calls it.
    ///
    /// # Errors
    /// No memory, or no descriptor left.
    pub fn create(secret: [u64; SECRET_WORDS]) -> io::Result<OwnedFd> {
        let memory = sealed_memory::create(c"bolide-sessions", size_of::<OwnersTable>() as u64)?;
        let table = map(&memory)?;
        for (place, word) in table.secret.iter().zip(secret) {
            place.store(word, Relaxed);
        }
        Ok(memory)
    }

    /// Maps the master's memory.
    ///
    /// # Errors
    /// The memory is of another kind, or can't be mapped.
    pub fn attach(memory: &OwnedFd) -> io::Result<SessionOwners> {
        let table = map(memory)?;
        Ok(SessionOwners { table, secret: table.secret.each_ref().map(|word| word.load(Relaxed)) })
    }

    /// The hash of a key. `kind` and `name` say where in a request it is, so equal values at two places are two keys.
    pub fn hash(&self, kind: u8, name: &[u8], value: &[u8]) -> u64 {
        let mut hash = KeyedHash::new(self.secret);
        hash.write(&[kind]);
        hash.write(&(name.len() as u16).to_le_bytes());
        hash.write(name);
        hash.write(value);
        hash.finish()
    }

    /// The owner of a key, if there is one that lives.
    pub fn find(&self, hash: u64, now_s: u64, lives: impl Fn(Owner) -> bool) -> Option<Owner> {
        Cells(&self.table.cells).find(hash, now_s, lives)
    }

    /// Makes a worker the owner of a key, unless another one that lives owns it. Returns the owner.
    pub fn learn(&self, hash: u64, owner: Owner, reason: Reason, now_s: u64, lives: impl Fn(Owner) -> bool) -> Owner {
        Cells(&self.table.cells).learn(hash, owner, reason, now_s, lives)
    }
}

fn map(memory: &OwnedFd) -> io::Result<&'static OwnersTable> {
    let found = nix::sys::stat::fstat(memory)?.st_size;
    let Some(length) = std::num::NonZeroUsize::new(size_of::<OwnersTable>()).filter(|bytes| found == bytes.get() as i64) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the memory of session owners has {found} bytes")));
    };
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, at an address chosen by the kernel, of a file that is long enough (checked above).
    let start: NonNull<libc::c_void> = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, memory.as_fd(), 0)? };
    // SAFETY: the mapping above, whose contents are not changed: this keeps the secret out of core dumps. A failure is harmless.
    let _ = unsafe { madvise(start, length.get(), MmapAdvise::MADV_DONTDUMP) };
    // SAFETY: the mapping is page-aligned, zeroed at creation (valid for the type, which is atomics only), as long as the type,
    // never unmapped, and only accessed through atomics.
    Ok(unsafe { start.cast::<OwnersTable>().as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the reference implementation, for the key 00 01 … 0f and the inputs "", 00, 00 01, … .
    #[test]
    fn processes_share_the_table_and_its_secret() {
        let memory = SessionOwners::create([1, 2]).expect("made");
        let (here, there) = (SessionOwners::attach(&memory).expect("mapped"), SessionOwners::attach(&memory).expect("mapped"));
        let owner = Owner { row: 3, pid: 4000, side: false };
        let hash = here.hash(1, b"sid", b"abc");
        here.learn(hash, owner, Reason::Request, 1, |_| true);
        assert_eq!(there.find(there.hash(1, b"sid", b"abc"), 1, |_| true), Some(owner));
        for other in [there.hash(2, b"sid", b"abc"), there.hash(1, b"si", b"dabc"), there.hash(1, b"sid", b"abd")] {
            assert_eq!(there.find(other, 1, |_| true), None);
        }
        let other = SessionOwners::attach(&SessionOwners::create([1, 3]).expect("made")).expect("mapped");
        assert_ne!(other.hash(1, b"sid", b"abc"), hash, "another instance has another secret");
        assert!(SessionOwners::attach(&sealed_memory::create(c"other", 8).expect("made")).is_err());
    }
}
