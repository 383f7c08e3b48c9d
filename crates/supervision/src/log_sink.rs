//! The master's own log lines: they go to the log, which is standard error or the file of `logto`. It knows nothing of request
//! lines, which the workers write. The master runs it, before and inside its loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Time that the last line of a failed start waits for the terminal to accept it, in milliseconds.
const WRITE_WAIT_MS: u16 = 1000;

/// Writes `bolide: text` as one line, and never blocks. Any process that runs the master's code calls it.
pub fn line(text: &str) {
    bolide_log::line(text);
}

/// Writes each of these as a line, as [`line`] does.
pub fn lines(texts: &[String]) {
    texts.iter().for_each(|text| line(text));
}

/// Sends standard output and standard error to the file, for this process and all that it starts. Returns a copy of the previous
/// standard error. The master calls it before it starts anything.
///
/// # Errors
/// No descriptor is left.
pub fn redirect(file: &File) -> io::Result<File> {
    let before = copy_of_standard_error()?;
    nix::unistd::dup2_stdout(file)?;
    nix::unistd::dup2_stderr(file)?;
    bolide_log::take_standard_error()?;
    Ok(before)
}

/// A copy of standard error, above the standard descriptors.
///
/// # Errors
/// No descriptor is left.
pub fn copy_of_standard_error() -> io::Result<File> {
    // The kernel has just returned this number to us.
    adopt_number(fcntl(io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(3))?)
}

/// Writes one line past the log: the last line of a failed start, which is worth a short wait.
pub fn line_to(output: &File, text: &str) {
    let mut poll_fds = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut poll_fds, PollTimeout::from(WRITE_WAIT_MS)), Ok(count) if count > 0) {
        // The log contains the same line.
        let _ = (&mut &*output).write_all(format!("bolide: {text}\n").as_bytes());
    }
}

/// Makes sure that descriptors 0, 1 and 2 are open: otherwise the next socket would get such a number, and the standard input of
/// a child would replace it. The first call of the master.
///
/// # Errors
/// `/dev/null` can't be opened.
pub fn ensure_standard_descriptors() -> io::Result<()> {
    loop {
        let spare = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        if spare.as_raw_fd() > 2 {
            return Ok(());
        }
        // The lowest free number was a standard one: it stays open for the life of the process.
        std::mem::forget(spare);
    }
}

fn adopt_number(number: i32) -> io::Result<File> {
    crate::system::adopt(number).map(|descriptor: OwnedFd| File::from(descriptor))
}
