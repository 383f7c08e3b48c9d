//! Checks the header fields of an application's answer: which are well-formed, and which only the server may set.
//!
//! It does not know about responses. Workers run it, once for each field of an answer.

use bolide_files::SendfileHeader;

/// Response fields with a meaning for the server.
pub enum Known {
    ContentLength,
    Date,
    Server,
    /// It lists the trailer fields (RFC 9110 section 6.6.2): it must not be set if there are none.
    Trailer,
    HopByHop,
    /// The application names a file instead of a body.
    NamesFile(SendfileHeader),
}

/// Returns the meaning of a field. The length is compared first, so that most names cost one comparison.
pub fn known_field(name: &[u8]) -> Option<Known> {
    let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
    match name.len() {
        4 if is(b"date") => Some(Known::Date),
        6 if is(b"server") => Some(Known::Server),
        14 if is(b"content-length") => Some(Known::ContentLength),
        2 if is(b"te") => Some(Known::HopByHop),
        7 if is(b"trailer") => Some(Known::Trailer),
        7 if is(b"upgrade") => Some(Known::HopByHop),
        10 if is(b"connection") || is(b"keep-alive") => Some(Known::HopByHop),
        8 if is(b"trailers") => Some(Known::HopByHop),
        17 if is(b"transfer-encoding") => Some(Known::HopByHop),
        10 if is(b"x-sendfile") => Some(Known::NamesFile(SendfileHeader::Path)),
        16 if is(b"x-accel-redirect") => Some(Known::NamesFile(SendfileHeader::Location)),
        16 if is(b"proxy-connection") => Some(Known::HopByHop),
        18 if is(b"proxy-authenticate") => None,
        19 if is(b"proxy-authorization") => Some(Known::HopByHop),
        _ => None,
    }
}

/// Whether a list of words, separated by commas, has this one (RFC 9110 section 5.6.1).
pub fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
}

/// RFC 9110 section 5.5, and PEP 3333: no control characters, except for the tab that old applications use.
pub fn is_field_value(value: &[u8]) -> bool {
    let (words, rest) = value.as_chunks::<8>();
    words.iter().all(|word| !may_have_control(u64::from_ne_bytes(*word)) || word.iter().copied().all(is_value_byte))
        && rest.iter().copied().all(is_value_byte)
}

fn is_value_byte(byte: u8) -> bool {
    byte >= 0x20 && byte != 0x7f || byte == b'\t'
}

/// Whether one of eight bytes may be a control character (below space, or DEL). Each term borrows from the highest bit of such a
/// byte. A borrow that carries into the next byte causes false positives, but never false negatives.
fn may_have_control(word: u64) -> bool {
    const EACH: u64 = u64::MAX / 0xff;
    let below_space = word.wrapping_sub(EACH * 0x20) & !word;
    let from_del = word ^ (EACH * 0x7f);
    let is_del = from_del.wrapping_sub(EACH) & !from_del;
    (below_space | is_del) & (EACH * 0x80) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_no_control_character_wherever_it_stands() {
        for length in 0..40 {
            for fill in [b' ', b'x', 0x80, 0xff, b'\t', b'~'] {
                let value = vec![fill; length];
                assert!(is_field_value(&value), "{length} times {fill:#x}");
                for (at, byte) in (0..length).flat_map(|at| (0..=255u8).map(move |byte| (at, byte))) {
                    let mut changed = value.clone();
                    changed[at] = byte;
                    assert_eq!(is_field_value(&changed), is_value_byte(byte), "{byte:#x} at {at} of {length} times {fill:#x}");
                }
            }
        }
    }
}
