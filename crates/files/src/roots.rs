//! The directories that files are served from, and how a path below one is opened: it cannot leave its root, whatever links exist
//! and even if they are moved in the meantime. It must not know HTTP. Workers run it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

/// A directory that was moved or replaced is noticed within this many milliseconds.
pub const RECHECK_MS: u64 = 1_000;

/// Attempts at a stat that a concurrent rename disturbed (openat2(2), EAGAIN).
const STAT_TRIES: u32 = 8;

/// Why a path could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing exists there, or nothing that could be a file.
    Missing,
    /// EACCES: it may exist, but we may not read it.
    Denied,
    /// A symbolic link leads out of the root, and not into a safe directory.
    Outside,
    /// The process or the system has no descriptor left, or no memory.
    Exhausted(Errno),
    /// An I/O error.
    Broken(Errno),
}

/// The version of a file: size, times and identity, which distinguish one state of it from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    /// Seconds and nanoseconds of the last change of its content, and of its inode.
    pub changed: (i64, i64),
    pub inode_changed: (i64, i64),
}

impl FileVersion {
    fn of(facts: &FileStat) -> FileVersion {
        FileVersion {
            device: facts.st_dev,
            inode: facts.st_ino,
            bytes: facts.st_size.max(0).unsigned_abs(),
            changed: (facts.st_mtime, facts.st_mtime_nsec),
            inode_changed: (facts.st_ctime, facts.st_ctime_nsec),
        }
    }

    /// Whether the content is the same, though the file may have been renamed or removed in the meantime.
    pub fn is_same_content(&self, other: &FileVersion) -> bool {
        (self.device, self.inode, self.bytes, self.changed) == (other.device, other.inode, other.bytes, other.changed)
    }

    /// Returns the version of the regular file that a path names; links are followed.
    ///
    /// # Errors
    /// Those of stat(2), and that it is not a regular file.
    pub fn of_file(path: &Path) -> io::Result<FileVersion> {
        FileVersion::of_regular(&nix::sys::stat::stat(path)?)
    }

    /// Returns the version of an open file.
    ///
    /// # Errors
    /// Those of fstat(2), and that it is not a regular file.
    pub fn of_open_file(file: &impl AsFd) -> io::Result<FileVersion> {
        FileVersion::of_regular(&fstat(file)?)
    }

    fn of_regular(facts: &FileStat) -> io::Result<FileVersion> {
        match kind(facts) {
            SFlag::S_IFREG => Ok(FileVersion::of(facts)),
            _ => Err(io::Error::other("it is not a regular file")),
        }
    }

    /// Whether the last change is so long ago that any later change shows in the version. `now` is in seconds since 1970.
    pub fn is_settled(&self, now: i64, seconds: i64) -> bool {
        now - self.inode_changed.0 >= seconds
    }

    /// Returns the present version of an open file of any type.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn now(file: &impl AsFd) -> io::Result<FileVersion> {
        Ok(FileVersion::of(&fstat(file)?))
    }
}

/// The type of file that a path names.
#[derive(Debug, PartialEq, Eq)]
pub enum FileType {
    File(FileVersion),
    Directory,
    /// A device, a pipe or a socket: never served and never opened.
    Other,
}

/// Where a file was found: how to open it again, and its real path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    /// Below the root, without leading or trailing slash; empty for the root itself.
    relative: PathBuf,
    /// Set if a link led elsewhere: the path without links.
    real: Option<PathBuf>,
    /// The file's path, for the rules that match it.
    pub path: PathBuf,
}

/// A directory in its present state, or a single file in one.
#[derive(Debug)]
pub struct OpenedRoot {
    directory: OwnedFd,
    path: PathBuf,
    identity: (u64, u64),
    /// The root is this one file.
    pub file_name: Option<PathBuf>,
}

/// A configured target. It may appear and disappear while the server runs.
pub struct Root {
    target: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opened: Option<Arc<OpenedRoot>>,
    looked_ms: Option<u64>,
}

/// The kernel lacks openat2(2), or a sandbox forbids it.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

impl Root {
    pub fn new(target: PathBuf) -> Root {
        Root { target, state: Mutex::default() }
    }

    /// Returns the root in its present state, at most [`RECHECK_MS`] old.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self, now_ms: u64) -> Result<Arc<OpenedRoot>, Refusal> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = state.looked_ms.is_some_and(|looked| now_ms.saturating_sub(looked) < RECHECK_MS);
        if let Some(opened) = &state.opened
            && (is_fresh || opened.is_at(&self.target))
        {
            let opened = opened.clone();
            if !is_fresh {
                state.looked_ms = Some(now_ms);
            }
            return Ok(opened);
        }
        state.opened = None;
        let opened = Arc::new(OpenedRoot::new(&self.target)?);
        *state = State { opened: Some(opened.clone()), looked_ms: Some(now_ms) };
        Ok(opened)
    }
}

impl OpenedRoot {
    fn new(target: &Path) -> Result<OpenedRoot, Refusal> {
        let real = target.canonicalize().map_err(|error| refusal_of(&error))?;
        let directory_flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let found = openat(AT_FDCWD, &real, directory_flags, Mode::empty()).map_err(refusal)?;
        let facts = fstat(&found).map_err(refusal)?;
        let identity = (facts.st_dev, facts.st_ino);
        if kind(&facts) == SFlag::S_IFDIR {
            return Ok(OpenedRoot { directory: found, path: real, identity, file_name: None });
        }
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Err(Refusal::Missing) };
        let directory = openat(AT_FDCWD, parent, directory_flags | OFlag::O_DIRECTORY, Mode::empty()).map_err(refusal)?;
        Ok(OpenedRoot { directory, path: parent.to_owned(), identity, file_name: Some(name.into()) })
    }

    /// The directory's path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_at(&self, target: &Path) -> bool {
        nix::sys::stat::stat(target).is_ok_and(|facts| (facts.st_dev, facts.st_ino) == self.identity)
    }

    /// Finds the file that `relative` names below this root. Opens the name only (O_PATH): does not touch devices or wait for
    /// pipes.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn stat(&self, relative: &Path, safe: &[PathBuf]) -> Result<(ResolvedPath, FileType), Refusal> {
        let (descriptor, real) = match self.open_below(relative, OFlag::O_PATH) {
            Ok(descriptor) => (descriptor, None),
            Err(Errno::EXDEV | Errno::ENOSYS | Errno::EPERM) => {
                let real = self.real_path(relative, safe)?;
                (open_without_links(&real, OFlag::O_PATH).map_err(refusal)?, Some(real))
            }
            Err(errno) => return Err(refusal(errno)),
        };
        let facts = fstat(&descriptor).map_err(refusal)?;
        let file_type = match kind(&facts) {
            SFlag::S_IFREG => FileType::File(FileVersion::of(&facts)),
            SFlag::S_IFDIR => FileType::Directory,
            _ => FileType::Other,
        };
        let path = real.clone().unwrap_or_else(|| self.path.join(relative));
        Ok((ResolvedPath { relative: relative.to_owned(), real, path }, file_type))
    }

    /// Opens for reading the file that [`OpenedRoot::stat`] has found, if it is still a regular file.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn read(&self, resolved: &ResolvedPath) -> Result<(File, FileVersion), Refusal> {
        // A pipe may have replaced the file since the stat: O_NONBLOCK makes that harmless.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let opened = match &resolved.real {
            None => self.open_below(&resolved.relative, flags),
            Some(real) => open_without_links(real, flags),
        };
        let descriptor = opened.map_err(refusal)?;
        let facts = fstat(&descriptor).map_err(refusal)?;
        if kind(&facts) != SFlag::S_IFREG {
            return Err(Refusal::Missing);
        }
        Ok((File::from(descriptor), FileVersion::of(&facts)))
    }

    fn open_below(&self, relative: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        if NO_OPENAT2.load(Relaxed) {
            return Err(Errno::ENOSYS);
        }
        let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        for _ in 0..STAT_TRIES {
            match openat2(&self.directory, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno @ Errno::ENOSYS) => {
                    NO_OPENAT2.store(true, Relaxed);
                    return Err(errno);
                }
                other => return other,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Returns the path without links, if it lies in the root or in a safe directory.
    fn real_path(&self, relative: &Path, safe: &[PathBuf]) -> Result<PathBuf, Refusal> {
        let real = self.path.join(relative).canonicalize().map_err(|error| refusal_of(&error))?;
        let is_allowed = real.starts_with(&self.path)
            || safe.iter().any(|directory| {
                real.starts_with(directory) || directory.canonicalize().is_ok_and(|directory| real.starts_with(directory))
            });
        if is_allowed { Ok(real) } else { Err(Refusal::Outside) }
    }
}

impl ResolvedPath {
    /// Returns the path of a file in the same directory whose name has this suffix appended.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.relative.clone().into_os_string();
        name.push(suffix);
        name.into()
    }
}

/// Opens an absolute path without links, component by component, so that a link placed there concurrently is an error.
fn open_without_links(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut at = openat(AT_FDCWD, "/", step, Mode::empty())?;
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut next = names.next();
    while let Some(name) = next {
        next = names.next();
        let own = if next.is_some() { step } else { flags | OFlag::O_CLOEXEC };
        at = openat(&at, name, own | OFlag::O_NOFOLLOW, Mode::empty())?;
    }
    Ok(at)
}

fn kind(facts: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(facts.st_mode) & SFlag::S_IFMT
}

fn refusal(errno: Errno) -> Refusal {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG | Errno::EINVAL | Errno::ENXIO | Errno::EAGAIN => {
            Refusal::Missing
        }
        Errno::EACCES | Errno::EPERM => Refusal::Denied,
        Errno::EXDEV => Refusal::Outside,
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Refusal::Exhausted(errno),
        errno => Refusal::Broken(errno),
    }
}

fn refusal_of(error: &io::Error) -> Refusal {
    error.raw_os_error().map_or(Refusal::Missing, |number| refusal(Errno::from_raw(number)))
}

/// A request's path as a file system path.
pub fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
#[path = "roots_tests.rs"]
mod tests;
