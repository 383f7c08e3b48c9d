//! Taking a job: its file is locked with fcntl(2), as uWSGI's spoolers do, so that one spooler works on it, of whichever server.
//!
//! A job is removed after it was done and never before, so a spooler that is killed at any step leaves it for the next one.
//! Before each attempt a line is added to the job's file in `.attempts`. A job that has ended its spooler [`MAX_ATTEMPTS`] times
//! is given up. Spoolers run this.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};

use crate::directory::{self, ATTEMPTS, Directory, NEW, Place, remove_if_there};
use crate::failed;
use crate::format::{HEAD_BYTES, Layout, MAX_BODY_BYTES, MAX_VARIABLES_BYTES, Reading, read};

/// Attempts at a job that end its spooler, after which it is given up.
pub const MAX_ATTEMPTS: usize = 3;
/// Most bytes of the notes about the attempts at a job that are read.
const MAX_NOTES_BYTES: u64 = 4096;
/// Age in seconds from which a file with the beginning of a job no longer has a writer.
const UNFINISHED_SECONDS: u64 = 60;
/// Age in seconds from which on a file in `.new` belongs to no writer any more.
const ABANDONED_SECONDS: u64 = 3600;
/// Most files that one call of [`tidy`] looks at.
const MAX_TIDIED_FILES: usize = 1000;

/// The outcome of taking a job.
#[derive(Debug)]
pub enum Claim {
    /// It is locked until the value is dropped.
    Job(ClaimedJob),
    /// Another process works on it or writes it.
    Busy,
    /// It is done already.
    Gone,
    /// Its time has not come, in seconds since 1970.
    Later(u64),
    /// It is given up, and is in the directory `failed` now.
    GivenUp(String),
    /// It stays in the directory until someone looks at it.
    Refused(String),
}

/// A job that this process works on.
#[derive(Debug)]
pub struct ClaimedJob {
    directory: Directory,
    place: Place,
    content: Vec<u8>,
    layout: Layout,
    /// Holds the lock. POSIX drops it as soon as this process closes any descriptor of the file.
    file: File,
}

impl ClaimedJob {
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Names and values, in their order.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        variables(&self.content, &self.layout)
    }

    pub fn body(&self) -> &[u8] {
        &self.content[self.layout.body.clone()]
    }

    /// Notes that an attempt begins. If it can't be noted, the attempt may begin nevertheless.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn begin(&self) -> io::Result<()> {
        let path = self.directory.attempts_path_of(&self.place);
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let mut notes = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                directory::make_own(&self.directory.path().join(ATTEMPTS))?;
                open()?
            }
            result => result?,
        };
        notes.write_all(format!("{} {}\n", std::process::id(), now_seconds()).as_bytes())
    }

    /// The job is done: removes it.
    ///
    /// # Errors
    /// The error of the file system: the job will be worked on again.
    pub fn done(self) -> io::Result<()> {
        remove_if_there(&self.directory.path_of(&self.place))?;
        remove_if_there(&self.directory.attempts_path_of(&self.place))
    }

    /// The job stays, and the attempt did not end the spooler.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn again(self) -> io::Result<()> {
        let result = remove_if_there(&self.directory.attempts_path_of(&self.place));
        drop(self.file);
        result
    }
}

pub(crate) fn variables<'a>(content: &'a [u8], layout: &Layout) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    layout.variables.iter().map(|(name, value)| (&content[name.clone()], &content[value.clone()]))
}

/// Takes a job, if it is one to work on now.
///
/// # Errors
/// An error of the file system that says nothing about this job alone, such as too many open files.
pub fn claim(directory: &Directory, place: &Place) -> io::Result<Claim> {
    let path = directory.path_of(place);
    let seen = match fs::symlink_metadata(&path) {
        Ok(seen) => seen,
        Err(error) => return gone_or_refused(error),
    };
    let now = now_seconds();
    if let Some(at) = later(&seen, now) {
        return Ok(Claim::Later(at));
    }
    if let Some(reason) = refusal(directory, &seen)? {
        return Ok(Claim::Refused(reason));
    }
    let file = match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path) {
        Ok(file) => file,
        Err(error) => return gone_or_refused(error),
    };
    match fcntl(&file, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => {}
        Err(Errno::EAGAIN | Errno::EACCES) => return Ok(Claim::Busy),
        // A file system without locks (ENOLCK, ENOSYS) can't keep two spoolers from one job.
        Err(errno) => return Ok(Claim::Refused(format!("it can't be locked: {errno}"))),
    }
    // Another spooler may have finished it before it was locked, and its name may be another file's now.
    let is_same = |there: &Metadata, own: &Metadata| there.ino() == own.ino() && there.dev() == own.dev();
    let own = file.metadata()?;
    match fs::symlink_metadata(&path) {
        Ok(there) if is_same(&there, &own) && is_same(&seen, &own) => {}
        Ok(_) => return Ok(Claim::Busy),
        Err(error) => return gone_or_refused(error),
    }
    // uWSGI's writers set the time of a job last.
    if let Some(at) = later(&own, now) {
        return Ok(Claim::Later(at));
    }
    open_locked(directory, place, file, &own, now)
}

/// Reads a job whose lock this process holds.
fn open_locked(directory: &Directory, place: &Place, mut file: File, own: &Metadata, now: u64) -> io::Result<Claim> {
    if own.len() > MAX_BODY_BYTES + (HEAD_BYTES + MAX_VARIABLES_BYTES) as u64 {
        return Ok(Claim::Refused(format!("it has {} bytes, more than a job may have", own.len())));
    }
    let mut content = Vec::new();
    if let Err(error) = (&mut file).take(own.len()).read_to_end(&mut content) {
        return Ok(Claim::Refused(format!("it can't be read: {error}")));
    }
    let give_up = |reason: &str| match failed::give_up(directory, place, reason) {
        Ok(()) => Claim::GivenUp(reason.to_owned()),
        Err(error) => Claim::Refused(format!("it can't be moved to the directory `failed` ({error}); {reason}")),
    };
    let layout = match read(&content) {
        Reading::Job(layout) => layout,
        Reading::Junk(reason) => return Ok(give_up(&format!("it is not a job: {reason}"))),
        Reading::Unfinished if now.saturating_sub(modified_seconds(own)) < UNFINISHED_SECONDS => return Ok(Claim::Busy),
        Reading::Unfinished => return Ok(give_up(&format!("it is only the beginning of a job ({} bytes)", content.len()))),
    };
    let attempts = attempts(directory, place);
    if attempts.len() >= MAX_ATTEMPTS {
        let shown: Vec<String> = attempts.iter().map(|attempt| format!("pid {}", attempt.pid)).collect();
        return Ok(give_up(&format!("it has ended its spooler {} times ({})", attempts.len(), shown.join(", "))));
    }
    Ok(Claim::Job(ClaimedJob { directory: directory.clone(), place: place.clone(), content, layout, file }))
}

/// An attempt at a job that has not ended regularly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub pid: u32,
    /// Seconds since 1970.
    pub began: u64,
}

/// The attempts at a job, the oldest first. None are known of a job without a file of them.
pub fn attempts(directory: &Directory, place: &Place) -> Vec<Attempt> {
    let Ok(file) = File::open(directory.attempts_path_of(place)) else { return Vec::new() };
    let mut text = Vec::new();
    // What was read before an error counts.
    let _ = file.take(MAX_NOTES_BYTES).read_to_end(&mut text);
    let attempt = |line: &str| {
        let (pid, began) = line.split_once(' ')?;
        Some(Attempt { pid: pid.parse().ok()?, began: began.parse().ok()? })
    };
    String::from_utf8_lossy(&text).lines().filter_map(attempt).collect()
}

/// The counts of what [`tidy`] has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Jobs that were never written to their end.
    pub abandoned: usize,
}

/// Removes the remains of processes that were killed: jobs whose writers died, and notes about jobs that are done.
///
/// # Errors
/// The error of the file system.
pub fn tidy(directory: &Directory) -> io::Result<Tidied> {
    let mut tidied = Tidied::default();
    let now = now_seconds();
    for path in files_in(&directory.path().join(NEW))? {
        let Ok(there) = fs::symlink_metadata(&path) else { continue };
        // The time of the last change of the inode: a job's own time may be in the future.
        let changed = u64::try_from(there.ctime()).unwrap_or(0);
        if now.saturating_sub(changed) > ABANDONED_SECONDS {
            remove_if_there(&path)?;
            tidied.abandoned += 1;
        }
    }
    for path in files_in(&directory.path().join(ATTEMPTS))? {
        let Some(name) = path.file_name() else { continue };
        let place = place_of_notes(name);
        let is_done =
            matches!(fs::symlink_metadata(directory.path_of(&place)), Err(error) if error.kind() == io::ErrorKind::NotFound);
        if is_done {
            remove_if_there(&path)?;
        }
    }
    Ok(tidied)
}

/// The job of a file in `.attempts`, the reverse of [`Directory::attempts_path_of`].
fn place_of_notes(name: &std::ffi::OsStr) -> Place {
    use std::os::unix::ffi::OsStrExt;
    let name = name.as_bytes();
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match name.get(digits) {
        Some(b'_') if digits > 0 => Place { priority: Some(name[..digits].to_vec()), name: name[digits + 1..].to_vec() },
        _ => Place::plain(name),
    }
}

fn files_in(path: &std::path::Path) -> io::Result<Vec<std::path::PathBuf>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.take(MAX_TIDIED_FILES).map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Why a file is not taken whatever it contains.
fn refusal(directory: &Directory, seen: &Metadata) -> io::Result<Option<String>> {
    let kind = seen.file_type();
    let what = match () {
        () if kind.is_file() => None,
        () if kind.is_symlink() => Some("a link"),
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a FIFO"),
        () => Some("no regular file"),
    };
    if let Some(what) = what {
        return Ok(Some(format!("it is {what}")));
    }
    if !directory.trusts(seen.uid())? {
        let owner = seen.uid();
        return Ok(Some(format!(
            "it belongs to user {owner}, but only this spooler's user, the directory's owner and root may leave jobs"
        )));
    }
    Ok(None)
}

fn gone_or_refused(error: io::Error) -> io::Result<Claim> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Ok(Claim::Gone),
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => Err(error),
        _ => Ok(Claim::Refused(format!("it can't be opened: {error}"))),
    }
}

pub(crate) fn whole_file(kind: i32) -> flock {
    flock { l_type: kind as _, l_whence: libc::SEEK_SET as _, l_start: 0, l_len: 0, l_pid: 0 }
}

pub(crate) fn later(there: &Metadata, now: u64) -> Option<u64> {
    let at = modified_seconds(there);
    (at > now).then_some(at)
}

pub(crate) fn modified_seconds(there: &Metadata) -> u64 {
    u64::try_from(there.mtime()).unwrap_or(0)
}

/// Seconds since 1970.
pub fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Display for Attempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pid {}", self.pid)
    }
}
