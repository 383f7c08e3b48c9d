//! The destination of a log, and non-blocking writes to it. It does not know lines. Every process runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SockType;
use nix::sys::socket::{MsgFlags, SockType as Type, getsockopt, send};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::write;

/// Linux' PIPE_BUF in bytes: longer writes to a pipe may be interleaved with those of other processes (pipe(7)).
pub const ATOMIC_BYTES: usize = 4096;

/// The log's descriptor.
#[derive(Debug)]
pub struct Destination {
    descriptor: OwnedFd,
    mode: WriteMode,
}

/// The way to write without blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// A file, which always accepts writes, or a non-blocking open file description.
    Write,
    /// A datagram socket: non-blocking by a flag of the call, and one line at a time.
    Datagram,
    /// A stream socket: non-blocking by a flag of the call, because our parent shares its open file description.
    Send,
    /// A pipe or terminal that we may not reopen, because it belongs to another user: polled first, and written at most a page at
    /// a time. Only here can another process that writes in between still make a write block.
    Ask,
}

impl Destination {
    /// The destination that descriptor 2 refers to now.
    ///
    /// # Errors
    /// It is not open, or no descriptor is left.
    pub fn of_standard_error() -> io::Result<Destination> {
        let standard = io::stderr();
        let kind = kind_of(standard.as_fd())?;
        if matches!(kind, SFlag::S_IFIFO | SFlag::S_IFCHR) {
            let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            let path = format!("/proc/self/fd/{}", standard.as_raw_fd());
            if let Ok(own) = open(path.as_str(), flags, Mode::empty()) {
                return Destination::of(above_standard(own)?);
            }
        }
        // The standard library duplicates to a number above 2 (F_DUPFD_CLOEXEC from 3 on).
        Destination::of(standard.as_fd().try_clone_to_owned()?)
    }

    /// The destination of a descriptor.
    ///
    /// # Errors
    /// It is not open.
    pub fn of(descriptor: OwnedFd) -> io::Result<Destination> {
        let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
        let mode = match kind_of(descriptor.as_fd())? {
            SFlag::S_IFSOCK if getsockopt(&descriptor, SockType)? == Type::Datagram => WriteMode::Datagram,
            SFlag::S_IFSOCK => WriteMode::Send,
            SFlag::S_IFIFO | SFlag::S_IFCHR if !flags.contains(OFlag::O_NONBLOCK) => WriteMode::Ask,
            _ => WriteMode::Write,
        };
        Ok(Destination { descriptor, mode })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Writes as much of these bytes as is accepted without waiting. Never blocks.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.mode {
            WriteMode::Write => write(&self.descriptor, bytes),
            WriteMode::Datagram => {
                // A datagram is sent whole or not at all.
                self.send(bytes.strip_suffix(b"\n").unwrap_or(bytes)).map(|_| bytes.len())
            }
            WriteMode::Send => self.send(bytes),
            WriteMode::Ask if self.has_room(PollTimeout::ZERO) => {
                write(&self.descriptor, &bytes[..bytes.len().min(ATOMIC_BYTES)])
            }
            WriteMode::Ask => Err(Errno::EAGAIN),
        }
    }

    /// Whether each write is one line.
    pub fn takes_single_lines(&self) -> bool {
        self.mode == WriteMode::Datagram
    }

    /// Makes the descriptor's number refer to another file of the same kind.
    ///
    /// # Errors
    /// The error of dup3(2).
    pub fn replace_by(&self, file: &OwnedFd) -> io::Result<()> {
        // SAFETY: both are open, and the number is ours: threads that write to it go on with the new file.
        match unsafe { libc::dup3(file.as_raw_fd(), self.descriptor.as_raw_fd(), libc::O_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Waits until it accepts a write, or until the time is over.
    pub fn wait_for_room(&self, most: Duration) {
        self.has_room(PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX));
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(self.descriptor.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
    }

    fn has_room(&self, timeout: PollTimeout) -> bool {
        let mut poll_fds = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLOUT)];
        matches!(poll(&mut poll_fds, timeout), Ok(count) if count > 0)
    }
}

/// Whether a write failed because nothing is at the other end now. What was not written can be written later, if another process
/// opens the destination again.
pub fn is_out_of_reach(error: Errno) -> bool {
    let is_gone = matches!(error, Errno::EPIPE | Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::ENOTCONN | Errno::EDESTADDRREQ);
    is_gone || matches!(error, Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN | Errno::EHOSTDOWN)
}

fn kind_of(descriptor: BorrowedFd<'_>) -> io::Result<SFlag> {
    Ok(SFlag::from_bits_truncate(fstat(descriptor)?.st_mode) & SFlag::S_IFMT)
}

fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() > 2 { Ok(descriptor) } else { descriptor.try_clone() }
}
