//! Where the master's own lines go: standard error, which `logto` makes a file. It knows nothing of
//! requests, whose lines the workers write. The master runs it, before and inside its loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::start::StartError;

/// How long a line waits for a reader of standard error that does not read, in milliseconds. Then it is lost:
/// a log that nobody takes must not stop the supervision of workers.
const WRITE_WAIT_MS: u16 = 1000;
/// Mode of a log file that did not exist, as uWSGI makes it.
const FILE_MODE: u32 = 0o640;

/// Lines that nobody took.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Writes `bolide: text` as one line, in one write. Any process that runs the master's code.
pub fn line(text: &str) {
    write_line(&io::stderr(), text);
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
    Ok(before)
}

/// Writes one line to a place other than standard error.
pub fn line_to(place: &File, text: &str) {
    write_line(place, text);
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
    crate::spawn::adopt(number).map(|descriptor: OwnedFd| File::from(descriptor))
}

fn write_line<Place: AsFd>(place: &Place, text: &str)
where
    for<'a> &'a Place: Write,
{
    let mut places = [PollFd::new(place.as_fd(), PollFlags::POLLOUT)];
    if !matches!(poll(&mut places, PollTimeout::from(WRITE_WAIT_MS)), Ok(count) if count > 0) {
        LOST.fetch_add(1, Relaxed);
        return;
    }
    let lost = LOST.swap(0, Relaxed);
    let bytes = match lost {
        0 => format!("bolide: {text}\n"),
        _ => format!("bolide: {lost} lines of the master were lost, nobody took them\nbolide: {text}\n"),
    };
    let mut writer = place;
    // When standard error itself fails there is no place left to say so: the line counts as lost.
    if writer.write_all(bytes.as_bytes()).is_err() {
        LOST.fetch_add(lost + 1, Relaxed);
    }
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

    #[test]
    fn a_reader_that_reads_nothing_loses_lines_and_does_not_stop_the_master() {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        let place = File::from(writer);
        fcntl(&place, FcntlArg::F_SETPIPE_SZ(4096)).expect("a small pipe");
        // Fill it to the last page, so that poll says no.
        line_to(&place, &"x".repeat(4096 - 9));
        line_to(&place, "nobody takes this");
        assert_eq!(LOST.load(Relaxed), 1);
        let mut taken = [0u8; 4096];
        nix::unistd::read(&reader, &mut taken).expect("read");
        line_to(&place, "again");
        let length = nix::unistd::read(&reader, &mut taken).expect("read");
        let text = String::from_utf8_lossy(&taken[..length]).into_owned();
        assert!(text.starts_with("bolide: 1 lines") && text.ends_with("bolide: again\n"), "{text}");
    }
}
