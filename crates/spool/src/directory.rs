//! A spooler's directory and the directories in it. It knows paths, and no bytes of a job.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// Has the jobs that are being written. A spooler sees a job only when it is renamed out of here, so it never sees half of one.
pub const NEW: &str = ".new";
/// Has a file for each job that is being worked on, with a line for each attempt. It survives the death of the spooler.
pub const ATTEMPTS: &str = ".attempts";
/// Has the jobs that spoolers have given up.
pub const FAILED: &str = "failed";
/// The mode of our directories: jobs may contain secrets.
const OWN_DIRECTORY_MODE: u32 = 0o700;
/// The mode of a priority's directory, as uWSGI's with the usual umask.
const PRIORITY_DIRECTORY_MODE: u32 = 0o755;

/// A spooler's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
}

/// The place of a job below its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The name of its priority's directory.
    pub priority: Option<Vec<u8>>,
    /// The name of its file.
    pub name: Vec<u8>,
}

impl Directory {
    pub fn new(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a job.
    pub fn path_of(&self, place: &Place) -> PathBuf {
        place.below(self.path.clone())
    }

    /// The path of a job that was given up.
    pub fn failed_path_of(&self, place: &Place) -> PathBuf {
        place.below(self.path.join(FAILED))
    }

    /// The path of the notes about the attempts at a job.
    pub fn attempts_path_of(&self, place: &Place) -> PathBuf {
        let mut name = place.priority.clone().map(|priority| [priority.as_slice(), b"_"].concat()).unwrap_or_default();
        name.extend_from_slice(&place.name);
        self.path.join(ATTEMPTS).join(std::ffi::OsStr::from_bytes(&name))
    }

    /// Whether a file's owner may have jobs here: this process' user, the owner of the directory, or root. Jobs often contain
    /// pickled objects, which execute code when they are read, so those of another user are not.
    pub(crate) fn trusts(&self, owner: u32) -> io::Result<bool> {
        Ok(owner == 0 || owner == geteuid().as_raw() || owner == fs::metadata(&self.path)?.uid())
    }
}

impl Place {
    /// A job without priority.
    pub fn plain(name: impl Into<Vec<u8>>) -> Place {
        Place { priority: None, name: name.into() }
    }

    /// Its path below the directory, as text for people.
    pub fn shown(&self) -> String {
        self.below(PathBuf::new()).display().to_string()
    }

    pub(crate) fn below(&self, mut path: PathBuf) -> PathBuf {
        for part in self.priority.iter().chain([&self.name]) {
            path.push(std::ffi::OsStr::from_bytes(part));
        }
        path
    }
}

/// Makes a directory of ours, if it is missing.
pub(crate) fn make_own(path: &Path) -> io::Result<()> {
    make(path, OWN_DIRECTORY_MODE)
}

/// Makes the directory of a priority, if it is missing.
pub(crate) fn make_priority(path: &Path) -> io::Result<()> {
    make(path, PRIORITY_DIRECTORY_MODE)
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Removes a file that need not exist.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
