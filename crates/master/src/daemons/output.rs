//! The output of programs, as lines with the program name as prefix. A line that is too long is split. It never waits, neither
//! for a program nor for a reader of the log. The attendant runs it.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};

use bolide_supervision::processes::channel::MAX_TEXT_BYTES;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Bytes read from one program in a turn, so that one with much output does not delay the other programs.
const TURN_BYTES: usize = 64 * 1024;

/// The output pipe of a program.
#[derive(Debug)]
pub struct Output {
    reader: PipeReader,
    /// For example `[daemon redis-server] `.
    prefix: Vec<u8>,
    /// The beginning of a line whose end has not arrived yet.
    partial: Vec<u8>,
}

impl Output {
    /// # Errors
    /// The pipe can't be made non-blocking.
    pub fn new(reader: PipeReader, kind: &str, name: &str) -> io::Result<Output> {
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Output { reader, prefix: format!("[{kind} {name}] ").into_bytes(), partial: Vec::new() })
    }

    /// Reads the available output, as whole lines with their line ends. Returns false at end of file.
    pub fn take(&mut self, lines: &mut Vec<Vec<u8>>) -> bool {
        let mut buffer = [0; 8192];
        let mut taken = 0;
        while taken < TURN_BYTES {
            match self.reader.read(&mut buffer) {
                Ok(0) => {
                    if !self.partial.is_empty() {
                        self.add(b"\n", lines);
                    }
                    return false;
                }
                Ok(count) => {
                    taken += count;
                    self.add(&buffer[..count], lines);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn add(&mut self, mut bytes: &[u8], lines: &mut Vec<Vec<u8>>) {
        let most = MAX_TEXT_BYTES - self.prefix.len() - 1;
        while !bytes.is_empty() {
            let room = most - self.partial.len();
            let end = bytes.iter().take(room + 1).position(|byte| *byte == b'\n');
            let (part, rest, is_whole) = match end {
                Some(end) => (&bytes[..end], &bytes[end + 1..], true),
                None => (&bytes[..bytes.len().min(room)], &bytes[bytes.len().min(room)..], bytes.len() > room),
            };
            self.partial.extend(part);
            bytes = rest;
            if is_whole {
                let mut line = self.prefix.clone();
                line.append(&mut self.partial);
                line.push(b'\n');
                lines.push(line);
            }
        }
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text(lines: &[Vec<u8>]) -> String {
        lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    #[test]
    fn lines_have_the_program_name_as_prefix_in_any_pieces() {
        let (reader, mut writer) = io::pipe().expect("made");
        let mut output = Output::new(reader, "daemon", "x").expect("made");
        let mut lines = Vec::new();
        for part in ["one\ntw", "o\n\nthree"] {
            writer.write_all(part.as_bytes()).expect("written");
            assert!(output.take(&mut lines));
        }
        assert_eq!(text(&lines), "[daemon x] one\n[daemon x] two\n[daemon x] \n");
        drop(writer);
        // A program that another test starts holds a copy of the pipe's write end until its exec.
        while output.take(&mut lines) {}
        assert!(text(&lines).ends_with("[daemon x] three\n"));
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_nothing_is_lost() {
        let (reader, mut writer) = io::pipe().expect("made");
        let mut output = Output::new(reader, "cron", "long").expect("made");
        let mut lines = Vec::new();
        writer.write_all(&[b'x'; 20_000]).expect("written");
        drop(writer);
        while output.take(&mut lines) {}
        assert!(
            lines.iter().all(|line| line.len() <= MAX_TEXT_BYTES && line.ends_with(b"\n") && line.starts_with(b"[cron long] "))
        );
        assert_eq!(text(&lines).matches('x').count(), 20_000);
    }
}
