//! Reports the imported files to the master (`py-autoreload`), in a sealed memory file. It knows no module. Prototypes and
//! workers run it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use bolide_contract::message::{self, IMPORTS_BYTES, Report};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Sends a list of [`message::ImportedFile`], as JSON, over a control socket. A list that is longer than the master accepts is
/// not sent.
///
/// # Errors
/// There is no memory, or the error of `sendmsg`.
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
