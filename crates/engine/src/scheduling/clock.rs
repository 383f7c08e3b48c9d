//! The clock of a request: it is read when a connection is attended to and when a call of the application has ended, so a time is
//! never older than the request itself took. Date texts are formatted once a second.
//!
//! It does not know about requests. Each thread of a worker has its own.

pub use bolide_contract::clock::precise_us;
use bolide_contract::clock::{now_ms, wall_second};

/// Length of `Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n` in bytes.
pub const DATE_LINE_BYTES: usize = 37;

/// Length of `Sun Nov  6 08:49:37 1994`, the form of C's `ctime`, in bytes.
pub const CTIME_BYTES: usize = 24;

pub struct Clock {
    /// Monotonic milliseconds, as of the last `tick`.
    pub now_ms: u64,
    second: i64,
    date_line: [u8; DATE_LINE_BYTES],
    ctime: [u8; CTIME_BYTES],
}

impl Clock {
    pub fn new() -> Clock {
        let mut clock = Clock { now_ms: 0, second: i64::MIN, date_line: [b' '; DATE_LINE_BYTES], ctime: [b' '; CTIME_BYTES] };
        clock.tick();
        clock
    }

    /// Reads the clocks; the texts are formatted again only when the second has changed.
    pub fn tick(&mut self) {
        let now_ms = now_ms();
        if now_ms == self.now_ms {
            // Both clocks advance with the same tick of the kernel.
            return;
        }
        self.now_ms = now_ms;
        let second = wall_second();
        if second != self.second {
            self.second = second;
            self.date_line = date_line(second);
            self.ctime = ctime(second);
        }
    }

    /// `Date: …\r\n` in the form of RFC 9110 section 5.6.7.
    pub fn date_line(&self) -> [u8; DATE_LINE_BYTES] {
        self.date_line
    }

    /// Seconds since 1970.
    pub fn second(&self) -> i64 {
        self.second
    }

    /// Local time as C's `ctime` writes it, without the newline: the form of uWSGI's request line.
    pub fn ctime(&self) -> [u8; CTIME_BYTES] {
        self.ctime
    }
}

const DAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] = [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

fn date_line(second: i64) -> [u8; DATE_LINE_BYTES] {
    let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    let date = broken_down(second, libc::gmtime_r);
    line[6..9].copy_from_slice(day_name(&date));
    two_digits(&mut line[11..13], date.tm_mday);
    line[14..17].copy_from_slice(month_name(&date));
    year(&mut line[18..22], date.tm_year);
    time_of_day(&mut line[23..31], &date);
    line
}

fn ctime(second: i64) -> [u8; CTIME_BYTES] {
    let mut text = *b"Thu Jan  1 00:00:00 1970";
    let date = broken_down(second, libc::localtime_r);
    text[0..3].copy_from_slice(day_name(&date));
    text[4..7].copy_from_slice(month_name(&date));
    two_digits(&mut text[8..10], date.tm_mday);
    if text[8] == b'0' {
        text[8] = b' ';
    }
    time_of_day(&mut text[11..19], &date);
    year(&mut text[20..24], date.tm_year);
    text
}

fn broken_down(second: i64, split: unsafe extern "C" fn(*const libc::time_t, *mut libc::tm) -> *mut libc::tm) -> libc::tm {
    // SAFETY: `tm` is a C structure of integers and one pointer, for which all zeroes is a value.
    let mut date: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals that live through the call; the `_r` forms keep nothing.
    unsafe { split(&second, &mut date) };
    date
}

fn day_name(date: &libc::tm) -> &'static [u8; 3] {
    DAYS[(date.tm_wday as usize) % DAYS.len()]
}

fn month_name(date: &libc::tm) -> &'static [u8; 3] {
    MONTHS[(date.tm_mon as usize) % MONTHS.len()]
}

fn time_of_day(place: &mut [u8], date: &libc::tm) {
    two_digits(&mut place[0..2], date.tm_hour);
    two_digits(&mut place[3..5], date.tm_min);
    two_digits(&mut place[6..8], date.tm_sec);
}

fn year(place: &mut [u8], years_since_1900: i32) {
    let year = years_since_1900 + 1900;
    two_digits(&mut place[0..2], year / 100);
    two_digits(&mut place[2..4], year % 100);
}

fn two_digits(place: &mut [u8], number: i32) {
    place[0] = b'0' + (number / 10 % 10) as u8;
    place[1] = b'0' + (number % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_in_the_form_of_the_rfc() {
        assert_eq!(&date_line(784_111_777), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        assert_eq!(&date_line(1_709_164_799), b"Date: Wed, 28 Feb 2024 23:59:59 GMT\r\n");
    }

    #[test]
    fn a_single_digit_day_is_padded_with_a_space_as_in_ctime() {
        let text = ctime(784_111_777);
        assert_eq!(text.len(), 24);
        assert_eq!(text[8], b' ');
    }
}
