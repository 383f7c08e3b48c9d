//! The names of jobs: uWSGI's form, the order in which `spooler-ordered` works on them, and priorities.
//!
//! It does not open files.

use std::cmp::Ordering;
use std::fmt::Write;

/// uWSGI takes only files whose names begin so.
pub const PREFIX: &str = "uwsgi_spoolfile_on_";
/// Most bytes of a priority's name. It is a directory's name, and part of a path.
pub const MAX_PRIORITY_BYTES: usize = 64;
/// Most bytes of the machine's name in a job's name. Linux allows 64.
const MAX_HOST_BYTES: usize = 64;

/// Makes the names of the jobs that one process writes.
#[derive(Debug)]
pub struct Maker {
    host: String,
    pid: u32,
    counter: u64,
    random: u32,
}

impl Maker {
    /// `random` differs from process to process, so that two containers with the same host name and pid make other names.
    pub fn new(host: &str, pid: u32, random: u32) -> Maker {
        let plain = |letter: char| if letter == '/' || letter.is_control() { '_' } else { letter };
        let mut host: String = host.chars().map(plain).collect();
        while host.len() > MAX_HOST_BYTES {
            host.pop();
        }
        Maker { host, pid, counter: 0, random: random.max(1) }
    }

    /// The process whose jobs these are.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The name of the next job, written at this time since 1970.
    pub fn next(&mut self, seconds: u64, microseconds: u32) -> String {
        self.counter += 1;
        // xorshift32: distinct numbers in turn, which is all that a name needs.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let mut name = String::with_capacity(PREFIX.len() + self.host.len() + 64);
        name.push_str(PREFIX);
        name.push_str(&self.host);
        // The random number is an int in uWSGI's name.
        let random = self.random >> 1;
        // Writing to a String does not fail.
        let _ = write!(name, "_{}_{}_{random}_{seconds}_{microseconds}", self.pid, self.counter);
        name
    }
}

/// Whether a file of this name is a job. With `spooler-ordered`, uWSGI also takes files whose names are numbers.
pub fn is_job(name: &[u8], is_ordered: bool) -> bool {
    name.starts_with(PREFIX.as_bytes()) || is_ordered && is_number(name)
}

/// Whether it consists of digits, as the name of a priority that uWSGI works on.
pub fn is_number(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// Whether a priority can be the name of a directory that spoolers work on: uWSGI's spoolers look into directories whose names
/// are numbers, and ours too.
pub fn is_priority(name: &[u8]) -> bool {
    name.len() <= MAX_PRIORITY_BYTES && is_number(name)
}

/// The order of `spooler-ordered`, that of versionsort(3): numbers in a name compare as numbers.
pub fn order(left: &[u8], right: &[u8]) -> Ordering {
    let (mut left_at, mut right_at) = (0, 0);
    loop {
        let (Some(one), Some(other)) = (left.get(left_at), right.get(right_at)) else {
            return (left.len() - left_at).cmp(&(right.len() - right_at)).then_with(|| left.cmp(right));
        };
        if one.is_ascii_digit() && other.is_ascii_digit() {
            let (one, other) = (digits(left, left_at), digits(right, right_at));
            let (one_value, other_value) = (without_zeros(one), without_zeros(other));
            let by_value = one_value.len().cmp(&other_value.len()).then_with(|| one_value.cmp(other_value));
            if by_value != Ordering::Equal {
                return by_value;
            }
            left_at += one.len();
            right_at += other.len();
        } else {
            match one.cmp(other) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
            left_at += 1;
            right_at += 1;
        }
    }
}

/// The time of a value of `at`: seconds since 1970, of which uWSGI ignores the fraction. `None`: it is not a time.
pub fn time_of(value: &[u8]) -> Option<u64> {
    let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
    let text = std::str::from_utf8(whole).ok().filter(|_| is_number(whole))?;
    // Beyond this, file systems have no time.
    text.parse().ok().filter(|seconds| *seconds <= MAX_TIME_SECONDS)
}

/// Latest time of a job, in seconds since 1970: the year 9999.
pub const MAX_TIME_SECONDS: u64 = 253_402_300_799;

/// The time at which a job was written, in seconds since 1970, from its name.
pub fn written_at(name: &str) -> Option<u64> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplit('_');
    let (_, seconds) = (parts.next()?, parts.next()?);
    seconds.parse().ok().filter(|seconds| *seconds <= MAX_TIME_SECONDS)
}

fn digits(text: &[u8], at: usize) -> &[u8] {
    let rest = &text[at..];
    &rest[..rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())]
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}
