//! The hash of a key and the checksum of an item, by multiplications of 128 bits. It does not know memories.

use crate::cache::table::words_of;

/// Odd numbers without a pattern: digits of pi.
const FIRST: u64 = 0x243f_6a88_85a3_08d3;
const SECOND: u64 = 0x1319_8a2e_0370_7345;

/// Returns the hash of a key. Without the seed, no client can choose keys of the same hash.
#[inline]
pub fn hash_of(key: &[u8], seed: u64) -> u64 {
    let length = key.len() as u64;
    mixed(words_of(key).fold(seed ^ length.wrapping_mul(SECOND), |state, word| mixed(state ^ word, FIRST ^ seed)), SECOND)
}

/// Returns a checksum that tells an item that was written in part from a whole one.
pub fn checksum_of(key: &[u8], value: &[u8], expires_ms: u64) -> u64 {
    let lengths = (key.len() as u64) << 32 ^ value.len() as u64 ^ expires_ms.rotate_left(20);
    words_of(key)
        .chain(words_of(value))
        .fold(mixed(lengths, FIRST), |state, word| mixed(state ^ word, SECOND).wrapping_add(FIRST))
}

#[inline]
fn mixed(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_a_bit_or_in_zeroes_at_the_end_have_other_hashes_and_seeds_too() {
        let keys: [&[u8]; 5] = [b"a", b"b", b"a\0", b"a\0\0", b"aaaaaaaaa"];
        let hashes: std::collections::HashSet<u64> = keys.iter().flat_map(|key| [hash_of(key, 1), hash_of(key, 2)]).collect();
        assert_eq!(hashes.len(), 10);
    }

    #[test]
    fn a_checksum_depends_on_each_part() {
        let sums = [(b"k", b"v", 1), (b"k", b"v", 2), (b"k", b"w", 1), (b"l", b"v", 1)];
        let sums: std::collections::HashSet<u64> =
            sums.iter().map(|(key, value, expires_ms)| checksum_of(*key, *value, *expires_ms)).collect();
        assert_eq!(sums.len(), 4);
    }
}
