//! Which names and values a field of HTTP/2 may have (RFC 9113 sections 8.2.1 and 8.2.2). It must not know whole heads. Workers
//! run it.

use crate::http1::scan::{first_below, name_class};

/// Whether a request may have the field, whatever its name means. Names must be in lower case.
#[inline]
pub(super) fn is_good_field(name: &[u8], value: &[u8]) -> bool {
    let class = name_class(name);
    class.is_token && !class.has_uppercase && is_value(value) && !is_of_connections(name, value)
}

/// Whether the bytes are valid after the colon and blank of a header block that is written from fields.
fn is_value(value: &[u8]) -> bool {
    let mut from = 0;
    while let Some(found) = first_below::<0x20>(value, from) {
        if value.get(found) != Some(&b'\t') {
            return false;
        }
        from = found + 1;
    }
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// Whether the field is connection-specific: here a connection carries many requests.
fn is_of_connections(name: &[u8], value: &[u8]) -> bool {
    match name.len() {
        2 => name == b"te" && !value.eq_ignore_ascii_case(b"trailers"),
        7 => name == b"upgrade",
        10 => matches!(name, b"connection" | b"keep-alive"),
        16 => name == b"proxy-connection",
        17 => name == b"transfer-encoding",
        _ => false,
    }
}
