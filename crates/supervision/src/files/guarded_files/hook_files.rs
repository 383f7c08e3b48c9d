//! File operations for the hooks that root runs. Unlike for the master's own files, a file of root's in a directory of another
//! user may be given away and may get another mode here: the author of the configuration has named this very file. The children
//! of the master that run its hooks use it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use bolide_hooks::{Files, ModeChange};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, unlinkat};

use super::walk::{Last, PathEntry, Trust, Untrusted, check_opened, check_owner, kind};
use super::{How, Rights, open, perform, rename, set_blocking};

/// Modes of new directories and files, before the umask.
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o777);
const FILE_MODE: u32 = 0o666;

/// The files of the master's hooks.
#[derive(Debug, Clone, Copy)]
pub struct HookFiles<'a> {
    /// The rights with which files are opened and created.
    pub rights: Rights<'a>,
}

impl HookFiles<'_> {
    /// Acts on a directory entry itself, without following a link.
    fn at<T>(&self, path: &Path, act: impl Fn(&PathEntry) -> io::Result<T>) -> io::Result<T> {
        perform(path, Last::Itself, self.rights, act)
    }

    /// Changes the file that a path leads to: by its path if only root could replace it, and else by the descriptor of the file
    /// that was checked.
    fn change(
        &self,
        path: &Path,
        by_path: impl Fn(&PathEntry) -> io::Result<()>,
        by_descriptor: impl Fn(&OwnedFd, &FileStat) -> io::Result<()>,
    ) -> io::Result<()> {
        perform(path, Last::Followed, self.rights, |place| {
            if place.trust != Trust::Others {
                return by_path(place);
            }
            let (opened, found) = self.open_untrusted(place)?;
            by_descriptor(&opened, &found)
        })
    }

    /// Opens a directory or a file with one name, in a directory that others may write to.
    fn open_untrusted(&self, place: &PathEntry) -> io::Result<(OwnedFd, FileStat)> {
        // Other kinds of files are refused before they are opened: opening a device may have side effects.
        let check = |found: &FileStat| match (kind(found) == SFlag::S_IFDIR, self.rights.privileges()) {
            (_, None) => Ok(()),
            (true, Some(user)) => check_owner(place, found, user.uid.as_raw()),
            (false, Some(user)) => {
                let user = user.uid.as_raw();
                check_opened(place, found, user).and_then(|()| check_owner(place, found, user))
            }
        };
        check(&place.look()?)?;
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(place.directory(), place.name(), flags, Mode::empty())?;
        let found = fstat(&opened)?;
        check(&found)?;
        Ok((opened, found))
    }
}

impl Files for HookFiles<'_> {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.at(path, |place| Ok(mkdirat(place.directory(), place.name(), DIRECTORY_MODE)?))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.at(path, |place| Ok(unlinkat(place.directory(), place.name(), UnlinkatFlags::RemoveDir)?))
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let opened = open(path, How::Replace { mode: FILE_MODE }, self.rights)?;
        opened.cut(0)?;
        write_all(opened.file, text)
    }

    fn append(&self, path: &Path, text: &str) -> io::Result<()> {
        write_all(open(path, How::Append { mode: FILE_MODE }, self.rights)?.file, text)
    }

    fn write_fifo(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut pipe = perform(path, Last::Followed, self.rights, |place| {
            let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | place.link_flag();
            let pipe = openat(place.directory(), place.name(), flags, Mode::empty())?;
            match kind(&fstat(&pipe)?) {
                SFlag::S_IFIFO => Ok(File::from(pipe)),
                _ if place.trust != Trust::Others => Ok(File::from(pipe)),
                _ => Err(Untrusted::error(format!("{} is not a named pipe", place.path().display()))),
            }
        })?;
        pipe.write_all(text.as_bytes())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.at(path, |place| Ok(unlinkat(place.directory(), place.name(), UnlinkatFlags::NoRemoveDir)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename(from, to, self.rights)
    }

    fn change_mode(&self, path: &Path, change: ModeChange) -> io::Result<()> {
        let mode = |found: &FileStat| Mode::from_bits_truncate(change.of(found.st_mode));
        self.change(
            path,
            |place| {
                let found = fstatat(place.directory(), place.name(), AtFlags::empty())?;
                Ok(fchmodat(place.directory(), place.name(), mode(&found), FchmodatFlags::FollowSymlink)?)
            },
            |opened, found| Ok(fchmod(opened, mode(found))?),
        )
    }

    fn change_owner(&self, path: &Path, user: u32, group: u32) -> io::Result<()> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        self.change(
            path,
            |place| Ok(fchownat(place.directory(), place.name(), user, group, AtFlags::empty())?),
            |opened, _| Ok(fchown(opened, user, group)?),
        )
    }
}

/// The file was opened non-blocking. The write itself may block on a full pipe.
fn write_all(mut file: File, text: &str) -> io::Result<()> {
    set_blocking(&file)?;
    file.write_all(text.as_bytes())
}
