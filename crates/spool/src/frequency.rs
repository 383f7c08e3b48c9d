//! `uwsgi.set_spooler_frequency`: how often the spoolers of an instance look for jobs, if the application sets it while they run.
//!
//! A file in the directory has the number, with the pid of the master whose spoolers it is for: the directory may have spoolers
//! of other instances, and outlives them all. Processes of the application write it, and spoolers read it.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use crate::directory::Directory;

/// The name of the file. uWSGI ignores it.
const FILE: &str = ".frequency";
/// Most bytes of the file that are read: two numbers.
const MAX_BYTES: u64 = 64;

/// Sets the seconds between two looks at a directory. 0 is as configured.
///
/// # Errors
/// The error of the file system.
pub fn set(directory: &Directory, master: u32, seconds: u32) -> io::Result<()> {
    fs::write(path(directory), format!("{master} {seconds}\n"))
}

/// The seconds between two looks at a directory that were set for this instance. A file that is being written says nothing.
pub fn get(directory: &Directory, master: u32) -> Option<u32> {
    let mut text = String::new();
    fs::File::open(path(directory)).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let (of, seconds) = text.strip_suffix('\n')?.split_once(' ')?;
    if of.parse() != Ok(master) {
        return None;
    }
    seconds.parse().ok().filter(|seconds| *seconds > 0)
}

fn path(directory: &Directory) -> PathBuf {
    directory.path().join(FILE)
}
