//! The items of a cache in shared memory: slots that hang in chains below buckets. Readers do not take locks. Writers have the
//! lock of the bucket's shard, so there is one at a time in each chain.
//!
//! A slot in a chain never changes: a new value is written to a slot outside of all chains, one store makes it the first of its
//! chain, and one more takes the old slot out. So a writer that dies at any point leaves whole chains. A reader finds by the
//! slot's sequence number that the slot was reused while it read, and by the bucket's count of changes that the item that it
//! looks for may have moved to the beginning; then it reads again.
//!
//! It knows neither locks nor memory files. `models` runs this file under every order in which a writer and readers can meet.

use std::mem::MaybeUninit;

use crate::atomics::{AtomicU32, AtomicU64, Ordering, fence, load_string, store_string};
use Ordering::{Acquire, Relaxed, Release};

/// Read attempts before a reader gives up. An attempt fails only if a writer changed the chain, or reused the slot, during it.
pub const MAX_READS: u32 = 64;
/// Bytes of a word, in which keys and values are read and written.
pub const WORD_BYTES: usize = 8;

/// `marks`: the slot is in a chain. Only a startup that does not trust the chains of a file reads it.
pub const LIVE: u32 = 1;
/// `marks`: the disk has room for the slot's block.
pub const BACKED: u32 = 2;
/// `used`: the item was read since the search for one to purge came by.
const READ: u32 = 1;
/// `used`: the item may be a whole response, from its status line on. Versions of Bolide without this bit never set it, so their
/// items are none.
const RESPONSE: u32 = 2;
/// `marks`: the lowest bit of the number of the write.
const WRITE_SHIFT: u32 = 2;

/// An item, or room for one. Zeroed memory is a free slot.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Slot {
    /// Odd while the slot is written.
    sequence: AtomicU64,
    hash: AtomicU64,
    key_bytes: AtomicU32,
    /// The next slot of the chain, by its index from 1; 0 at the end.
    next: AtomicU32,
    value_bytes: AtomicU64,
    /// Milliseconds since 1970; 0 is never.
    expires_ms: AtomicU64,
    /// The index of the value's first block.
    block: AtomicU64,
    /// Of key and value, if the cache has a file.
    checksum: AtomicU64,
    /// [`READ`] and [`RESPONSE`].
    used: AtomicU32,
    /// [`LIVE`], [`BACKED`] and the number of the write.
    marks: AtomicU32,
}

/// What a writer puts into a slot.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    pub hash: u64,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub expires_ms: u64,
    pub block: u64,
    pub checksum: u64,
    pub marks: u32,
    pub content: Content,
}

/// What an item is to `check-cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The body of a page, whatever it begins with: it may be the work of a client.
    Body,
    /// A whole response, if it begins like one: the configuration or the application has stored it.
    Response,
}

/// A reader's buffer for a value.
pub trait Sink {
    /// Copies a value of this many bytes. It may be called again, if the value was replaced in the meantime. False: there is no
    /// room for it, and the read ends.
    fn copy(&mut self, words: &[AtomicU64], bytes: usize) -> bool;
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The sink has the value. It expires at this time, in milliseconds since 1970; 0 is never.
    Hit {
        expires_ms: u64,
        content: Content,
    },
    Miss,
    /// The sink had no room.
    NoRoom,
    /// Writers were quicker in each attempt.
    Overtaken,
}

/// Where a writer found an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub slot: usize,
    /// The slot before it in the chain.
    pub before: Option<usize>,
}

/// The parts of the memory. A table is a view and owns nothing.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The first slot of each chain by its index from 1, in the low half, and a count of changes in the high half. A power of
    /// two.
    pub buckets: &'a [AtomicU64],
    pub slots: &'a [Slot],
    pub keys: &'a [AtomicU64],
    pub values: &'a [AtomicU64],
    /// Words of a key, and of a block.
    pub key_words: usize,
    pub block_words: usize,
}

impl<'a> Table<'a> {
    pub fn bucket_of(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Reads the value of a key into the sink. `now_ms` is asked only for an item that expires.
    #[inline]
    pub fn read(&self, hash: u64, key: &[u8], now_ms: impl Fn() -> u64, sink: &mut impl Sink) -> Outcome {
        let bucket = self.bucket_of(hash);
        let Some(place) = self.buckets.get(bucket) else { return Outcome::Miss };
        'attempts: for _ in 0..MAX_READS {
            let first = place.load(Acquire);
            let mut next = first as u32;
            for _ in 0..=self.slots.len() {
                let Some(index) = (next as usize).checked_sub(1) else { break };
                let Some(slot) = self.slots.get(index) else { continue 'attempts };
                let sequence = slot.sequence.load(Acquire);
                let found = slot.hash.load(Relaxed);
                next = slot.next.load(Acquire);
                let is_it = found == hash && self.has_key(index, key);
                let (bytes, block) = (slot.value_bytes.load(Relaxed), slot.block.load(Relaxed));
                let expires_ms = slot.expires_ms.load(Relaxed);
                let used = slot.used.load(Relaxed);
                if !slot.is_still(sequence) || self.bucket_of(found) != bucket {
                    continue 'attempts;
                }
                if !is_it {
                    continue;
                }
                if expires_ms != 0 && expires_ms <= now_ms() {
                    return Outcome::Miss;
                }
                let Some(words) = self.value_words(block, bytes) else { continue 'attempts };
                if !sink.copy(words, bytes as usize) {
                    return Outcome::NoRoom;
                }
                if !slot.is_still(sequence) {
                    continue 'attempts;
                }
                if used & READ == 0 {
                    slot.used.fetch_or(READ, Relaxed);
                }
                let content = if used & RESPONSE == 0 { Content::Body } else { Content::Response };
                return Outcome::Hit { expires_ms, content };
            }
            // The item may have been put to the beginning of the chain after it was read, and taken out behind that.
            fence(Acquire);
            if place.load(Relaxed) == first {
                return Outcome::Miss;
            }
        }
        Outcome::Overtaken
    }

    /// Finds a key, expired or not. The caller has the lock of its shard.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Place> {
        let mut chain = self.chain(self.bucket_of(hash));
        chain.find(|place| self.slots[place.slot].hash.load(Relaxed) == hash && self.has_key(place.slot, key))
    }

    /// The slots of a bucket. The caller has the lock of its shard, or checks afterwards what it has read.
    pub fn chain(&self, bucket: usize) -> Chain<'a> {
        let next = self.buckets.get(bucket).map_or(0, |place| place.load(Acquire) as u32);
        Chain { slots: self.slots, next, before: None, rest: self.slots.len() }
    }

    /// Writes an item to a slot that is in no chain. [`Table::link`] must follow.
    pub fn fill(&self, index: usize, item: &Item<'_>) {
        let slot = &self.slots[index];
        // After a writer that died here, the number is odd already.
        let odd = slot.sequence.load(Relaxed).wrapping_add(1) | 1;
        // A reader that sees this also sees that the slot has left its chain, and one that sees any of the following sees this.
        slot.sequence.store(odd, Release);
        fence(Release);
        slot.hash.store(item.hash, Relaxed);
        slot.key_bytes.store(item.key.len() as u32, Relaxed);
        slot.value_bytes.store(item.value.len() as u64, Relaxed);
        slot.expires_ms.store(item.expires_ms, Relaxed);
        slot.block.store(item.block, Relaxed);
        slot.checksum.store(item.checksum, Relaxed);
        slot.used.store(if item.content == Content::Response { READ | RESPONSE } else { READ }, Relaxed);
        slot.marks.store(item.marks, Relaxed);
        slot.next.store(self.buckets[self.bucket_of(item.hash)].load(Relaxed) as u32, Relaxed);
        write_words(&self.keys[index * self.key_words..], item.key);
        write_words(&self.values[item.block as usize * self.block_words..], item.value);
        slot.sequence.store(odd.wrapping_add(1), Release);
    }

    /// Makes a filled slot the first of its chain: readers find it from now on. The caller has the lock of its shard.
    pub fn link(&self, index: usize) {
        let place = &self.buckets[self.bucket_of(self.slots[index].hash.load(Relaxed))];
        place.store(changed(place.load(Relaxed), index as u32 + 1), Release);
    }

    /// Takes a slot out of its chain. Its content stays until it is filled again. The caller has the lock of its shard.
    pub fn unlink(&self, place: Place) {
        let slot = &self.slots[place.slot];
        let next = slot.next.load(Relaxed);
        match place.before {
            Some(before) => self.slots[before].next.store(next, Release),
            None => {
                let bucket = &self.buckets[self.bucket_of(slot.hash.load(Relaxed))];
                bucket.store(changed(bucket.load(Relaxed), next), Release);
            }
        }
        slot.marks.fetch_and(!LIVE, Relaxed);
    }

    /// Lets readers of a slot that is in no chain read again: its blocks are about to be written for another slot.
    pub fn disown(&self, index: usize) {
        let slot = &self.slots[index];
        slot.sequence.store(slot.sequence.load(Relaxed).wrapping_add(2), Relaxed);
        fence(Release);
    }

    /// The words of a value; `None`: the numbers are torn.
    pub fn value_words(&self, block: u64, bytes: u64) -> Option<&'a [AtomicU64]> {
        let first = usize::try_from(block).ok()?.checked_mul(self.block_words)?;
        let words = usize::try_from(bytes).ok()?.div_ceil(WORD_BYTES);
        self.values.get(first..first.checked_add(words)?)
    }

    /// The key of a slot, as it is now. `None`: the numbers are torn.
    pub fn key(&self, index: usize) -> Option<Vec<u8>> {
        let bytes = self.slots.get(index)?.key_bytes.load(Relaxed) as usize;
        let words = self.keys.get(index * self.key_words..)?.get(..bytes.div_ceil(WORD_BYTES).min(self.key_words))?;
        let mut key: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        key.truncate(bytes);
        (key.len() == bytes).then_some(key)
    }

    /// Whether the slot's key is this one. The result counts only if the slot did not change in the meantime.
    #[inline]
    fn has_key(&self, index: usize, key: &[u8]) -> bool {
        if self.slots[index].key_bytes.load(Relaxed) as usize != key.len() {
            return false;
        }
        let Some(words) = self.keys.get(index * self.key_words..) else { return false };
        words_of(key).zip(words).all(|(word, place)| place.load(Relaxed) == word)
    }
}

impl Slot {
    /// Whether the slot is what it was when the number was read. A number that is odd never is.
    #[inline]
    fn is_still(&self, sequence: u64) -> bool {
        fence(Acquire);
        // Acquire: the next attempt begins with what the writer had done before.
        sequence.is_multiple_of(2) && self.sequence.load(Acquire) == sequence
    }

    pub fn hash(&self) -> u64 {
        self.hash.load(Relaxed)
    }

    pub fn key_bytes(&self) -> u32 {
        self.key_bytes.load(Relaxed)
    }

    pub fn value_bytes(&self) -> u64 {
        self.value_bytes.load(Relaxed)
    }

    pub fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Relaxed)
    }

    pub fn has_expired(&self, now_ms: u64) -> bool {
        let expires_ms = self.expires_ms();
        expires_ms != 0 && expires_ms <= now_ms
    }

    pub fn block(&self) -> u64 {
        self.block.load(Relaxed)
    }

    pub fn checksum(&self) -> u64 {
        self.checksum.load(Relaxed)
    }

    pub fn marks(&self) -> u32 {
        self.marks.load(Relaxed)
    }

    /// Returns whether the item was read since the last call.
    pub fn take_used(&self) -> bool {
        self.used.fetch_and(!READ, Relaxed) & READ != 0
    }

    /// Ends the chain behind this slot.
    pub fn end_chain(&self) {
        if self.next.load(Relaxed) != 0 {
            self.next.store(0, Release);
        }
    }

    pub fn sequence(&self) -> u64 {
        self.sequence.load(Acquire)
    }

    /// As for readers of values.
    pub fn is_unchanged(&self, sequence: u64) -> bool {
        self.is_still(sequence)
    }

    /// Hangs a slot of a file into a chain that is made again: the index from 1 of the slot behind it.
    pub fn set_next(&self, next: u32) {
        self.next.store(next, Relaxed);
    }
}

/// The slots of a chain.
#[derive(Debug)]
pub struct Chain<'a> {
    slots: &'a [Slot],
    next: u32,
    before: Option<usize>,
    /// A chain has no more slots than there are: torn chains end too.
    rest: usize,
}

impl Iterator for Chain<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let slot = (self.next as usize).checked_sub(1)?;
        self.rest = self.rest.checked_sub(1)?;
        self.next = self.slots.get(slot)?.next.load(Acquire);
        let place = Place { slot, before: self.before };
        self.before = Some(slot);
        Some(place)
    }
}

/// The `marks` of a write with this number. The numbers wrap around.
pub fn marks_of(write: u32, is_backed: bool) -> u32 {
    write << WRITE_SHIFT | LIVE | if is_backed { BACKED } else { 0 }
}

/// Whether the first write came after the second one.
pub fn is_later(marks: u32, than: u32) -> bool {
    ((marks & !3).wrapping_sub(than & !3) as i32) > 0
}

/// A bucket after a change.
fn changed(bucket: u64, first: u32) -> u64 {
    ((bucket >> 32).wrapping_add(1) << 32) | u64::from(first)
}

/// Bytes as words, the last one filled up with zeroes.
#[inline]
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let whole = bytes.chunks_exact(WORD_BYTES);
    let rest = whole.remainder();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; WORD_BYTES];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_ne_bytes(word)
    });
    whole.map(|chunk| chunk.try_into().map_or(0, u64::from_ne_bytes)).chain(last)
}

#[inline]
fn write_words(places: &[AtomicU64], bytes: &[u8]) {
    if store_string(places, bytes) {
        return;
    }
    for (place, word) in places.iter().zip(words_of(bytes)) {
        place.store(word, Relaxed);
    }
}

/// Copies a value out of the shared memory. Both have the same length, but for the end of the last word.
#[inline]
pub fn copy_words(words: &[AtomicU64], to: &mut [MaybeUninit<u8>]) {
    if load_string(words, to) {
        return;
    }
    let whole = to.len() / WORD_BYTES;
    let start = to.as_mut_ptr();
    for (index, word) in words.iter().take(whole).enumerate() {
        let word = word.load(Relaxed);
        // SAFETY: the word is one of the whole words of `to`, so its bytes lie within; the write does not need alignment. (As a
        // copy of eight bytes between slices it costs ten times as much.)
        unsafe { start.add(index * WORD_BYTES).cast::<u64>().write_unaligned(word) };
    }
    let rest = &mut to[whole * WORD_BYTES..];
    if let Some(word) = words.get(whole) {
        for (place, byte) in rest.iter_mut().zip(word.load(Relaxed).to_ne_bytes()) {
            place.write(byte);
        }
    }
}
