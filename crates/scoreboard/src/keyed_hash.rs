//! SipHash-2-4 (Aumasson and Bernstein, 2012): a hash with a secret, by which clients can't choose values that share a place in a
//! table. It does not know what is hashed. Workers run it.

/// Rounds for each word, and at the end.
const WORD_ROUNDS: usize = 2;
const LAST_ROUNDS: usize = 4;

const WORD_BYTES: usize = 8;

/// A hash of the bytes that were written to it.
pub struct KeyedHash {
    state: [u64; 4],
    /// The bytes that do not fill a word yet.
    tail: u64,
    bytes: u64,
}

impl KeyedHash {
    pub fn new([key0, key1]: [u64; 2]) -> KeyedHash {
        let state = [
            key0 ^ 0x736f_6d65_7073_6575,
            key1 ^ 0x646f_7261_6e64_6f6d,
            key0 ^ 0x6c79_6765_6e65_7261,
            key1 ^ 0x7465_6462_7974_6573,
        ];
        KeyedHash { state, tail: 0, bytes: 0 }
    }

    pub fn write(&mut self, mut bytes: &[u8]) {
        while !self.bytes.is_multiple_of(WORD_BYTES as u64)
            && let Some((first, rest)) = bytes.split_first()
        {
            self.write_byte(*first);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        for word in words {
            self.absorb(u64::from_le_bytes(*word));
            self.bytes += WORD_BYTES as u64;
        }
        rest.iter().for_each(|byte| self.write_byte(*byte));
    }

    pub fn finish(mut self) -> u64 {
        self.absorb(self.tail | self.bytes << 56);
        self.state[2] ^= 0xff;
        self.rounds(LAST_ROUNDS);
        self.state.into_iter().fold(0, |hash, word| hash ^ word)
    }

    fn write_byte(&mut self, byte: u8) {
        self.tail |= u64::from(byte) << (self.bytes % WORD_BYTES as u64 * 8);
        self.bytes += 1;
        if self.bytes.is_multiple_of(WORD_BYTES as u64) {
            let word = std::mem::take(&mut self.tail);
            self.absorb(word);
        }
    }

    fn absorb(&mut self, word: u64) {
        self.state[3] ^= word;
        self.rounds(WORD_ROUNDS);
        self.state[0] ^= word;
    }

    fn rounds(&mut self, count: usize) {
        let [a, b, c, d] = &mut self.state;
        for _ in 0..count {
            *a = a.wrapping_add(*b);
            *b = b.rotate_left(13) ^ *a;
            *a = a.rotate_left(32);
            *c = c.wrapping_add(*d);
            *d = d.rotate_left(16) ^ *c;
            *a = a.wrapping_add(*d);
            *d = d.rotate_left(21) ^ *a;
            *c = c.wrapping_add(*b);
            *b = b.rotate_left(17) ^ *c;
            *c = c.rotate_left(32);
        }
    }
}

/// The hash of these bytes.
pub fn keyed_hash(secret: [u64; 2], bytes: &[u8]) -> u64 {
    let mut hash = KeyedHash::new(secret);
    hash.write(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    #[test]
    fn the_hash_is_siphash_2_4() {
        let bytes: Vec<u8> = (0..15).collect();
        for (length, hash) in
            [(0, 0x726f_db47_dd0e_0e31), (1, 0x74f8_39c5_93dc_67fd), (8, 0x93f5_f579_9a93_2462), (15, 0xa129_ca61_49be_45e5)]
        {
            assert_eq!(keyed_hash(SECRET, &bytes[..length]), hash, "{length} bytes");
        }
    }

    #[test]
    fn parts_have_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        let whole = keyed_hash(SECRET, &bytes);
        for first in 0..30 {
            for second in first..60 {
                let mut hash = KeyedHash::new(SECRET);
                hash.write(&bytes[..first]);
                hash.write(&bytes[first..second]);
                hash.write(&bytes[second..]);
                assert_eq!(hash.finish(), whole, "{first} {second}");
            }
        }
    }
}
