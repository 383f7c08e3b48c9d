//! Makes a cache whole when a process has died inside a lock, and finds the items in a file. Chains are whole at each moment, so
//! what hangs in them is right, and everything else is free. The caller holds all locks of the cache, or is alone with it.

use std::io;

use crate::atomics::Ordering::{Relaxed, Release};
use crate::cache::layout::{COUNTER_LINES, Parts};
use crate::cache::room;
use crate::cache::stage::{Stage, reached};
use crate::cache::table::{self, BACKED, LIVE, Place};

/// Makes the locks of a cache, with which no process works yet.
///
/// # Errors
/// The system has no robust mutexes.
pub fn begin_locks(parts: &Parts<'_>) -> io::Result<()> {
    parts.facts.pool.begin()?;
    parts.shards.iter().try_for_each(|shard| shard.lock.begin())
}

/// Makes an empty cache of zeroed memory.
///
/// # Errors
/// The system has no robust mutexes.
pub fn begin(parts: &Parts<'_>, seed: u64, system_start: u64) -> io::Result<()> {
    begin_locks(parts)?;
    parts.facts.seed.store(seed, Relaxed);
    parts.facts.system_start.store(system_start, Relaxed);
    rebuild(parts);
    Ok(())
}

/// Makes the free slots, the blocks and the counts again, from what hangs in the chains. If a key is in a chain twice, its writer
/// died before it could take the older one out, which is behind the other.
pub fn rebuild(parts: &Parts<'_>) {
    let table = &parts.table;
    let mut is_live = vec![false; table.slots.len()];
    parts.bitmap.iter().for_each(|word| word.store(0, Relaxed));
    let mut items = 0;
    for (index, shard) in parts.shards.iter().enumerate() {
        let mut next_expiry_ms = 0;
        for bucket in parts.buckets_of(index) {
            let mut kept: Vec<Place> = Vec::new();
            for place in table.chain(bucket) {
                let before = kept.last().map(|place| place.slot);
                let place = Place { before, ..place };
                // Two chains that meet, or a slot of another one: a file that was changed by another program.
                if is_live[place.slot] || table.bucket_of(table.slots[place.slot].hash()) != bucket {
                    break;
                }
                is_live[place.slot] = true;
                if kept.iter().any(|earlier| is_same_key(parts, earlier.slot, place.slot)) {
                    table.unlink(place);
                    is_live[place.slot] = false;
                    continue;
                }
                kept.push(place);
            }
            end_chain(parts, bucket, kept.last().map(|place| place.slot));
            for Place { slot, .. } in kept {
                items += 1;
                let slot = &table.slots[slot];
                let expires_ms = slot.expires_ms();
                if expires_ms != 0 && (next_expiry_ms == 0 || expires_ms < next_expiry_ms) {
                    next_expiry_ms = expires_ms;
                }
                mark_blocks(parts, slot.block(), slot.value_bytes() as usize);
            }
        }
        shard.next_expiry_ms.store(next_expiry_ms, Relaxed);
        shard.hand.store(0, Relaxed);
        reached(Stage::Repairing);
    }
    let is_backed = |slot: &usize| table.slots[*slot].marks() & BACKED != 0;
    // Slots with room on the disk are used first: the others may get none.
    let (backed, others): (Vec<usize>, Vec<usize>) = (0..table.slots.len()).filter(|slot| !is_live[*slot]).partition(is_backed);
    let mut free = backed.into_iter().chain(others);
    for place in parts.shards.iter().flat_map(|shard| &shard.spares) {
        place.store(free.next().unwrap_or(0) as u32, Relaxed);
    }
    parts.shards.iter().for_each(|shard| shard.oldest.store(0, Relaxed));
    // The first one is taken first, so that an almost empty cache touches little memory.
    let rest: Vec<usize> = free.collect();
    for (place, slot) in parts.stack.iter().zip(rest.iter().rev()) {
        place.store(*slot as u32, Relaxed);
    }
    parts.facts.free.store(rest.len() as u32, Relaxed);
    parts.facts.items.store(items, Relaxed);
    parts.facts.needs_repair.store(0, Release);
}

/// Cuts a chain behind its last good slot, where it leads to something else.
fn end_chain(parts: &Parts<'_>, bucket: usize, last: Option<usize>) {
    match last {
        Some(last) => parts.table.slots[last].end_chain(),
        None if parts.table.buckets[bucket].load(Relaxed) as u32 != 0 => parts.table.buckets[bucket].store(0, Release),
        None => {}
    }
}

/// Hangs the slots of a file into chains again, if the chains can't be trusted: those whose content is complete by `is_whole`.
/// Returns how many were dropped.
pub fn rehang(parts: &Parts<'_>, is_whole: impl Fn(usize) -> bool) -> u64 {
    let table = &parts.table;
    parts.table.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
    parts.bitmap.iter().for_each(|word| word.store(0, Relaxed));
    let mut dropped = 0;
    for (index, slot) in table.slots.iter().enumerate() {
        if slot.marks() & LIVE == 0 {
            continue;
        }
        let fits = slot.key_bytes() as usize <= table.key_words * table::WORD_BYTES
            && table.value_words(slot.block(), slot.value_bytes()).is_some()
            && (!parts.bitmap.is_empty() || slot.block() == index as u64);
        if !fits || !is_whole(index) {
            dropped += 1;
            continue;
        }
        let Some(key) = table.key(index) else { continue };
        match table.find(slot.hash(), &key) {
            Some(older) if table::is_later(table.slots[older.slot].marks(), slot.marks()) => continue,
            Some(older) => table.unlink(older),
            None => {}
        }
        if has_free_blocks(parts, index) {
            mark_blocks(parts, slot.block(), slot.value_bytes() as usize);
            slot.set_next(table.buckets[table.bucket_of(slot.hash())].load(Relaxed) as u32);
            table.link(index);
        } else {
            dropped += 1;
        }
    }
    for line in parts.counters.iter().take(COUNTER_LINES) {
        line.hits.store(0, Relaxed);
        line.misses.store(0, Relaxed);
    }
    dropped
}

/// Two slots of a file that claim the same blocks were not written at the same time.
fn has_free_blocks(parts: &Parts<'_>, slot: usize) -> bool {
    let slot = &parts.table.slots[slot];
    let blocks = (slot.block() as usize..).take(room::blocks_for(parts, slot.value_bytes() as usize));
    parts.bitmap.is_empty()
        || blocks
            .into_iter()
            .all(|block| parts.bitmap.get(block / 64).is_some_and(|word| word.load(Relaxed) >> (block % 64) & 1 == 0))
}

fn mark_blocks(parts: &Parts<'_>, first: u64, bytes: usize) {
    if parts.bitmap.is_empty() {
        return;
    }
    for block in (first as usize..).take(room::blocks_for(parts, bytes)) {
        if let Some(word) = parts.bitmap.get(block / 64) {
            word.fetch_or(1 << (block % 64), Relaxed);
        }
    }
}

fn is_same_key(parts: &Parts<'_>, one: usize, other: usize) -> bool {
    let table = &parts.table;
    table.slots[one].hash() == table.slots[other].hash() && table.key(one) == table.key(other)
}
