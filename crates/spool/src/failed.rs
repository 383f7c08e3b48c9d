//! Jobs that were given up: each is in the directory `failed` with its reason beside it. Nothing is deleted without an order.
//!
//! Spoolers give jobs up, and `bolide spool` brings them back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::directory::{self, Directory, FAILED, Place, remove_if_there};

/// The end of the name of the file with a job's reason.
pub const REASON_SUFFIX: &str = ".reason";
/// Most bytes of a reason that are read.
const MAX_REASON_BYTES: u64 = 4096;

/// Moves a job to the directory `failed`. The caller holds its lock.
pub(crate) fn give_up(directory: &Directory, place: &Place, reason: &str) -> io::Result<()> {
    let path = directory.failed_path_of(place);
    directory::make_own(&directory.path().join(FAILED))?;
    if let Some(parent) = path.parent().filter(|_| place.priority.is_some()) {
        directory::make_own(parent)?;
    }
    if path.symlink_metadata().is_ok() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is {} already", path.display())));
    }
    // The reason comes first: a job without one would be a riddle.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(reason_path(&path))?;
    file.write_all(format!("{reason}\n").as_bytes())?;
    fs::rename(directory.path_of(place), &path)?;
    remove_if_there(&directory.attempts_path_of(place))
}

/// Moves a job back, so that a spooler takes it again.
pub(crate) fn retry(directory: &Directory, place: &Place) -> io::Result<()> {
    let (from, to) = (directory.failed_path_of(place), directory.path_of(place));
    if to.symlink_metadata().is_ok() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is {} already", to.display())));
    }
    remove_if_there(&directory.attempts_path_of(place))?;
    fs::rename(&from, &to)?;
    remove_if_there(&reason_path(&from))
}

/// Deletes a job that was given up.
pub(crate) fn drop(directory: &Directory, place: &Place) -> io::Result<()> {
    let path = directory.failed_path_of(place);
    fs::remove_file(&path)?;
    remove_if_there(&reason_path(&path))
}

/// Why a job was given up.
pub(crate) fn reason(directory: &Directory, place: &Place) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(reason_path(&directory.failed_path_of(place))).ok()?;
    file.take(MAX_REASON_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}

fn reason_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(REASON_SUFFIX);
    name.into()
}
