//! The cache that the processes of an instance share: uWSGI's caching framework. Readers do not take locks or wait for processes;
//! a writer has the lock of one shard. A process that dies at any point leaves whole values, and the next writer, or the
//! prototype, puts the rest right.
//!
//! It knows neither languages nor requests nor logs. The master makes a cache, its prototype recovers it, and every process that
//! has the application reads and writes it.

pub mod counts;
pub mod digest;
pub mod layout;
pub mod repair;
pub mod room;
mod stage;
pub mod store;
pub mod table;

use std::cell::Cell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use bolide_contract::clock::{now_ms as monotonic_ms, wall_ms};
use bolide_contract::services::{SharedCache, WhenFull};

use crate::atomics::AtomicU64;
use crate::atomics::Ordering::Relaxed;
pub use crate::cache::counts::Counts;
use crate::cache::digest::{checksum_of, hash_of};
use crate::cache::layout::{COUNTER_LINES, Counters, Parts, Shard, Sizes};
use crate::cache::room::MAX_LOCK_MS;
use crate::cache::stage::{Stage, reached};
use crate::cache::table::{BACKED, Item, Place, Sink};
pub use crate::cache::table::{Content, MAX_READS, Outcome};
use crate::mapping::Mapping;
use crate::robust_lock::{Guard, Left, Recovery, own_pid};

/// How often a write begins again because other processes took the room that it had made.
const MAX_ATTEMPTS: u32 = 8;
/// A prototype repairs a cache with at most this many slots itself; a larger one is left to the next writer, since no worker is
/// forked in the meantime.
const REPAIR_AT_ONCE_SLOTS: usize = 200_000;
/// Time between two log lines about a full cache, in milliseconds.
const SAY_FULL_EVERY_MS: u64 = 60_000;
/// Bytes of a number.
const NUMBER_BYTES: usize = 8;

/// A cache, as a process sees it.
#[derive(Debug)]
pub struct Cache {
    settings: SharedCache,
    parts: Parts<'static>,
    /// The file of the cache, and where its parts stand in it.
    file: Option<(OwnedFd, Sizes)>,
}

/// What a writer does if another process holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It returns [`Written::Busy`].
    Never,
    /// It waits, up to [`MAX_LOCK_MS`].
    Bounded,
}

/// What becomes of an item that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// It stays: `cache_set`.
    Add(&'a [u8]),
    /// It is replaced: `cache_update`.
    Update(&'a [u8]),
    /// It is a number that is changed. The time of its expiry stays.
    Calculate(Calculation, i64),
}

/// `cache_inc` and the related functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calculation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// What a written item has besides its key and its value.
#[derive(Clone, Copy)]
struct Attributes {
    expires_s: i64,
    content: Content,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The item to add exists, or the item to delete does not.
    Unchanged,
    /// The key is empty or too long, or the value is.
    Unfit,
    /// There is no room. The first process that finds it so within a minute is to log it.
    Full {
        is_to_be_said: bool,
    },
    /// The lock was held for as long as the writer waits.
    Busy,
    /// The disk of the cache's file is full.
    DiskFull {
        is_to_be_said: bool,
    },
}

impl Cache {
    /// The cache of a mapping.
    ///
    /// # Errors
    /// The descriptor of its file can't be copied.
    pub fn attach(settings: &SharedCache, mapping: &'static Mapping, descriptor: BorrowedFd<'_>) -> io::Result<Cache> {
        let file = settings.store.as_ref().map(|_| descriptor.try_clone_to_owned()).transpose()?;
        let file = file.map(|file| (file, Sizes::of(settings)));
        Ok(Cache { settings: settings.clone(), parts: Parts::of(settings, mapping), file })
    }

    pub fn name(&self) -> &str {
        &self.settings.name
    }

    pub fn settings(&self) -> &SharedCache {
        &self.settings
    }

    /// Reads the value of a key into the sink.
    #[inline]
    pub fn get(&self, key: &[u8], sink: &mut impl Sink) -> Outcome {
        let outcome = self.parts.table.read(self.hash(key), key, || self.now_ms(), sink);
        let counters = self.counters();
        match outcome {
            Outcome::Hit { .. } => counters.hits.fetch_add(1, Relaxed),
            _ => counters.misses.fetch_add(1, Relaxed),
        };
        outcome
    }

    /// Returns whether there is an item, which is not counted as a read of it.
    pub fn exists(&self, key: &[u8]) -> bool {
        let outcome = self.parts.table.read(self.hash(key), key, || self.now_ms(), &mut Nowhere);
        matches!(outcome, Outcome::Hit { .. })
    }

    /// Writes an item, which is a body to `check-cache`. It expires after this many seconds; 0 is never, and an item with less
    /// has expired already.
    pub fn put(&self, key: &[u8], change: Change<'_>, expires_s: i64, waiting: Waiting) -> Written {
        self.put_as(Content::Body, key, change, expires_s, waiting)
    }

    /// The same for any content.
    pub fn put_as(&self, content: Content, key: &[u8], change: Change<'_>, expires_s: i64, waiting: Waiting) -> Written {
        self.put_counted(key, change, Attributes { expires_s, content }, waiting, &Cell::new(0))
    }

    /// Adds to a number, as [`Change::Calculate`]. Returns the sum, which no other process has got.
    ///
    /// # Errors
    /// It is not stored.
    pub fn count(&self, key: &[u8], operand: i64, expires_s: i64, waiting: Waiting) -> Result<i64, Written> {
        let number = Cell::new(0);
        let attributes = Attributes { expires_s, content: Content::Body };
        match self.put_counted(key, Change::Calculate(Calculation::Add, operand), attributes, waiting, &number) {
            Written::Done => Ok(number.get()),
            written => Err(written),
        }
    }

    fn put_counted(
        &self,
        key: &[u8],
        change: Change<'_>,
        attributes: Attributes,
        waiting: Waiting,
        number: &Cell<i64>,
    ) -> Written {
        let most = self.settings.block_bytes.saturating_mul(if self.settings.is_bitmap { self.settings.blocks } else { 1 });
        let bytes = match change {
            Change::Add(value) | Change::Update(value) => value.len(),
            Change::Calculate(..) => NUMBER_BYTES,
        };
        if key.is_empty() || bytes == 0 || key.len() > self.settings.key_bytes as usize || bytes as u64 > most {
            self.parts.facts.refused.fetch_add(1, Relaxed);
            return Written::Unfit;
        }
        let hash = self.hash(key);
        let index = self.parts.shard_index(hash);
        for _ in 0..MAX_ATTEMPTS {
            let guard = match self.enter(index, waiting) {
                Ok(guard) => guard,
                Err(written) => return written,
            };
            if let Some(written) = self.put_in(index, hash, key, change, attributes, number).unwrap_or(Some(Written::Busy)) {
                return written;
            }
            drop(guard);
            if !self.make_room_elsewhere(index, waiting) {
                break;
            }
        }
        Written::Full { is_to_be_said: self.note_full() }
    }

    /// Deletes an item.
    pub fn delete(&self, key: &[u8], waiting: Waiting) -> Written {
        let hash = self.hash(key);
        let guard = match self.enter(self.parts.shard_index(hash), waiting) {
            Ok(guard) => guard,
            Err(written) => return written,
        };
        let Some(place) = self.parts.table.find(hash, key) else { return Written::Unchanged };
        let has_expired = self.has_expired(place);
        if room::remove(&self.parts, self.parts.shard_of(hash), place).is_err() {
            return Written::Busy;
        }
        self.note_change();
        drop(guard);
        if has_expired { Written::Unchanged } else { Written::Done }
    }

    /// Deletes all items.
    pub fn clear(&self, waiting: Waiting) -> Written {
        for index in 0..self.parts.shards.len() {
            let guard = match self.enter(index, waiting) {
                Ok(guard) => guard,
                Err(written) => return written,
            };
            if room::remove_all(&self.parts, index, |_| true).is_err() {
                return Written::Busy;
            }
            drop(guard);
        }
        self.note_change();
        Written::Done
    }

    /// Returns the keys of all items that have not expired.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let (table, now_ms) = (&self.parts.table, self.now_ms());
        let mut keys = Vec::new();
        for bucket in 0..table.buckets.len() {
            let known = keys.len();
            // A chain that changes while it is read is read again.
            'attempts: for _ in 0..MAX_READS {
                keys.truncate(known);
                for place in table.chain(bucket) {
                    let slot = &table.slots[place.slot];
                    let sequence = slot.sequence();
                    let (key, has_expired, hash) = (table.key(place.slot), slot.has_expired(now_ms), slot.hash());
                    if !slot.is_unchanged(sequence) || table.bucket_of(hash) != bucket {
                        continue 'attempts;
                    }
                    keys.extend(key.filter(|_| !has_expired));
                }
                break;
            }
        }
        keys
    }

    pub fn counts(&self) -> Counts {
        counts::of_parts(&self.parts)
    }

    /// Puts a cache right whose process has died inside a lock. It is only needed when a lock was left.
    fn repair(&self, waiting: Waiting) -> Result<(), Written> {
        repair_with(&self.parts, waiting).then_some(()).ok_or(Written::Busy)
    }

    /// Takes the lock of a shard, and repairs the cache before if a process died inside a lock.
    fn enter(&self, index: usize, waiting: Waiting) -> Result<Guard<'static>, Written> {
        let shard = &self.parts.shards[index];
        for _ in 0..MAX_ATTEMPTS {
            let guard = lock_shard(shard, waiting).ok_or(Written::Busy)?;
            if guard.left_by.is_some() {
                self.parts.facts.needs_repair.store(1, Relaxed);
            }
            if self.parts.facts.needs_repair.load(Relaxed) == 0 {
                reached(Stage::ShardLocked);
                return Ok(guard);
            }
            // All locks are taken in one order.
            drop(guard);
            self.repair(waiting)?;
        }
        Err(Written::Busy)
    }

    /// Writes an item to a shard that is locked. `None`: the shard has no room for it.
    fn put_in(
        &self,
        index: usize,
        hash: u64,
        key: &[u8],
        change: Change<'_>,
        Attributes { expires_s, content }: Attributes,
        result: &Cell<i64>,
    ) -> io::Result<Option<Written>> {
        let (parts, shard) = (&self.parts, &self.parts.shards[index]);
        let found = parts.table.find(hash, key);
        let current = found.filter(|place| !self.has_expired(*place));
        let number;
        let value = match change {
            Change::Add(_) if current.is_some() => return Ok(Some(Written::Unchanged)),
            Change::Add(value) | Change::Update(value) => value,
            Change::Calculate(calculation, operand) => {
                result.set(calculated(calculation, self.number_at(current), operand));
                number = result.get().to_ne_bytes();
                &number[..]
            }
        };
        let expires_ms = match (change, current) {
            (Change::Calculate(..), Some(place)) => parts.table.slots[place.slot].expires_ms(),
            _ if expires_s == 0 || self.settings.never_expires => 0,
            _ => wall_ms().saturating_add_signed(expires_s.saturating_mul(1000)).max(1),
        };
        if expires_s < 0 && expires_ms != 0 && !matches!((change, current), (Change::Calculate(..), Some(_))) {
            if let Some(place) = found {
                room::remove(parts, shard, place)?;
            }
            return Ok(Some(Written::Done));
        }
        self.replace(index, &Item { hash, key, value, expires_ms, block: 0, checksum: 0, marks: 0, content })
    }

    /// Writes an item to a free slot, hangs it into its chain and takes the old one out.
    fn replace(&self, index: usize, item: &Item<'_>) -> io::Result<Option<Written>> {
        let (parts, shard) = (&self.parts, &self.parts.shards[index]);
        let mut block = None;
        if !parts.bitmap.is_empty() {
            let Some(taken) = self.take_blocks(index, item.value.len())? else { return Ok(None) };
            block = Some(taken);
        }
        let free_blocks = |block: Option<u64>| {
            if let Some(block) = block {
                room::free_blocks(parts, block, item.value.len());
            }
        };
        // Room was made only in other items' places: the item itself may have been one of these.
        let found = parts.table.find(item.hash, item.key);
        let slot = match found {
            Some(_) => Some(room::spare(shard)),
            None => self.take_slot(index)?,
        };
        let Some(slot) = slot else {
            free_blocks(block);
            return Ok(None);
        };
        reached(Stage::SlotTaken);
        let mut item = Item { block: block.unwrap_or(slot as u64), ..*item };
        if let Err(error) = self.prepare_file(slot, &mut item) {
            free_blocks(block);
            if found.is_none() {
                room::return_slot(parts, slot)?;
            }
            parts.facts.refused.fetch_add(1, Relaxed);
            return match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    Ok(Some(Written::DiskFull { is_to_be_said: self.note_full() }))
                }
                _ => Err(error),
            };
        }
        parts.table.fill(slot, &item);
        reached(Stage::SlotFilled);
        note_expiry(shard, item.expires_ms);
        parts.table.link(slot);
        reached(Stage::SlotLinked);
        if let Some(Place { slot: old, before }) = found {
            parts.table.unlink(Place { slot: old, before: before.or(Some(slot)) });
            reached(Stage::OldUnlinked);
            room::free_blocks_of(parts, old);
            room::exchange_spare(shard, old);
        }
        self.note_change();
        Ok(Some(Written::Done))
    }

    /// Takes a free slot, and makes room in the shard if there is none.
    fn take_slot(&self, index: usize) -> io::Result<Option<usize>> {
        if let Some(slot) = room::take_slot(&self.parts)? {
            return Ok(Some(slot));
        }
        self.parts.facts.full.fetch_add(1, Relaxed);
        if !room::make_room(&self.parts, &self.settings, index, self.now_ms())? {
            return Ok(None);
        }
        room::take_slot(&self.parts)
    }

    fn take_blocks(&self, index: usize, bytes: usize) -> io::Result<Option<u64>> {
        if let Some(block) = room::take_blocks(&self.parts, bytes) {
            return Ok(Some(block));
        }
        self.parts.facts.full.fetch_add(1, Relaxed);
        for _ in 0..self.parts.table.slots.len() {
            if !room::make_room(&self.parts, &self.settings, index, self.now_ms())? {
                break;
            }
            if let Some(block) = room::take_blocks(&self.parts, bytes) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Makes room in another shard than the one that is full. Returns whether there may be room now. No lock is held.
    fn make_room_elsewhere(&self, index: usize, waiting: Waiting) -> bool {
        if self.settings.when_full == WhenFull::Clear {
            return self.clear(waiting) == Written::Done;
        }
        let now_ms = self.now_ms();
        for (other, shard) in self.parts.shards.iter().enumerate().filter(|(other, _)| *other != index) {
            let next_expiry_ms = shard.next_expiry_ms.load(Relaxed);
            let may_have_room = next_expiry_ms != 0 && next_expiry_ms <= now_ms || self.settings.when_full == WhenFull::Purge;
            if !may_have_room {
                continue;
            }
            let Ok(guard) = self.enter(other, waiting) else { continue };
            let has_room = room::make_room(&self.parts, &self.settings, other, now_ms);
            drop(guard);
            if has_room.unwrap_or(false) {
                return true;
            }
        }
        false
    }

    /// With a file: reserves the room on the disk that the item needs, since a write to a page without room would end the process
    /// (SIGBUS); and computes what a later start checks.
    fn prepare_file(&self, slot: usize, item: &mut Item<'_>) -> io::Result<()> {
        let Some((file, sizes)) = &self.file else { return Ok(()) };
        if self.parts.table.slots[slot].marks() & BACKED == 0 {
            let key_bytes = (sizes.key_words * table::WORD_BYTES) as u64;
            store::reserve(file, sizes.byte_of_key(slot), key_bytes)?;
            if self.parts.bitmap.is_empty() {
                let block_bytes = (sizes.block_words * table::WORD_BYTES) as u64;
                store::reserve(file, sizes.byte_of_block(item.block), block_bytes)?;
            }
        }
        item.marks = table::marks_of(self.parts.facts.writes.fetch_add(1, Relaxed), true);
        item.checksum = checksum_of(item.key, item.value, item.expires_ms);
        Ok(())
    }

    fn number_at(&self, place: Option<Place>) -> i64 {
        let Some(place) = place else { return self.settings.first_number };
        let slot = &self.parts.table.slots[place.slot];
        let words = self.parts.table.value_words(slot.block(), slot.value_bytes());
        // As in uWSGI, the first bytes of any value are a number.
        words.and_then(<[AtomicU64]>::first).map_or(0, |word| word.load(Relaxed).cast_signed())
    }

    fn has_expired(&self, place: Place) -> bool {
        self.parts.table.slots[place.slot].has_expired(self.now_ms())
    }

    /// The time that expiry is compared with. With `no_expire`, no time is reached.
    fn now_ms(&self) -> u64 {
        if self.settings.never_expires { 0 } else { wall_ms() }
    }

    fn note_change(&self) {
        if self.settings.notes_changes {
            self.parts.facts.changed_s.store(wall_ms() / 1000, Relaxed);
        }
    }

    /// Returns whether this process is to log that the cache is full.
    fn note_full(&self) -> bool {
        if self.settings.ignores_full {
            return false;
        }
        let (said, now) = (&self.parts.facts.said_full_ms, monotonic_ms().max(1));
        let last = said.load(Relaxed);
        (last == 0 || now.saturating_sub(last) >= SAY_FULL_EVERY_MS) && said.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        hash_of(key, self.parts.facts.seed.load(Relaxed))
    }

    #[inline]
    fn counters(&self) -> &Counters {
        &self.parts.counters[own_pid() as usize % COUNTER_LINES]
    }
}

/// Repairs what a process held that has ended. A prototype calls it, and never waits.
pub fn recover(settings: &SharedCache, parts: &Parts<'_>, pid: u32) -> Option<Recovery> {
    let locks = parts.shards.iter().map(|shard| &shard.lock).chain([&parts.facts.pool]);
    let mut was_held = false;
    for lock in locks {
        match lock.recover(pid) {
            Ok(Left::Held(_)) => {
                was_held = true;
                parts.facts.needs_repair.store(1, Relaxed);
            }
            Ok(Left::Recovered) => was_held = true,
            Ok(Left::Free) | Err(_) => {}
        }
    }
    if parts.facts.needs_repair.load(Relaxed) != 0 && parts.table.slots.len() <= REPAIR_AT_ONCE_SLOTS {
        // If a writer holds a lock, it repairs the rest itself when it comes the next time.
        repair_with(parts, Waiting::Never);
    }
    was_held.then(|| Recovery {
        what: format!("the cache \"{}\"", settings.name),
        lost: "the write that it had begun is dropped".to_owned(),
    })
}

/// Takes all locks and puts the cache right. Returns false if a lock was held for too long.
fn repair_with(parts: &Parts<'_>, waiting: Waiting) -> bool {
    let mut guards = Vec::with_capacity(parts.shards.len());
    for shard in parts.shards {
        let Some(guard) = lock_shard(shard, waiting) else { return false };
        guards.push(guard);
    }
    let pool = match waiting {
        Waiting::Never => parts.facts.pool.try_lock(),
        Waiting::Bounded => parts.facts.pool.lock_within(Duration::from_millis(MAX_LOCK_MS)),
    };
    let Ok(Some(_pool)) = pool else { return false };
    if parts.facts.needs_repair.load(Relaxed) != 0 || guards.iter().any(|guard| guard.left_by.is_some()) {
        repair::rebuild(parts);
    }
    true
}

fn lock_shard(shard: &Shard, waiting: Waiting) -> Option<Guard<'_>> {
    let taken = match (shard.lock.try_lock(), waiting) {
        (Ok(None), Waiting::Bounded) => shard.lock.lock_within(Duration::from_millis(MAX_LOCK_MS)),
        (taken, _) => taken,
    };
    taken.ok().flatten()
}

fn note_expiry(shard: &Shard, expires_ms: u64) {
    let next_expiry_ms = shard.next_expiry_ms.load(Relaxed);
    if expires_ms != 0 && (next_expiry_ms == 0 || expires_ms < next_expiry_ms) {
        shard.next_expiry_ms.store(expires_ms, Relaxed);
    }
}

/// As in uWSGI: numbers wrap around, and a division by zero gives zero.
fn calculated(calculation: Calculation, number: i64, operand: i64) -> i64 {
    match calculation {
        Calculation::Add => number.wrapping_add(operand),
        Calculation::Subtract => number.wrapping_sub(operand),
        Calculation::Multiply => number.wrapping_mul(operand),
        Calculation::Divide if operand == 0 => 0,
        Calculation::Divide => number.wrapping_div(operand),
    }
}

/// A sink for those who only ask whether there is a value.
struct Nowhere;

impl Sink for Nowhere {
    fn copy(&mut self, _: &[AtomicU64], _: usize) -> bool {
        true
    }
}

/// A sink for a value in a buffer of its own.
impl Sink for Vec<u8> {
    fn copy(&mut self, words: &[AtomicU64], bytes: usize) -> bool {
        self.clear();
        self.reserve(words.len() * table::WORD_BYTES);
        words.iter().for_each(|word| self.extend_from_slice(&word.load(Relaxed).to_ne_bytes()));
        self.truncate(bytes);
        true
    }
}

#[cfg(test)]
mod kill_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
