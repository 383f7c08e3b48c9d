//! A listening socket as a worker sees it: inherited, shared with the other workers, accepted from.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use bolide_contract::settings::Protocol;
use bolide_contract::tls::{Http2, Tls};
use bolide_tls::TlsFacts;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, SockFlag, SockaddrLike, SockaddrStorage, accept4, getpeername, shutdown};

/// One of the sockets that the master handed down.
#[derive(Debug)]
pub struct ListeningSocket {
    pub descriptor: OwnedFd,
    /// That of its socket, the same in all processes that share it.
    pub inode: u64,
    pub protocol: Protocol,
    /// SERVER_NAME and SERVER_PORT of requests that come through it.
    pub server_name: String,
    pub server_port: String,
    /// The address as bound: `127.0.0.1:8080`, `/run/app.sock`.
    pub bound: String,
    /// Where it was asked for: `uwsgi.ini:3`, `command line`.
    pub origin: String,
    /// Milliseconds for which a peer may keep us waiting.
    pub timeout_ms: u64,
    /// `None`: what comes is not encrypted.
    pub tls: Option<Tls>,
    /// Of a listener of HTTP.
    pub http2: Http2,
    /// Its requests are sent to this port of HTTPS.
    pub redirects_to_https: Option<u16>,
    /// Each connection begins with a header that says who its client is.
    pub has_proxy_header: bool,
    /// True for TCP: its connections have an address worth asking for.
    pub is_tcp: bool,
    /// The master has bound it: it may be shut down for all processes. One that was handed to the master is others' too.
    pub is_ours: bool,
}

/// The peer: its address and port, which are empty strings for UNIX sockets, and what it has said within TLS.
#[derive(Debug, Default, Clone)]
pub struct Peer {
    pub address: String,
    pub port: String,
    /// There from the end of its handshake on.
    pub tls: Option<Arc<TlsFacts>>,
    /// The TLS of a client whose front server ends it, and says so in its PROXY header.
    pub front_tls: Option<Arc<FrontTls>>,
    pub origin: PeerOrigin,
}

/// The TLS of a client as a PROXY header describes it. Texts that it does not have are empty.
#[derive(Debug, PartialEq, Eq)]
pub struct FrontTls {
    /// As `TLSv1.3`.
    pub version: Vec<u8>,
    pub cipher: Vec<u8>,
    /// CN of the client's certificate.
    pub common_name: Vec<u8>,
    /// `NONE`, `SUCCESS` or `FAILED`, as mod_ssl has it: whether the client has shown a certificate, and a good one.
    pub client_verify: &'static str,
}

/// The way in which a peer has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum PeerOrigin {
    /// It was gone before it could be asked.
    #[default]
    Unknown,
    Unix,
    /// One of IPv4 that came through IPv6 is IPv4's.
    Address(IpAddr),
}

impl Peer {
    pub fn of(address: SocketAddr) -> Peer {
        let ip = address.ip().to_canonical();
        Peer { address: ip.to_string(), port: address.port().to_string(), origin: PeerOrigin::Address(ip), ..Peer::default() }
    }

    /// The peer of a connection that another worker had: its address, or none at a UNIX socket.
    pub fn moved(client: Option<SocketAddr>) -> Peer {
        client.map_or_else(|| Peer { origin: PeerOrigin::Unix, ..Peer::default() }, Peer::of)
    }

    /// The peer's name in the log.
    pub fn name(&self) -> &str {
        if self.address.is_empty() { "a local client" } else { &self.address }
    }
}

pub enum Accepted {
    Connection(OwnedFd, Peer),
    /// Nobody waits (any more).
    Nobody,
    /// No descriptor or no memory is left; the caller pauses.
    Exhausted(io::Error),
}

impl ListeningSocket {
    /// Clients themselves speak TLS here.
    pub fn is_https(&self) -> bool {
        self.protocol == Protocol::Http && self.tls.is_some()
    }

    /// A client may choose HTTP/2 here.
    pub fn speaks_http2(&self) -> bool {
        self.protocol == Protocol::Http
            && match self.http2 {
                Http2::Off => false,
                Http2::Tls => self.tls.is_some(),
                Http2::Everywhere => true,
            }
    }

    /// Somebody waits to be accepted.
    pub fn is_waited_at(&self) -> bool {
        let mut poll_fds = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        poll(&mut poll_fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Takes one connection. It is non-blocking; TCP_NODELAY comes from the listening socket, as Linux hands it on.
    pub fn accept(&self) -> Accepted {
        loop {
            match accept4(self.descriptor.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC) {
                Ok(descriptor) => {
                    return self.take(crate::sockets::socket::own(descriptor));
                }
                Err(Errno::EAGAIN) => return Accepted::Nobody,
                Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS)) => {
                    return Accepted::Exhausted(errno.into());
                }
                // accept(2): errors of the new connection itself are reported here, and mean "try the next".
                Err(Errno::EINTR | Errno::ECONNABORTED | Errno::EPROTO | Errno::EPERM) => {}
                Err(_) => return Accepted::Nobody,
            }
        }
    }
}

impl ListeningSocket {
    /// Takes a connection that came through this socket, whoever accepted it.
    pub fn take(&self, socket: OwnedFd) -> Accepted {
        match above_standard(socket) {
            Ok(socket) => {
                let peer = if self.is_tcp { peer_of(&socket) } else { Peer { origin: PeerOrigin::Unix, ..Peer::default() } };
                Accepted::Connection(socket, peer)
            }
            Err(error) => Accepted::Exhausted(error),
        }
    }

    /// Has new clients refused at once, in all processes that share the socket, and frees its address. Those that wait are reset.
    pub fn shut(&self) {
        if self.is_ours {
            // One that another process has shut before is shut.
            let _ = shutdown(self.descriptor.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// The inode of a socket.
///
/// # Errors
/// What `fstat` says.
pub fn inode_of(socket: &OwnedFd) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(socket)?.st_ino)
}

/// A socket never has the number of a standard stream, even where the application has closed that: what a library prints would go
/// to a client.
pub fn above_standard(socket: OwnedFd) -> io::Result<OwnedFd> {
    // The copy's number is above 2 by the library's word (F_DUPFD_CLOEXEC from 3 on).
    if socket.as_raw_fd() > 2 { Ok(socket) } else { socket.try_clone() }
}

fn peer_of(socket: &OwnedFd) -> Peer {
    let Ok(address) = getpeername::<SockaddrStorage>(socket.as_raw_fd()) else {
        return Peer::default();
    };
    if let Some(address) = address.as_sockaddr_in() {
        return Peer::of(SocketAddr::new(address.ip().into(), address.port()));
    }
    if let Some(address) = address.as_sockaddr_in6() {
        return Peer::of(SocketAddr::new(address.ip().into(), address.port()));
    }
    debug_assert!(address.family().is_some());
    Peer::default()
}
