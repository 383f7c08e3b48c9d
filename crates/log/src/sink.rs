//! One log of this process: its destination, and its waiting lines. Each is a slot of a static table, so that a thread that
//! writes never waits for one that changes it. Every process runs it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bolide_contract::logging::Packing;
use nix::sys::socket::sockopt::SockType as TypeOfSocket;
use nix::sys::socket::{SockType, getsockopt};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{dup2_stderr, dup2_stdout};

use crate::destination::Destination;
use crate::writer::Writer;

/// A log.
pub struct Sink {
    /// Null before it is known.
    destination: AtomicPtr<Destination>,
    /// The writer of this process; null before the first line, and in a process that was just forked.
    writer: AtomicPtr<Mutex<Writer>>,
    /// How its lines are compressed, if they are.
    packing: OnceLock<Packing>,
    /// The master opens the destination again when it is out of reach: lines wait for that.
    is_reopened: AtomicBool,
}

impl Sink {
    pub const fn new() -> Sink {
        let (destination, writer) = (AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut()));
        Sink { destination, writer, packing: OnceLock::new(), is_reopened: AtomicBool::new(false) }
    }

    pub fn install(&self, destination: Destination) {
        // Neither is ever freed: a thread may be writing, and there is one for each log of startup.
        self.destination.store(Box::into_raw(Box::new(destination)), Release);
        self.writer.store(null_mut(), Release);
    }

    /// Compresses its lines, from the first one on. Loggers stay as they were at startup.
    pub fn pack(&self, packing: &Packing) {
        self.packing.get_or_init(|| packing.clone());
    }

    /// Says whether the master opens the destination again when it is out of reach.
    pub fn set_reopened(&self, is_reopened: bool) {
        self.is_reopened.store(is_reopened, Relaxed);
    }

    pub fn destination(&self) -> Option<&'static Destination> {
        // SAFETY: null, or a destination that `install` has stored and that is never freed.
        unsafe { self.destination.load(Acquire).as_ref() }
    }

    /// The writer of this process. `number` is that of the log.
    pub fn writer(&'static self, number: usize) -> Option<MutexGuard<'static, Writer>> {
        let mut found = self.writer.load(Acquire);
        if found.is_null() {
            let made = Box::into_raw(Box::new(Mutex::new(Writer::new(
                number,
                self.destination()?,
                &self.is_reopened,
                self.packing.get(),
            ))));
            found = match self.writer.compare_exchange(null_mut(), made, AcqRel, Acquire) {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: it comes from `Box::into_raw` above, and was not shared.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
        // SAFETY: not null, and a writer is never freed once it is installed.
        Some(unsafe { &*found }.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The writer, if a line was written already.
    pub fn writer_in_use(&'static self, number: usize) -> Option<MutexGuard<'static, Writer>> {
        if self.writer.load(Acquire).is_null() { None } else { self.writer(number) }
    }

    /// In the child of a fork: a thread that the child does not have may hold the lock of its parent's writer, and the waiting
    /// lines are the parent's to write.
    pub fn forget_writer(&self) {
        self.writer.store(null_mut(), Release);
    }

    /// Replaces the file, the pipe or the datagram socket by another one, under the same number, so that writing threads do not
    /// notice. Standard output and standard error follow if they are this log.
    ///
    /// # Errors
    /// This log is not open, or is of another kind than its replacement.
    pub fn replace(&'static self, number: usize, file: &OwnedFd) -> io::Result<()> {
        let destination = self.destination().ok_or_else(|| io::Error::other("there is no such log"))?;
        let before = fstat(destination.descriptor())?;
        let takes_datagrams =
            |socket: &dyn AsFd| getsockopt(&socket.as_fd(), TypeOfSocket).is_ok_and(|kind| kind == SockType::Datagram);
        let fits = match (kind_of(&before), kind_of(&fstat(file)?)) {
            (SFlag::S_IFREG, SFlag::S_IFREG) | (SFlag::S_IFIFO, SFlag::S_IFIFO) => true,
            (SFlag::S_IFSOCK, SFlag::S_IFSOCK) => takes_datagrams(&destination.descriptor()) && takes_datagrams(file),
            _ => false,
        };
        if !fits {
            return Err(io::Error::other("it was a file, a pipe or a datagram socket, and its replacement is none of that kind"));
        }
        let follows = |standard: io::Result<FileStat>| {
            standard.is_ok_and(|found| (found.st_dev, found.st_ino) == (before.st_dev, before.st_ino))
        };
        let output = follows(fstat(io::stdout()).map_err(Into::into));
        let errors = follows(fstat(io::stderr()).map_err(Into::into));
        destination.replace_by(file)?;
        if let Some(mut writer) = self.writer_in_use(number) {
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
