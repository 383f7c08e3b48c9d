//! The masking of clients' payloads: RFC 6455 section 5.3. Must not know frames. Workers run it, on every byte that a client
//! sends.

/// Bytes unmasked at once. The compiler vectorises a loop over whole words.
const WORD_BYTES: usize = size_of::<u64>();

/// Masks or unmasks, which is the same operation. Returns the mask rotated for the byte after the last one of `bytes`.
#[inline]
pub(super) fn apply(bytes: &mut [u8], mask: [u8; 4]) -> [u8; 4] {
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<WORD_BYTES>();
    for masked in words {
        *masked = (u64::from_ne_bytes(*masked) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    let mut turned = mask;
    turned.rotate_left(rest.len() % mask.len());
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_words_and_bytes_are_masked_alike_however_they_are_split() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for length in 0..50 {
            let plain: Vec<u8> = (0..length).collect();
            let masked: Vec<u8> = plain.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            for split in 0..=plain.len() {
                let mut bytes = masked.clone();
                let (first, second) = bytes.split_at_mut(split);
                let turned = apply(first, mask);
                apply(second, turned);
                assert_eq!(bytes, plain, "{length} bytes split at {split}");
            }
        }
    }
}
