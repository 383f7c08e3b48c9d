//! HTTP dates (RFC 9110 section 5.6.7), from and to seconds since 1970. Pure. Workers run it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second of the year 9999; the format has four digits for the year.
const LAST_SECOND: i64 = 253_402_300_799;

/// Returns the date in the only format that may be generated. Times outside of 1970 to 9999 are clamped.
pub fn format(seconds: i64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, LAST_SECOND).unsigned_abs()))
}

/// Parses any of the three formats. `None`: not a date; a condition with it is ignored.
pub fn parse(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let time: SystemTime = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_the_rfc_are_one_date() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn an_invalid_date_is_none_and_extremes_are_safe() {
        for text in [&b""[..], b"yesterday", b"\xff", b"Sun, 06 Nov 1994", b"0", b"Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse(text), None, "{}", text.escape_ascii());
        }
        for seconds in [i64::MIN, -1, 0, i64::MAX] {
            assert!(format(seconds).ends_with(" GMT"));
        }
    }
}
