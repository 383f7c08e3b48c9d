//! The field `X-Request-Start`: how long a request waited before its head arrived, according to its reverse proxy, and the field
//! that an application gets from this server (`request-start`).
//!
//! It does not know about connections. Worker threads run it for each request, where a scraper may come, the phases of requests
//! are measured, or applications get the field.

use bolide_protocol::http1::head::Field;
use bolide_scoreboard::Meters;

/// The field, in small letters.
const FIELD: &[u8] = b"x-request-start";
/// The name of its variable in the protocols of reverse proxies.
pub const VARIABLE: &[u8] = b"HTTP_X_REQUEST_START";
/// A longer time is a wrong clock or a wrong unit, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;
/// Bytes of a value that are read.
const VALUE_BYTES: usize = 32;
/// Length of `t=1764359454.123`: seconds have ten digits up to the year 2286.
const START_BYTES: usize = 16;

/// When a request arrived at this machine, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestStart {
    pub arrived_us: u64,
}

impl RequestStart {
    /// The value of the field, in the form that nginx' `t=${msec}` has.
    pub fn text(self) -> [u8; START_BYTES] {
        let mut text = *b"t=0000000000.000";
        let mut rest = self.arrived_us / 1000;
        for place in text.iter_mut().skip(2).rev().filter(|place| **place == b'0') {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        text
    }
}

/// Returns the value of the field, if a request has it and it is not empty; of several, the last one.
pub fn find_field<'a>(fields: &[Field], header_bytes: &'a [u8]) -> Option<&'a [u8]> {
    let field = fields.iter().rfind(|field| field.name.of(header_bytes).eq_ignore_ascii_case(FIELD))?;
    Some(field.value.of(header_bytes)).filter(|value| !value.is_empty())
}

/// Counts and returns the time that a request has waited, if its reverse proxy tells it in a header field.
#[inline(never)]
pub fn note_field(meters: &Meters, fields: &[Field], header_bytes: &[u8]) -> Option<u64> {
    note(meters, find_field(fields, header_bytes)?)
}

/// Counts and returns the time that a request has waited since this moment, in microseconds.
pub fn note(meters: &Meters, start: &[u8]) -> Option<u64> {
    let waited_us = waited_us(start, now_us())?;
    meters.waiting.note(waited_us);
    Some(waited_us)
}

/// The time that a request has waited since this moment, in milliseconds.
pub fn waited_ms(start: &[u8]) -> Option<u64> {
    waited_us(start, now_us()).map(|waited_us| waited_us / 1000)
}

/// Returns the time since the reverse proxy has received the request, in microseconds. The value is seconds, milliseconds,
/// microseconds or nanoseconds since 1970, with or without `t=` before it and decimals after it, as nginx (`t=${msec}`), HAProxy,
/// Apache and the platforms write it. Times in the future by the other clock count as none.
fn waited_us(value: &[u8], now_us: u64) -> Option<u64> {
    let text = std::str::from_utf8(value.get(..value.len().min(VALUE_BYTES))?).ok()?.trim();
    let text = text.strip_prefix("t=").unwrap_or(text);
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    // The unit is the one in which the number is a time of this century.
    let began_us = match whole.len() {
        10 => text.parse::<f64>().ok().map(|seconds| (seconds * 1e6) as u64)?,
        13 => text.parse::<f64>().ok().map(|milliseconds| (milliseconds * 1e3) as u64)?,
        16 => whole.parse().ok()?,
        19 => whole.parse::<u64>().ok()? / 1000,
        _ => return None,
    };
    let waited_us = now_us.saturating_sub(began_us);
    (waited_us <= LONGEST_US).then_some(waited_us)
}

/// The time since 1970 in microseconds.
pub fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_field_has_seconds_with_three_decimals_and_is_understood() {
        for (arrived_us, text) in [
            (1_764_359_454_123_999, "t=1764359454.123"),
            (1_764_359_454_000_000, "t=1764359454.000"),
            (1_000_000_000_010_000, "t=1000000000.010"),
            (9_999_999_999_999_999, "t=9999999999.999"),
        ] {
            let own = RequestStart { arrived_us }.text();
            assert_eq!(own, text.as_bytes());
            assert_eq!(waited_us(&own, arrived_us / 1000 * 1000 + 2_000_000), Some(2_000_000));
        }
    }

    #[test]
    fn the_units_of_all_reverse_proxies_are_understood_and_nonsense_is_not_counted() {
        let now_us = 1_795_354_498_500_000;
        for (value, waited) in [
            ("t=1795354498.250", Some(250_000)),
            ("1795354498.250", Some(250_000)),
            ("1795354498250", Some(250_000)),
            ("t=1795354498250000", Some(250_000)),
            ("1795354498250000000", Some(250_000)),
            ("1795354498250.5", Some(249_500)),
            ("1795354499", Some(0)),
            ("1795350000", None),
            ("", None),
            ("t=", None),
            ("soon", None),
            ("-1795354498", None),
            ("1e9", None),
            ("17953544980", None),
            ("1795354498.1.2", None),
            ("9999999999999999999", Some(0)),
        ] {
            assert_eq!(waited_us(value.as_bytes(), now_us), waited, "{value}");
        }
        assert_eq!(waited_us(&[0xff; 400], now_us), None);
    }
}
