//! Where the master's own lines go: the log, which is standard error or the file of `logto`. It knows nothing of
//! requests, whose lines the workers write. The master runs it, before and inside its loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::StartError;

/// Time that the last line of a failed start waits for a reader of the terminal, in milliseconds.
const WRITE_WAIT_MS: u16 = 1000;
/// Mode of a log file that did not exist, as uWSGI makes it.
const FILE_MODE: u32 = 0o640;

/// Writes `bolide: text` as one line, and never waits for a reader. Any process that runs the master's code.
pub fn line(text: &str) {
    bolide_log::line(text);
}

/// Opens the file of `logto`, before anything is started. The master's call.
///
/// # Errors
/// It can't be opened for writing at its end.
pub fn open(path: &Path) -> Result<File, StartError> {
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path).map_err(|error| {
        let shown = path.display();
        StartError::new(format!(
            "the log file {shown} (logto) can't be written: {error}; make its folder, or choose another file"
        ))
    })
}

/// Sends standard output and standard error to the file, for this process and all that it starts.
/// Gives back what standard error was. The master's call, before it starts anything.
///
/// # Errors
/// No descriptor left.
pub fn redirect(file: &File) -> io::Result<File> {
    let before = fcntl(io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // The new number is ours alone; `dup` by way of the standard library makes it an owned file.
    let before = adopt_number(before)?;
    nix::unistd::dup2_stdout(file)?;
    nix::unistd::dup2_stderr(file)?;
    bolide_log::take_standard_error()?;
    Ok(before)
}

/// Writes one line to a place other than the log: the last of a start that failed, which is worth a moment's wait.
pub fn line_to(output: &File, text: &str) {
    let mut poll_fds = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut poll_fds, PollTimeout::from(WRITE_WAIT_MS)), Ok(count) if count > 0) {
        // The log has the same line.
        let _ = (&mut &*output).write_all(format!("bolide: {text}\n").as_bytes());
    }
}

/// Makes sure that descriptors 0, 1 and 2 are open: else the next socket would get such a number, and a child's standard
/// input would be laid over it. The master's call, the first of all.
///
/// # Errors
/// `/dev/null` can't be opened.
pub fn ensure_standard_descriptors() -> io::Result<()> {
    loop {
        let spare = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        if spare.as_raw_fd() > 2 {
            return Ok(());
        }
        // The lowest free number was a standard one: it stays open for as long as the process lives.
        std::mem::forget(spare);
    }
}

fn adopt_number(number: i32) -> io::Result<File> {
    crate::system::adopt(number).map(|descriptor: OwnedFd| File::from(descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn a_log_file_is_made_and_added_to_and_never_emptied() {
        let folder = Folder::new("log");
        let path = folder.path().join("app.log");
        for text in ["one", "two"] {
            line_to(&open(&path).expect("opened"), text);
        }
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "bolide: one\nbolide: two\n");
    }

    #[test]
    fn an_unwritable_log_is_an_error_that_names_the_file_and_the_option() {
        let error = open(Path::new("/nonexistent/folder/app.log")).expect_err("refused").to_string();
        assert!(error.contains("/nonexistent/folder/app.log") && error.contains("logto"), "{error}");
    }
}
