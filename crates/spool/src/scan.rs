//! Finding jobs: the names in a spooler's directory and in the directories of its priorities, in the order in which a spooler
//! takes them.
//!
//! It does not open jobs. A scan is lazy: a directory of any size needs a bounded amount of memory. Spoolers and `bolide spool`
//! run it.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, ReadDir};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::directory::{Directory, Place};
use crate::names;

/// Most names that an ordered scan sorts at a time. It reads the directory again for the next ones.
pub const MAX_SORTED_NAMES: usize = 4096;

/// The places of the jobs in a directory. An error ends the scan.
#[derive(Debug)]
pub struct Scan {
    is_ordered: bool,
    /// The directories that are being read: the spooler's, and a priority's inside of it.
    stack: Vec<Level>,
    failure: Option<io::Error>,
}

#[derive(Debug)]
struct Level {
    path: PathBuf,
    priority: Option<Vec<u8>>,
    names: Names,
}

#[derive(Debug)]
enum Names {
    /// In the order of the file system.
    Read(ReadDir),
    Sorted {
        batch: BTreeSet<ByVersion>,
        last: Option<ByVersion>,
        is_all: bool,
    },
}

/// A name, and whether it is a directory's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ByVersion(Vec<u8>, bool);

impl Scan {
    /// With `is_ordered` (`spooler-ordered`), numbers in names decide, and directories of priorities stand among the files.
    pub fn new(directory: &Directory, is_ordered: bool) -> Scan {
        let mut scan = Scan { is_ordered, stack: Vec::with_capacity(2), failure: None };
        match Level::open(directory.path().to_owned(), None, is_ordered) {
            Ok(level) => scan.stack.push(level),
            Err(error) => scan.failure = Some(error),
        }
        scan
    }
}

impl Iterator for Scan {
    type Item = io::Result<Place>;

    fn next(&mut self) -> Option<io::Result<Place>> {
        if let Some(error) = self.failure.take() {
            return Some(Err(error));
        }
        // Each turn takes a name, or leaves a directory.
        while let Some(level) = self.stack.last_mut() {
            let ByVersion(name, is_directory) = match level.next(self.is_ordered) {
                Ok(Some(name)) => name,
                Ok(None) => {
                    self.stack.pop();
                    continue;
                }
                Err(error) => {
                    self.stack.clear();
                    return Some(Err(error));
                }
            };
            if !is_directory {
                return Some(Ok(Place { priority: level.priority.clone(), name }));
            }
            match Level::open(level.path.join(OsStr::from_bytes(&name)), Some(name), self.is_ordered) {
                Ok(inner) => self.stack.push(inner),
                // It was removed in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

impl Level {
    fn open(path: PathBuf, priority: Option<Vec<u8>>, is_ordered: bool) -> io::Result<Level> {
        let names = match is_ordered {
            true => Names::Sorted { batch: BTreeSet::new(), last: None, is_all: false },
            false => Names::Read(read(&path)?),
        };
        Ok(Level { path, priority, names })
    }

    fn next(&mut self, is_ordered: bool) -> io::Result<Option<ByVersion>> {
        let is_inner = self.priority.is_some();
        match &mut self.names {
            Names::Read(entries) => {
                for entry in entries {
                    if let Some(name) = wanted(&entry?, is_ordered, is_inner) {
                        return Ok(Some(name));
                    }
                }
                Ok(None)
            }
            Names::Sorted { batch, last, is_all } => {
                if batch.is_empty() && !*is_all {
                    for entry in read(&self.path)? {
                        let Some(name) = wanted(&entry?, is_ordered, is_inner) else { continue };
                        if last.as_ref().is_none_or(|last| name > *last) {
                            batch.insert(name);
                        }
                        if batch.len() > MAX_SORTED_NAMES {
                            batch.pop_last();
                        }
                    }
                    *is_all = batch.len() < MAX_SORTED_NAMES;
                }
                let first = batch.pop_first();
                last.clone_from(&first);
                Ok(first)
            }
        }
    }
}

fn read(path: &std::path::Path) -> io::Result<ReadDir> {
    fs::read_dir(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The name of an entry, if it is a job or the directory of a priority. A priority's directory has no other ones.
fn wanted(entry: &fs::DirEntry, is_ordered: bool, is_inner: bool) -> Option<ByVersion> {
    let name = entry.file_name().into_vec();
    let is_number = names::is_priority(&name);
    if !is_number && !names::is_job(&name, false) {
        return None;
    }
    // If the kind is not known, taking the job says why.
    let is_directory = is_number && entry.file_type().is_ok_and(|kind| kind.is_dir());
    match is_directory {
        true => (!is_inner).then_some(ByVersion(name, true)),
        false => names::is_job(&name, is_ordered).then_some(ByVersion(name, false)),
    }
}

impl Ord for ByVersion {
    fn cmp(&self, other: &ByVersion) -> Ordering {
        names::order(&self.0, &other.0).then_with(|| self.1.cmp(&other.1))
    }
}

impl PartialOrd for ByVersion {
    fn partial_cmp(&self, other: &ByVersion) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
