//! Local times in log lines: by strftime(3), and as RFC 3339. It does not know lines. Every process runs it.

use std::cell::RefCell;
use std::ffi::CString;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a time formatted by strftime(3); a longer one is left out, as in uWSGI.
const FORMATTED_BYTES: usize = 64;

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// The second that the thread has formatted last, with its texts: a busy thread writes many lines in one.
#[derive(Default)]
struct Second {
    second: i64,
    date: Vec<u8>,
    zone: Vec<u8>,
}

thread_local! {
    static LAST: RefCell<Second> = RefCell::default();
}

/// Appends a moment, in microseconds since 1970, in the form of RFC 3339: `2026-11-22T13:40:00.123456+01:00`.
pub fn rfc3339(text: &mut Vec<u8>, moment_us: u64) {
    let second = (moment_us / 1_000_000) as i64;
    LAST.with_borrow_mut(|last| {
        if last.second != second || last.date.is_empty() {
            *last = formatted(second);
        }
        text.extend_from_slice(&last.date);
        text.push(b'.');
        let micros = moment_us % 1_000_000;
        text.extend([100_000, 10_000, 1000, 100, 10, 1].map(|unit| b'0' + (micros / unit % 10) as u8));
        text.extend_from_slice(&last.zone);
    });
}

fn formatted(second: i64) -> Second {
    let (mut date, mut zone) = (Vec::new(), Vec::new());
    strftime(&mut date, "%Y-%m-%dT%H:%M:%S", second);
    strftime(&mut zone, "%z", second);
    // strftime(3) writes +0100.
    zone.insert(zone.len().saturating_sub(2), b':');
    Second { second, date, zone }
}

/// Appends the local time of a moment, in seconds since 1970, in a format of strftime(3). A time longer than [`FORMATTED_BYTES`]
/// appends nothing.
pub fn strftime(text: &mut Vec<u8>, format: &str, second: i64) {
    let Ok(format) = CString::new(format) else { return };
    // SAFETY: `tm` is a C structure of integers and one pointer, for which all zeroes is a valid value.
    let mut date: libc::tm = unsafe { std::mem::zeroed() };
    let mut formatted = [0u8; FORMATTED_BYTES];
    // SAFETY: all pointers are to locals that live through the calls, the length is that of the buffer, and the format is
    // NUL-terminated.
    let length = unsafe {
        libc::localtime_r(&second, &mut date);
        libc::strftime(formatted.as_mut_ptr().cast(), formatted.len(), format.as_ptr(), &date)
    };
    text.extend_from_slice(&formatted[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_its_format_and_one_that_is_too_long_is_left_out() {
        let made = |format: &str| {
            let mut text = b"|".to_vec();
            strftime(&mut text, format, 784_111_777);
            String::from_utf8_lossy(&text).into_owned()
        };
        assert_eq!(made("%Y"), "|1994");
        assert_eq!(made(&"%Y".repeat(FORMATTED_BYTES)), "|");
        assert_eq!(made("a\0b"), "|");
    }
}
