//! Captured output: the standard output and standard error of applications and their programs, if they can't go to a log as they
//! are. The master reads them from a pipe and logs each line, in JSON with the stacks among them as one object each. It does not
//! know rules about lines. The crate `log` does.
//! The master runs it, only with loggers or JSON.

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::logs::stacks::Stacks;
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
    stacks: Stacks,
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
        Ok(CapturedOutput { reader, rest: Vec::new(), stacks: Stacks::default() })
    }

    /// The pipe, to wait on for output.
    pub fn source<T>(&self, token: T) -> Source<'_, T> {
        Source::readable(token, self.reader.as_fd())
    }

    /// The time at which a stack that has been read in part counts as complete.
    pub fn wake_ms(&self) -> Option<u64> {
        self.stacks.due_ms()
    }

    /// Writes a stack that is complete.
    pub fn write_due(&mut self, now_ms: u64) {
        let mut objects = Vec::new();
        self.stacks.close_due(now_ms, &mut objects);
        if !objects.is_empty() {
            bolide_log::write_object(&objects);
        }
    }

    /// Reads the output, up to a bound per turn.
    pub fn read(&mut self, now_ms: u64) {
        let mut taken = [0; 16 * 1024];
        for _ in 0..TURN_BYTES / taken.len() {
            match self.reader.read(&mut taken) {
                Ok(0) => break,
                Ok(count) => self.rest.extend_from_slice(&taken[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            self.write_lines(now_ms);
        }
    }

    /// Reads the rest at the end.
    pub fn finish(&mut self, now_ms: u64) {
        self.read(now_ms);
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            self.write_lines(now_ms);
        }
        self.write_due(u64::MAX);
    }

    fn write_lines(&mut self, now_ms: u64) {
        if self.rest.len() > LINE_BYTES && !self.rest.contains(&b'\n') {
            self.rest.push(b'\n');
        }
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return };
        if bolide_log::is_json() {
            self.write_json(end, now_ms);
        } else {
            bolide_log::write_output(&self.rest[..=end]);
        }
        self.rest.drain(..=end);
    }

    /// Writes the lines before this place, and the stacks among them as objects.
    fn write_json(&mut self, end: usize, now_ms: u64) {
        let (mut lines, mut objects) = (Vec::new(), Vec::new());
        for line in self.rest[..=end].split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let is_of_stack = self.stacks.take(text, now_ms, &mut objects);
            if !objects.is_empty() {
                bolide_log::write_output(&std::mem::take(&mut lines));
                bolide_log::write_object(&std::mem::take(&mut objects));
            }
            if !is_of_stack {
                lines.extend_from_slice(line);
            }
        }
        bolide_log::write_output(&lines);
    }
}
