//! The destination of the log, and writes to it that do not wait. It knows no lines.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SockType;
use nix::sys::socket::{MsgFlags, SockType as Type, UnixAddr, connect, getpeername, getsockopt, send};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::write;

/// Linux' PIPE_BUF in bytes: longer writes to a pipe may be torn apart by those of other processes (pipe(7)).
pub const ATOMIC_BYTES: usize = 4096;

/// The log's descriptor.
#[derive(Debug)]
pub struct Destination {
    descriptor: OwnedFd,
    mode: WriteMode,
    /// Who takes datagrams of a socket in the file system: one who is started anew is called again.
    peer: Option<UnixAddr>,
}

/// The way of a write that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// A file, which always takes what it is given, or a description that is non-blocking.
    Write,
    /// A socket of datagrams: as the next one, a line at a time, which may have to be called for again by who was started anew.
    Datagram,
    /// A socket: non-blocking by the call, as its description is shared with whoever started us.
    Send,
    /// A pipe or terminal that we may not open anew, since another user made it: asked first, and given what fits one page.
    /// Only here another process that writes in between can still make a write wait.
    Ask,
}

impl Destination {
    /// The destination of descriptor 2 as it is now.
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
        // The copy is above 2 by the library's word (F_DUPFD_CLOEXEC from 3 on).
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
        let peer = getpeername::<UnixAddr>(descriptor.as_raw_fd()).ok().filter(|_| mode == WriteMode::Datagram);
        Ok(Destination { descriptor, mode, peer })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Writes the beginning of these bytes, as much as is taken at once. Never waits.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.mode {
            WriteMode::Write => write(&self.descriptor, bytes),
            WriteMode::Datagram => {
                let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
                let sent = self.send(line).or_else(|error| match (error, &self.peer) {
                    (Errno::ECONNREFUSED | Errno::ENOTCONN, Some(peer)) => {
                        connect(self.descriptor.as_raw_fd(), peer)?;
                        self.send(line)
                    }
                    _ => Err(error),
                });
                // A datagram leaves whole or not at all.
                sent.map(|_| bytes.len())
            }
            WriteMode::Send => self.send(bytes),
            WriteMode::Ask if self.has_room(PollTimeout::ZERO) => {
                write(&self.descriptor, &bytes[..bytes.len().min(ATOMIC_BYTES)])
            }
            WriteMode::Ask => Err(Errno::EAGAIN),
        }
    }

    /// Each write is one line.
    pub fn takes_single_lines(&self) -> bool {
        self.mode == WriteMode::Datagram
    }

    /// Has the descriptor's number lead into another file of the same kind.
    ///
    /// # Errors
    /// What dup3(2) says.
    pub fn replace_by(&self, file: &OwnedFd) -> io::Result<()> {
        // SAFETY: both are open, and the number is ours: whoever writes to it goes on with the new file.
        match unsafe { libc::dup3(file.as_raw_fd(), self.descriptor.as_raw_fd(), libc::O_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Waits until something may be written, or the time is over.
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

fn kind_of(descriptor: BorrowedFd<'_>) -> io::Result<SFlag> {
    Ok(SFlag::from_bits_truncate(fstat(descriptor)?.st_mode) & SFlag::S_IFMT)
}

fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() > 2 { Ok(descriptor) } else { descriptor.try_clone() }
}
