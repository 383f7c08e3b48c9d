//! What a thread waits for in the kernel: the system call that it is in, and the descriptor that the call waits for, as
//! `/proc/PID/task/TID/syscall` tells them. Calls that wait for several descriptors have none here.
//!
//! It knows neither sockets nor peers. Pure, over the text and the memory; workers with `slow-request` run it.

use nix::libc;

use crate::memory::Memory;

/// Descriptors of a set of `select` that are looked at.
const MAX_SELECTED: u64 = 1_024;
/// The bytes of a `pollfd`.
const POLLED_BYTES: u64 = 8;

/// A system call that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// `recvfrom`; `system call 999` if its name is not known here.
    pub call: String,
    /// The one descriptor that it waits for.
    pub descriptor: Option<i32>,
    /// The address of the word that a `futex` waits for.
    pub futex: Option<u64>,
}

/// Where a call has its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The first argument.
    First,
    /// The first argument points to them, the second one is their number.
    Polled,
    /// The first argument is a poll that watches them.
    Watched,
    /// The first argument is their bound, and the next three point to sets.
    Selected,
    /// None: the first argument is the address of a word.
    Futex,
    Nothing,
}

const CALLS: &[(libc::c_long, &str, Form)] = &[
    (libc::SYS_read, "read", Form::First),
    (libc::SYS_readv, "readv", Form::First),
    (libc::SYS_pread64, "pread", Form::First),
    (libc::SYS_recvfrom, "recvfrom", Form::First),
    (libc::SYS_recvmsg, "recvmsg", Form::First),
    (libc::SYS_recvmmsg, "recvmmsg", Form::First),
    (libc::SYS_write, "write", Form::First),
    (libc::SYS_writev, "writev", Form::First),
    (libc::SYS_pwrite64, "pwrite", Form::First),
    (libc::SYS_sendto, "sendto", Form::First),
    (libc::SYS_sendmsg, "sendmsg", Form::First),
    (libc::SYS_sendfile, "sendfile", Form::First),
    (libc::SYS_connect, "connect", Form::First),
    (libc::SYS_accept, "accept", Form::First),
    (libc::SYS_accept4, "accept", Form::First),
    (libc::SYS_fsync, "fsync", Form::First),
    (libc::SYS_fdatasync, "fdatasync", Form::First),
    (libc::SYS_flock, "flock", Form::First),
    (libc::SYS_fcntl, "fcntl", Form::First),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", Form::Polled),
    (libc::SYS_ppoll, "poll", Form::Polled),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", Form::Watched),
    (libc::SYS_epoll_pwait, "epoll_wait", Form::Watched),
    (libc::SYS_epoll_pwait2, "epoll_wait", Form::Watched),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", Form::Selected),
    (libc::SYS_pselect6, "select", Form::Selected),
    (libc::SYS_futex, "futex", Form::Futex),
    (libc::SYS_nanosleep, "nanosleep", Form::Nothing),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", Form::Nothing),
    (libc::SYS_wait4, "wait4", Form::Nothing),
    (libc::SYS_waitid, "waitid", Form::Nothing),
    (libc::SYS_openat, "openat", Form::Nothing),
    (libc::SYS_sched_yield, "sched_yield", Form::Nothing),
];

/// The name of the call if the file belongs to another user, as in a process that has changed its own, or the kernel has none.
const HIDDEN: &str = "a call that /proc hides";

/// Returns the call that a thread is in, if it is not running. `None`: it is in none.
pub fn wait(pid: i32, thread: u32, memory: &impl Memory) -> Option<Wait> {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
        return Some(Wait { call: HIDDEN.to_owned(), descriptor: None, futex: None });
    };
    let watched = |poll: i32| std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{poll}")).unwrap_or_default();
    of_text(&text, memory, watched)
}

/// `text` is `7 0x7f… 0x1 0xffffffff …`: the call's number and its arguments. `running` and `-1 …` are not calls.
fn of_text(text: &str, memory: &impl Memory, watched: impl Fn(i32) -> String) -> Option<Wait> {
    let mut words = text.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let arguments: Vec<u64> = words.map_while(hexadecimal).collect();
    let argument = |place: usize| arguments.get(place).copied().unwrap_or(0);
    let Some((_, name, form)) = CALLS.iter().find(|(known, ..)| *known == number) else {
        return Some(Wait { call: format!("system call {number}"), descriptor: None, futex: None });
    };
    let descriptor = match form {
        Form::First => Some(argument(0) as i32),
        Form::Polled if argument(1) == 1 => memory.number(argument(0)).ok().map(u32::cast_signed),
        Form::Polled => the_only(polled(memory, argument(0), argument(1))),
        Form::Watched => the_only(descriptors_of(&watched(argument(0) as i32))),
        Form::Selected => the_only(selected(memory, argument(0), [argument(1), argument(2)])),
        Form::Futex | Form::Nothing => None,
    };
    let futex = (*form == Form::Futex).then(|| argument(0));
    Some(Wait { call: (*name).to_owned(), descriptor, futex })
}

/// The descriptor, if all are the same one.
fn the_only(descriptors: Vec<i32>) -> Option<i32> {
    let first = *descriptors.first()?;
    descriptors.iter().all(|other| *other == first).then_some(first)
}

/// Two of them: an entry with a negative number waits for nothing.
fn polled(memory: &impl Memory, first: u64, count: u64) -> Vec<i32> {
    let entry = |number: u64| memory.number(first.wrapping_add(number * POLLED_BYTES)).ok().map(u32::cast_signed);
    (0..count.min(MAX_SELECTED)).map_while(entry).filter(|descriptor| *descriptor >= 0).collect()
}

/// `tfd:        5 events:       19 data: …`, a line for each descriptor.
fn descriptors_of(poll: &str) -> Vec<i32> {
    let one = |line: &str| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok();
    poll.lines().filter_map(one).collect()
}

fn selected(memory: &impl Memory, bound: u64, sets: [u64; 2]) -> Vec<i32> {
    let mut found = Vec::new();
    for set in sets.into_iter().filter(|set| *set != 0) {
        for place in 0..bound.min(MAX_SELECTED) {
            let byte = memory.byte(set.wrapping_add(place / 8)).unwrap_or(0);
            if byte >> (place % 8) & 1 == 1 {
                found.push(place as i32);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pieces;

    fn memory() -> Pieces {
        let mut memory = Pieces::default();
        memory.put(0x20000, &[7, 0, 0, 0, 1, 0, 0, 0]);
        memory.put(0x30000, &[8, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        memory.put(0x40000, &[0b10, 0]);
        memory
    }

    fn read(text: &str) -> Option<Wait> {
        of_text(text, &memory(), |poll| if poll == 4 { "pos:\t0\ntfd:        9 events: 1\n".to_owned() } else { String::new() })
    }

    #[test]
    fn the_descriptor_of_a_call_is_known_where_it_waits_for_one() {
        let poll = libc::SYS_ppoll;
        for (text, call, descriptor) in [
            (format!("{} 0x5 0x1000 0x2000", libc::SYS_recvfrom), "recvfrom", Some(5)),
            (format!("{poll} 0x20000 0x1 0xffffffff"), "poll", Some(7)),
            (format!("{poll} 0x30000 0x2 0xffffffff"), "poll", Some(8)),
            (format!("{poll} 0x99990000 0x1 0x0"), "poll", None),
            (format!("{} 0x4 0x1000", libc::SYS_epoll_pwait), "epoll_wait", Some(9)),
            (format!("{} 0x5 0x1000", libc::SYS_epoll_pwait), "epoll_wait", None),
            (format!("{} 0x9 0x40000 0x0 0x0", libc::SYS_pselect6), "select", Some(1)),
            (format!("{} 0x0", libc::SYS_clock_nanosleep), "clock_nanosleep", None),
            ("99999 0x1".to_owned(), "system call 99999", None),
        ] {
            let wait = read(&text).expect("a call");
            assert_eq!((wait.call.as_str(), wait.descriptor, wait.futex), (call, descriptor, None), "{text}");
        }
    }

    #[test]
    fn a_futex_has_its_word_and_a_thread_that_runs_no_call() {
        assert_eq!(read(&format!("{} 0x1234 0x0", libc::SYS_futex)).and_then(|wait| wait.futex), Some(0x1234));
        assert_eq!([read("running\n"), read("-1 0x1 0x2\n"), read("")], [None, None, None]);
    }
}
