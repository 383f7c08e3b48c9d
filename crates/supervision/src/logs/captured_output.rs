//! Captured output: the standard output and standard error of applications and their programs, if they can't go to a log as they
//! are. The master reads them from a pipe and logs each line as a message. It knows no rule about lines: the crate `log` does.
//! The master runs it, only with loggers or JSON.

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::polling::Source;

/// Bytes that are read in a turn: a program that prints without end does not keep the master from its work.
const TURN_BYTES: usize = 256 * 1024;
/// Bytes of a line; a longer one is cut.
const LINE_BYTES: usize = 64 * 1024;

/// The reader of the pipe.
#[derive(Debug)]
pub struct CapturedOutput {
    reader: io::PipeReader,
    /// The beginning of a line whose end has not arrived.
    rest: Vec<u8>,
}

impl CapturedOutput {
    /// Replaces standard output and standard error of this process, and of all that it starts, by a pipe.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn take() -> io::Result<CapturedOutput> {
        let (reader, writer) = io::pipe()?;
        let flags = OFlag::from_bits_retain(fcntl(&reader, FcntlArg::F_GETFL)?);
        fcntl(&reader, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        nix::unistd::dup2_stdout(&writer)?;
        nix::unistd::dup2_stderr(&writer)?;
        Ok(CapturedOutput { reader, rest: Vec::new() })
    }

    /// The pipe, to wait on for output.
    pub fn source<T>(&self, token: T) -> Source<'_, T> {
        Source::readable(token, self.reader.as_fd())
    }

    /// Reads the output, up to a bound per turn.
    pub fn read(&mut self) {
        let mut taken = [0; 16 * 1024];
        for _ in 0..TURN_BYTES / taken.len() {
            match self.reader.read(&mut taken) {
                Ok(0) => break,
                Ok(count) => self.rest.extend_from_slice(&taken[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            self.write_lines();
        }
    }

    /// Reads the rest at the end.
    pub fn finish(&mut self) {
        self.read();
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            self.write_lines();
        }
    }

    fn write_lines(&mut self) {
        if self.rest.len() > LINE_BYTES && !self.rest.contains(&b'\n') {
            self.rest.push(b'\n');
        }
        if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
            bolide_log::write(&self.rest[..=end]);
            self.rest.drain(..=end);
        }
    }
}
