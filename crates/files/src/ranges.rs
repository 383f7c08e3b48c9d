//! Which bytes a Range field asks for: RFC 9110 section 14. Pure. Workers run it.

use std::ops::Range;

/// Most ranges of one request; a request for more gets the whole content (RFC 9110 section 17.15).
const MAX_RANGES: usize = 64;

/// The part of a content that a Range field asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// All of it: there is no valid range.
    Whole,
    /// These parts, in the requested order; never empty.
    Parts(Vec<Range<u64>>),
    /// No byte that exists: 416.
    Nothing,
}

/// Parses a Range field for a content of `size` bytes. A malformed field is ignored (RFC 9110 section 14.2), and so is one whose
/// overlapping parts have more bytes than the content.
pub fn wanted(field: &[u8], size: u64) -> RequestedRange {
    let Some((unit, set)) = field.iter().position(|byte| *byte == b'=').map(|at| (&field[..at], &field[at + 1..])) else {
        return RequestedRange::Whole;
    };
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return RequestedRange::Whole;
    }
    let mut parts = Vec::new();
    let mut count = 0;
    for spec in set.split(|byte| *byte == b',').map(|spec| spec.trim_ascii()).filter(|spec| !spec.is_empty()) {
        count += 1;
        let Some(spec) = RangeSpec::read(spec).filter(|_| count <= MAX_RANGES) else { return RequestedRange::Whole };
        parts.extend(spec.within(size));
    }
    let total: u64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.end - part.start));
    match parts.len() {
        _ if count == 0 => RequestedRange::Whole,
        // RFC 9110 section 14.1.2: a suffix of an empty content is satisfiable, but no Content-Range can express it.
        0 if size == 0 && set.trim_ascii().starts_with(b"-") => RequestedRange::Whole,
        0 => RequestedRange::Nothing,
        1 => RequestedRange::Parts(parts),
        _ if total > size => RequestedRange::Whole,
        _ => RequestedRange::Parts(parts),
    }
}

enum RangeSpec {
    /// `first-last`, both inclusive, or `first-`.
    From(u64, Option<u64>),
    /// `-length`
    Last(u64),
}

impl RangeSpec {
    fn read(text: &[u8]) -> Option<RangeSpec> {
        let dash = text.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first, last) {
            (b"", b"") => None,
            (b"", last) => Some(RangeSpec::Last(number(last)?)),
            (first, b"") => Some(RangeSpec::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(RangeSpec::From(first, Some(last)))
            }
        }
    }

    fn within(&self, size: u64) -> Option<Range<u64>> {
        match *self {
            RangeSpec::From(first, last) => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                (first < size).then_some(first..end)
            }
            RangeSpec::Last(length) => (length > 0 && size > 0).then(|| size.saturating_sub(length)..size),
        }
    }
}

/// Digits only; a number that is too large is clamped.
fn number(text: &[u8]) -> Option<u64> {
    text.iter()
        .all(u8::is_ascii_digit)
        .then(|| text.iter().fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(ranges: &[(u64, u64)]) -> RequestedRange {
        RequestedRange::Parts(ranges.iter().map(|(start, end)| *start..*end).collect())
    }

    #[test]
    fn ranges_of_ten_bytes() {
        for (field, is) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-9", parts(&[(0, 10)])),
            ("bytes=2-", parts(&[(2, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-30", parts(&[(0, 10)])),
            ("bytes=5-99", parts(&[(5, 10)])),
            ("Bytes=5-6", parts(&[(5, 7)])),
            ("bytes=0-1,4-5", parts(&[(0, 2), (4, 6)])),
            ("bytes= 0-1 ,\t4-5 ,", parts(&[(0, 2), (4, 6)])),
            ("bytes=4-5,0-1", parts(&[(4, 6), (0, 2)])),
            ("bytes=0-1,50-60", parts(&[(0, 2)])),
            ("bytes=10-", RequestedRange::Nothing),
            ("bytes=10-12,20-", RequestedRange::Nothing),
            ("bytes=-0", RequestedRange::Nothing),
            ("bytes=0-,0-", RequestedRange::Whole),
            ("bytes=5-4", RequestedRange::Whole),
            ("bytes=5-4,0-1", RequestedRange::Whole),
            ("bytes=", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("bytes=+1-2", RequestedRange::Whole),
            ("bytes=1", RequestedRange::Whole),
            ("bytes 0-1", RequestedRange::Whole),
            ("rows=0-1", RequestedRange::Whole),
            ("", RequestedRange::Whole),
            ("bytes=99999999999999999999999-", RequestedRange::Nothing),
            ("bytes=0-99999999999999999999999", parts(&[(0, 10)])),
            ("bytes=-99999999999999999999999", parts(&[(0, 10)])),
        ] {
            assert_eq!(wanted(field.as_bytes(), 10), is, "{field}");
        }
    }

    #[test]
    fn an_empty_file_has_no_range() {
        assert_eq!(wanted(b"bytes=0-", 0), RequestedRange::Nothing);
        assert_eq!(wanted(b"bytes=-5", 0), RequestedRange::Whole);
    }

    #[test]
    fn many_small_ranges_get_everything() {
        let many = |count| format!("bytes={}", vec!["0-0"; count].join(","));
        assert_eq!(wanted(many(MAX_RANGES + 1).as_bytes(), 1000), RequestedRange::Whole);
        assert!(matches!(wanted(many(MAX_RANGES).as_bytes(), 1000), RequestedRange::Parts(parts) if parts.len() == MAX_RANGES));
    }

    proptest! {
        #[test]
        fn every_range_lies_within_the_file(field in "bytes=[0-9, -]{0,40}", size in 0u64..100) {
            if let RequestedRange::Parts(parts) = wanted(field.as_bytes(), size) {
                prop_assert!(!parts.is_empty() && parts.len() <= MAX_RANGES);
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= size));
            }
        }
    }
}
