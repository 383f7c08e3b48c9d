//! The child that executes a `gunicorn.conf.py`: a separate Python, with limits on its time and its output, so that the file
//! can't affect another process. It must not know settings. The process that reads the configuration runs it and waits for it.

use std::io::{Read, pipe};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bolide_configuration::diagnostic::{Diagnostic, Location, plain_error};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;

use super::RawSetting;

/// The program of the child: the text of a module of the package `bolide`, which that Python may lack.
const PROGRAM: &str = include_str!("../../../../python/bolide/gunicorn/configuration.py");
/// Time limit of a file, in milliseconds: its imports may be large.
const CHILD_MS: u64 = 30_000;
/// Longest output of a child, in bytes.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Bytes in one read.
const READ_BYTES: usize = 16 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Settings(Vec<RawSetting>),
    Error { line: u32, message: String },
}

/// Executes the file, and returns the settings that it makes. `name` is the file as the user named it.
///
/// # Errors
/// The file can't be executed, takes too long, or raises an exception; the error has the line of the file.
pub fn run(path: &Path, name: &str, python: &Path, directory: &Path) -> Result<Vec<RawSetting>, Diagnostic> {
    let place = |line: u32| Location::file(name, line);
    // This process holds the other end. The child exits when that end closes, which happens whenever this process exits.
    let (far, held) = pipe().map_err(|error| {
        let message = format!("the child that executes it can't be watched: {}", plain_error(&error));
        Diagnostic::error(Some(&place(0)), message)
    })?;
    let mut child = Command::new(python)
        .arg("-c")
        .arg(PROGRAM)
        .arg(path)
        .current_dir(directory)
        .stdin(Stdio::from(far))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            let message = format!(
                "{} can't be executed, and gunicorn's configuration is a Python program: {}",
                python.display(),
                plain_error(&error)
            );
            Diagnostic::error(Some(&place(0)), message).advise("name a virtual environment before it: `--virtualenv DIRECTORY`")
        })?;
    let answer = child.stdout.take().map_or(Ok(Vec::new()), |pipe| answer_of(pipe, CHILD_MS));
    // It has written everything, or has timed out.
    let _ = child.kill();
    let _ = child.wait();
    drop(held);
    let answer = answer.map_err(|message| Diagnostic::error(Some(&place(0)), message))?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Settings(settings)) => Ok(settings),
        Ok(Answer::Error { line, message }) => Err(Diagnostic::error(Some(&place(line)), message)
            .advise("gunicorn's configuration is a Python program, and this one does not end")),
        Err(_) => Err(Diagnostic::error(Some(&place(0)), format!("{} has ended without an answer", python.display()))
            .advise(format!("see what happens: {} {name}", python.display()))),
    }
}

/// Reads the child's output up to its end, for at most `most_ms` milliseconds.
fn answer_of(mut pipe: impl Read + AsFd, most_ms: u64) -> Result<Vec<u8>, String> {
    let end = Instant::now() + Duration::from_millis(most_ms);
    let mut answer = Vec::new();
    let mut buffer = [0; READ_BYTES];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("the file did not finish within {} s", most_ms.div_ceil(1000)));
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(format!("the answer of the child that executes it can't be waited for: {}", errno.desc())),
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) => return Err(format!("the answer of the child that executes it can't be read: {}", plain_error(&error))),
        }
        if answer.len() > ANSWER_BYTES {
            return Err(format!("its settings are larger than {} MiB", ANSWER_BYTES / 1024 / 1024));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Time limit of a child in tests, in milliseconds.
    const SHORT_MS: u64 = 50;

    #[test]
    fn test_a_file_that_has_no_end_is_given_up() {
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"[").expect("it takes a byte");
        // The writer stays open, like that of a child in an endless loop.
        let message = answer_of(reader, SHORT_MS).expect_err("it has no end");
        assert!(message.contains("did not finish within 1 s"), "{message}");
        drop(writer);
    }

    #[test]
    fn test_an_answer_is_read_to_its_end_and_has_a_bound() {
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"[]").expect("it takes two bytes");
        drop(writer);
        assert_eq!(answer_of(reader, CHILD_MS).as_deref(), Ok(b"[]".as_slice()));
        let endless = std::fs::File::open("/dev/zero").expect("it is everywhere");
        let message = answer_of(endless, CHILD_MS).expect_err("it has no end");
        assert!(message.contains("larger than 1 MiB"), "{message}");
    }
}
