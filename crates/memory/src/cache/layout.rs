//! Where the parts of a cache stand in its memory, and their sizes. It neither reads nor writes items. The master and every
//! process that has the application use it.

use bolide_contract::boot::MemoryKind;
use bolide_contract::services::SharedCache;

use crate::atomics::{AtomicU32, AtomicU64};
use crate::cache::table::{Slot, Table, WORD_BYTES};
use crate::mapping::{Identity, Mapping, fingerprint};
use crate::robust_lock::RobustLock;

/// The version of the layout: it changes with each change of a structure in this directory.
const VERSION: u32 = 2;
/// Caches with fewer items have one shard: their writers seldom meet.
const SHARDED_FROM_ITEMS: u64 = 1024;
/// Shards of a large cache.
const SHARDS: usize = 16;
/// Free slots that a shard keeps for values that replace others, beyond the items of the settings. A slot is written again when
/// this many others were, so that a slow reader of a value seldom has to read again.
pub const SPARES: usize = 4;
/// Lines of counters: processes with different numbers count in different ones.
pub const COUNTER_LINES: usize = 64;

/// Where the counters begin: the same in every cache.
pub const AT_COUNTERS: usize = size_of::<Facts>();

/// The facts about the whole cache.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Facts {
    /// Protects the stack of free slots and the number of items. It is taken within the lock of a shard, and never the other way
    /// round.
    pub pool: RobustLock,
    /// Free slots in the stack.
    pub free: AtomicU32,
    /// 1: a process died inside a lock, and the next writer repairs everything.
    pub needs_repair: AtomicU32,
    /// Items, with those that have expired and were not replaced.
    pub items: AtomicU64,
    /// Random, so that no client can choose keys that meet in one chain.
    pub seed: AtomicU64,
    /// How often an item found the cache full.
    pub full: AtomicU64,
    /// How often a key or a value was too large, or the disk was full.
    pub refused: AtomicU64,
    /// Seconds since 1970 of the last change, if it is kept.
    pub changed_s: AtomicU64,
    /// Monotonic time of the last log line about a full cache, in milliseconds.
    pub said_full_ms: AtomicU64,
    /// The first block at which to look for free ones.
    pub next_block: AtomicU64,
    /// Of a file: a digest of the start of the system that wrote it last. The chains of a file that has seen another start may be
    /// those of several moments.
    pub system_start: AtomicU64,
    /// Numbers of the writes.
    pub writes: AtomicU32,
}

/// A line of counters.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}

/// The part of the buckets that one lock protects.
#[repr(C, align(256))]
#[derive(Debug)]
pub struct Shard {
    pub lock: RobustLock,
    /// No item expires before this time, in milliseconds since 1970; 0: none expires.
    pub next_expiry_ms: AtomicU64,
    /// The bucket at which the search for an item to purge continues.
    pub hand: AtomicU32,
    /// The oldest of the spare slots.
    pub oldest: AtomicU32,
    pub spares: [AtomicU32; SPARES],
}

/// The parts of a cache in its mapping.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    pub facts: &'a Facts,
    pub counters: &'a [Counters],
    pub shards: &'a [Shard],
    pub table: Table<'a>,
    /// The stack of free slots.
    pub stack: &'a [AtomicU32],
    /// A bit for each block that is in use; empty without `bitmap`.
    pub bitmap: &'a [AtomicU64],
    /// Most bytes of a value in a block.
    pub block_bytes: usize,
}

/// Numbers of the parts, and where they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub shards: usize,
    pub buckets: usize,
    pub slots: usize,
    pub key_words: usize,
    pub block_words: usize,
    pub blocks: usize,
    pub bitmap_words: usize,
    at_counters: usize,
    at_shards: usize,
    at_buckets: usize,
    at_stack: usize,
    at_bitmap: usize,
    at_slots: usize,
    at_keys: usize,
    at_values: usize,
    end: usize,
}

impl Sizes {
    /// Settings that are too large for any memory have a size that no memory has.
    pub fn of(settings: &SharedCache) -> Sizes {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        // Values that take several blocks compete for all blocks, so such a cache is not divided.
        let shards = if settings.items < SHARDED_FROM_ITEMS || settings.is_bitmap { 1 } else { SHARDS };
        let slots = number(settings.items).saturating_add(shards * SPARES);
        let buckets = slots.checked_next_power_of_two().unwrap_or(usize::MAX).max(shards);
        let blocks = if settings.is_bitmap { number(settings.blocks) } else { slots };
        let bitmap_words = if settings.is_bitmap { blocks.div_ceil(64) } else { 0 };
        let key_words = number(settings.key_bytes.into()).div_ceil(WORD_BYTES);
        let block_words = number(settings.block_bytes).div_ceil(WORD_BYTES);
        let after = |start: usize, count: usize, bytes: usize| {
            start.saturating_add(count.saturating_mul(bytes)).checked_next_multiple_of(64).unwrap_or(usize::MAX)
        };
        let at_counters = AT_COUNTERS;
        let at_shards = after(at_counters, COUNTER_LINES, size_of::<Counters>());
        let at_buckets = after(at_shards, shards, size_of::<Shard>());
        let at_stack = after(at_buckets, buckets, size_of::<AtomicU64>());
        let at_bitmap = after(at_stack, slots, size_of::<AtomicU32>());
        let at_slots = after(at_bitmap, bitmap_words, size_of::<AtomicU64>());
        let at_keys = after(at_slots, slots, size_of::<Slot>());
        let at_values = after(at_keys, slots.saturating_mul(key_words), WORD_BYTES);
        let end = after(at_values, blocks.saturating_mul(block_words), WORD_BYTES);
        Sizes {
            shards,
            buckets,
            slots,
            key_words,
            block_words,
            blocks,
            bitmap_words,
            at_counters,
            at_shards,
            at_buckets,
            at_stack,
            at_bitmap,
            at_slots,
            at_keys,
            at_values,
            end,
        }
    }

    /// Where a block begins in the structure, in bytes.
    pub fn byte_of_block(&self, block: u64) -> u64 {
        self.at_values as u64 + block * (self.block_words * WORD_BYTES) as u64
    }

    /// Bytes before the first key: what every use of the cache touches.
    pub fn bytes_before_keys(&self) -> u64 {
        self.at_keys as u64
    }

    /// Where a slot's key begins, in bytes.
    pub fn byte_of_key(&self, slot: usize) -> u64 {
        (self.at_keys + slot * self.key_words * WORD_BYTES) as u64
    }
}

/// Returns what the memory of a cache holds. Settings that only change what a process does are not part of it.
pub fn identity(settings: &SharedCache) -> Identity {
    let shape = [
        settings.items,
        settings.blocks,
        settings.block_bytes,
        settings.key_bytes.into(),
        settings.is_bitmap.into(),
        settings.store.is_some().into(),
    ];
    Identity { kind: MemoryKind::Cache, version: VERSION, shape: fingerprint(&shape), bytes: Sizes::of(settings).end }
}

impl<'a> Parts<'a> {
    /// The parts of a mapping of this identity.
    pub fn of(settings: &SharedCache, mapping: &'a Mapping) -> Parts<'a> {
        let sizes = Sizes::of(settings);
        assert!(mapping.body_bytes() >= sizes.end, "the mapping is that of other settings");
        Parts {
            facts: &slice::<Facts>(mapping, 0, 1)[0],
            counters: slice(mapping, sizes.at_counters, COUNTER_LINES),
            shards: slice(mapping, sizes.at_shards, sizes.shards),
            table: Table {
                buckets: slice(mapping, sizes.at_buckets, sizes.buckets),
                slots: slice(mapping, sizes.at_slots, sizes.slots),
                keys: slice(mapping, sizes.at_keys, sizes.slots * sizes.key_words),
                values: slice(mapping, sizes.at_values, sizes.blocks * sizes.block_words),
                key_words: sizes.key_words,
                block_words: sizes.block_words,
            },
            stack: slice(mapping, sizes.at_stack, sizes.slots),
            bitmap: slice(mapping, sizes.at_bitmap, sizes.bitmap_words),
            block_bytes: usize::try_from(settings.block_bytes).unwrap_or(usize::MAX).max(1),
        }
    }

    pub fn shard_of(&self, hash: u64) -> &'a Shard {
        &self.shards[self.shard_index(hash)]
    }

    pub fn shard_index(&self, hash: u64) -> usize {
        self.table.bucket_of(hash) & (self.shards.len() - 1)
    }

    /// The buckets of a shard.
    pub fn buckets_of(&self, shard: usize) -> impl Iterator<Item = usize> + use<> {
        (shard..self.table.buckets.len()).step_by(self.shards.len())
    }
}

/// Types that may stand in shared memory: atomics and locks only, so any bits are valid for them.
trait Shared {}

impl Shared for Facts {}
impl Shared for Counters {}
impl Shared for Shard {}
impl Shared for Slot {}
impl Shared for AtomicU32 {}
impl Shared for AtomicU64 {}

fn slice<T: Shared>(mapping: &Mapping, start: usize, count: usize) -> &[T] {
    assert!(start.is_multiple_of(align_of::<T>()) && start + count * size_of::<T>() <= mapping.body_bytes());
    // SAFETY: the range is in the mapping and aligned (checked above; the body is aligned to a page), which the result borrows,
    // and only accessed by atomics and locks.
    unsafe { std::slice::from_raw_parts(mapping.body().add(start).cast().as_ptr(), count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::settings;

    #[test]
    fn settings_that_no_memory_can_hold_are_too_large_instead_of_wrapping_around() {
        let mut huge = settings(u64::MAX);
        huge.block_bytes = u64::MAX;
        assert_eq!(Sizes::of(&huge).end, usize::MAX);
    }

    #[test]
    fn a_large_cache_is_divided_and_one_whose_values_take_several_blocks_is_not() {
        assert_eq!((Sizes::of(&settings(100)).shards, Sizes::of(&settings(5000)).shards), (1, SHARDS));
        let mut bitmap = settings(5000);
        bitmap.is_bitmap = true;
        assert_eq!(Sizes::of(&bitmap).shards, 1);
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn what_only_changes_how_processes_act_keeps_the_memory() {
        let one = settings(100);
        let mut other = one.clone();
        other.never_expires = true;
        other.origin = "y.ini:7".to_owned();
        assert_eq!(identity(&one), identity(&other));
        other.key_bytes += 1;
        assert_ne!(identity(&one), identity(&other));
    }
}
