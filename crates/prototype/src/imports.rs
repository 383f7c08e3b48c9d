//! How a prototype or worker tells the master the files of what it has imported (`py-autoreload`): as a memory file that nobody can change any
//! more. It knows no module; prototypes and workers run it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use bolide_contract::message::{self, IMPORTS_BYTES, Report};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Sends a list of [`message::ImportedFile`], as JSON, over a line to the master. A longer one than the master takes is not sent.
///
/// # Errors
/// No memory, or what `sendmsg` says.
pub fn report_imports(control: BorrowedFd<'_>, list: &[u8]) -> io::Result<()> {
    if list.len() > IMPORTS_BYTES {
        bolide_log::line(&format!("py-autoreload: a list of {} bytes is too long: these files are not watched", list.len()));
        return Ok(());
    }
    let mut memory = File::from(memfd_create(c"bolide-imports", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    memory.write_all(list)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(seals))?;
    message::send(control, &Report::Imports, Some(memory.as_raw_fd()))
}
