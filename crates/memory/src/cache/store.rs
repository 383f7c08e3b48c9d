//! The file of a cache that is kept beyond the end of the instance: the same memory, over a file. It does not open files; the
//! master does, which also writes it to the disk.

use std::io;
use std::os::fd::AsFd;

use bolide_contract::services::SharedCache;

use crate::atomics::Ordering::Relaxed;
use crate::cache::digest::{checksum_of, hash_of};
use crate::cache::layout::{Parts, SPARES, Sizes};
use crate::cache::repair;
use crate::cache::table::WORD_BYTES;
use crate::mapping::HEAD_BYTES;

/// What startup found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    pub items: u64,
    /// Items that were written in part when the system failed.
    pub dropped: u64,
}

/// Reserves room on the disk for a range of the structure. A sparse file does not have any before.
///
/// # Errors
/// The disk is full.
pub fn reserve(file: &impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    let offset = i64::try_from(HEAD_BYTES as u64 + start).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    match nix::fcntl::posix_fallocate(file, offset, bytes) {
        // The file system can't reserve: like uWSGI, the cache then relies on the disk.
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Reserves the room on the disk that every use needs, for a new file. Spare slots have room from startup, so that a value can
/// be replaced while the disk is full; slots that are freed later were written before.
///
/// # Errors
/// The disk is full.
pub fn reserve_beginning(file: &impl AsFd, settings: &SharedCache) -> io::Result<()> {
    let sizes = Sizes::of(settings);
    let spares = sizes.shards * SPARES;
    let blocks = if settings.is_bitmap { sizes.blocks } else { spares };
    reserve(file, 0, sizes.bytes_before_keys() + (spares * sizes.key_words * WORD_BYTES) as u64)?;
    reserve(file, sizes.byte_of_block(0), (blocks * sizes.block_words * WORD_BYTES) as u64)
}

/// Puts a file right that an instance has left: no process works with it. If the system was started again since, the disk may
/// have the pages of several moments, and each item is checked. `system_start` is a digest of its present start.
///
/// # Errors
/// The system has no robust mutexes.
pub fn restore(parts: &Parts<'_>, system_start: u64) -> io::Result<Restored> {
    repair::begin_locks(parts)?;
    let is_of_now = parts.facts.system_start.swap(system_start, Relaxed) == system_start;
    let table = &parts.table;
    let seed = parts.facts.seed.load(Relaxed);
    let is_whole = |index: usize| {
        let slot = &table.slots[index];
        let value = table.value_words(slot.block(), slot.value_bytes());
        let (Some(key), Some(words)) = (table.key(index), value) else { return false };
        let mut value: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        value.truncate(slot.value_bytes() as usize);
        slot.hash() == hash_of(&key, seed) && slot.checksum() == checksum_of(&key, &value, slot.expires_ms())
    };
    let dropped = if is_of_now { 0 } else { repair::rehang(parts, is_whole) };
    repair::rebuild(parts);
    // The clock of these times begins again with each start of the system.
    parts.facts.said_full_ms.store(0, Relaxed);
    Ok(Restored { items: parts.facts.items.load(Relaxed), dropped })
}
