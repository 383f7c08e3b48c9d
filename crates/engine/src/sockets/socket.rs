//! The few system calls of a connection, each with the answers that the engine distinguishes.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::sockopt::TcpNoDelay;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, sendmsg, setsockopt, shutdown};

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    Bytes(usize),
    /// The peer will send no more.
    End,
    Nothing,
    /// The connection is broken.
    Broken,
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    Bytes(usize),
    /// The socket's buffer is full.
    Full,
    /// The peer is gone.
    Broken,
}

pub fn read(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Read {
    receive(socket, buffer, MsgFlags::empty())
}

#[inline]
fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> Read {
    loop {
        return match recv(socket.as_raw_fd(), buffer, flags) {
            Ok(0) => Read::End,
            Ok(count) => Read::Bytes(count),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Read::Nothing,
            Err(_) => Read::Broken,
        };
    }
}

/// Reads without taking: the same bytes come again.
pub fn peek(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Read {
    receive(socket, buffer, MsgFlags::MSG_PEEK)
}

/// Whether the peer has sent something that was not read yet; its end counts too.
pub fn has_input(socket: BorrowedFd<'_>) -> bool {
    !matches!(recv(socket.as_raw_fd(), &mut [0u8; 1], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT), Err(Errno::EAGAIN))
}

/// Whether a poll has something to tell, which stays there for who asks it.
pub fn has_news(descriptor: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// Whether the peer has ended its side, and all that it sent before was read.
pub fn has_ended(socket: BorrowedFd<'_>) -> bool {
    match recv(socket.as_raw_fd(), &mut [0u8; 1], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
        Ok(count) => count == 0,
        Err(errno) => !matches!(errno, Errno::EAGAIN | Errno::EINTR),
    }
}

/// Writes both parts in one call, the first before the second. Never raises SIGPIPE.
pub fn write(socket: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> Written {
    loop {
        let result = if second.is_empty() {
            send(socket.as_raw_fd(), first, MsgFlags::MSG_NOSIGNAL)
        } else {
            let parts = [IoSlice::new(first), IoSlice::new(second)];
            sendmsg::<()>(socket.as_raw_fd(), &parts, &[], MsgFlags::MSG_NOSIGNAL, None)
        };
        return match result {
            Ok(count) => Written::Bytes(count),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Written::Full,
            Err(_) => Written::Broken,
        };
    }
}

/// Hands bytes to the kernel that it keeps until [`push`], the next write or the end of the connection.
pub fn write_corked(socket: BorrowedFd<'_>, bytes: &[u8]) -> Written {
    match send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(libc::MSG_MORE)) {
        Ok(count) => Written::Bytes(count),
        Err(Errno::EINTR | Errno::EAGAIN) => Written::Full,
        Err(_) => Written::Broken,
    }
}

/// Lets go what the kernel keeps: setting TCP_NODELAY, which is set already, pushes it (tcp(7)).
pub fn push(socket: BorrowedFd<'_>) {
    // A connection that broke meanwhile says so at its next read.
    let _ = setsockopt(&socket, TcpNoDelay, &true);
}

/// Sends up to `count` bytes of a file from `offset`, which moves on. `Bytes(0)` is the end of the file.
pub fn send_file(socket: BorrowedFd<'_>, file: &File, offset: &mut i64, count: usize) -> Written {
    loop {
        return match nix::sys::sendfile::sendfile(socket, file.as_fd(), Some(offset), count) {
            Ok(count) => Written::Bytes(count),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Written::Full,
            Err(_) => Written::Broken,
        };
    }
}

/// Waits until the socket takes something again. False: it did not within the time.
pub fn wait_for_room(socket: BorrowedFd<'_>, most: Duration) -> bool {
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::POLLOUT)], timeout) {
            Err(Errno::EINTR) => {}
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

/// Waits until the socket has input or room, whichever is asked for, or the bell rings; for `most` at the longest. The bell is still then.
pub fn watch(socket: BorrowedFd<'_>, (for_input, for_room): (bool, bool), bell: Option<&EventFd>, most: Duration) {
    let mut wanted = PollFlags::empty();
    wanted.set(PollFlags::POLLIN, for_input);
    wanted.set(PollFlags::POLLOUT, for_room);
    // A whole millisecond at the least, as the poll counts in them.
    let timeout = PollTimeout::try_from(most + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    let watched = PollFd::new(socket, wanted);
    // Whatever came of it, the caller looks at the connection next.
    let _ = match bell {
        None => poll(&mut [watched], timeout),
        Some(bell) => poll(&mut [watched, PollFd::new(bell.as_fd(), PollFlags::POLLIN)], timeout),
    };
    // One that has not rung has nothing to read.
    let _ = bell.map(EventFd::read);
}

/// Waits until the client has said something, or with `for_room` until it takes more; for `most` at the longest.
pub fn wait_for_client(socket: BorrowedFd<'_>, for_room: bool, most: Duration) {
    let wanted = if for_room { PollFlags::POLLOUT } else { PollFlags::POLLIN };
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    // Whatever came of it, the caller looks at the connection next.
    let _ = poll(&mut [PollFd::new(socket, wanted)], timeout);
}

/// Says that we send no more; the peer still may.
pub fn end_sending(socket: BorrowedFd<'_>) {
    // A peer that is already gone makes this fail, and then there is nothing to say to it.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Write);
}

/// Whoever reads finds what has come already, and then an end.
pub fn end_reading(socket: BorrowedFd<'_>) {
    // As above.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Read);
}

/// Ends the connection in both directions.
pub fn end(socket: BorrowedFd<'_>) {
    // As above.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
}

/// Takes a descriptor that a system call has just made.
pub fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the caller got this number from the kernel in the line before and gave it to nobody else.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
