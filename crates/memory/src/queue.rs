//! The queue that processes share (`queue`): a ring of blocks of one size, with uWSGI's layout, so that the file of `queue-store`
//! can be read by uWSGI and back. It does not know configurations or open files. Every process of an instance runs it.
//!
//! One robust lock guards it. Each change is noted in a journal first: if its process dies half-way, the next holder of the lock
//! takes the change back, so that no item is torn and the order of items stays.

use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use bolide_contract::boot::MemoryKind;
use bolide_contract::sharing::Queue as Settings;

use crate::mapping::{Identity, Mapping, fingerprint};
use crate::region::Region;
use crate::robust_lock::{Guard, Left, Recovery, RobustLock};

/// The version of the layout.
const VERSION: u32 = 1;
/// The place of the data in the memory, behind the control. With `queue-store` the data is in the file instead.
const DATA_AT: usize = 4096;

/// Bytes in front of the blocks: the position of the next push, and that of the next pull.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a block in front of its item: length and time.
pub const ITEM_HEADER_BYTES: usize = 16;
/// Bytes of the smallest block: an item of one byte.
pub const MIN_BLOCK_BYTES: usize = ITEM_HEADER_BYTES + 1;

const PUSH_AT: usize = 0;
const PULL_AT: usize = 8;

/// The lock and the journal. They are never in the file of `queue-store`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct QueueControl {
    lock: RobustLock,
    /// The code of the change that is being made.
    change: AtomicU32,
    /// Before the change: its slot, the position that it moves, and the length of the slot's item.
    slot: AtomicU64,
    position: AtomicU64,
    length: AtomicU64,
    /// Changes that were taken back after the death of their process.
    recovered: AtomicU64,
}

/// Codes of changes in the journal.
const NONE: u32 = 0;
const PUSH: u32 = 1;
const PULL: u32 = 2;
const POP: u32 = 3;
const SET: u32 = 4;

/// A process's view of the queue.
#[derive(Debug, Clone, Copy)]
pub struct Queue<'a> {
    control: &'a QueueControl,
    data: Region,
    slots: u64,
    block_bytes: usize,
}

/// The items of a queue whose lock is held.
#[derive(Debug)]
pub struct Items<'a> {
    queue: &'a Queue<'a>,
    _held: std::marker::PhantomData<&'a Guard<'a>>,
}

/// Returns the bytes of a queue's data, or `None` if there are too many.
pub fn data_bytes(slots: u64, block_bytes: u64) -> Option<usize> {
    usize::try_from(slots.checked_mul(block_bytes)?).ok()?.checked_add(HEADER_BYTES)
}

/// Returns whether the header of a file is that of a queue of these slots: its positions are within their bounds.
pub fn is_header(header: &[u8; HEADER_BYTES], slots: u64) -> bool {
    header.chunks_exact(8).all(|word| word.try_into().is_ok_and(|word| u64::from_ne_bytes(word) < slots))
}

/// What the memory of a queue holds.
pub fn identity(settings: &Settings) -> Identity {
    let data = match settings.store {
        Some(_) => 0,
        None => data_bytes(settings.slots, settings.block_bytes).unwrap_or(usize::MAX),
    };
    // With another file it is another queue.
    let path = settings.store.iter().flat_map(|store| store.path.as_os_str().as_encoded_bytes()).map(|byte| u64::from(*byte));
    let shape = fingerprint(&[settings.slots, settings.block_bytes].into_iter().chain(path).collect::<Vec<u64>>());
    Identity { kind: MemoryKind::Queue, version: VERSION, shape, bytes: DATA_AT.saturating_add(data) }
}

/// Makes the lock.
///
/// # Errors
/// The system has no robust mutexes.
pub fn begin(mapping: &Mapping) -> io::Result<()> {
    control(mapping).begin()
}

/// Frees the lock of an exited process inside of it. The journal stays, and the next holder takes the change back: the
/// master does not touch the data, which a file may hold that another process shortens.
pub fn recover(mapping: &Mapping, pid: u32) -> Vec<Recovery> {
    match control(mapping).lock.recover(pid) {
        Ok(Left::Held(_) | Left::Recovered) => vec![Recovery { what: "the queue".to_owned(), lost: String::new() }],
        Ok(Left::Free) | Err(_) => Vec::new(),
    }
}

fn control(mapping: &Mapping) -> &QueueControl {
    // SAFETY: the memory is aligned and longer than the control (`identity`), and is zeroed or holds one: atomics and a mutex.
    unsafe { mapping.body().cast().as_ref() }
}

impl QueueControl {
    /// Makes the lock. The memory is zeroed, and no other process knows it.
    ///
    /// # Errors
    /// The system has no robust mutexes.
    pub fn begin(&self) -> io::Result<()> {
        self.lock.begin()
    }
}

impl Queue<'static> {
    /// The queue in memory that stays mapped. `None`: the data has not the size of the settings.
    pub fn attach(settings: &Settings, mapping: &'static Mapping, file: Option<&Region>) -> Option<Queue<'static>> {
        // SAFETY: the mapping is never dropped.
        unsafe { Queue::of(settings, mapping, file) }
    }
}

impl<'a> Queue<'a> {
    /// # Safety
    /// The mapping lives as long as the queue and all copies of it.
    unsafe fn of(settings: &Settings, mapping: &'a Mapping, file: Option<&Region>) -> Option<Queue<'a>> {
        let data = match file {
            Some(file) => *file,
            // SAFETY: the bytes behind the control; the caller keeps them mapped.
            None => unsafe { mapping.region(DATA_AT, data_bytes(settings.slots, settings.block_bytes)?)? },
        };
        Queue::new(control(mapping), data, settings.slots, settings.block_bytes)
    }

    /// `None`: the data has another size, or a block has no room for an item.
    pub fn new(control: &'a QueueControl, data: Region, slots: u64, block_bytes: u64) -> Option<Queue<'a>> {
        let fits = data_bytes(slots, block_bytes) == Some(data.bytes()) && slots > 0;
        let block_bytes = usize::try_from(block_bytes).ok().filter(|bytes| fits && *bytes >= MIN_BLOCK_BYTES)?;
        Some(Queue { control, data, slots, block_bytes })
    }

    /// Bytes of the largest item.
    pub fn item_bytes(&self) -> usize {
        self.block_bytes - ITEM_HEADER_BYTES
    }

    /// The number of slots.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns whether data from a file is that of a queue: positions and lengths are within their bounds.
    pub fn is_sound(&self) -> bool {
        let is_position = |at| self.data.get::<u64>(at).is_some_and(|position| position < self.slots);
        is_position(PUSH_AT) && is_position(PULL_AT) && (0..self.slots).all(|slot| self.length(slot) <= self.item_bytes() as u64)
    }

    /// The position of the next push. It does not need locks.
    pub fn push_position(&self) -> u64 {
        self.position(PUSH_AT)
    }

    /// The position of the next pull. It does not need locks.
    pub fn pull_position(&self) -> u64 {
        self.position(PULL_AT)
    }

    /// The number of slots with an item. It does not need locks.
    pub fn count(&self) -> u64 {
        (0..self.slots).filter(|slot| self.length(*slot) > 0).count() as u64
    }

    /// Changes that were taken back after the death of their process.
    pub fn recovered(&self) -> u64 {
        self.control.recovered.load(Relaxed)
    }

    pub fn lock(&self) -> &'a RobustLock {
        &self.control.lock
    }

    /// Returns the items, for the holder of the lock. If the last holder has died inside of a change, it is taken back first.
    pub fn items<'b>(&'b self, _: &'b Guard<'_>) -> Items<'b> {
        if self.control.change.load(SeqCst) != NONE {
            self.take_back();
        }
        Items { queue: self, _held: std::marker::PhantomData }
    }

    fn take_back(&self) {
        let words = [&self.control.slot, &self.control.position, &self.control.length];
        let [slot, position, length] = words.map(|word| word.load(SeqCst));
        if slot >= self.slots {
            return self.done();
        }
        match self.control.change.load(SeqCst) {
            PUSH => {
                self.set_length(slot, 0);
                self.set_position(PUSH_AT, position);
            }
            PULL => {
                self.set_position(PULL_AT, position);
                self.set_length(slot, length);
            }
            POP => {
                self.set_position(PUSH_AT, position);
                self.set_length(slot, length);
            }
            // The old item may be overwritten in part.
            SET => self.set_length(slot, 0),
            _ => return self.done(),
        }
        self.control.recovered.fetch_add(1, Relaxed);
        self.done();
    }

    fn begin(&self, change: u32, slot: u64, position: u64) {
        self.control.slot.store(slot, SeqCst);
        self.control.position.store(position, SeqCst);
        self.control.length.store(self.length(slot), SeqCst);
        self.control.change.store(change, SeqCst);
    }

    fn done(&self) {
        self.control.change.store(NONE, SeqCst);
    }

    /// The length is 0 while the item is written: a reader without the lock and a journal that is lost do not find a torn item.
    fn write_item(&self, slot: u64, item: &[u8], now_s: u64) {
        let block = self.block(slot);
        self.set_length(slot, 0);
        let written = self.data.copy_in(block + ITEM_HEADER_BYTES, item) && self.data.set(block + 8, now_s).is_some();
        debug_assert!(written, "the caller has checked slot and length");
        self.set_length(slot, item.len() as u64);
    }

    fn length(&self, slot: u64) -> u64 {
        self.data.get::<u64>(self.block(slot)).unwrap_or(0)
    }

    fn set_length(&self, slot: u64, length: u64) {
        self.set_word(self.block(slot), length);
    }

    fn position(&self, at: usize) -> u64 {
        // A position that is out of bounds, by a memory error of the application, counts as the first one.
        self.data.get::<u64>(at).filter(|position| *position < self.slots).unwrap_or(0)
    }

    fn set_position(&self, at: usize, position: u64) {
        self.set_word(at, position);
    }

    /// Writes a word that says what other bytes mean. The fences keep its place in the order of writes, for the process that
    /// recovers after a kill between two of them.
    fn set_word(&self, at: usize, word: u64) {
        fence(SeqCst);
        let written = self.data.set(at, word);
        debug_assert!(written.is_some(), "slots are below their number, and the header is in the data");
        fence(SeqCst);
    }

    fn block(&self, slot: u64) -> usize {
        HEADER_BYTES + slot as usize * self.block_bytes
    }

    fn after(&self, slot: u64) -> u64 {
        if slot + 1 >= self.slots { 0 } else { slot + 1 }
    }

    fn before(&self, slot: u64) -> u64 {
        if slot == 0 { self.slots - 1 } else { slot - 1 }
    }
}

impl Items<'_> {
    /// Adds an item. If all slots are in use, the oldest one is overwritten, as in uWSGI. False: it is empty or too large.
    pub fn push(&self, item: &[u8], now_s: u64) -> bool {
        let queue = self.queue;
        if item.is_empty() || item.len() > queue.item_bytes() {
            return false;
        }
        let slot = queue.push_position();
        queue.begin(PUSH, slot, slot);
        queue.write_item(slot, item, now_s);
        queue.set_position(PUSH_AT, queue.after(slot));
        queue.done();
        true
    }

    /// Writes an item into a slot. False: there is no such slot, or the item is empty or too large.
    pub fn set(&self, slot: u64, item: &[u8], now_s: u64) -> bool {
        let queue = self.queue;
        if item.is_empty() || item.len() > queue.item_bytes() || slot >= queue.slots {
            return false;
        }
        queue.begin(SET, slot, 0);
        queue.write_item(slot, item, now_s);
        queue.done();
        true
    }

    /// Takes the oldest item. `None`: there is none.
    pub fn pull(&self) -> Option<Vec<u8>> {
        let queue = self.queue;
        let slot = queue.pull_position();
        let item = self.get(slot)?;
        queue.begin(PULL, slot, slot);
        queue.set_position(PULL_AT, queue.after(slot));
        queue.set_length(slot, 0);
        queue.done();
        Some(item)
    }

    /// Takes the newest item. `None`: there is none. Unlike in uWSGI the position then stays, so that the next item is put where
    /// a pull looks for it.
    pub fn pop(&self) -> Option<Vec<u8>> {
        let queue = self.queue;
        let position = queue.push_position();
        let slot = queue.before(position);
        let item = self.get(slot)?;
        queue.begin(POP, slot, position);
        queue.set_position(PUSH_AT, slot);
        queue.set_length(slot, 0);
        queue.done();
        Some(item)
    }

    /// Returns the item of a slot. `None`: there is none.
    pub fn get(&self, slot: u64) -> Option<Vec<u8>> {
        let queue = self.queue;
        if slot >= queue.slots {
            return None;
        }
        // A length that is out of bounds, by a memory error of the application, is not an item.
        let length = usize::try_from(queue.length(slot)).ok().filter(|length| (1..=queue.item_bytes()).contains(length))?;
        let mut item = vec![0; length];
        queue.data.copy_out(queue.block(slot) + ITEM_HEADER_BYTES, &mut item).then_some(item)
    }

    /// Returns the items before the position of the next push, the newest first. Empty slots are `None`.
    pub fn last(&self, count: u64) -> Vec<Option<Vec<u8>>> {
        let mut slot = self.queue.push_position();
        let mut found = Vec::new();
        for _ in 0..count.min(self.queue.slots) {
            slot = self.queue.before(slot);
            found.push(self.get(slot));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::tests::region;

    fn queue(slots: u64, block_bytes: u64) -> Queue<'static> {
        let bytes = data_bytes(slots, block_bytes).expect("few");
        // SAFETY: zeroed memory is a valid control without a lock, which `begin` makes.
        let control: &'static QueueControl = Box::leak(unsafe { Box::<QueueControl>::new_zeroed().assume_init() });
        control.begin().expect("robust mutexes");
        Queue::new(control, region(bytes), slots, block_bytes).expect("it fits")
    }

    #[test]
    fn items_come_out_at_either_end_and_a_full_ring_overwrites_the_oldest() {
        let queue = queue(3, 32);
        let guard = queue.lock().lock().expect("free");
        let items = queue.items(&guard);
        assert_eq!((items.pull(), items.pop(), queue.push_position()), (None, None, 0));
        assert!(!items.push(b"", 1) && !items.push(&[1; 17], 1) && !items.set(3, b"x", 1), "empty, too large, no such slot");
        assert!(items.push(b"one", 1) && items.push(&[2; 16], 1) && items.push(b"three", 1));
        assert_eq!((queue.push_position(), queue.pull_position(), queue.count()), (0, 0, 3));
        assert!(items.push(b"four", 1));
        assert_eq!(items.last(9), [Some(b"four".to_vec()), Some(b"three".to_vec()), Some(vec![2; 16])]);
        assert_eq!((items.pull(), items.pop(), items.pop()), (Some(b"four".to_vec()), None, None));
        assert_eq!((items.pull(), items.get(2)), (Some(vec![2; 16]), Some(b"three".to_vec())));
        assert!(items.set(1, b"set", 1));
        assert_eq!((items.get(1), items.get(3)), (Some(b"set".to_vec()), None));
    }

    #[test]
    fn a_change_that_was_not_completed_is_taken_back() {
        let queue = queue(4, 32);
        let guard = queue.lock().lock().expect("free");
        let items = queue.items(&guard);
        assert!(items.push(b"one", 1) && items.push(b"two", 1));
        // Each change dies before its journal is closed, at its last step.
        let half = |change, slot, position| {
            queue.begin(change, slot, position);
            queue.control.change.load(SeqCst)
        };
        half(PUSH, 2, 2);
        queue.write_item(2, b"half", 1);
        queue.set_position(PUSH_AT, 3);
        queue.take_back();
        assert_eq!((queue.push_position(), items.get(2)), (2, None));
        half(PULL, 0, 0);
        queue.set_position(PULL_AT, 1);
        queue.set_length(0, 0);
        queue.take_back();
        half(POP, 1, 2);
        queue.set_position(PUSH_AT, 1);
        queue.set_length(1, 0);
        queue.take_back();
        assert_eq!((items.pull(), items.pull(), items.pull()), (Some(b"one".to_vec()), Some(b"two".to_vec()), None));
        assert!(items.push(b"three", 1));
        half(SET, 2, 0);
        queue.write_item(2, b"half", 1);
        queue.take_back();
        assert_eq!((items.get(2), queue.recovered()), (None, 4));
    }

    #[test]
    fn data_of_a_file_that_is_no_queue_is_told() {
        let queue = queue(2, 32);
        assert!(queue.is_sound());
        assert_eq!(queue.data.set(PULL_AT, 2u64), Some(()));
        assert!(!queue.is_sound());
        assert_eq!(queue.pull_position(), 0, "no position leads out of the blocks");
        assert_eq!((queue.data.set(PULL_AT, 1u64), queue.data.set(HEADER_BYTES, 17u64)), (Some(()), Some(())));
        assert!(!queue.is_sound());
        let guard = queue.lock().lock().expect("free");
        assert_eq!(queue.items(&guard).get(0), None, "nor does a length");
    }
}
