//! A socket whose reads and writes end at a moment, so that no number of small pieces can make a call longer.
//!
//! It does not know protocols. Sockets are non-blocking, and a wait is one poll.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// What has ended the wait for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A message, or the beginning of one, has come.
    Bytes,
    /// The caller's own descriptor is readable.
    Bell,
    Time,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub struct Channel {
    socket: Socket,
    deadline: Instant,
}

impl Channel {
    /// Tries the addresses in their order, until one accepts or the deadline has come.
    pub fn tcp(addresses: &[SocketAddr], deadline: Instant) -> io::Result<Channel> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "its host has no address");
        for address in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(address, left) {
                Ok(stream) => {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    return Ok(Channel { socket: Socket::Tcp(stream), deadline });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// A UNIX socket whose queue is full refuses immediately, as a non-blocking connect does not wait for it.
    pub fn unix(path: &Path, deadline: Instant) -> io::Result<Channel> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(std::os::fd::AsRawFd::as_raw_fd(&descriptor), &UnixAddr::new(path)?)?;
        Ok(Channel { socket: Socket::Unix(UnixStream::from(descriptor)), deadline })
    }

    /// The moment at which each of the following reads and writes fails.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Returns whether the peer has neither closed the connection nor sent a byte without a command.
    pub fn is_quiet(&self) -> bool {
        let mut polled = [PollFd::new(self.descriptor(), PollFlags::POLLIN)];
        matches!(poll(&mut polled, PollTimeout::ZERO), Ok(0))
    }

    /// Waits until there may be something to read (`None`), until `bell` is readable, or until this moment.
    pub fn wait_for_one(&self, bell: BorrowedFd<'_>, until: Instant) -> io::Result<Option<Waited>> {
        let mut polled = [PollFd::new(self.descriptor(), PollFlags::POLLIN), PollFd::new(bell, PollFlags::POLLIN)];
        loop {
            match poll(&mut polled, time_until(until)) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) if until > Instant::now() => {}
                Ok(0) => return Ok(Some(Waited::Time)),
                Ok(_) if polled[1].any().unwrap_or(false) => return Ok(Some(Waited::Bell)),
                Ok(_) => return Ok(None),
            }
        }
    }

    /// Ends the connection for all processes that have its descriptor.
    pub fn shut_down(&self) {
        // A peer that has closed it first has ended it.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    fn wait(&self, event: PollFlags) -> io::Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match poll(&mut [PollFd::new(self.descriptor(), event)], time_until(self.deadline)) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Rounded up, so that the last part of a millisecond is one wait and no busy loop.
pub fn time_until(moment: Instant) -> PollTimeout {
    let left = moment.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return PollTimeout::ZERO;
    }
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.socket {
                Socket::Tcp(stream) => stream.read(buffer),
                Socket::Unix(stream) => stream.read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLIN)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.wait(PollFlags::POLLIN)?,
                read => return read,
            }
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match &mut self.socket {
                Socket::Tcp(stream) => stream.write(bytes),
                Socket::Unix(stream) => stream.write(bytes),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLOUT)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.wait(PollFlags::POLLOUT)?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
