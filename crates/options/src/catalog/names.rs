//! Maps by the names of options, with a hash that costs a few instructions: startup and each command fill them. The
//! names are those of the tables, so no client can choose names that collide. It must not know an option.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub type NameMap<Value> = HashMap<&'static str, Value, BuildHasherDefault<NameHasher>>;
pub type NameSet = HashSet<&'static str, BuildHasherDefault<NameHasher>>;
pub type LetterMap<Value> = HashMap<char, Value, BuildHasherDefault<NameHasher>>;

/// A multiplication and a rotation for each eight bytes.
#[derive(Default)]
pub struct NameHasher(u64);

impl NameHasher {
    /// An odd number without a pattern in its bits: the fraction of the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(NameHasher::FACTOR);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        self.add(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn finish(&self) -> u64 {
        // The map takes its highest and its lowest bits.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::catalog::catalog;

    #[test]
    fn the_names_of_the_options_do_not_collide() {
        let hash = |name| BuildHasherDefault::<NameHasher>::default().hash_one(name);
        let hashes: HashSet<u64> = catalog().names().map(hash).collect();
        assert_eq!(hashes.len(), catalog().names().count());
        // Nor do they crowd: by chance, 1,357 names fall on 85 % as many of 4,096 places.
        let places: HashSet<u64> = hashes.iter().map(|hash| hash % 4096).collect();
        assert!(places.len() * 10 > hashes.len() * 8, "{} of {}", places.len(), hashes.len());
    }
}
