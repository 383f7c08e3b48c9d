//! The Huffman code of HPACK (RFC 7541 section 5.2 and Appendix B). Workers run it.
//!
//! The code is canonical: the lengths of its words define it.

/// The string is not valid Huffman code, or does not end correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadHuffman;

/// Length in bits of each byte's code word, and of the end-of-string word.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const MAX_LENGTH: usize = 30;

const END_OF_STRING: u16 = 256;

/// Bits of one table lookup: the words of nearly all text are no longer. With twelve bits a lookup could decode two letters at a
/// time. That saves a fifteenth of a request's cost in isolation, but takes 20 kB of the L1 cache, which the application needs
/// too.
const LOOKUP_BITS: usize = 10;

struct Code {
    /// Symbols in the order of their words.
    symbols: [u16; 257],
    /// For each length: its first word, the index of its first symbol, and the number of words.
    first_word: [u32; MAX_LENGTH + 1],
    first_symbol: [u16; MAX_LENGTH + 1],
    count: [u16; MAX_LENGTH + 1],
    lookup: [LookupEntry; 1 << LOOKUP_BITS],
}

/// An entry of the lookup table.
#[derive(Clone, Copy)]
struct LookupEntry {
    byte: u8,
    /// Length of the word; 0 if it is longer than the lookup.
    bits: u8,
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        symbols: [0; 257],
        first_word: [0; MAX_LENGTH + 1],
        first_symbol: [0; MAX_LENGTH + 1],
        count: [0; MAX_LENGTH + 1],
        lookup: [LookupEntry { byte: 0, bits: 0 }; 1 << LOOKUP_BITS],
    };
    let (mut word, mut place, mut length) = (0u32, 0usize, 1usize);
    while length <= MAX_LENGTH {
        word <<= 1;
        code.first_word[length] = word;
        code.first_symbol[length] = place as u16;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code.symbols[place] = symbol as u16;
                code.count[length] += 1;
                word += 1;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    let mut bits = 0;
    while bits < code.lookup.len() {
        code.lookup[bits] = lookup(&code, bits as u32);
        bits += 1;
    }
    code
}

/// Returns the entry for [`LOOKUP_BITS`] bits.
const fn lookup(code: &Code, bits: u32) -> LookupEntry {
    let mut length = 1;
    while length <= LOOKUP_BITS {
        let place = (bits >> (LOOKUP_BITS - length)).wrapping_sub(code.first_word[length]);
        if place < code.count[length] as u32 {
            let byte = code.symbols[code.first_symbol[length] as usize + place as usize] as u8;
            return LookupEntry { byte, bits: length as u8 };
        }
        length += 1;
    }
    LookupEntry { byte: 0, bits: 0 }
}

/// Appends the decoded string.
///
/// # Errors
/// The string contains the end-of-string word, or its last byte is not padded with the beginning of that word.
pub fn decode(mut text: &[u8], out: &mut Vec<u8>) -> Result<(), BadHuffman> {
    let start = out.len();
    // The shortest word has five bits.
    out.resize(start + text.len() * 8 / 5, 0);
    let space = out.get_mut(start..).unwrap_or_default();
    let mut at = 0;
    // The next bits of the text, from the highest on, and how many are valid. The bits below are zeros.
    let (mut bits, mut count) = (0u64, 0u32);
    loop {
        if let Some((next, _)) = text.split_first_chunk::<8>() {
            bits |= u64::from_be_bytes(*next) >> count;
            let bytes = (63 - count) / 8;
            text = &text[bytes as usize..];
            count += bytes * 8;
            // Bits beyond the valid ones were read too, and are read again.
            bits &= !(u64::MAX >> count);
        } else {
            while count <= 56
                && let Some((next, rest)) = text.split_first()
            {
                bits |= u64::from(*next) << (56 - count);
                count += 8;
                text = rest;
            }
        }
        if count < MAX_LENGTH as u32 && text.is_empty() {
            at += decode_end(bits, count, space.get_mut(at..).unwrap_or_default())?;
            out.truncate(start + at);
            return Ok(());
        }
        while count >= MAX_LENGTH as u32 {
            let (symbol, length) = next_word(bits);
            if symbol == END_OF_STRING {
                return Err(BadHuffman);
            }
            *space.get_mut(at).ok_or(BadHuffman)? = symbol as u8;
            at += 1;
            bits <<= length;
            count -= length;
        }
    }
}

/// Decodes the last bits, which are fewer than the longest word. Returns how many bytes they decode to.
fn decode_end(mut bits: u64, mut count: u32, space: &mut [u8]) -> Result<usize, BadHuffman> {
    let mut at = 0;
    loop {
        // The missing bits are read as the end-of-string word, which is all ones.
        let filled = bits | u64::MAX >> count;
        let (symbol, length) = next_word(filled);
        if length > count {
            return if filled == u64::MAX && count < 8 { Ok(at) } else { Err(BadHuffman) };
        }
        let room = space.get_mut(at).ok_or(BadHuffman)?;
        *room = symbol as u8;
        at += 1;
        bits <<= length;
        count -= length;
    }
}

/// Returns the symbol of the word that the bits begin with, and its length.
#[inline(always)]
fn next_word(bits: u64) -> (u16, u32) {
    let lookup = CODE.lookup[(bits >> (64 - LOOKUP_BITS)) as usize];
    if lookup.bits > 0 { (u16::from(lookup.byte), u32::from(lookup.bits)) } else { next_long_word(bits) }
}

#[cold]
fn next_long_word(bits: u64) -> (u16, u32) {
    for length in LOOKUP_BITS + 1..MAX_LENGTH {
        let place = ((bits >> (64 - length)) as u32).wrapping_sub(CODE.first_word[length]);
        if place < u32::from(CODE.count[length]) {
            let symbol = usize::from(CODE.first_symbol[length]) + place as usize;
            return (CODE.symbols.get(symbol).copied().unwrap_or(END_OF_STRING), length as u32);
        }
    }
    let place = ((bits >> (64 - MAX_LENGTH)) as u32).wrapping_sub(CODE.first_word[MAX_LENGTH]);
    let symbol = usize::from(CODE.first_symbol[MAX_LENGTH]) + place as usize;
    (CODE.symbols.get(symbol).copied().unwrap_or(END_OF_STRING), MAX_LENGTH as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &[u8], out: &mut Vec<u8>) {
        let (mut bits, mut count) = (0u64, 0u32);
        for &byte in text {
            let length = u32::from(LENGTHS[usize::from(byte)]);
            let number = CODE.symbols.iter().position(|&symbol| symbol == u16::from(byte)).expect("each byte has a word") as u32;
            let place = number - u32::from(CODE.first_symbol[length as usize]);
            bits = bits << length | u64::from(CODE.first_word[length as usize] + place);
            count += length;
            while count >= 8 {
                count -= 8;
                out.push((bits >> count) as u8);
            }
        }
        if count > 0 {
            // The last byte is padded with ones.
            out.push((bits << (8 - count)) as u8 | 0xff >> count);
        }
    }

    fn decoded(text: &[u8]) -> Result<Vec<u8>, BadHuffman> {
        let mut out = b"before".to_vec();
        decode(text, &mut out)?;
        Ok(out.split_off(6))
    }

    #[test]
    fn every_byte_in_every_place_comes_back() {
        for byte in 0..=255u8 {
            for before in 0..9 {
                for behind in 0..9 {
                    let text = [&b"a,Zq01&%~"[..before], &[byte], &b"te/=\\{\xff\0b"[..behind]].concat();
                    let mut coded = Vec::new();
                    encode(&text, &mut coded);
                    assert_eq!(decoded(&coded), Ok(text));
                }
            }
        }
    }

    /// RFC 7541 Appendix C.4 and C.6.
    #[test]
    fn the_standard_writes_the_same() {
        for (text, coded) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
            ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
            ("gzip", "9bd9ab"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            let digits: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits, coded, "{text}");
            assert_eq!(decoded(&out).as_deref(), Ok(text.as_bytes()));
        }
    }

    #[test]
    fn a_string_ends_with_less_than_a_byte_of_ones() {
        assert_eq!(decoded(b""), Ok(Vec::new()));
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        for bad in [&[0b0001_1110][..], &[0b0001_1111, 0xff], &[0xff], &[0xff; 2], &[0xff; 3], &[0xff; 4], &[0xff; 9], &[0xfe]] {
            assert_eq!(decoded(bad), Err(BadHuffman), "{bad:x?}");
        }
        // The same after enough text that it is decoded by words.
        for bad in [&[0xff][..], &[0xff; 4], &[0xff; 12]] {
            assert_eq!(decoded(&[&[0b0001_1000; 3], &[0x1f; 8][..], bad].concat()), Err(BadHuffman), "{bad:x?}");
        }
    }
}
