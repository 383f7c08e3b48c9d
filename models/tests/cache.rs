//! Readers of a cache, which do not take locks, while its one writer replaces, deletes and adds items in slots that it uses
//! again.

use bolide_models::cache_table::{Content, Item, Outcome, Sink, Slot, Table};
use bolide_models::explore;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Enough to tell whole values from torn ones.
const VALUE_WORDS: usize = 2;

fn content_of(number: u64) -> Content {
    if number.is_multiple_of(2) { Content::Response } else { Content::Body }
}

/// The parts of a cache with one chain.
struct Memory {
    buckets: Vec<AtomicU64>,
    slots: Vec<Slot>,
    keys: Vec<AtomicU64>,
    values: Vec<AtomicU64>,
}

impl Memory {
    fn new(slots: usize) -> Memory {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Memory {
            buckets: words(1),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            keys: words(slots),
            values: words(slots * VALUE_WORDS),
        }
    }

    fn table(&self) -> Table<'_> {
        Table {
            buckets: &self.buckets,
            slots: &self.slots,
            keys: &self.keys,
            values: &self.values,
            key_words: 1,
            block_words: VALUE_WORDS,
        }
    }

    /// Writes a key's value to a free slot and puts it into the chain, as `Cache::replace` does. Returns the slot that was taken
    /// out.
    fn put(&self, slot: usize, key: u8, number: u64) -> Option<usize> {
        let table = self.table();
        let found = table.find(key.into(), &[key]);
        let value: Vec<u8> = [number; VALUE_WORDS].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let item = Item {
            hash: key.into(),
            key: &[key],
            value: &value,
            expires_ms: 0,
            block: slot as u64,
            checksum: 0,
            marks: 0,
            // It goes with the value: an even number is a response.
            content: content_of(number),
        };
        table.fill(slot, &item);
        table.link(slot);
        let mut old = found?;
        old.before = old.before.or(Some(slot));
        table.unlink(old);
        Some(old.slot)
    }

    fn delete(&self, key: u8) {
        if let Some(place) = self.table().find(key.into(), &[key]) {
            self.table().unlink(place);
        }
    }

    /// The number of a key; `None` if there is none. Both words must be the same.
    fn get(&self, key: u8) -> Option<u64> {
        let mut words = Words::default();
        match self.table().read(key.into(), &[key], || 0, &mut words) {
            Outcome::Hit { content, .. } => {
                assert_eq!(content, content_of(words.0[0]));
                assert!(words.0.iter().all(|word| *word == words.0[0]), "torn: {:?}", words.0);
                Some(words.0[0])
            }
            outcome => {
                assert_eq!(outcome, Outcome::Miss);
                None
            }
        }
    }
}

#[derive(Default)]
struct Words([u64; VALUE_WORDS]);

impl Sink for Words {
    fn copy(&mut self, words: &[AtomicU64], _: usize) -> bool {
        for (place, word) in self.0.iter_mut().zip(words) {
            *place = word.load(Relaxed);
        }
        true
    }
}

/// Runs a writer beside a reader of a key. Returns what the reader saw. The reader is the spawned thread, because loom does not
/// try a read before a write whose thread has read the same place itself in the meantime.
fn read_beside(memory: &Arc<Memory>, key: u8, write: impl FnOnce(&Memory)) -> Option<u64> {
    let reader = loom::thread::spawn({
        let memory = memory.clone();
        move || memory.get(key)
    });
    write(memory);
    reader.join().unwrap_or_else(|_| panic!("the reader has failed"))
}

#[test]
fn a_reader_sees_a_whole_value_of_a_key_that_is_replaced_and_never_none() {
    explore(|| {
        let memory = Arc::new(Memory::new(2));
        memory.put(0, 1, 1);
        let seen = read_beside(&memory, 1, |memory| {
            // The second one comes into the slot that the reader may be reading.
            let free = memory.put(1, 1, 2).expect("the first slot");
            memory.put(free, 1, 3);
        });
        assert!(seen.is_some_and(|number| (1..=3).contains(&number)), "{seen:?}");
        assert_eq!(memory.get(1), Some(3));
    });
}

#[test]
fn a_reader_finds_a_key_that_moves_from_behind_its_neighbor_to_the_beginning_of_the_chain() {
    explore(|| {
        let memory = Arc::new(Memory::new(3));
        memory.put(0, 1, 1);
        memory.put(1, 2, 7);
        let seen = read_beside(&memory, 1, |memory| {
            memory.put(2, 1, 2);
        });
        assert!(matches!(seen, Some(1 | 2)), "{seen:?}");
        assert_eq!((memory.get(1), memory.get(2)), (Some(2), Some(7)));
    });
}

#[test]
fn a_reader_of_a_deleted_key_gets_its_own_value_or_none_although_the_slot_is_used_again() {
    explore(|| {
        let memory = Arc::new(Memory::new(1));
        memory.put(0, 1, 1);
        let seen = read_beside(&memory, 1, |memory| {
            memory.delete(1);
            memory.put(0, 2, 9);
        });
        assert!(matches!(seen, None | Some(1)), "{seen:?}");
        assert_eq!((memory.get(1), memory.get(2)), (None, Some(9)));
    });
}
