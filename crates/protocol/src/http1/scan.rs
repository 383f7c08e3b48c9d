//! Classes of bytes, and the search for the first byte that ends a run of ordinary ones.
//!
//! Must not know the meaning of the runs. Workers run it, on every byte of every head.

/// Bits of [`CLASS`].
const TOKEN: u8 = 1;
const REG_NAME: u8 = 2;
const UNDERSCORE: u8 = 4;
const UPPERCASE: u8 = 8;

/// RFC 9110 section 5.6.2 `tchar` and RFC 3986 section 3.2.2 `reg-name`, looked up by byte.
static CLASS: [u8; 256] = {
    let mut class = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let character = byte as u8;
        let alphanumeric = character.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(character, b"!#$%&'*+-.^_`|~") {
            class[byte] |= TOKEN;
        }
        if alphanumeric || is_one_of(character, b"-._~!$&'()*+,;=%") {
            class[byte] |= REG_NAME;
        }
        if character.is_ascii_uppercase() {
            class[byte] |= UPPERCASE;
        }
        if character == b'_' {
            class[byte] |= UNDERSCORE;
        }
        byte += 1;
    }
    class
};

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

/// RFC 9110 section 5.6.2.
#[inline]
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte))
}

#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASS[byte as usize] & TOKEN != 0
}

/// The token at the start of a text.
pub(super) struct Token {
    /// Bytes before the first one that is not allowed in a token; `None` if the text ends before it.
    pub length: Option<usize>,
    pub has_underscore: bool,
}

#[inline]
pub(super) fn token(text: &[u8]) -> Token {
    let mut seen = 0u8;
    let length = text.iter().position(|&byte| {
        let class = CLASS[byte as usize];
        seen |= class;
        class & TOKEN == 0
    });
    Token { length, has_underscore: seen & UNDERSCORE != 0 }
}

/// The name of a field.
pub(crate) struct NameClass {
    pub is_token: bool,
    pub has_uppercase: bool,
}

#[inline]
pub(crate) fn name_class(name: &[u8]) -> NameClass {
    let (any, all) = name.iter().fold((0, TOKEN), |(any, all), &byte| {
        let class = CLASS[byte as usize];
        (any | class, all & class)
    });
    let is_token = !name.is_empty() && all & TOKEN != 0;
    NameClass { is_token, has_uppercase: any & UPPERCASE != 0 }
}

/// Whether the byte may occur in a registered name, `%` included: the caller checks that two hexadecimal digits follow it.
#[inline]
pub(super) fn is_reg_name_byte(byte: u8) -> bool {
    CLASS[byte as usize] & REG_NAME != 0
}

/// Returns the position of the first byte below `LOWEST` (at most 0x80), or DEL, at or after `from`. Bytes of 0x80 and above are
/// ordinary.
///
/// Eight bytes at a time: a subtraction borrows from a byte's top bit when the byte is below the bound. A borrow can spill into
/// the *next higher* byte only, so the lowest marked byte is always correct, and only that one is used.
#[inline]
pub(crate) fn first_below<const LOWEST: u8>(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    const DELETES: u64 = u64::from_ne_bytes([0x7f; 8]);
    let mut at = from;
    let mut rest = bytes.get(from..)?;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let below = word.wrapping_sub(ONES.wrapping_mul(LOWEST as u64)) & !word;
        let differs = word ^ DELETES;
        let deletes = differs.wrapping_sub(ONES) & !differs;
        let marked = (below | deletes) & TOPS;
        if marked != 0 {
            return Some(at + (marked.trailing_zeros() / 8) as usize);
        }
        at += 8;
        rest = after;
    }
    let offset = rest.iter().position(|&byte| byte < LOWEST || byte == 0x7f)?;
    Some(at + offset)
}

/// `1*DIGIT` that fits 64 bits; no sign, no blank, no list.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Trims spaces and tabs at both ends: RFC 9110 section 5.6.3 `OWS`.
#[inline]
pub(super) fn without_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_first_below_finds_what_a_byte_by_byte_search_finds() {
        for stop in 0..=255u8 {
            for neighbor in [b'a', 0x20, 0x21, 0x80, 0x9f, 0xff, 0x7e] {
                for place in 0..20usize {
                    let mut bytes = [neighbor; 20];
                    bytes[place] = stop;
                    let slow = |lowest: u8| bytes.iter().position(|&byte| byte < lowest || byte == 0x7f);
                    assert_eq!(first_below::<0x20>(&bytes, 0), slow(0x20), "{bytes:?}");
                    assert_eq!(first_below::<0x21>(&bytes, 0), slow(0x21), "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn test_first_below_begins_where_it_is_told() {
        assert_eq!(first_below::<0x20>(b"\r234567\r9", 1), Some(7));
        assert_eq!(first_below::<0x20>(b"\r2345678\r", 1), Some(8));
        assert_eq!(first_below::<0x20>(b"\r", 1), None);
        assert_eq!(first_below::<0x20>(b"\r", 2), None);
    }
}
