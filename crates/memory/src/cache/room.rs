//! The room of a cache: free slots, spare slots and blocks, and which items make way when it is full. The callers hold the lock
//! of the shard that they pass.

use std::io;
use std::time::Duration;

use bolide_contract::services::{SharedCache, WhenFull};

use crate::atomics::Ordering::Relaxed;
use crate::cache::layout::{Facts, Parts, SPARES, Shard};
use crate::cache::stage::{Stage, reached};
use crate::cache::table::Place;
use crate::robust_lock::Guard;

/// The longest wait for a lock, in milliseconds. A holder needs microseconds; only a process that was stopped (SIGSTOP) holds one
/// for longer.
pub const MAX_LOCK_MS: u64 = 5000;

/// Takes a free slot out of the stack, for another item. `None`: the cache has all the items that it may have.
///
/// # Errors
/// The lock is held for too long.
pub fn take_slot(parts: &Parts<'_>) -> io::Result<Option<usize>> {
    let _guard = lock_pool(parts.facts)?;
    let free = parts.facts.free.load(Relaxed);
    let Some(slot) = free.checked_sub(1).and_then(|top| parts.stack.get(top as usize)) else { return Ok(None) };
    let slot = slot.load(Relaxed) as usize;
    reached(Stage::PoolLocked);
    parts.facts.free.store(free - 1, Relaxed);
    parts.facts.items.fetch_add(1, Relaxed);
    Ok(Some(slot))
}

/// Puts a free slot back into the stack: there is an item less.
///
/// # Errors
/// The lock is held for too long. The slot is lost until the next repair.
pub fn return_slot(parts: &Parts<'_>, slot: usize) -> io::Result<()> {
    let _guard = lock_pool(parts.facts)?;
    let free = parts.facts.free.load(Relaxed);
    if let Some(place) = parts.stack.get(free as usize) {
        place.store(slot as u32, Relaxed);
        parts.facts.free.store(free + 1, Relaxed);
        parts.facts.items.fetch_sub(1, Relaxed);
    }
    reached(Stage::SlotReturned);
    Ok(())
}

fn lock_pool(facts: &Facts) -> io::Result<Guard<'_>> {
    let guard = facts.pool.lock_within(Duration::from_millis(MAX_LOCK_MS))?.ok_or(io::ErrorKind::TimedOut)?;
    if guard.left_by.is_some() {
        // The stack is whole at each moment. A slot in the hands of the dead process is missing until the repair.
        facts.needs_repair.store(1, Relaxed);
    }
    Ok(guard)
}

/// The slot for a value that replaces another one.
pub fn spare(shard: &Shard) -> usize {
    shard.spares[shard.oldest.load(Relaxed) as usize % SPARES].load(Relaxed) as usize
}

/// Keeps a slot that has left its chain as the youngest spare. Returns the oldest one.
pub fn exchange_spare(shard: &Shard, slot: usize) -> usize {
    let oldest = shard.oldest.load(Relaxed);
    let place = &shard.spares[oldest as usize % SPARES];
    let taken = place.load(Relaxed);
    place.store(slot as u32, Relaxed);
    shard.oldest.store(oldest.wrapping_add(1) % SPARES as u32, Relaxed);
    reached(Stage::SpareExchanged);
    taken as usize
}

/// Takes an item out of its chain and frees its room.
///
/// # Errors
/// As [`return_slot`].
pub fn remove(parts: &Parts<'_>, shard: &Shard, place: Place) -> io::Result<()> {
    parts.table.unlink(place);
    reached(Stage::OldUnlinked);
    free_blocks_of(parts, place.slot);
    return_slot(parts, exchange_spare(shard, place.slot))
}

/// Removes all items of a shard that match. Returns how many.
///
/// # Errors
/// As [`return_slot`].
pub fn remove_all(parts: &Parts<'_>, index: usize, is_removed: impl Fn(u64) -> bool) -> io::Result<u64> {
    let (shard, table) = (&parts.shards[index], &parts.table);
    let (mut removed, mut next_expiry_ms) = (0, 0);
    for bucket in parts.buckets_of(index) {
        let mut before = None;
        for place in table.chain(bucket) {
            let expires_ms = table.slots[place.slot].expires_ms();
            if is_removed(expires_ms) {
                remove(parts, shard, Place { before, ..place })?;
                removed += 1;
                continue;
            }
            before = Some(place.slot);
            if expires_ms != 0 && (next_expiry_ms == 0 || expires_ms < next_expiry_ms) {
                next_expiry_ms = expires_ms;
            }
        }
    }
    shard.next_expiry_ms.store(next_expiry_ms, Relaxed);
    Ok(removed)
}

/// Makes room in a shard: removes what has expired, or with `purge_lru` an item that was not read for long. Returns whether an
/// item was removed.
///
/// # Errors
/// As [`return_slot`].
pub fn make_room(parts: &Parts<'_>, settings: &SharedCache, index: usize, now_ms: u64) -> io::Result<bool> {
    let next_expiry_ms = parts.shards[index].next_expiry_ms.load(Relaxed);
    if next_expiry_ms != 0 && next_expiry_ms <= now_ms && !settings.never_expires {
        let has_expired = |expires_ms: u64| expires_ms != 0 && expires_ms <= now_ms;
        if remove_all(parts, index, has_expired)? > 0 {
            return Ok(true);
        }
    }
    match settings.when_full {
        WhenFull::Purge => purge(parts, index),
        WhenFull::Refuse | WhenFull::Clear => Ok(false),
    }
}

/// Removes an item that was not read since this search came by last. Two rounds suffice: the first one clears what was read.
fn purge(parts: &Parts<'_>, index: usize) -> io::Result<bool> {
    let (shard, table) = (&parts.shards[index], &parts.table);
    let step = parts.shards.len();
    let of_shard = table.buckets.len() / step;
    let start = shard.hand.load(Relaxed) as usize;
    for offset in 0..2 * of_shard + 1 {
        let turn = (start + offset) % of_shard;
        for place in table.chain(index + turn * step) {
            if !table.slots[place.slot].take_used() {
                shard.hand.store(turn as u32, Relaxed);
                remove(parts, shard, place)?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Reserves consecutive blocks for a value. `None`: there is no such run of free ones. Without `bitmap` each slot has its own
/// block.
pub fn take_blocks(parts: &Parts<'_>, bytes: usize) -> Option<u64> {
    let needed = blocks_for(parts, bytes);
    let all = parts.table.values.len() / parts.table.block_words;
    if needed > all {
        return None;
    }
    let start = parts.facts.next_block.load(Relaxed) as usize % all;
    let first = free_run(parts, start, all, needed).or_else(|| free_run(parts, 0, (start + needed).min(all), needed))?;
    for block in first..first + needed {
        parts.bitmap[block / 64].fetch_or(1 << (block % 64), Relaxed);
    }
    parts.facts.next_block.store((first + needed) as u64, Relaxed);
    reached(Stage::BlocksMarked);
    Some(first as u64)
}

/// Finds consecutive free blocks between two numbers.
fn free_run(parts: &Parts<'_>, start: usize, end: usize, needed: usize) -> Option<usize> {
    let mut found = 0;
    let mut block = start;
    while block < end {
        let word = parts.bitmap[block / 64].load(Relaxed);
        if word == u64::MAX && block.is_multiple_of(64) {
            (found, block) = (0, block + 64);
            continue;
        }
        found = if word >> (block % 64) & 1 == 0 { found + 1 } else { 0 };
        block += 1;
        if found == needed {
            return Some(block - needed);
        }
    }
    None
}

/// Frees the blocks of a slot that has left its chain. Its readers read again, since another value may come into the blocks.
pub fn free_blocks_of(parts: &Parts<'_>, slot: usize) {
    if parts.bitmap.is_empty() {
        return;
    }
    parts.table.disown(slot);
    let slot = &parts.table.slots[slot];
    free_blocks(parts, slot.block(), slot.value_bytes() as usize);
}

pub fn free_blocks(parts: &Parts<'_>, first: u64, bytes: usize) {
    if parts.bitmap.is_empty() {
        return;
    }
    for block in (first as usize..).take(blocks_for(parts, bytes)) {
        if let Some(word) = parts.bitmap.get(block / 64) {
            word.fetch_and(!(1 << (block % 64)), Relaxed);
        }
    }
}

/// How many blocks a value takes. A block holds no more than the settings say, though it begins at a word.
pub fn blocks_for(parts: &Parts<'_>, bytes: usize) -> usize {
    bytes.div_ceil(parts.block_bytes).max(1)
}
