//! Files in folders that others may write to: everything that master and attendant open, make, rename, give away or remove by a path of the
//! configuration goes through here. It knows paths and whose rights count, and nothing of what is in the files.
//!
//! The master stays root while the application runs as `uid`, whose user may lay links, FIFOs and hard links in its own folders and replace
//! these at any moment. So root goes from `/` one component after the other (`walk`), follows links that root has laid alone, and takes
//! elsewhere only a regular file that has one name. Where that is refused, the same is done with the rights of that user, as the kernel sees
//! them: a link to a release still works, and leads nowhere the user could not go. The master and the attendant run it.

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

pub use self::hook_files::HookFiles;
pub use self::sockets::{SocketNode, bind_at, connect_at};
use self::walk::{Last, PathEntry, Trust, Untrusted, check_opened, is_of_proc, kind, walk};
use crate::processes::privileges::Privileges;
use crate::processes::system::set_groups_of_thread;

/// How often a file is looked for that somebody makes and removes meanwhile.
const TRIES_MOST: usize = 8;

/// Whose rights count, and in which order they are tried.
#[derive(Debug, Clone, Copy)]
pub enum Rights<'a> {
    /// Ours: there is no other user to protect ourselves from.
    Own,
    /// Root's, and the user's where root keeps away.
    RootFirst(&'a Privileges),
    /// The user's, and root's where these do not suffice.
    UserFirst(&'a Privileges),
    /// The user's alone.
    User(&'a Privileges),
}

impl Rights<'_> {
    /// Root's rights first; our own where `user` is none or ourselves.
    pub fn root_first(user: Option<&Privileges>) -> Rights<'_> {
        other(user).map_or(Rights::Own, Rights::RootFirst)
    }

    /// The user's rights first; our own where `user` is none or ourselves.
    pub fn user_first(user: Option<&Privileges>) -> Rights<'_> {
        other(user).map_or(Rights::Own, Rights::UserFirst)
    }

    /// The user's rights alone; our own where `user` is none or we are not root.
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

/// The user that we protect ourselves from: none where we are not root, or the application is root too.
fn other(user: Option<&Privileges>) -> Option<&Privileges> {
    user.filter(|user| geteuid().is_root() && !user.uid.is_root())
}

/// Does something with files as the user would: with its uid, its gid and all of its groups, and none of root's. It changes what this thread
/// may do with files alone, and the master has one thread.
fn as_user<T>(user: &Privileges, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    struct Restore(Vec<Gid>);
    impl Drop for Restore {
        fn drop(&mut self) {
            setfsuid(geteuid());
            setfsgid(getegid());
            // Who could take them away can take them back.
            let _ = set_groups_of_thread(&self.0);
        }
    }
    let before = getgroups()?;
    set_groups_of_thread(&user.groups)?;
    let _restore = Restore(before);
    setfsgid(user.gid);
    setfsuid(user.uid);
    // setfsuid(2) tells of no failure: a number that none has changes nothing, and gives the present one.
    if setfsuid(nix::unistd::Uid::from_raw(u32::MAX)) != user.uid || setfsgid(Gid::from_raw(u32::MAX)) != user.gid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the rights of the user {} can't be taken", user.uid),
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
            // A file system of the network may refuse root what it grants the user.
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

/// What root would not do, and why the user could not do it either.
fn joined(refusal: &io::Error, error: &io::Error, user: &Privileges) -> io::Error {
    io::Error::new(error.kind(), format!("{refusal} (with the rights of the user {} alone: {error})", user.uid))
}

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// Only a regular file.
    Read,
    /// Made with this mode where it is not there; nothing is cut.
    Write {
        /// Permission bits of a file that is made.
        mode: u32,
    },
    /// To write alone, and to cut: files of the kernel can be opened for nothing else.
    Replace {
        /// Permission bits of a file that is made.
        mode: u32,
    },
    /// The same, for lines at its end; a link to a standard stream leads there from any folder.
    Append {
        /// Permission bits of a file that is made.
        mode: u32,
    },
    /// Lines at the end of a file that is no link, whoever has laid it.
    AppendNoLink {
        /// Permission bits of a file that is made.
        mode: u32,
    },
    /// A file that is no link, whoever has laid it.
    WriteNoLink {
        /// Permission bits of a file that is made.
        mode: u32,
    },
}

impl How {
    fn flags(self) -> OFlag {
        let access = match self {
            How::Read => OFlag::O_RDONLY,
            How::Write { .. } | How::WriteNoLink { .. } => OFlag::O_RDWR,
            How::Replace { .. } => OFlag::O_WRONLY,
            How::Append { .. } | How::AppendNoLink { .. } => OFlag::O_WRONLY | OFlag::O_APPEND,
        };
        // A FIFO that nobody reads is an error and no wait, and so is a file whose lease is another's (fcntl(2), F_SETLEASE).
        access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC
    }

    fn mode(self) -> Option<Mode> {
        match self {
            How::Read => None,
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
            How::Append { .. } => Last::FollowedToStream,
            How::AppendNoLink { .. } | How::WriteNoLink { .. } => Last::Itself,
        }
    }
}

/// A file that was opened.
#[derive(Debug)]
pub struct OpenedFile {
    /// The open file.
    pub file: File,
    /// It was not there before.
    pub is_new: bool,
    /// Ours to cut.
    pub may_be_cut: bool,
    /// Ours to give away or to give another mode: we have made it, it is the user's already, or only root could have put it there.
    pub may_change: bool,
}

impl OpenedFile {
    /// Cuts a regular file.
    ///
    /// # Errors
    /// What ftruncate(2) says.
    pub fn cut(&self, bytes: u64) -> io::Result<()> {
        // /dev/null and its like can't be cut.
        if self.may_be_cut && self.file.metadata()?.is_file() { self.file.set_len(bytes) } else { Ok(()) }
    }

    /// Sets the mode; false where the file is not ours to change.
    ///
    /// # Errors
    /// What fchmod(2) says.
    pub fn set_mode(&self, mode: u32) -> io::Result<bool> {
        if self.may_change {
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(self.may_change)
    }

    /// Gives the file to a user; false where it is not ours to give away, and not the user's.
    ///
    /// # Errors
    /// What fchown(2) says.
    pub fn give_to(&self, user: &Privileges) -> io::Result<bool> {
        if self.may_change {
            fchown(&self.file, Some(user.uid), Some(user.gid))?;
        }
        Ok(self.may_change || self.file.metadata()?.uid() == user.uid.as_raw())
    }

    /// The file's identity, by which it is found again under its path.
    ///
    /// # Errors
    /// What fstat(2) says.
    pub fn known(&self, path: &Path, rights: Rights<'_>) -> io::Result<KnownFile> {
        Ok(KnownFile::of(path, rights, &fstat(&self.file)?))
    }
}

/// Opens a file. It waits for nobody.
///
/// # Errors
/// What open(2) says, or a refusal with what to do.
pub fn open(path: &Path, how: How, rights: Rights<'_>) -> io::Result<OpenedFile> {
    perform(path, how.last(), rights, |place| open_in(place, how, rights))
}

fn open_in(place: &PathEntry, how: How, rights: Rights<'_>) -> io::Result<OpenedFile> {
    let no_link = if how.last() == Last::Itself { OFlag::O_NOFOLLOW } else { place.link_flag() };
    let flags = how.flags() | no_link;
    let user = rights.privileges().filter(|_| !matches!(rights, Rights::Own));
    let mut error = Errno::ENOENT;
    for _ in 0..TRIES_MOST {
        if let Some(mode) = how.mode() {
            match openat(place.folder(), place.name(), flags | OFlag::O_CREAT | OFlag::O_EXCL, mode) {
                Ok(made) => return Ok(OpenedFile { file: made.into(), is_new: true, may_be_cut: true, may_change: true }),
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let opened = match openat(place.folder(), place.name(), flags, Mode::empty()) {
            // A link to a file that is not there yet.
            Err(Errno::ENOENT) if no_link.is_empty() && how.mode().is_some() => {
                openat(place.folder(), place.name(), flags | OFlag::O_CREAT, how.mode().unwrap_or(Mode::empty()))
            }
            opened => opened,
        };
        match opened {
            Ok(opened) => return checked(place, how, user, opened.into()),
            Err(Errno::ENOENT) if how.mode().is_some() => error = Errno::ENOENT,
            Err(Errno::ELOOP) if !no_link.is_empty() => {
                return Err(Untrusted::error(format!("{} is a link, and is not followed; remove it", place.path().display())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(error.into())
}

/// Looks at what was opened: between any look before and the opening it could have been replaced.
fn checked(place: &PathEntry, how: How, user: Option<&Privileges>, file: File) -> io::Result<OpenedFile> {
    let found = fstat(&file)?;
    let is_regular = kind(&found) == SFlag::S_IFREG;
    let is_pipe = kind(&found) == SFlag::S_IFIFO;
    if matches!(how, How::Read) && !is_regular || matches!(how, How::Write { .. } | How::WriteNoLink { .. }) && is_pipe {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no regular file", place.path().display())));
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
            // What the user may reach in `/proc/self` is ours, and a memory file without a name is our own.
            if is_of_proc(&file) || is_regular && found.st_nlink == 0 {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            (true, is_users && is_regular && found.st_nlink == 1)
        }
    };
    Ok(OpenedFile { file, is_new: false, may_be_cut, may_change })
}

/// Reads a small regular file, and not more of it than so many bytes.
///
/// # Errors
/// It can't be opened or read, or is no text.
pub fn read_text(path: &Path, most_bytes: u64, rights: Rights<'_>) -> io::Result<String> {
    let mut text = String::new();
    open(path, How::Read, rights)?.file.take(most_bytes).read_to_string(&mut text)?;
    Ok(text)
}

/// What is at a path, links followed.
///
/// # Errors
/// Nothing is there, or it can't be seen.
pub fn look(path: &Path, rights: Rights<'_>) -> io::Result<FileStat> {
    perform(path, Last::Followed, rights, |place| match place.link_flag().is_empty() {
        true => Ok(fstatat(place.folder(), place.name(), AtFlags::empty())?),
        false => place.look(),
    })
}

/// Whether the status is that of a regular file.
pub fn is_regular(found: &FileStat) -> bool {
    kind(found) == SFlag::S_IFREG
}

/// Whether no file of any kind has this name; what can't be seen may be there.
pub fn is_missing(path: &Path, rights: Rights<'_>) -> bool {
    perform(path, Last::Itself, rights, PathEntry::look).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A file at a path, known again by device and inode: another program's is never removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// The path by which it was made.
    pub path: PathBuf,
    user: Option<Privileges>,
    /// Only the user's rights count.
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

    /// Removes it, where it is still that file.
    ///
    /// # Errors
    /// What unlink(2) says.
    pub fn remove(&self) -> io::Result<()> {
        let removed = perform(&self.path, Last::Itself, self.rights(), |place| {
            let found = place.look()?;
            if self.is(&found) {
                unlinkat(place.folder(), place.name(), UnlinkatFlags::NoRemoveDir)?;
            }
            Ok(())
        });
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Puts a file aside under another name: in a folder of others only a regular one that has no other name.
///
/// # Errors
/// What rename(2) says, or a refusal.
pub fn rename(from: &Path, to: &Path, rights: Rights<'_>) -> io::Result<()> {
    let plain = || std::fs::rename(from, to);
    let strict = || {
        let (source, target) = (walk(from, Last::Itself)?, walk(to, Last::Itself)?);
        let found = source.look()?;
        if let Some(user) = rights.privileges().filter(|_| source.trust != Trust::Root) {
            check_opened(&source, &found, user.uid.as_raw())?;
        }
        renameat(source.folder(), source.name(), target.folder(), target.name())?;
        let came = target.look()?;
        // What was laid in its place at that moment does not stay where others can't write.
        if target.trust == Trust::Root && (came.st_dev, came.st_ino) != (found.st_dev, found.st_ino) {
            unlinkat(target.folder(), target.name(), UnlinkatFlags::NoRemoveDir)?;
            return Err(Untrusted::error(format!(
                "{} was replaced meanwhile; what it was replaced by is removed",
                from.display()
            )));
        }
        Ok(())
    };
    in_turn(rights, plain, strict)
}

/// Makes a FIFO and opens it for both; one that was left behind goes first, a file of another kind stays.
///
/// # Errors
/// What mkfifo(3) says, or that there is another file.
pub fn make_fifo(path: &Path, mode: u32, rights: Rights<'_>) -> io::Result<(File, KnownFile)> {
    let taken = |words: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    perform(path, Last::Itself, rights, |place| {
        match place.look() {
            Ok(found) if kind(&found) == SFlag::S_IFIFO => unlinkat(place.folder(), place.name(), UnlinkatFlags::NoRemoveDir)?,
            Ok(_) => return taken("there is a file of this name that is no named pipe"),
            Err(_) => {}
        }
        mkfifoat(place.folder(), place.name(), Mode::from_bits_truncate(mode))?;
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(place.folder(), place.name(), flags, Mode::empty())?);
        if !file.metadata()?.file_type().is_fifo() {
            return taken("somebody else has put another file there");
        }
        let known = KnownFile::of(path, rights, &fstat(&file)?);
        Ok((file, known))
    })
}

/// Makes a folder this process' own. The kernel looks at the rights to search it once more when it is entered.
///
/// # Errors
/// What chdir(2) says, or a refusal.
pub fn enter(path: &Path, rights: Rights<'_>) -> io::Result<()> {
    perform(path, Last::Followed, rights, |place| {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | place.link_flag();
        Ok(fchdir(openat(place.folder(), place.name(), flags, Mode::empty())?)?)
    })
}

/// Opens a FIFO to write letters to it: what else lies there is left as it is.
///
/// # Errors
/// What open(2) says; it is no FIFO, or nobody reads it (`ENXIO`).
pub fn open_fifo(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(nix::fcntl::AT_FDCWD, path, flags, Mode::empty())?);
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no named pipe"));
    }
    Ok(file)
}

/// Descriptors of this process that lead to a file.
pub fn descriptors_of(found: &FileStat) -> Vec<i32> {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let leads_there = |number: &i32| {
        let other = std::fs::metadata(format!("/proc/self/fd/{number}"));
        other.is_ok_and(|other| (other.dev(), other.ino()) == (found.st_dev, found.st_ino))
    };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(leads_there).collect()
}

/// Lets reads and writes of a file wait, or not.
///
/// # Errors
/// What fcntl(2) says.
pub fn set_blocking(file: &File) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    fcntl(file, FcntlArg::F_SETFL(flags & !OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
