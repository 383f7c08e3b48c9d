//! Files that a report of another user names: read without a wait, whatever they are. The command-line process runs it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Reads a regular file of at most this many bytes.
///
/// # Errors
/// It can't be read, is something else (a FIFO would wait for a writer), or is larger.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    // A device may act when it is opened, so the look comes first. Another file may take its name in the meantime, so it is not
    // the last.
    check(&fs::metadata(path)?, most_bytes)?;
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(&file.metadata()?, most_bytes)?;
    let mut bytes = Vec::new();
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        return Err(too_large(bytes.len() as u64, most_bytes));
    }
    Ok(bytes)
}

fn check(found: &fs::Metadata, most_bytes: u64) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if found.len() > most_bytes {
        return Err(too_large(found.len(), most_bytes));
    }
    Ok(())
}

fn too_large(bytes: u64, most_bytes: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {bytes} bytes, and the maximum is {most_bytes}"))
}
