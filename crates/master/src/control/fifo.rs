//! `master-fifo`: named pipes from which the master reads letters. It does not know the meaning of a letter. The master runs it.
//!
//! The pipe is also open for writing, so that it never reaches end of file when a writer closes it. It is made again only if its
//! file is gone, so that writers always find it. If another master has replaced our pipe, the new one is left alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bolide_supervision::error::StartError;
use bolide_supervision::files::guarded_files::{self, KnownFile, Rights};
use bolide_supervision::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::text::{duration, printable};

use crate::token::Token;

/// Maximum bytes read in one turn, so that an endless writer delays nothing else.
const TURN_BYTES: usize = 64;
/// Interval at which the pipe's file is checked, in milliseconds.
const CHECK_MS: u64 = 1000;
/// Minimum interval between two log lines about unknown letters, in milliseconds.
const UNKNOWN_LETTERS_LOG_MS: u64 = 60_000;
/// Mode of the pipe's file.
const FILE_MODE: u32 = 0o600;
/// Maximum number of unknown characters that a log line shows.
const UNKNOWN_LETTERS_SHOWN: usize = 16;

/// The pipes of an instance, of which one is open.
#[derive(Debug)]
pub struct Fifo {
    paths: Vec<PathBuf>,
    privileges: Option<Privileges>,
    slot: usize,
    open: Option<Open>,
    check_ms: u64,
    /// Until this time, unknown letters are ignored without a log line.
    quiet_until_ms: u64,
    /// The failure to make the file has been logged.
    failure_logged: bool,
}

/// A pipe with the identity of its file.
#[derive(Debug)]
struct Open {
    file: File,
    known: KnownFile,
}

impl Fifo {
    /// Makes the first of the pipes. Returns `None` if none is configured.
    ///
    /// # Errors
    /// The pipe can't be made, or its name belongs to another kind of file.
    pub fn open(paths: &[PathBuf], privileges: Option<&Privileges>, now_ms: u64) -> Result<Option<Fifo>, StartError> {
        let Some(mut fifo) = Fifo::new(paths, privileges, now_ms) else { return Ok(None) };
        fifo.make().map_err(|error| {
            StartError::new(format!(
                "master-fifo = {}: {error}; remove the existing file, create its directory, or choose another file",
                fifo.path().display()
            ))
        })?;
        Ok(Some(fifo))
    }

    /// Like [`Fifo::open`], for a master that serves: a failure is logged, and making the pipe is tried again later.
    pub fn open_or_log(paths: &[PathBuf], privileges: Option<&Privileges>, now_ms: u64) -> Option<Fifo> {
        let mut fifo = Fifo::new(paths, privileges, now_ms)?;
        fifo.make_or_log();
        Some(fifo)
    }

    fn new(paths: &[PathBuf], privileges: Option<&Privileges>, now_ms: u64) -> Option<Fifo> {
        let is_wanted = !paths.is_empty();
        is_wanted.then(|| Fifo {
            paths: paths.to_vec(),
            privileges: privileges.cloned(),
            slot: 0,
            open: None,
            check_ms: now_ms + CHECK_MS,
            quiet_until_ms: 0,
            failure_logged: false,
        })
    }

    pub fn path(&self) -> &Path {
        &self.paths[self.slot]
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        self.open.iter().map(|open| Source::readable(Token::Fifo, open.file.as_fd()))
    }

    pub fn wake_ms(&self) -> u64 {
        self.check_ms
    }

    /// Reads the letters that have arrived.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = [0; TURN_BYTES];
        let Some(open) = &mut self.open else { return Vec::new() };
        let count = match open.file.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => {
                log_sink::line(&format!("master-fifo = {}: {error}", self.path().display()));
                self.open = None;
                0
            }
        };
        bytes[..count].iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
    }

    /// Reads from the pipe with this number from now on, or from the first one if there are fewer.
    pub fn choose(&mut self, slot: usize) {
        let slot = if slot < self.paths.len() { slot } else { 0 };
        if slot != self.slot {
            self.remove();
            self.slot = slot;
            self.make_or_log();
        }
        log_sink::line(&format!("master-fifo: commands are now read from {}", self.path().display()));
    }

    /// Checks that the pipe still has its file, and makes it again if not.
    pub fn check_if_due(&mut self, now_ms: u64) {
        if now_ms < self.check_ms {
            return;
        }
        self.check_ms = now_ms + CHECK_MS;
        // A file that another process made is left alone.
        if self.open.is_none() || guarded_files::is_missing(self.path(), Rights::user(self.privileges.as_ref())) {
            self.make_or_log();
        }
    }

    /// Removes the file if it is ours. Otherwise a writer would wait forever for a reader.
    pub fn remove(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Err(error) = open.known.remove() {
            log_sink::line(&format!("the master-fifo {} can't be removed: {error}", self.path().display()));
        }
    }

    fn make_or_log(&mut self) {
        match self.make() {
            Ok(()) => self.failure_logged = false,
            Err(_) if self.failure_logged => {}
            Err(error) => {
                self.failure_logged = true;
                let again = duration(CHECK_MS);
                log_sink::line(&format!("master-fifo = {}: {error}; trying again every {again}", self.path().display()));
            }
        }
    }

    /// Makes the pipe with the rights of `uid`, so that deployments running as that user may write to it. uWSGI has dropped its
    /// own rights by then, with the same effect.
    fn make(&mut self) -> io::Result<()> {
        let rights = Rights::user(self.privileges.as_ref());
        let (file, known) = guarded_files::make_fifo(&self.paths[self.slot], FILE_MODE, rights)?;
        self.open = Some(Open { file, known });
        Ok(())
    }

    /// Logs that some of these letters are unknown.
    pub fn report_unknown(&mut self, letters: &[u8], now_ms: u64) {
        if now_ms < self.quiet_until_ms {
            return;
        }
        self.quiet_until_ms = now_ms + UNKNOWN_LETTERS_LOG_MS;
        let shown: String = String::from_utf8_lossy(letters).chars().take(UNKNOWN_LETTERS_SHOWN).collect();
        log_sink::line(&format!(
            "master-fifo {}: `{}` contains unknown letters; the page about signals and processes lists the known ones",
            self.path().display(),
            printable(&shown)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_supervision::testing::Directory;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn write(path: &Path, text: &str) {
        OpenOptions::new().write(true).open(path).expect("opened").write_all(text.as_bytes()).expect("written");
    }

    #[test]
    fn letters_are_taken_without_white_space_and_a_flood_in_parts() {
        let directory = Directory::new("fifo");
        let path = directory.path().join("fifo");
        let mut fifo = Fifo::open(std::slice::from_ref(&path), None, 0).expect("made").expect("one");
        write(&path, "rrr\nsq\n");
        assert_eq!(fifo.take(), b"rrrsq");
        write(&path, &"r".repeat(TURN_BYTES + 1));
        assert_eq!((fifo.take().len(), fifo.take().len(), fifo.take().len()), (TURN_BYTES, 1, 0));
    }

    #[test]
    fn a_file_that_has_gone_is_made_again_and_one_of_another_is_left_alone() {
        let directory = Directory::new("fifo");
        let path = directory.path().join("fifo");
        let mut fifo = Fifo::open(std::slice::from_ref(&path), None, 0).expect("made").expect("one");
        std::fs::remove_file(&path).expect("removed");
        fifo.check_if_due(CHECK_MS);
        write(&path, "s");
        assert_eq!(fifo.take(), b"s");
        std::fs::remove_file(&path).expect("removed");
        mkfifo(&path, Mode::S_IRWXU).expect("made");
        fifo.check_if_due(2 * CHECK_MS);
        fifo.remove();
        assert!(path.exists());
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "mine").expect("written");
        assert!(Fifo::open(std::slice::from_ref(&path), None, 0).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
    }
}
