//! What hooks do to files, by a path. It knows nothing of hooks. `OwnFiles` runs in every process that does hooks; who does them with other
//! rights than the owner of a folder brings files of its own.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// What becomes of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChange {
    Set(u32),
    /// Adds these bits.
    Add(u32),
}

impl ModeChange {
    /// The mode that comes of the one that is there.
    pub fn of(self, present: u32) -> u32 {
        match self {
            ModeChange::Set(mode) => mode,
            ModeChange::Add(bits) => present & 0o7777 | bits,
        }
    }
}

/// Files by their paths. Each method fails as the system call of its name does.
#[expect(clippy::missing_errors_doc, reason = "the line above says it of all of them")]
pub trait Files {
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Puts this text in place of what the file had.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    fn append(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Writes to a pipe that somebody reads: `ENXIO` where nobody does.
    fn write_fifo(&self, path: &Path, text: &str) -> io::Result<()>;
    fn unlink(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn change_mode(&self, path: &Path, change: ModeChange) -> io::Result<()>;
    fn change_owner(&self, path: &Path, user: u32, group: u32) -> io::Result<()>;
}

/// Files as the kernel finds them for this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnFiles;

impl Files for OwnFiles {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
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

/// Whether nobody reads a pipe that was to be written to.
pub(crate) fn has_no_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENXIO as i32)
}
