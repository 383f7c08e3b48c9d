//! Directories that the master creates for the application's user. It knows paths and whose rights count. The master runs it.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::fchown;

use super::walk::{Last, PathEntry, Trust, Untrusted};
use super::{Rights, perform};

/// Creates a directory for the user of `rights`. Returns false if something has its name already, which stays as it is.
///
/// # Errors
/// The error of mkdir(2), or a refusal that says what to do.
pub fn create_directory(path: &Path, mode: u32, rights: Rights<'_>) -> io::Result<bool> {
    let mode = Mode::from_bits_truncate(mode);
    perform(path, Last::Itself, rights, |place| {
        if place.trust == Trust::Others {
            // Between creating it and giving it away, another user could put a directory of root's in its place.
            return Err(Untrusted::error(format!("{} is in a directory that others may write to", place.path().display())));
        }
        match mkdirat(place.directory(), place.name(), mode) {
            Err(Errno::EEXIST) => return Ok(false),
            result => result?,
        }
        if place.trust == Trust::Root {
            give_away(place, rights)?;
        }
        Ok(true)
    })
}

fn give_away(place: &PathEntry, rights: Rights<'_>) -> io::Result<()> {
    let Some(user) = rights.privileges() else { return Ok(()) };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = openat(place.directory(), place.name(), flags, Mode::empty())?;
    Ok(fchown(&directory, Some(user.uid), Some(user.gid))?)
}
