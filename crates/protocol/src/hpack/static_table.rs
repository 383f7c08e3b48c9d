//! The static table of HPACK (RFC 7541 Appendix A). Workers run it.

/// Starts with index 1.
#[rustfmt::skip]
pub const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Returns the index of the first field with this name, in lower case; `None` for other names and for those that only requests
/// have.
#[inline]
pub fn index_of_name(name: &[u8]) -> Option<u8> {
    // The names of answers by length: most other names have another length, or differ early.
    let candidates: &[u8] = match name.len() {
        3 => &[21, 60],
        4 => &[33, 34, 45, 59],
        5 => &[22],
        6 => &[54],
        7 => &[36, 52],
        8 => &[46],
        10 => &[55],
        11 => &[53],
        12 => &[31],
        13 => &[18, 24, 30, 44],
        14 => &[28],
        16 => &[26, 27, 29, 61],
        18 => &[48],
        19 => &[25],
        25 => &[56],
        27 => &[20],
        _ => &[],
    };
    candidates.iter().copied().find(|&index| entry(usize::from(index)).is_some_and(|(known, _)| known.as_bytes() == name))
}

/// Returns the field with this index.
#[inline]
pub fn entry(index: usize) -> Option<(&'static str, &'static str)> {
    STATIC_TABLE.get(index.wrapping_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_answers_are_found() {
        let requests_alone = [
            "accept",
            "accept-charset",
            "accept-encoding",
            "accept-language",
            "authorization",
            "cookie",
            "expect",
            "from",
            "host",
            "if-match",
            "if-modified-since",
            "if-none-match",
            "if-range",
            "if-unmodified-since",
            "max-forwards",
            "proxy-authorization",
            "range",
            "referer",
            "transfer-encoding",
            "user-agent",
        ];
        for (place, (name, _)) in STATIC_TABLE.iter().enumerate() {
            let is_of_answers = !name.starts_with(':') && !requests_alone.contains(name);
            let expected = is_of_answers.then_some(place as u8 + 1);
            assert_eq!(index_of_name(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(index_of_name(b"x-other"), None);
    }
}
