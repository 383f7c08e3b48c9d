//! The prototype's inheritance from the master: the boot message, the descriptors that it lists, and the note for a failure. It
//! knows neither orders nor applications. The prototype runs it, and each new child.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use bolide_contract::boot::Boot;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

/// Reads the boot message from this descriptor.
pub fn read_boot(descriptor: RawFd) -> io::Result<Boot> {
    let mut text = String::new();
    File::from(inherited(descriptor)?).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|error| {
        io::Error::other(format!("the master's settings can't be read: {error}; are two builds of Bolide mixed?"))
    })
}

/// For this long a worker does not repeat the report of a failed start that another one has written: the workers of a generation
/// fail together.
const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// For this long a worker waits for the report of another one at most: the first worker that exits ends the generation, and with
/// it the one that was about to write.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
/// The time between two looks at it.
const LOOK: Duration = Duration::from_millis(5);

/// The file in which the master finds why the application could not be loaded.
pub struct FailureNote {
    file: File,
}

impl FailureNote {
    pub(crate) fn new(descriptor: OwnedFd) -> FailureNote {
        FailureNote { file: File::from(descriptor) }
    }

    pub(crate) fn try_clone(&self) -> io::Result<FailureNote> {
        Ok(FailureNote { file: self.file.try_clone()? })
    }

    /// Whether this worker is to report why the generation does not start, because no other one has. A report older than
    /// [`REPEAT_AFTER`] is repeated. If another one is about to write, returns when it has.
    pub fn is_mine_to_tell(&self) -> bool {
        let end = Instant::now() + WRITTEN_WITHIN;
        loop {
            match self.take_turn() {
                Some(is_mine) => return is_mine,
                None if Instant::now() >= end => return false,
                None => std::thread::sleep(LOOK),
            }
        }
    }

    /// Returns `None` while another worker is about to write.
    fn take_turn(&self) -> Option<bool> {
        // The kernel drops the lock with the process, which may end before it has written its line.
        let whole = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        if matches!(fcntl(&self.file, FcntlArg::F_SETLK(&whole)), Err(Errno::EAGAIN | Errno::EACCES)) {
            return self.file.metadata().is_ok_and(|metadata| metadata.len() > 0).then_some(false);
        }
        let Ok(metadata) = self.file.metadata() else { return Some(true) };
        let age = metadata.modified().ok().and_then(|written| written.elapsed().ok());
        Some(metadata.len() == 0 || age.is_some_and(|age| age >= REPEAT_AFTER))
    }

    /// Writes a line for the master.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn write(&self, reason: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(reason.as_bytes(), 0)
    }
}

/// Takes ownership of a descriptor that the master has passed to us, and sets close-on-exec.
pub fn inherited(descriptor: RawFd) -> io::Result<OwnedFd> {
    close_on_exec(descriptor)?;
    // SAFETY: the master opened it for this process and passed its number to us only; it is open, as the call above has shown.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `cap`: clears the ambient set, so that programs that the application executes do not inherit our capabilities.
pub fn keep_capabilities_from_programs() -> io::Result<()> {
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: a plain system call on numbers.
    match unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A copy of a descriptor that the master has passed to us and every worker.
pub fn copied(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the master passed this descriptor to us, and it stays open in the prototype; the copy is our own.
    unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()
}

/// Makes its reads and writes non-blocking.
pub fn set_non_blocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(descriptor, FcntlArg::F_GETFL)?);
    fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

pub fn close_on_exec(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is only borrowed for this call, which fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(|errno| {
        io::Error::new(io::Error::from(errno).kind(), format!("descriptor {descriptor} was not passed on: {errno}"))
    })?;
    Ok(())
}
