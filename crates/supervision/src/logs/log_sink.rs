//! Where the master's own lines go: the log, which is standard error or the file of `logto`. It knows nothing of
//! requests, whose lines the workers write. The master runs it, before and inside its loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Time that the last line of a failed start waits for a reader of the terminal, in milliseconds.
const WRITE_WAIT_MS: u16 = 1000;

/// Writes `bolide: text` as one line, and never waits for a reader. Any process that runs the master's code.
pub fn line(text: &str) {
    bolide_log::line(text);
}

/// The same for each of these.
pub fn lines(texts: &[String]) {
    texts.iter().for_each(|text| line(text));
}

/// Sends standard output and standard error to the file, for this process and all that it starts.
/// Gives back what standard error was. The master's call, before it starts anything.
///
/// # Errors
/// No descriptor left.
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
/// No descriptor left.
pub fn copy_of_standard_error() -> io::Result<File> {
    // The new number is ours alone.
    adopt_number(fcntl(io::stderr(), FcntlArg::F_DUPFD_CLOEXEC(3))?)
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
    crate::processes::system::adopt(number).map(|descriptor: OwnedFd| File::from(descriptor))
}
