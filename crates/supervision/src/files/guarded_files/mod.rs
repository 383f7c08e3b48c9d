//! Files in directories that others may write to: everything that master and attendant open, create, rename, give away or remove
//! by a path of the configuration goes through here. It knows paths and whose rights count, and nothing of the contents.
//!
//! The master stays root while the application runs as `uid`, whose user may place links, FIFOs and hard links in its own
//! directories and replace these at any moment. So root walks from `/` one component after the other (`walk`), follows only links
//! made by root, and elsewhere accepts only a regular file with one name. If that is refused, the operation is tried again with
//! the rights of that user, which the kernel checks: a link to a release still works, and leads nowhere the user could not go.
//! The master and the attendant run it.

mod directories;
mod hook_files;
mod sockets;
mod walk;

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{Gid, UnlinkatFlags, fchdir, fchown, getegid, geteuid, getgroups, mkfifoat, setfsgid, setfsuid, unlinkat};

pub use self::directories::create_directory;
pub use self::hook_files::HookFiles;
pub use self::sockets::{SocketNode, bind_at, connect_at};
use self::walk::{Last, PathEntry, Trust, Untrusted, check_opened, is_of_proc, kind, walk};
use crate::privileges::Privileges;
use crate::system::set_groups_of_thread;

/// How often an open is tried again for a file that is created and removed in the meantime.
const MAX_TRIES: usize = 8;

/// Whose rights count, and in which order they are tried.
#[derive(Debug, Clone, Copy)]
pub enum Rights<'a> {
    /// Our own: there is no other user to protect ourselves from.
    Own,
    /// Root's, and the user's if root refuses for safety.
    RootFirst(&'a Privileges),
    /// The user's, and root's if these do not suffice.
    UserFirst(&'a Privileges),
    /// The user's alone.
    User(&'a Privileges),
}

impl Rights<'_> {
    /// Root's rights first; our own if `user` is `None` or ourselves.
    pub fn root_first(user: Option<&Privileges>) -> Rights<'_> {
        other(user).map_or(Rights::Own, Rights::RootFirst)
    }

    /// The user's rights first; our own if `user` is `None` or ourselves.
    pub fn user_first(user: Option<&Privileges>) -> Rights<'_> {
        other(user).map_or(Rights::Own, Rights::UserFirst)
    }

    /// The user's rights alone; our own if `user` is `None` or we are not root.
    pub fn user(user: Option<&Privileges>) -> Rights<'_> {
        user.filter(|_| geteuid().is_root()).map_or(Rights::Own, Rights::User)
    }

    /// There is no other user.
    pub fn is_own(&self) -> bool {
        matches!(self, Rights::Own)
    }

    fn privileges(&self) -> Option<&Privileges> {
        match self {
            Rights::Own => None,
            Rights::RootFirst(user) | Rights::UserFirst(user) | Rights::User(user) => Some(user),
        }
    }
}

/// The user that we protect ourselves from. `None` if we are not root, or if the application is root as well.
fn other(user: Option<&Privileges>) -> Option<&Privileges> {
    user.filter(|user| geteuid().is_root() && !user.uid.is_root())
}

/// Acts on files with the rights of the user: its uid, its gid and all of its groups, and none of root's. Only the file system
/// identity of this thread changes, and the master has one thread.
fn as_user<T>(user: &Privileges, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    struct Restore(Vec<Gid>);
    impl Drop for Restore {
        fn drop(&mut self) {
            setfsuid(geteuid());
            setfsgid(getegid());
            // A thread that could drop its groups can restore them.
            let _ = set_groups_of_thread(&self.0);
        }
    }
    let before = getgroups()?;
    set_groups_of_thread(&user.groups)?;
    let _restore = Restore(before);
    setfsgid(user.gid);
    setfsuid(user.uid);
    // setfsuid(2) does not report failures. A call with an invalid uid changes nothing and returns the present one.
    if setfsuid(nix::unistd::Uid::from_raw(u32::MAX)) != user.uid || setfsgid(Gid::from_raw(u32::MAX)) != user.gid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the rights of the user {} can't be assumed", user.uid),
        ));
    }
    act()
}

fn perform<T>(path: &Path, last: Last, rights: Rights<'_>, act: impl Fn(&PathEntry) -> io::Result<T>) -> io::Result<T> {
    let plain = || act(&PathEntry::plain(path));
    let strict = || walk(path, last).and_then(|place| act(&place));
    in_turn(rights, plain, strict)
}

fn in_turn<T>(rights: Rights<'_>, plain: impl Fn() -> io::Result<T>, strict: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let may_not = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match rights {
        Rights::Own => plain(),
        Rights::User(user) => as_user(user, plain),
        Rights::RootFirst(user) => match strict() {
            // A network file system may deny root what it grants the user.
            Err(first) if Untrusted::is(&first) || may_not(&first) => {
                as_user(user, plain).map_err(|error| joined(&first, &error, user))
            }
            done => done,
        },
        Rights::UserFirst(user) => match as_user(user, plain) {
            Err(error) if may_not(&error) => strict().map_err(|first| match Untrusted::is(&first) {
                true => joined(&first, &error, user),
                false => first,
            }),
            done => done,
        },
    }
}

/// Joins the reason of root's refusal and the error of the user's attempt.
fn joined(refusal: &io::Error, error: &io::Error, user: &Privileges) -> io::Error {
    io::Error::new(error.kind(), format!("{refusal} (with the rights of the user {} only: {error})", user.uid))
}

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// Only a regular file.
    Read,
    /// Created with this mode if it does not exist; not truncated.
    Write {
        /// Permission bits of a new file.
        mode: u32,
    },
    /// Write-only and truncated: some files of the kernel can be opened in no other way.
    Replace {
        /// Permission bits of a new file.
        mode: u32,
    },
    /// Write-only, to append lines; a link to a standard stream is followed from any directory.
    Append {
        /// Permission bits of a new file.
        mode: u32,
    },
    /// A FIFO that exists, to write lines; a link to a standard stream is followed from any directory.
    Pipe,
    /// To append lines, without following a link, whether root or another user made it.
    AppendNoLink {
        /// Permission bits of a new file.
        mode: u32,
    },
    /// To write, without following a link, whether root or another user made it.
    WriteNoLink {
        /// Permission bits of a new file.
        mode: u32,
    },
}

impl How {
    fn flags(self) -> OFlag {
        let access = match self {
            How::Read => OFlag::O_RDONLY,
            How::Write { .. } | How::WriteNoLink { .. } => OFlag::O_RDWR,
            How::Replace { .. } | How::Pipe => OFlag::O_WRONLY,
            How::Append { .. } | How::AppendNoLink { .. } => OFlag::O_WRONLY | OFlag::O_APPEND,
        };
        // Opening a FIFO without a reader fails instead of waiting, and so does a file with a lease of another process (fcntl(2),
        // F_SETLEASE).
        access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
    }

    fn mode(self) -> Option<Mode> {
        match self {
            How::Read | How::Pipe => None,
            How::Write { mode }
            | How::Replace { mode }
            | How::Append { mode }
            | How::AppendNoLink { mode }
            | How::WriteNoLink { mode } => Some(Mode::from_bits_truncate(mode)),
        }
    }

    fn last(self) -> Last {
        match self {
            How::Read | How::Write { .. } | How::Replace { .. } => Last::Followed,
            How::Append { .. } | How::Pipe => Last::FollowedToStream,
            How::AppendNoLink { .. } | How::WriteNoLink { .. } => Last::Itself,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub struct OpenedFile {
    /// The open file.
    pub file: File,
    /// It did not exist before.
    pub is_new: bool,
    /// It may be truncated.
    pub may_be_cut: bool,
    /// Its owner and its mode may be changed: we have created it, it is the user's already, or only root could have put it there.
    pub may_change: bool,
}

impl OpenedFile {
    /// Truncates a regular file to this length.
    ///
    /// # Errors
    /// The error of ftruncate(2).
    pub fn cut(&self, bytes: u64) -> io::Result<()> {
        // /dev/null and similar can't be truncated.
        if self.may_be_cut && self.file.metadata()?.is_file() { self.file.set_len(bytes) } else { Ok(()) }
    }

    /// Sets the mode. Returns false if the mode of the file may not be changed.
    ///
    /// # Errors
    /// The error of fchmod(2).
    pub fn set_mode(&self, mode: u32) -> io::Result<bool> {
        if self.may_change {
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(self.may_change)
    }

    /// Gives the file to a user. Returns false if it may not be given away and is not the user's.
    ///
    /// # Errors
    /// The error of fchown(2).
    pub fn give_to(&self, user: &Privileges) -> io::Result<bool> {
        if self.may_change {
            fchown(&self.file, Some(user.uid), Some(user.gid))?;
        }
        Ok(self.may_change || self.file.metadata()?.uid() == user.uid.as_raw())
    }

    /// The file's identity, to recognize it under its path later.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn known(&self, path: &Path, rights: Rights<'_>) -> io::Result<KnownFile> {
        Ok(KnownFile::of(path, rights, &fstat(&self.file)?))
    }
}

/// Opens a file. Never blocks.
///
/// # Errors
/// The error of open(2), or a refusal that says what to do.
pub fn open(path: &Path, how: How, rights: Rights<'_>) -> io::Result<OpenedFile> {
    perform(path, how.last(), rights, |place| open_in(place, how, rights))
}

fn open_in(place: &PathEntry, how: How, rights: Rights<'_>) -> io::Result<OpenedFile> {
    let no_link = if how.last() == Last::Itself { OFlag::O_NOFOLLOW } else { place.link_flag() };
    let flags = how.flags() | no_link;
    let user = rights.privileges().filter(|_| !matches!(rights, Rights::Own));
    let mut error = Errno::ENOENT;
    for _ in 0..MAX_TRIES {
        if let Some(mode) = how.mode() {
            match openat(place.directory(), place.name(), flags | OFlag::O_CREAT | OFlag::O_EXCL, mode) {
                Ok(made) => return Ok(OpenedFile { file: made.into(), is_new: true, may_be_cut: true, may_change: true }),
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let opened = match openat(place.directory(), place.name(), flags, Mode::empty()) {
            // A dangling link: its target is created.
            Err(Errno::ENOENT) if no_link.is_empty() && how.mode().is_some() => {
                openat(place.directory(), place.name(), flags | OFlag::O_CREAT, how.mode().unwrap_or(Mode::empty()))
            }
            opened => opened,
        };
        match opened {
            Ok(opened) => return checked(place, how, user, opened.into()),
            Err(Errno::ENOENT) if how.mode().is_some() => error = Errno::ENOENT,
            Err(Errno::ELOOP) if !no_link.is_empty() => {
                return Err(Untrusted::error(format!(
                    "{} is a link, and links are not followed here; remove it",
                    place.path().display()
                )));
            }
            // Root writes to no FIFO that another user has laid there, whether or not it has a reader.
            Err(Errno::ENXIO) if user.is_some() && place.trust == Trust::Others => {
                return Err(Untrusted::error(format!("{} is a FIFO in a directory of another user", place.path().display())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(error.into())
}

/// Checks the opened file itself: it could have been replaced between any earlier check and the open.
fn checked(place: &PathEntry, how: How, user: Option<&Privileges>, file: File) -> io::Result<OpenedFile> {
    let found = fstat(&file)?;
    let is_regular = kind(&found) == SFlag::S_IFREG;
    let is_pipe = kind(&found) == SFlag::S_IFIFO;
    if matches!(how, How::Pipe) && !is_pipe {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a FIFO", place.path().display())));
    }
    if matches!(how, How::Read) && !is_regular || matches!(how, How::Write { .. } | How::WriteNoLink { .. }) && is_pipe {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", place.path().display())));
    }
    let Some(user) = user else { return Ok(OpenedFile { file, is_new: false, may_be_cut: true, may_change: true }) };
    let is_users = found.st_uid == user.uid.as_raw();
    let (may_be_cut, may_change) = match place.trust {
        Trust::Root => (true, true),
        Trust::Stream => (false, false),
        Trust::Others => {
            check_opened(place, &found, user.uid.as_raw())?;
            (true, is_users)
        }
        Trust::Kernel => {
            // Files that the user reaches in `/proc/self` are ours, and so is a memory file without a name.
            if is_of_proc(&file) || is_regular && found.st_nlink == 0 {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            (true, is_users && is_regular && found.st_nlink == 1)
        }
    };
    Ok(OpenedFile { file, is_new: false, may_be_cut, may_change })
}

/// Reads up to `most_bytes` of a small regular file.
///
/// # Errors
/// It can't be opened or read, or is not UTF-8.
pub fn read_text(path: &Path, most_bytes: u64, rights: Rights<'_>) -> io::Result<String> {
    let mut text = String::new();
    open(path, How::Read, rights)?.file.take(most_bytes).read_to_string(&mut text)?;
    Ok(text)
}

/// The status of the file at a path, links followed.
///
/// # Errors
/// The file does not exist, or its status can't be read.
pub fn look(path: &Path, rights: Rights<'_>) -> io::Result<FileStat> {
    perform(path, Last::Followed, rights, |place| match place.link_flag().is_empty() {
        true => Ok(fstatat(place.directory(), place.name(), AtFlags::empty())?),
        false => place.look(),
    })
}

/// Whether the status is that of a regular file.
pub fn is_regular(found: &FileStat) -> bool {
    kind(found) == SFlag::S_IFREG
}

/// Whether no file of any kind has this name. If its status can't be read, it may exist.
pub fn is_missing(path: &Path, rights: Rights<'_>) -> bool {
    perform(path, Last::Itself, rights, PathEntry::look).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A file at a path, identified by device and inode, so that the file of another program is never removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// The path at which it was created.
    pub path: PathBuf,
    user: Option<Privileges>,
    /// Only the rights of the user count.
    is_users: bool,
    identity: (u64, u64),
}

impl KnownFile {
    fn of(path: &Path, rights: Rights<'_>, found: &FileStat) -> KnownFile {
        KnownFile {
            path: path.to_owned(),
            user: rights.privileges().cloned(),
            is_users: matches!(rights, Rights::User(_)),
            identity: (found.st_dev, found.st_ino),
        }
    }

    fn is(&self, found: &FileStat) -> bool {
        (found.st_dev, found.st_ino) == self.identity
    }

    fn rights(&self) -> Rights<'_> {
        if self.is_users { Rights::user(self.user.as_ref()) } else { Rights::root_first(self.user.as_ref()) }
    }

    /// Removes the file, if it is still the same one.
    ///
    /// # Errors
    /// The error of unlink(2).
    pub fn remove(&self) -> io::Result<()> {
        let removed = perform(&self.path, Last::Itself, self.rights(), |place| {
            let found = place.look()?;
            if self.is(&found) {
                unlinkat(place.directory(), place.name(), UnlinkatFlags::NoRemoveDir)?;
            }
            Ok(())
        });
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Renames a file. In a directory of others, only a regular file that has no other name.
///
/// # Errors
/// The error of rename(2), or a refusal.
pub fn rename(from: &Path, to: &Path, rights: Rights<'_>) -> io::Result<()> {
    let plain = || std::fs::rename(from, to);
    let strict = || {
        let (source, target) = (walk(from, Last::Itself)?, walk(to, Last::Itself)?);
        let found = source.look()?;
        if let Some(user) = rights.privileges().filter(|_| source.trust != Trust::Root) {
            check_opened(&source, &found, user.uid.as_raw())?;
        }
        renameat(source.directory(), source.name(), target.directory(), target.name())?;
        let came = target.look()?;
        // A file that replaced it at that moment must not stay in a directory that only root may write to.
        if target.trust == Trust::Root && (came.st_dev, came.st_ino) != (found.st_dev, found.st_ino) {
            unlinkat(target.directory(), target.name(), UnlinkatFlags::NoRemoveDir)?;
            return Err(Untrusted::error(format!("{} was replaced in the meantime; its replacement is removed", from.display())));
        }
        Ok(())
    };
    in_turn(rights, plain, strict)
}

/// Creates a FIFO and opens it for reading and writing. A FIFO that was left behind is removed first; a file of another kind
/// stays.
///
/// # Errors
/// The error of mkfifo(3), or another file is in the way.
pub fn make_fifo(path: &Path, mode: u32, rights: Rights<'_>) -> io::Result<(File, KnownFile)> {
    let taken = |words: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    perform(path, Last::Itself, rights, |place| {
        match place.look() {
            Ok(found) if kind(&found) == SFlag::S_IFIFO => unlinkat(place.directory(), place.name(), UnlinkatFlags::NoRemoveDir)?,
            Ok(_) => return taken("a file of this name exists and is not a named pipe"),
            Err(_) => {}
        }
        mkfifoat(place.directory(), place.name(), Mode::from_bits_truncate(mode))?;
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(place.directory(), place.name(), flags, Mode::empty())?);
        if !file.metadata()?.file_type().is_fifo() {
            return taken("another process has put another file there");
        }
        let known = KnownFile::of(path, rights, &fstat(&file)?);
        Ok((file, known))
    })
}

/// Changes the working directory. The kernel checks the search permission once more when the directory is entered.
///
/// # Errors
/// The error of chdir(2), or a refusal.
pub fn enter(path: &Path, rights: Rights<'_>) -> io::Result<()> {
    perform(path, Last::Followed, rights, |place| {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | place.link_flag();
        Ok(fchdir(openat(place.directory(), place.name(), flags, Mode::empty())?)?)
    })
}

/// Opens a FIFO to write commands to it. A file of another kind is left as it is.
///
/// # Errors
/// The error of open(2); the file is not a FIFO, or has no reader (`ENXIO`).
pub fn open_fifo(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(nix::fcntl::AT_FDCWD, path, flags, Mode::empty())?);
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a named pipe"));
    }
    Ok(file)
}

/// Descriptors of this process that refer to a file.
pub fn descriptors_of(found: &FileStat) -> Vec<i32> {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let leads_there = |number: &i32| {
        let other = std::fs::metadata(format!("/proc/self/fd/{number}"));
        other.is_ok_and(|other| (other.dev(), other.ino()) == (found.st_dev, found.st_ino))
    };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(leads_there).collect()
}

/// Makes reads and writes of a file blocking.
///
/// # Errors
/// The error of fcntl(2).
pub fn set_blocking(file: &File) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    fcntl(file, FcntlArg::F_SETFL(flags & !OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
