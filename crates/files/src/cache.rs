//! Recently found files by the path of the request: a bounded table with clock eviction. It must not know its contents, only
//! their weight. Workers run it.

use std::collections::HashMap;

/// The cost of keeping a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    pub bytes: u64,
    pub descriptors: usize,
}

/// The bounds of the table.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub entries: usize,
    pub bytes: u64,
    pub descriptors: usize,
}

pub struct Cache<T> {
    bounds: Bounds,
    slots: Vec<Slot<T>>,
    index: HashMap<Box<[u8]>, usize>,
    hand: usize,
    held: Weight,
}

struct Slot<T> {
    key: Box<[u8]>,
    content: T,
    weight: Weight,
    /// Used since the hand passed by.
    used: bool,
    /// Unused since the last search for idle entries.
    is_idle: bool,
}

impl<T> Cache<T> {
    pub fn new(bounds: Bounds) -> Cache<T> {
        Cache { bounds, slots: Vec::new(), index: HashMap::new(), hand: 0, held: Weight::default() }
    }

    pub fn get(&mut self, key: &[u8]) -> Option<&T> {
        let slot = self.slots.get_mut(*self.index.get(key)?)?;
        slot.used = true;
        slot.is_idle = false;
        Some(&slot.content)
    }

    /// Inserts a content and replaces an earlier one of the same key. One that is larger than the bounds is not kept.
    pub fn put(&mut self, key: &[u8], content: T, weight: Weight) {
        self.remove(key);
        if self.bounds.entries == 0 || weight.bytes > self.bounds.bytes || weight.descriptors > self.bounds.descriptors {
            return;
        }
        while self.slots.len() >= self.bounds.entries
            || self.held.bytes + weight.bytes > self.bounds.bytes
            || self.held.descriptors + weight.descriptors > self.bounds.descriptors
        {
            self.evict();
        }
        self.held.bytes += weight.bytes;
        self.held.descriptors += weight.descriptors;
        self.index.insert(key.into(), self.slots.len());
        self.slots.push(Slot { key: key.into(), content, weight, used: false, is_idle: false });
    }

    pub fn remove(&mut self, key: &[u8]) {
        if let Some(index) = self.index.get(key) {
            self.remove_at(*index);
        }
    }

    /// Drops all entries that hold a descriptor.
    pub fn shed_descriptors(&mut self) {
        let mut index = 0;
        while let Some(slot) = self.slots.get(index) {
            if slot.weight.descriptors > 0 { self.remove_at(index) } else { index += 1 }
        }
    }

    /// Drops the entries that hold a descriptor and were not used since the last call. Returns whether any entry still holds one.
    pub fn shed_idle_descriptors(&mut self) -> bool {
        let mut index = 0;
        while let Some(slot) = self.slots.get_mut(index) {
            if slot.weight.descriptors > 0 && std::mem::replace(&mut slot.is_idle, true) {
                self.remove_at(index);
            } else {
                index += 1;
            }
        }
        self.held.descriptors > 0
    }

    pub fn holds_descriptors(&self) -> bool {
        self.held.descriptors > 0
    }

    /// Evicts the next entry that was not used since the hand last passed by. Terminates, because one round clears every mark.
    fn evict(&mut self) {
        while let Some(slot) = self.slots.get_mut(self.hand) {
            if !std::mem::take(&mut slot.used) {
                return self.remove_at(self.hand);
            }
            self.hand = (self.hand + 1) % self.slots.len();
        }
        self.hand = 0;
    }

    fn remove_at(&mut self, index: usize) {
        let slot = self.slots.swap_remove(index);
        self.index.remove(&slot.key);
        if let Some(moved) = self.slots.get(index) {
            self.index.insert(moved.key.clone(), index);
        }
        self.held.bytes -= slot.weight.bytes;
        self.held.descriptors -= slot.weight.descriptors;
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { entries: 4, bytes: 100, descriptors: 2 };

    fn bytes(bytes: u64) -> Weight {
        Weight { bytes, descriptors: 0 }
    }

    #[test]
    fn an_entry_that_is_used_again_stays() {
        let mut cache = Cache::new(BOUNDS);
        for key in ["a", "b", "c", "d"] {
            cache.put(key.as_bytes(), key, bytes(1));
        }
        assert_eq!(cache.get(b"a"), Some(&"a"));
        for number in 0..3 {
            cache.put(format!("new {number}").as_bytes(), "new", bytes(1));
            assert_eq!(cache.get(b"a"), Some(&"a"));
        }
        assert_eq!(cache.get(b"b"), None);
    }

    #[test]
    fn an_entry_that_is_too_large_is_not_kept_and_evicts_no_other() {
        let mut cache = Cache::new(BOUNDS);
        cache.put(b"a", 1, bytes(10));
        cache.put(b"large", 2, bytes(101));
        cache.put(b"many", 3, Weight { bytes: 0, descriptors: 3 });
        assert_eq!(["a", "large", "many"].map(|key| cache.get(key.as_bytes()).copied()), [Some(1), None, None]);
        cache.put(b"a", 4, bytes(101));
        assert_eq!(cache.get(b"a"), None, "nor does the old one stay in its place");
    }

    #[test]
    fn all_descriptors_can_be_dropped_at_once() {
        let mut cache = Cache::new(BOUNDS);
        for (number, descriptors) in [0, 1, 1, 0].into_iter().enumerate() {
            cache.put(&[number as u8], number, Weight { bytes: 1, descriptors });
        }
        cache.shed_descriptors();
        assert_eq!(cache.held, bytes(2));
        assert_eq!([0, 1, 2, 3].map(|key| cache.get(&[key]).copied()), [Some(0), None, None, Some(3)]);
    }

    #[test]
    fn unused_descriptors_are_dropped_in_the_second_round() {
        let mut cache = Cache::new(BOUNDS);
        for (number, descriptors) in [0, 1, 1].into_iter().enumerate() {
            cache.put(&[number as u8], number, Weight { bytes: 1, descriptors });
        }
        assert!(cache.shed_idle_descriptors());
        assert_eq!(cache.get(&[1]), Some(&1));
        assert!(cache.shed_idle_descriptors());
        assert_eq!([0, 1, 2].map(|key| cache.index.contains_key(&[key][..])), [true, true, false]);
        assert!(!cache.shed_idle_descriptors() && !cache.holds_descriptors());
    }

    proptest! {
        #[test]
        fn the_bounds_hold_and_the_totals_are_right(
            puts in prop::collection::vec((0u8..12, 0u64..60, 0usize..2, any::<bool>()), 0..80),
        ) {
            let mut cache = Cache::new(BOUNDS);
            for (key, bytes, descriptors, look) in puts {
                if look {
                    let found = cache.get(&[key]).copied();
                    prop_assert!(found.is_none_or(|content| content == key));
                } else {
                    cache.put(&[key], key, Weight { bytes, descriptors });
                    prop_assert!(cache.index.contains_key(&[key][..]));
                }
                let sum = cache.slots.iter().fold(Weight::default(), |sum, slot| Weight {
                    bytes: sum.bytes + slot.weight.bytes,
                    descriptors: sum.descriptors + slot.weight.descriptors,
                });
                prop_assert_eq!(sum, cache.held);
                prop_assert!(sum.bytes <= BOUNDS.bytes && sum.descriptors <= BOUNDS.descriptors);
                prop_assert!(cache.slots.len() <= BOUNDS.entries && cache.index.len() == cache.slots.len());
                prop_assert!(cache.index.iter().all(|(key, index)| cache.slots[*index].key == *key));
            }
        }
    }
}
