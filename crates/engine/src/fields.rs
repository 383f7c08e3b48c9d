//! The fields that an application sets in its answer: which are well-formed, and which are not its to set.
//!
//! It knows no response. Workers run it, once for each field of an answer.

use bolide_files::SendfileHeader;

/// Fields of an answer that concern the server.
pub enum Known {
    ContentLength,
    Date,
    Server,
    /// It names the trailer fields (RFC 9110 section 6.6.2): without any it is nobody's to set.
    Trailer,
    HopByHop,
    /// The application names a file in place of a body.
    NamesFile(SendfileHeader),
}

/// The fields that the server must know. The length decides first, so that most names cost one comparison.
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

/// RFC 9110 section 5.5, and PEP 3333: no control characters at all, but for the tab that old applications use.
pub fn is_field_value(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f || *byte == b'\t')
}
