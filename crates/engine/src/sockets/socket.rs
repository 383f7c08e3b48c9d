//! The few system calls of a connection, each with the results that the engine distinguishes. It does not know about protocols.
//! Workers run it.

use std::fs::File;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::sockopt::TcpNoDelay;
use nix::sys::socket::{MsgFlags, Shutdown, SockaddrLike, SockaddrStorage, recv, send, sendmsg, setsockopt, shutdown};

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

/// Accepts one connection without a wait, and with the address of its peer: asking for it later would be one more system call. A
/// UNIX socket has none to tell. It is non-blocking. On Linux it inherits TCP_NODELAY from the listening socket.
///
/// # Errors
/// Those of accept4(2).
pub fn accept(listener: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    // SAFETY: a structure of integers and arrays of them, for which all zeroes is a valid value.
    let mut address: nix::libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<nix::libc::sockaddr_storage>() as nix::libc::socklen_t;
    let flags = nix::libc::SOCK_NONBLOCK | nix::libc::SOCK_CLOEXEC;
    let at = (&raw mut address).cast::<nix::libc::sockaddr>();
    // SAFETY: both pointers are to locals that live through the call; the kernel writes `length` bytes at most.
    let accepted = unsafe { nix::libc::accept4(listener.as_raw_fd(), at, &raw mut length, flags) };
    let descriptor = own(Errno::result(accepted)?);
    // SAFETY: the kernel has written an address of this length into the structure, which is large enough for each kind.
    let peer = unsafe { SockaddrStorage::from_raw(at, Some(length)) };
    Ok((descriptor, peer.as_ref().and_then(of_tcp)))
}

/// The address of a TCP socket; `None` for other kinds.
pub fn of_tcp(address: &SockaddrStorage) -> Option<SocketAddr> {
    let version_4 = address.as_sockaddr_in().map(|address| SocketAddr::new(address.ip().into(), address.port()));
    version_4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::new(address.ip().into(), address.port())))
}

/// Reads without consuming: the next read returns the same bytes.
pub fn peek(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Read {
    receive(socket, buffer, MsgFlags::MSG_PEEK)
}

/// Whether the peer has sent bytes that were not read yet; its end of stream counts too.
pub fn has_input(socket: BorrowedFd<'_>) -> bool {
    !matches!(recv(socket.as_raw_fd(), &mut [0u8; 1], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT), Err(Errno::EAGAIN))
}

/// Throws away the input that is here, up to about this many bytes.
pub fn discard_input(socket: BorrowedFd<'_>, most_bytes: usize) {
    let mut discarded = 0;
    let mut room = [0u8; 4096];
    while discarded < most_bytes {
        match recv(socket.as_raw_fd(), &mut room, MsgFlags::MSG_DONTWAIT) {
            Ok(count) if count > 0 => discarded += count,
            _ => return,
        }
    }
}

/// Whether a poll has pending events, which stay pending.
pub fn has_events(descriptor: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// Whether the peer has ended its side, and everything that it sent before was read.
pub fn has_ended(socket: BorrowedFd<'_>) -> bool {
    match recv(socket.as_raw_fd(), &mut [0u8; 1], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
        Ok(count) => count == 0,
        Err(errno) => !matches!(errno, Errno::EAGAIN | Errno::EINTR),
    }
}

/// Whether the peer has closed the connection in both directions: it does not take anything any more either. A TCP peer shows
/// that with a reset, and one of a UNIX socket by closing it.
pub fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(socket, PollFlags::empty())];
    // The kernel reports these whatever is asked for (poll(2)).
    let ends = PollFlags::POLLHUP | PollFlags::POLLERR;
    poll(&mut watched, PollTimeout::ZERO).is_ok() && watched[0].revents().is_some_and(|events| events.intersects(ends))
}

/// Whether the peer has ended its sending side, or has closed the connection, whatever it has sent before.
pub fn has_stopped_sending(socket: BorrowedFd<'_>) -> bool {
    // nix does not have this flag, and does not return events that it does not have. Each event that can come is an end.
    let ends_sending = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);
    poll(&mut [PollFd::new(socket, ends_sending)], PollTimeout::ZERO).is_ok_and(|shown| shown > 0)
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

/// Writes bytes that the kernel holds until [`push`], the next write or the end of the connection.
pub fn write_corked(socket: BorrowedFd<'_>, bytes: &[u8]) -> Written {
    match send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(libc::MSG_MORE)) {
        Ok(count) => Written::Bytes(count),
        Err(Errno::EINTR | Errno::EAGAIN) => Written::Full,
        Err(_) => Written::Broken,
    }
}

/// Sends the bytes that the kernel holds: setting TCP_NODELAY, which is set already, pushes them (tcp(7)).
pub fn push(socket: BorrowedFd<'_>) {
    // The next read reports a connection that broke in the meantime.
    let _ = setsockopt(&socket, TcpNoDelay, &true);
}

/// Sends up to `count` bytes of a file from `offset`, which is advanced. `Bytes(0)` is the end of the file.
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

/// Waits until the socket is writable again. Returns `false` if it was not within the time.
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

/// Waits until the socket has input or is writable, as asked for, or the bell rings; for at most `most`. Clears the bell.
pub fn watch(socket: BorrowedFd<'_>, (for_input, for_room): (bool, bool), bell: Option<&EventFd>, most: Duration) {
    let mut wanted = PollFlags::empty();
    wanted.set(PollFlags::POLLIN, for_input);
    wanted.set(PollFlags::POLLOUT, for_room);
    // At least a whole millisecond, as the poll counts in them.
    let timeout = PollTimeout::try_from(most + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    let watched = PollFd::new(socket, wanted);
    // The caller checks the connection next, whatever ended the wait.
    let _ = match bell {
        None => poll(&mut [watched], timeout),
        Some(bell) => poll(&mut [watched, PollFd::new(bell.as_fd(), PollFlags::POLLIN)], timeout),
    };
    // A bell that has not rung has nothing to read.
    let _ = bell.map(EventFd::read);
}

/// Waits until the client has sent something, or with `for_room` until the socket is writable; for at most `most`.
pub fn wait_for_client(socket: BorrowedFd<'_>, for_room: bool, most: Duration) {
    let wanted = if for_room { PollFlags::POLLOUT } else { PollFlags::POLLIN };
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    // The caller checks the connection next, whatever ended the wait.
    let _ = poll(&mut [PollFd::new(socket, wanted)], timeout);
}

/// Ends our side of the connection; the peer may still send.
pub fn end_sending(socket: BorrowedFd<'_>) {
    // This fails if the peer is already gone, and then it does not matter.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Write);
}

/// Ends the input: readers get the bytes that have arrived already, and then an end of stream.
pub fn end_reading(socket: BorrowedFd<'_>) {
    // As above.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Read);
}

/// Ends the connection in both directions.
pub fn end(socket: BorrowedFd<'_>) {
    // As above.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
}

/// Returns how long a TCP connection that was just accepted has waited for it, or its data if that came later, in milliseconds.
/// The kernel counts it in its ticks.
pub fn waited_ms(socket: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(socket).map(|info| info.tcpi_last_data_recv)
}

/// Returns the number of connections in the accept queue of a TCP socket. By tcp(7), the kernel reports it in the field of
/// unacknowledged segments.
pub fn queue_length(listener: BorrowedFd<'_>) -> Option<u32> {
    tcp_info(listener).map(|info| info.tcpi_unacked)
}

fn tcp_info(socket: BorrowedFd<'_>) -> Option<nix::libc::tcp_info> {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut info: nix::libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<nix::libc::tcp_info>() as nix::libc::socklen_t;
    let (level, option) = (nix::libc::IPPROTO_TCP, nix::libc::TCP_INFO);
    // SAFETY: both pointers are to locals that live through the call; the kernel writes `length` bytes at most.
    let done = unsafe { nix::libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut info).cast(), &raw mut length) };
    (done == 0).then_some(info)
}

/// Takes ownership of a descriptor that a system call has just returned.
pub fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the caller got this number from the kernel in the line before and has passed it to no other owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
