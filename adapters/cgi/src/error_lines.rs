//! A program's standard error: its lines go to the log, with the program's name. It does not know requests. Workers run it.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::read;

/// Maximum size of a line in bytes. A longer one is logged in parts.
const MAX_LINE_BYTES: usize = 4096;
/// Maximum number of reads in a row, so that a program that only complains does not stop the others.
const MAX_READS: u32 = 16;

/// The read end of a program's standard error.
pub struct ErrorLines {
    pipe: OwnedFd,
    /// The line that is not complete yet.
    line: Vec<u8>,
    /// Begins each line in the log.
    name: String,
}

/// What is left to read.
#[derive(Debug, PartialEq, Eq)]
pub enum Rest {
    /// The poll reports more when it comes.
    Nothing,
    More,
    End,
}

impl ErrorLines {
    pub fn new(pipe: OwnedFd, name: String) -> ErrorLines {
        ErrorLines { pipe, line: Vec::new(), name }
    }

    /// Logs the lines that have arrived.
    pub fn take_in(&mut self) -> Rest {
        let mut buffer = [0; MAX_LINE_BYTES];
        for _ in 0..MAX_READS {
            match read(&self.pipe, &mut buffer) {
                Ok(0) => {
                    self.finish();
                    return Rest::End;
                }
                Ok(count) => self.split(&buffer[..count]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Rest::Nothing,
                Err(_) => return Rest::End,
            }
        }
        Rest::More
    }

    /// Logs a last line without its end.
    pub fn finish(&mut self) {
        if !self.line.is_empty() {
            self.log();
        }
    }

    fn split(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.log(),
                byte => self.line.push(*byte),
            }
            if self.line.len() >= MAX_LINE_BYTES {
                self.log();
            }
        }
    }

    fn log(&mut self) {
        bolide_log::write_output(&lined(&self.name, &self.line));
        self.line.clear();
    }
}

/// The line in the log, without control characters.
fn lined(name: &str, line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let visible = line.iter().map(|byte| if *byte < 0x20 && *byte != b'\t' || *byte == 0x7f { b'?' } else { *byte });
    name.bytes().chain(*b": ").chain(visible).chain(*b"\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_name_of_its_program_and_no_control_characters() {
        assert_eq!(lined("/srv/x.cgi", b"a\tb\x1b[2J\r"), b"/srv/x.cgi: a\tb?[2J\n");
    }
}
