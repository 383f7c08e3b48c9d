//! File operations of hooks, by path. It knows nothing of hooks. `OwnFiles` serves every process that runs hooks; a process that
//! runs them with other rights than the owner of a directory implements [`Files`] itself.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// A change of permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChange {
    Set(u32),
    /// Adds these bits.
    Add(u32),
}

impl ModeChange {
    /// The new mode, given the present one.
    pub fn of(self, present: u32) -> u32 {
        match self {
            ModeChange::Set(mode) => mode,
            ModeChange::Add(bits) => present & 0o7777 | bits,
        }
    }
}

/// Operations on files by path. Each method fails as the system call of its name does.
#[expect(clippy::missing_errors_doc, reason = "others are not logged")]
pub trait Files {
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Replaces the contents of the file by this text.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    fn append(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Writes to a FIFO; `ENXIO` if it has no reader.
    fn write_fifo(&self, path: &Path, text: &str) -> io::Result<()>;
    fn unlink(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn change_mode(&self, path: &Path, change: ModeChange) -> io::Result<()>;
    fn change_owner(&self, path: &Path, user: u32, group: u32) -> io::Result<()>;
}

/// Files accessed with the rights of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnFiles;

impl Files for OwnFiles {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        File::create(path)?.write_all(text.as_bytes())
    }

    fn append(&self, path: &Path, text: &str) -> io::Result<()> {
        OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())
    }

    fn write_fifo(&self, path: &Path, text: &str) -> io::Result<()> {
        let flags = OFlag::O_NONBLOCK.bits();
        OpenOptions::new().write(true).custom_flags(flags).open(path)?.write_all(text.as_bytes())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn change_mode(&self, path: &Path, change: ModeChange) -> io::Result<()> {
        let mode = change.of(fs::metadata(path)?.permissions().mode());
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    fn change_owner(&self, path: &Path, user: u32, group: u32) -> io::Result<()> {
        chown(path, Some(user), Some(group))
    }
}

/// Whether a write to a FIFO failed because it has no reader.
pub(crate) fn has_no_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENXIO as i32)
}
