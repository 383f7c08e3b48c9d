//! Connections to processes that listen at abstract names, made without waiting. The kernel says who listens there, because any
//! process may take a free name. The emperor runs it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt};

/// Connects to an abstract name.
///
/// # Errors
/// No process listens there, or too many others connect.
pub fn connect_to(name: &str) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(UnixStream::from(socket))
}

/// The process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub pid: i32,
    pub user: u32,
}

impl Peer {
    /// Returns the process that had begun to listen, or `None` if the kernel does not say.
    pub fn of(stream: &UnixStream) -> Option<Peer> {
        let peer = getsockopt(stream, sockopt::PeerCredentials).ok()?;
        Some(Peer { pid: peer.pid(), user: peer.uid() })
    }
}
