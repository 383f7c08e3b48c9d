//! One log of this process: where it goes, and the lines that wait for it. Each is a slot of a table that lives as long as the process,
//! so that nobody who writes ever waits for who changes it. Every process runs it.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bolide_contract::logging::Packing;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{dup2_stderr, dup2_stdout};

use crate::destination::Destination;
use crate::writer::Writer;

/// A log.
pub struct Sink {
    /// Where it goes; null before that is known.
    destination: AtomicPtr<Destination>,
    /// The writer of this process; null before the first line, and in a process that was just forked.
    writer: AtomicPtr<Mutex<Writer>>,
    /// How its lines are compressed, where they are.
    packing: OnceLock<Packing>,
}

impl Sink {
    pub const fn new() -> Sink {
        Sink { destination: AtomicPtr::new(null_mut()), writer: AtomicPtr::new(null_mut()), packing: OnceLock::new() }
    }

    pub fn install(&self, destination: Destination) {
        // Neither is ever freed: a thread may be writing, and there is one for each log of a start.
        self.destination.store(Box::into_raw(Box::new(destination)), Release);
        self.writer.store(null_mut(), Release);
    }

    /// Has its lines compressed, from the first one on. Loggers stay as they were at the start.
    pub fn pack(&self, packing: &Packing) {
        self.packing.get_or_init(|| packing.clone());
    }

    pub fn destination(&self) -> Option<&'static Destination> {
        // SAFETY: null, or a destination that `install` has stored and nobody frees.
        unsafe { self.destination.load(Acquire).as_ref() }
    }

    pub fn writer(&self) -> Option<MutexGuard<'static, Writer>> {
        let mut found = self.writer.load(Acquire);
        if found.is_null() {
            let made = Box::into_raw(Box::new(Mutex::new(Writer::new(self.destination()?, self.packing.get()))));
            found = match self.writer.compare_exchange(null_mut(), made, AcqRel, Acquire) {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: it comes from `Box::into_raw` above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
        // SAFETY: not null, and a writer is never freed once it is installed.
        Some(unsafe { &*found }.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The writer, where a line was written already.
    pub fn writer_in_use(&self) -> Option<MutexGuard<'static, Writer>> {
        if self.writer.load(Acquire).is_null() { None } else { self.writer() }
    }

    /// In the child of a fork: its parent's writer may be locked by a thread that the child has not, and what waits there is the parent's
    /// to write.
    pub fn forget_writer(&self) {
        self.writer.store(null_mut(), Release);
    }

    /// Goes on in another file, or a pipe in the place of a pipe, under the same number, so that nobody who is writing notices. Standard output and standard error follow
    /// where they are this log.
    ///
    /// # Errors
    /// This log is not open, or neither a file nor a pipe.
    pub fn replace(&self, file: &OwnedFd) -> io::Result<()> {
        let destination = self.destination().ok_or_else(|| io::Error::other("there is no such log"))?;
        let before = fstat(destination.descriptor())?;
        let kinds = [kind_of(&before), kind_of(&fstat(file)?)];
        if !matches!(kinds, [SFlag::S_IFREG, SFlag::S_IFREG] | [SFlag::S_IFIFO, SFlag::S_IFIFO]) {
            return Err(io::Error::other("it is neither a file nor a pipe"));
        }
        let follows = |standard: io::Result<FileStat>| {
            standard.is_ok_and(|found| (found.st_dev, found.st_ino) == (before.st_dev, before.st_ino))
        };
        let output = follows(fstat(io::stdout()).map_err(Into::into));
        let errors = follows(fstat(io::stderr()).map_err(Into::into));
        destination.replace_by(file)?;
        if let Some(mut writer) = self.writer_in_use() {
            writer.discard_begun();
        }
        if output {
            dup2_stdout(file)?;
        }
        if errors {
            dup2_stderr(file)?;
        }
        Ok(())
    }
}

fn kind_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}
