//! `uwsgi.set_spooler_frequency`: how often the spoolers of an instance look for jobs, if the application says so while they run.
//!
//! A file in the folder has the number, with the pid of the master whose spoolers it is for: the folder may have spoolers of
//! other instances, and outlives them all. Processes of the application write it, and spoolers read it.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use crate::folder::Folder;

/// The name of the file. uWSGI ignores it.
const FILE: &str = ".frequency";
/// Most bytes of the file that are read: two numbers.
const MAX_BYTES: u64 = 64;

/// Sets the seconds between two looks at a folder. 0 is as configured.
///
/// # Errors
/// The error of the file system.
pub fn set(folder: &Folder, master: u32, seconds: u32) -> io::Result<()> {
    fs::write(path(folder), format!("{master} {seconds}\n"))
}

/// The seconds between two looks at a folder that were set for this instance. A file that is being written says nothing.
pub fn get(folder: &Folder, master: u32) -> Option<u32> {
    let mut text = String::new();
    fs::File::open(path(folder)).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let (of, seconds) = text.strip_suffix('\n')?.split_once(' ')?;
    if of.parse() != Ok(master) {
        return None;
    }
    seconds.parse().ok().filter(|seconds| *seconds > 0)
}

fn path(folder: &Folder) -> PathBuf {
    folder.path().join(FILE)
}
