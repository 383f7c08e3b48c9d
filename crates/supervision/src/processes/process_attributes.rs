//! Attributes that the calling process changes of itself: its name in `ps` and `top` (also `auto-procname`, `procname` and
//! related options), and its file size limit (`ulimit -f`, RLIMIT_FSIZE). That limit applies to shared memory too, which is a
//! file without a name. The application keeps the limit as it was. Every process of Bolide sets its name with this; the master
//! raises the limit at its start, and that of open files while it passes a descriptor.

use std::ffi::CString;
use std::io;

use bolide_contract::settings::Naming;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The master's name, or `None` if it keeps its original one.
pub fn name_of_master(naming: &Naming) -> Option<String> {
    naming.auto.then(|| {
        let name = naming.master.as_deref().or(naming.name.as_deref()).unwrap_or("bolide master");
        format!("{}{name}{}", naming.prefix, naming.suffix)
    })
}

/// The name of a helper that the master has forked. It always gets one: otherwise its command line would be the master's.
pub fn name_of_helper(naming: &Naming, role: &str) -> String {
    match naming.auto {
        true => format!("{}{}{}", naming.prefix, naming.name.clone().unwrap_or_else(|| format!("bolide {role}")), naming.suffix),
        false => format!("bolide: {role}"),
    }
}

/// Bytes of a process' short name that the kernel keeps (prctl(2), PR_SET_NAME).
const SHORT_BYTES: usize = 15;

/// The short name of a process, which `ps -e`, `top` and the kernel's messages show: without the application, and with the whole
/// number at the end, so that no two workers have the same one.
fn short_name(name: &str) -> String {
    let role = name.split(" [").next().unwrap_or(name).replacen("bolide: ", "bolide ", 1);
    let number = role.rsplit_once(' ').map(|(_, last)| last).filter(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(number) = number.filter(|number| role.len() > SHORT_BYTES && number.len() < SHORT_BYTES) else { return role };
    let mut kept = SHORT_BYTES - number.len() - 1;
    while !role.is_char_boundary(kept) {
        kept -= 1;
    }
    format!("{} {number}", role[..kept].trim_end())
}

/// Names this process: the short name, and the command line if it is long enough to hold the text.
///
/// Errors are dropped: the name is only for people.
pub fn set_name(name: &str) {
    let Ok(text) = CString::new(short_name(name)) else { return };
    nix::sys::prctl::set_name(&text).unwrap_or_default();
    write_command_line(name.as_bytes());
}

/// Overwrites the memory of the command line, which the kernel shows in /proc/PID/cmdline.
fn write_command_line(name: &[u8]) {
    let Some((start, end)) = command_line_memory() else { return };
    let room = end.saturating_sub(start);
    if room < 2 {
        return;
    }
    let shown = &name[..name.len().min(room - 1)];
    // SAFETY: the kernel says that the command line of this process is there (proc(5), arg_start and arg_end); it is the upper
    // end of our stack, writable, and never read as code or as Rust data.
    unsafe {
        let place = start as *mut u8;
        std::ptr::copy_nonoverlapping(shown.as_ptr(), place, shown.len());
        std::ptr::write_bytes(place.add(shown.len()), 0, room - shown.len());
    }
}

/// Fields 48 and 49 of /proc/self/stat. The second field, the name, may contain spaces: fields are counted from after its
/// bracket.
fn command_line_memory() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let start = fields.nth(48 - 3)?.parse().ok()?;
    let end = fields.next()?.parse().ok()?;
    (start != 0).then_some((start, end))
}

/// Runs `make`, which needs a file of `bytes` bytes, with a limit that allows it if we may raise the limit.
///
/// # Errors
/// The error of `make`. `Ok(None)` if the limit is too low and may not be raised.
pub fn with_file_size<T>(bytes: u64, make: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
    let before = getrlimit(Resource::Fsize);
    if before.current.is_none_or(|limit| limit >= bytes) {
        return make().map(Some);
    }
    let raised = Rlimit { current: Some(bytes), maximum: before.maximum.map(|most| most.max(bytes)) };
    // Only root may exceed the hard limit.
    if setrlimit(Resource::Fsize, raised).is_err() {
        return Ok(None);
    }
    let made = make();
    setrlimit(Resource::Fsize, before)?;
    made.map(Some)
}

/// The number of files that this process may have open (`ulimit -n`, RLIMIT_NOFILE).
pub fn open_files_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Runs `send`, which passes a descriptor. The kernel refuses that if the user's processes have passed as many as this process
/// may have open (unix(7), ETOOMANYREFS): then it is tried again with the highest limit that this process may set.
///
/// # Errors
/// The error of `send`.
pub fn with_descriptors_in_flight<T>(mut send: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let sent = send();
    if !matches!(&sent, Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS)) {
        return sent;
    }
    let before = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }).is_err() {
        return sent;
    }
    let sent = send();
    setrlimit(Resource::Nofile, before)?;
    sent
}

/// The error if the limit could not be raised.
pub fn file_size_too_small(bytes: u64) -> io::Error {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    io::Error::other(format!(
        "files may be at most {} KiB (ulimit -f, RLIMIT_FSIZE, LimitFSIZE), but {} KiB are needed: raise the limit",
        limit / 1024,
        bytes.div_ceil(1024)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_keeps_the_number_of_its_process() {
        for (name, expected) in [
            ("bolide: worker 1 [shop.wsgi:application]", "bolide worker 1"),
            ("bolide: worker 12 [shop]", "bolide worke 12"),
            ("bolide: worker 1024 [shop]", "bolide wor 1024"),
            ("bolide: prototype [shop]", "bolide prototype"),
            ("shop bolide worker 7", "shop bolide w 7"),
            ("\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc} 7", "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc} 7"),
            ("shop", "shop"),
            ("", ""),
        ] {
            assert_eq!(short_name(name), expected);
        }
    }
}
