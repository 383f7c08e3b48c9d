//! Reads the files of a configuration completely, up to a size limit. It must not know options.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::diagnostic::{Diagnostic, Location, plain_error};

/// Largest configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The bytes of a file.
pub fn read_bounded(path: &Path, location: &Location) -> Result<Vec<u8>, Diagnostic> {
    let name = path.display().to_string();
    let file = open_configuration(path).map_err(|error| cannot_read(&name, &error, location))?;
    read_stream(file, &name, location)
}

/// Opens a file of a configuration. It may be a pipe (`<(COMMAND)` in a shell) that belongs to this user or to root: a pipe of
/// another user could block startup forever.
fn open_configuration(path: &Path) -> std::io::Result<File> {
    let found = std::fs::metadata(path)?;
    if found.file_type().is_fifo() && ![0, geteuid().as_raw()].contains(&found.uid()) {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is a named pipe of another user"));
    }
    File::open(path)
}

/// Opens a regular file and no other type: opening a pipe waits for its writer, and opening a device may act on it.
///
/// # Errors
/// The file can't be opened, or is not a regular file.
pub fn open_file(path: &Path) -> std::io::Result<File> {
    let flags = |more: OFlag| (more | OFlag::O_NONBLOCK).bits();
    let no_file = || std::io::Error::new(ErrorKind::InvalidInput, "it is not a file");
    let found = File::options().read(true).custom_flags(flags(OFlag::O_PATH)).open(path)?;
    if !found.metadata()?.is_file() {
        return Err(no_file());
    }
    // Opens the same file, even if the path names another one by now. Without `/proc` the path itself is used.
    let same = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    let path = if same.exists() { same.as_path() } else { path };
    let file = File::options().read(true).custom_flags(flags(OFlag::empty())).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

/// Reads a stream up to its end.
pub fn read_stream(stream: impl std::io::Read, name: &str, location: &Location) -> Result<Vec<u8>, Diagnostic> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(stream, MAX_FILE_BYTES + 1), &mut bytes)
        .map_err(|error| cannot_read(name, &error, location))?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(Diagnostic::error(
            Some(location),
            format!("`{name}` is larger than {} MiB, the maximum for a configuration", MAX_FILE_BYTES / 1024 / 1024),
        )),
        false => Ok(bytes),
    }
}

pub fn cannot_read(name: &str, error: &std::io::Error, location: &Location) -> Diagnostic {
    let diagnostic = Diagnostic::error(Some(location), format!("can't read `{name}`: {}", plain_error(error)));
    match name.contains("%(") || name.contains("$(") {
        true => diagnostic.advise("files are read before placeholders are substituted; %d is the directory of this file"),
        false => diagnostic,
    }
}

/// Returns a line of the file, unchanged, for the caret. Overlong lines are not shown.
pub fn line_text(lines: &[&[u8]], line: u32) -> Option<Arc<str>> {
    const MAX_SHOWN_BYTES: usize = 500;
    let found = lines.get(line.checked_sub(1)? as usize)?;
    let shown = String::from_utf8_lossy(found);
    (shown.len() <= MAX_SHOWN_BYTES).then(|| shown.trim_end().into())
}
