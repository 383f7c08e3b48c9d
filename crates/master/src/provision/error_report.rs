//! The reason why an application could not be loaded, written by a prototype or, with `lazy-apps`, a worker. They write it into a
//! memory file that the master made, so reading it never blocks. The writer may run as another user, so the text is truncated and
//! made printable. It knows nothing of what follows. The master runs it.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use bolide_supervision::text::printable;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Maximum bytes of a reason that are read.
const MAX_BYTES: usize = 1024;

/// The memory file of one generation.
#[derive(Debug)]
pub struct ErrorReport(File);

impl ErrorReport {
    /// Creates an empty report.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn new() -> std::io::Result<ErrorReport> {
        let memory: OwnedFd = memfd_create(c"bolide-reason", MFdFlags::MFD_CLOEXEC)?;
        Ok(ErrorReport(memory.into()))
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Returns the first line of the report, or `None` if it is empty.
    pub fn read(&self) -> Option<String> {
        let mut bytes = [0; MAX_BYTES];
        let count = self.0.read_at(&mut bytes, 0).ok()?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        let line = printable(text.lines().next().unwrap_or_default().trim());
        (!line.is_empty()).then_some(line)
    }
}

/// Creates the memory file in which prototypes and workers leave the page that says why the application can't be loaded, for
/// workers that serve it.
///
/// # Errors
/// No file descriptor is available.
pub fn error_page() -> std::io::Result<OwnedFd> {
    Ok(memfd_create(c"bolide-error-page", MFdFlags::MFD_CLOEXEC)?)
}

/// Returns when the page in this file was written, or `None` if there is none.
pub fn page_written(page: &OwnedFd) -> Option<SystemTime> {
    let page = File::from(page.try_clone().ok()?).metadata().ok()?;
    page.modified().ok().filter(|_| page.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_printable_line_of_bounded_length() {
        let note = ErrorReport::new().expect("made");
        assert_eq!(note.read(), None);
        note.0.write_all_at(b"ImportError: no\x1b[2J database\nbolide: ready", 0).expect("written");
        assert_eq!(note.read().as_deref(), Some("ImportError: no\\u{1b}[2J database"));
        note.0.write_all_at(&[b'x'; 100_000], 0).expect("written");
        assert_eq!(note.read().map(|text| text.len()), Some(MAX_BYTES));
    }
}
