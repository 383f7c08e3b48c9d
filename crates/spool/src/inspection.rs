//! Looking at jobs without working on them, and the orders of a person: for `bolide spool`, `uwsgi.spooler_jobs` and
//! `uwsgi.spooler_get_task`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::claiming::{later, now_seconds, variables, whole_file};
use crate::directory::{Directory, FAILED, Place, remove_if_there};
use crate::failed::{self, REASON_SUFFIX};
use crate::format::{HEAD_BYTES, Layout, MAX_BODY_BYTES, MAX_VARIABLES_BYTES, Reading, read};
use crate::scan::Scan;

/// What happens to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// A spooler will take it.
    Waits,
    /// Until this time, in seconds since 1970.
    WaitsUntil(u64),
    /// The process with this pid has locked it. 0: a process of another machine, or of another namespace.
    WorkedOn(u32),
    /// It was given up, for this reason.
    Failed(String),
    /// It can't be examined.
    Unreadable(String),
}

/// A job as `bolide spool list` shows it.
#[derive(Debug, Clone)]
pub struct Listed {
    pub place: Place,
    pub state: State,
    /// Bytes of its file.
    pub bytes: u64,
}

/// The content of a job.
#[derive(Debug)]
pub struct Content {
    bytes: Vec<u8>,
    layout: Layout,
}

impl Content {
    /// Names and values, in their order.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        variables(&self.bytes, &self.layout)
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[self.layout.body.clone()]
    }
}

/// The jobs of a directory in order, and after them those that were given up. An error ends the list.
pub fn list(directory: &Directory) -> impl Iterator<Item = io::Result<Listed>> {
    let failed_directory = Directory::new(directory.path().join(FAILED));
    let is_there = failed_directory.path().is_dir();
    let failed = is_there.then(|| Scan::new(&failed_directory, true)).into_iter().flatten();
    let waiting = Scan::new(directory, true).filter_map(|found| found.map(|place| listed(directory, place)).transpose());
    let is_job = |found: &io::Result<Place>| found.as_ref().is_ok_and(|place| !place.name.ends_with(REASON_SUFFIX.as_bytes()));
    let failed = failed.filter(move |found| found.is_err() || is_job(found)).map(|found| {
        let place = found?;
        let reason = failed::reason(directory, &place).unwrap_or_else(|| "no reason is noted".to_owned());
        let bytes = fs::symlink_metadata(directory.failed_path_of(&place))?.len();
        Ok(Listed { place, state: State::Failed(reason), bytes })
    });
    waiting.chain(failed)
}

/// `None`: it is done already.
fn listed(directory: &Directory, place: Place) -> Option<Listed> {
    let path = directory.path_of(&place);
    let there = match fs::symlink_metadata(&path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Listed { place, state: State::Unreadable(error.to_string()), bytes: 0 }),
    };
    let state = match open(&path, &there).and_then(|file| holder(&file)) {
        Err(error) => State::Unreadable(error.to_string()),
        Ok(Some(pid)) => State::WorkedOn(pid),
        Ok(None) => later(&there, now_seconds()).map_or(State::Waits, State::WaitsUntil),
    };
    Some(Listed { place, state, bytes: there.len() })
}

/// The content of a job at a path. `None`: a process is working on it, or it is incomplete.
///
/// # Errors
/// The error of the file system.
pub fn content(path: &Path) -> io::Result<Option<Content>> {
    let there = fs::symlink_metadata(path)?;
    let file = open(path, &there)?;
    if holder(&file)?.is_some() {
        return Ok(None);
    }
    let most = MAX_BODY_BYTES + (HEAD_BYTES + MAX_VARIABLES_BYTES) as u64;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    match read(&bytes) {
        Reading::Job(layout) => Ok(Some(Content { bytes, layout })),
        Reading::Junk(_) | Reading::Unfinished => Ok(None),
    }
}

/// Has a job that was given up worked on again.
///
/// # Errors
/// The error of the file system.
pub fn retry(directory: &Directory, place: &Place) -> io::Result<()> {
    failed::retry(directory, place)
}

/// Deletes a job, which waits or was given up.
///
/// # Errors
/// The error of the file system, or a process works on the job (`WouldBlock`).
pub fn drop(directory: &Directory, place: &Place) -> io::Result<()> {
    match failed::drop(directory, place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let path = directory.path_of(place);
    let there = fs::symlink_metadata(&path)?;
    if there.is_file() && holder(&open(&path, &there)?)?.is_some() {
        return Err(io::Error::new(io::ErrorKind::WouldBlock, "a process works on it"));
    }
    fs::remove_file(&path)?;
    remove_if_there(&directory.attempts_path_of(place))
}

fn open(path: &Path, there: &Metadata) -> io::Result<File> {
    if !there.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// The pid of the process that has locked a file.
fn holder(file: &File) -> io::Result<Option<u32>> {
    let mut lock = whole_file(libc::F_WRLCK);
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    let is_free = i32::from(lock.l_type) == libc::F_UNLCK;
    Ok((!is_free).then(|| u32::try_from(lock.l_pid).unwrap_or(0)))
}
