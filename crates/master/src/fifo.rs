//! `master-fifo`: named pipes from which the master takes commands, a letter each. It knows what each letter asks for (`deeds`) and decides
//! nothing. The master runs it.
//!
//! The pipe is open for writing too, so that a writer's end is no news, and it is made anew only where its file has gone: in between no
//! writer finds none. One that is not ours any more, because another master has made its own, is left alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bolide_supervision::error::StartError;
use bolide_supervision::files::guarded_files::{self, KnownFile, Rights};
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::text::{duration, printable};

use crate::deeds::{self, Deed};
use crate::token::Token;

/// Bytes that are taken in one turn: a writer that never ends keeps nobody waiting.
const TURN_BYTES: usize = 64;
/// How often the file of the pipe is looked for, in milliseconds.
const LOOK_MS: u64 = 1000;
/// Lines about bytes that mean nothing come at most this often, in milliseconds.
const JUNK_MS: u64 = 60_000;
/// Mode of the pipe's file.
const FILE_MODE: u32 = 0o600;
/// Characters of such bytes that a line shows.
const JUNK_MOST: usize = 16;

/// The pipes of an instance, of which one is open.
#[derive(Debug)]
pub struct Fifo {
    paths: Vec<PathBuf>,
    privileges: Option<Privileges>,
    slot: usize,
    open: Option<Open>,
    look_ms: u64,
    /// Before this time bytes that mean nothing are passed over without a line.
    quiet_until_ms: u64,
    /// What could not be done with the file has been said.
    has_complained: bool,
}

/// A pipe with the identity of its file.
#[derive(Debug)]
struct Open {
    file: File,
    known: KnownFile,
}

impl Fifo {
    /// Makes the first of the pipes; `None` where there is none to be.
    ///
    /// # Errors
    /// It can't be made, or there is a file of that name that is none.
    pub fn open(paths: &[PathBuf], privileges: Option<&Privileges>, now_ms: u64) -> Result<Option<Fifo>, StartError> {
        let Some(mut fifo) = Fifo::new(paths, privileges, now_ms) else { return Ok(None) };
        fifo.make().map_err(|error| {
            StartError::new(format!(
                "master-fifo = {}: {error}; remove what is there, make its folder, or choose another file",
                fifo.path().display()
            ))
        })?;
        Ok(Some(fifo))
    }

    /// The same for a master that serves: a pipe that can't be made is told, and tried again.
    pub fn open_or_complain(paths: &[PathBuf], privileges: Option<&Privileges>, now_ms: u64) -> Option<Fifo> {
        let mut fifo = Fifo::new(paths, privileges, now_ms)?;
        fifo.make_or_complain();
        Some(fifo)
    }

    fn new(paths: &[PathBuf], privileges: Option<&Privileges>, now_ms: u64) -> Option<Fifo> {
        let is_wanted = !paths.is_empty();
        is_wanted.then(|| Fifo {
            paths: paths.to_vec(),
            privileges: privileges.cloned(),
            slot: 0,
            open: None,
            look_ms: now_ms + LOOK_MS,
            quiet_until_ms: 0,
            has_complained: false,
        })
    }

    pub fn path(&self) -> &Path {
        &self.paths[self.slot]
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        self.open.iter().map(|open| Source::readable(Token::Fifo, open.file.as_fd()))
    }

    pub fn wake_ms(&self) -> u64 {
        self.look_ms
    }

    /// What the bytes that have come ask for, each thing once for those that stand together.
    pub fn take(&mut self, now_ms: u64) -> Vec<Deed> {
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
        let letters: Vec<u8> = bytes[..count].iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let known: Vec<Deed> = letters.iter().filter_map(|letter| deeds::of_letter(*letter)).collect();
        if known.len() < letters.len() {
            self.tell_junk(&letters, now_ms);
        }
        let mut wanted: Vec<Deed> = Vec::new();
        for deed in known {
            if deed.adds_up() || wanted.last() != Some(&deed) {
                wanted.push(deed);
            }
        }
        wanted
    }

    /// A digit: this one of the pipes takes commands from now on; where there are not so many, the first.
    pub fn choose(&mut self, slot: usize) {
        let slot = if slot < self.paths.len() { slot } else { 0 };
        if slot != self.slot {
            self.remove();
            self.slot = slot;
            self.make_or_complain();
        }
        log_sink::line(&format!("master-fifo: commands are taken from {} now", self.path().display()));
    }

    /// Looks whether the pipe has its file still, and makes it anew where it has none.
    pub fn look_if_due(&mut self, now_ms: u64) {
        if now_ms < self.look_ms {
            return;
        }
        self.look_ms = now_ms + LOOK_MS;
        // Another's is left alone.
        if self.open.is_none() || guarded_files::is_missing(self.path(), Rights::user(self.privileges.as_ref())) {
            self.make_or_complain();
        }
    }

    /// Removes the file, if it is ours: a writer would wait for ever for a reader.
    pub fn remove(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Err(error) = open.known.remove() {
            log_sink::line(&format!("the master-fifo {} can't be removed: {error}", self.path().display()));
        }
    }

    fn make_or_complain(&mut self) {
        match self.make() {
            Ok(()) => self.has_complained = false,
            Err(_) if self.has_complained => {}
            Err(error) => {
                self.has_complained = true;
                let again = duration(LOOK_MS);
                log_sink::line(&format!("master-fifo = {}: {error}; it is tried again each {again}", self.path().display()));
            }
        }
    }

    /// Makes the pipe with the rights of `uid`, as uWSGI does, which has given up its own by then: whoever deploys as that user may write to it.
    fn make(&mut self) -> io::Result<()> {
        let rights = Rights::user(self.privileges.as_ref());
        let (file, known) = guarded_files::make_fifo(&self.paths[self.slot], FILE_MODE, rights)?;
        self.open = Some(Open { file, known });
        Ok(())
    }

    fn tell_junk(&mut self, letters: &[u8], now_ms: u64) {
        if now_ms < self.quiet_until_ms {
            return;
        }
        self.quiet_until_ms = now_ms + JUNK_MS;
        let shown: String = String::from_utf8_lossy(letters).chars().take(JUNK_MOST).collect();
        log_sink::line(&format!(
            "master-fifo {}: `{}` has letters that mean nothing; the page about signals and processes lists those that do",
            self.path().display(),
            printable(&shown)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use bolide_supervision::testing::Folder;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn write(path: &Path, text: &str) {
        OpenOptions::new().write(true).open(path).expect("opened").write_all(text.as_bytes()).expect("written");
    }

    #[test]
    fn letters_that_stand_together_count_once_and_a_flood_is_taken_in_parts() {
        let folder = Folder::new("fifo");
        let path = folder.path().join("fifo");
        let mut fifo = Fifo::open(std::slice::from_ref(&path), None, 0).expect("made").expect("one");
        write(&path, "rrr\nsq\n");
        let asked = [Command::Reload, Command::Status, Command::Stop].map(Deed::Ask);
        assert_eq!(fifo.take(0), asked);
        write(&path, &"r".repeat(TURN_BYTES + 1));
        assert_eq!((fifo.take(0).len(), fifo.take(0).len(), fifo.take(0).len()), (1, 1, 0));
        write(&path, "~\u{7}");
        assert_eq!(fifo.take(0), []);
    }

    #[test]
    fn a_file_that_has_gone_is_made_anew_and_one_of_another_is_left_alone() {
        let folder = Folder::new("fifo");
        let path = folder.path().join("fifo");
        let mut fifo = Fifo::open(std::slice::from_ref(&path), None, 0).expect("made").expect("one");
        std::fs::remove_file(&path).expect("removed");
        fifo.look_if_due(LOOK_MS);
        write(&path, "s");
        assert_eq!(fifo.take(0), [Deed::Ask(Command::Status)]);
        std::fs::remove_file(&path).expect("removed");
        mkfifo(&path, Mode::S_IRWXU).expect("made");
        fifo.look_if_due(2 * LOOK_MS);
        fifo.remove();
        assert!(path.exists());
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "mine").expect("written");
        assert!(Fifo::open(std::slice::from_ref(&path), None, 0).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
    }
}
