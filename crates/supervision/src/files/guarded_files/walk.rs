//! The path walk for root: one component after the other from `/`, so that only links made by root are followed. It opens nothing
//! but directories, and changes nothing. The master and the attendant run it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::{fmt, io};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::geteuid;

/// Links that a path may contain: as many as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// Write bits of group and others. Those of an access control list appear in the group's bits (acl(5)).
const OTHERS_MAY_WRITE: u32 = 0o022;
/// The inode of `/proc` itself, whose links are texts. The links below lead to files that a process has open, whatever their text
/// says.
const PROC_ROOT_INODE: u64 = 1;
/// Targets that a link in any directory may have: the log's own descriptors, which all processes of the instance have, and
/// /dev/null.
const STANDARD_STREAMS: [&str; 5] = ["/dev/stdout", "/dev/stderr", "/dev/null", "/proc/self/fd/1", "/proc/self/fd/2"];

/// Why root refuses to use a file.
#[derive(Debug)]
pub struct Untrusted(String);

impl fmt::Display for Untrusted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

impl Untrusted {
    pub fn error(words: String) -> io::Error {
        io::Error::other(Untrusted(words))
    }

    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Untrusted>())
    }
}

/// Whether the last component of a path may be a link that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Itself,
    Followed,
    /// Followed, and from any directory to a standard stream.
    FollowedToStream,
}

/// How far an entry of a directory can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The kernel checks the rights, and links are followed.
    Kernel,
    /// Only root could have put it there.
    Root,
    /// A standard stream that a link of another user leads to: lines may be written to it, and nothing else is changed.
    Stream,
    /// Another user may have put it there, or may replace it at any moment.
    Others,
}

/// An entry of a directory, which need not exist.
#[derive(Debug)]
pub struct PathEntry {
    directory: Option<OwnedFd>,
    name: OsString,
    pub trust: Trust,
    /// A link of `/proc` to an open file, which is reached only by opening the link.
    is_open_file: bool,
    path: PathBuf,
}

impl PathEntry {
    /// The path as it is, which the kernel resolves.
    pub fn plain(path: &Path) -> PathEntry {
        let (name, path) = (path.as_os_str().to_owned(), path.to_owned());
        PathEntry { directory: None, name, trust: Trust::Kernel, is_open_file: false, path }
    }

    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(AT_FDCWD, AsFd::as_fd)
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The flag for openat(2) that decides whether a link is followed here.
    pub fn link_flag(&self) -> OFlag {
        if self.trust == Trust::Kernel || self.is_open_file { OFlag::empty() } else { OFlag::O_NOFOLLOW }
    }

    /// The status of the entry; of a link, that of the link itself.
    ///
    /// # Errors
    /// The error of fstatat(2).
    pub fn look(&self) -> io::Result<FileStat> {
        Ok(fstatat(self.directory(), self.name(), AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// A path to this entry without a link in it, for calls that do not accept a directory descriptor.
    pub fn address(&self) -> PathBuf {
        match &self.directory {
            Some(directory) => Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(&self.name),
            None => self.path.clone(),
        }
    }
}

pub fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

/// Whether a descriptor refers to a file of `/proc`: writing to one may change a process.
pub fn is_of_proc(descriptor: impl AsFd) -> bool {
    fstatfs(descriptor).is_ok_and(|system| system.filesystem_type() == PROC_SUPER_MAGIC)
}

/// A directory on the path.
struct WalkedDirectory {
    descriptor: OwnedFd,
    inode: u64,
    path: PathBuf,
    /// Only root may write to it, and to all directories before it.
    is_roots: bool,
    /// Like `is_roots`, but every user may create new entries, and entries of root's stay (`/tmp`; the sticky bit, unlink(2)).
    is_sticky: bool,
}

impl WalkedDirectory {
    fn root() -> io::Result<WalkedDirectory> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let descriptor = openat(AT_FDCWD, "/", flags, Mode::empty())?;
        let found = fstat(&descriptor)?;
        Ok(WalkedDirectory {
            descriptor,
            inode: found.st_ino,
            path: PathBuf::from("/"),
            is_roots: only_root_writes(&found),
            is_sticky: false,
        })
    }

    fn below(&self, name: &OsStr, descriptor: OwnedFd, found: &FileStat) -> WalkedDirectory {
        let is_ours = is_ours(found);
        let stays = self.is_roots || self.is_sticky && is_ours;
        // In a user namespace, directories of `/proc` may appear to belong to another user. They are the kernel's.
        let is_roots = stays && (only_root_writes(found) || is_of_proc(&descriptor));
        let is_sticky = stays && !is_roots && is_ours && found.st_mode & Mode::S_ISVTX.bits() != 0;
        WalkedDirectory { descriptor, inode: found.st_ino, path: self.path.join(name), is_roots, is_sticky }
    }

    fn entry(&self, name: OsString, trust: Trust, is_open_file: bool) -> io::Result<PathEntry> {
        let path = self.path.join(&name);
        Ok(PathEntry { directory: Some(self.descriptor.try_clone()?), name, trust, is_open_file, path })
    }

    /// Its links lead to files that a process has open.
    fn has_open_files(&self) -> bool {
        self.inode != PROC_ROOT_INODE && is_of_proc(&self.descriptor)
    }
}

/// Owned by root or ourselves, and not writable for others. In a sticky directory every user may create new entries.
fn only_root_writes(found: &FileStat) -> bool {
    is_ours(found) && found.st_mode & OTHERS_MAY_WRITE == 0
}

fn is_ours(found: &FileStat) -> bool {
    found.st_uid == 0 || found.st_uid == geteuid().as_raw()
}

/// Resolves a path to its last entry. A link in a directory that only root may write to is followed; any other link is refused.
///
/// # Errors
/// A refusal, or the error of the kernel for a component before the last.
pub fn walk(path: &Path, last: Last) -> io::Result<PathEntry> {
    let mut left = Vec::new();
    push_components(&std::path::absolute(path)?, &mut left);
    let mut directories = vec![WalkedDirectory::root()?];
    let (mut links, mut leads_to_stream) = (0, false);
    while let Some(name) = left.pop() {
        if name == ".." {
            // The parent of the root is the root.
            directories.truncate(directories.len().saturating_sub(1).max(1));
            continue;
        }
        let Some(directory) = directories.last() else { break };
        let trust = match (directory.is_roots, leads_to_stream) {
            (true, false) => Trust::Root,
            (true, true) => Trust::Stream,
            (false, _) => Trust::Others,
        };
        let is_last = left.is_empty();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let entry = match openat(&directory.descriptor, name.as_os_str(), flags, Mode::empty()) {
            Ok(entry) => entry,
            Err(Errno::ENOENT) if is_last => return directory.entry(name, trust, false),
            Err(error) => return Err(error.into()),
        };
        let found = fstat(&entry)?;
        match kind(&found) {
            SFlag::S_IFLNK if is_last && last == Last::Itself => return directory.entry(name, trust, false),
            SFlag::S_IFLNK => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                if directory.is_roots && directory.has_open_files() {
                    if is_last {
                        return directory.entry(name, trust, true);
                    }
                    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                    let descriptor = openat(&directory.descriptor, name.as_os_str(), flags, Mode::empty())?;
                    // It is not known which users may write to the directories before it.
                    let (inode, path) = (fstat(&descriptor)?.st_ino, directory.path.join(&name));
                    directories.push(WalkedDirectory { descriptor, inode, path, is_roots: false, is_sticky: false });
                    continue;
                }
                let target = PathBuf::from(readlinkat(&entry, "")?);
                if !directory.is_roots {
                    leads_to_stream = is_last
                        && last == Last::FollowedToStream
                        && STANDARD_STREAMS.iter().any(|stream| target.as_os_str() == *stream);
                    if !leads_to_stream {
                        return Err(laid_link(directory, &name));
                    }
                }
                if target.is_absolute() {
                    directories.truncate(1);
                }
                push_components(&target, &mut left);
            }
            SFlag::S_IFDIR if !is_last => {
                let next = directory.below(&name, entry, &found);
                directories.push(next);
            }
            _ if is_last => return directory.entry(name, trust, false),
            _ => return Err(Errno::ENOTDIR.into()),
        }
    }
    Err(Errno::EISDIR.into())
}

/// The components of a path, with the first one on top.
fn push_components(path: &Path, left: &mut Vec<OsString>) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => left.push(name.to_owned()),
            Component::ParentDir => left.push("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

fn laid_link(directory: &WalkedDirectory, name: &OsStr) -> io::Error {
    let (path, directory) = (directory.path.join(name), &directory.path);
    Untrusted::error(format!(
        "{} is a link, and {} is not a directory that only root may write to: root does not follow it; remove it, or write the \
            path that it leads to",
        path.display(),
        directory.display()
    ))
}

/// Checks a file that was opened in a directory that others may write to: it must be regular and have no other name, and in a
/// sticky directory it must not belong to a third user.
///
/// # Errors
/// A refusal.
pub fn check_opened(place: &PathEntry, found: &FileStat, user: u32) -> io::Result<()> {
    let shown = place.path().display();
    if kind(found) != SFlag::S_IFREG {
        return Err(Untrusted::error(format!(
            "{shown} is not a regular file, and other users than root may write to its directory; remove it"
        )));
    }
    if found.st_nlink != 1 {
        return Err(Untrusted::error(format!(
            "{shown} has {} hard links, and users other than root may write to its directory; \
             remove it",
            found.st_nlink
        )));
    }
    let directory = fstat(place.directory())?;
    let is_sticky = directory.st_mode & Mode::S_ISVTX.bits() != 0;
    if is_sticky { check_owner_in(place, &directory, found, user) } else { Ok(()) }
}

/// Checks the owner of a file in a directory that others may write to: it must not belong to a third user.
///
/// # Errors
/// A refusal.
pub fn check_owner(place: &PathEntry, found: &FileStat, user: u32) -> io::Result<()> {
    check_owner_in(place, &fstat(place.directory())?, found, user)
}

fn check_owner_in(place: &PathEntry, directory: &FileStat, found: &FileStat, user: u32) -> io::Result<()> {
    if [0, geteuid().as_raw(), directory.st_uid, user].contains(&found.st_uid) {
        return Ok(());
    }
    Err(Untrusted::error(format!(
        "{} belongs to the user {}, and other users than root may write to its directory; remove it",
        place.path().display(),
        found.st_uid
    )))
}
