//! A listening socket as a worker sees it: inherited, shared with the other workers, and accepted from. It does not know about
//! requests. Workers run it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use bolide_contract::settings::Protocol;
use bolide_contract::tls::{Http2, Tls};
use bolide_routes::Network;
use bolide_tls::TlsFacts;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, getpeername, shutdown};

use crate::sockets::socket;

/// One of the sockets that the master has passed on.
#[derive(Debug)]
pub struct ListeningSocket {
    pub descriptor: OwnedFd,
    /// The inode of its socket, the same in all processes that share it.
    pub inode: u64,
    pub protocol: Protocol,
    /// SERVER_NAME and SERVER_PORT of requests that come through it.
    pub server_name: String,
    pub server_port: String,
    /// The address as bound: `127.0.0.1:8080`, `/run/app.sock`.
    pub bound: String,
    /// The place of its configuration: `uwsgi.ini:3`, `command line`.
    pub origin: String,
    /// The longest time that a peer may keep the worker waiting, in milliseconds.
    pub timeout_ms: u64,
    /// `None`: connections are not encrypted.
    pub tls: Option<Tls>,
    /// For listeners of HTTP.
    pub http2: Http2,
    /// Its requests are redirected to this port of HTTPS.
    pub redirects_to_https: Option<u16>,
    /// Each connection begins with a PROXY header, which contains the client's address.
    pub has_proxy_header: bool,
    /// A peer that may send the header may also leave it out, and is the client then.
    pub may_lack_proxy_header: bool,
    /// True for TCP, whose connections have a peer address.
    pub is_tcp: bool,
    /// The master has bound it, so it may be shut down for all processes. A socket that was handed to the master belongs to other
    /// programs too.
    pub is_ours: bool,
}

/// The peer: its address and port, which are empty strings for UNIX sockets, and its TLS.
#[derive(Debug, Default, Clone)]
pub struct Peer {
    pub address: String,
    pub port: String,
    /// Present from the end of its handshake on.
    pub tls: Option<Arc<TlsFacts>>,
    /// The TLS of a client whose reverse proxy terminates it, as the PROXY header says.
    pub front_tls: Option<Arc<FrontTls>>,
    pub origin: PeerOrigin,
}

/// The TLS of a client as a PROXY header describes it. Texts that the header does not have are empty.
#[derive(Debug, PartialEq, Eq)]
pub struct FrontTls {
    /// For example `TLSv1.3`.
    pub version: Vec<u8>,
    pub cipher: Vec<u8>,
    /// CN of the client's certificate.
    pub common_name: Vec<u8>,
    /// `NONE`, `SUCCESS` or `FAILED`, as in mod_ssl: whether the client has sent a certificate, and a valid one.
    pub client_verify: &'static str,
}

/// The kind of socket that a peer came through.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum PeerOrigin {
    /// It was gone before its address could be read.
    #[default]
    Unknown,
    Unix,
    /// An IPv4-mapped IPv6 address is stored as the IPv4 address.
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

    /// The network that it stands for, by which it is counted: of IPv6 the /64. Empty without an address.
    #[inline]
    pub fn network(&self) -> Network<'_> {
        match self.origin {
            PeerOrigin::Address(IpAddr::V6(address)) => address.into(),
            _ => Network::Text(self.address.as_bytes().into()),
        }
    }

    /// The peer's name in the log.
    pub fn name(&self) -> &str {
        if self.address.is_empty() { "a local client" } else { &self.address }
    }
}

pub enum Accepted {
    Connection(OwnedFd, Peer),
    /// No connection is waiting (any more).
    Nothing,
    /// No file descriptor or no memory is left; the caller pauses.
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

    /// Requests can be seen here without reading them: they begin with the first byte, as HTTP/1 in the clear.
    pub fn shows_requests(&self) -> bool {
        self.protocol == Protocol::Http && self.tls.is_none() && !self.speaks_http2() && !self.has_proxy_header
    }

    /// Whether a connection is waiting to be accepted.
    pub fn has_pending_connection(&self) -> bool {
        let mut poll_fds = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        poll(&mut poll_fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Accepts one connection.
    pub fn accept(&self) -> Accepted {
        loop {
            match socket::accept(self.descriptor.as_fd()) {
                Ok((socket, address)) => return self.enter(socket, |_| address),
                Err(Errno::EAGAIN) => return Accepted::Nothing,
                Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS)) => {
                    return Accepted::Exhausted(errno.into());
                }
                // accept(2): errors of the new connection itself are reported here, and mean "try the next".
                Err(Errno::EINTR | Errno::ECONNABORTED | Errno::EPROTO | Errno::EPERM) => {}
                Err(_) => return Accepted::Nothing,
            }
        }
    }
}

impl ListeningSocket {
    /// Takes a connection that any process has accepted from this socket.
    pub fn take(&self, socket: OwnedFd) -> Accepted {
        self.enter(socket, |socket| getpeername(socket.as_raw_fd()).ok().as_ref().and_then(socket::of_tcp))
    }

    fn enter(&self, socket: OwnedFd, address: impl FnOnce(&OwnedFd) -> Option<SocketAddr>) -> Accepted {
        match above_standard(socket) {
            Ok(socket) => {
                let peer = match self.is_tcp {
                    true => address(&socket).map(Peer::of).unwrap_or_default(),
                    false => Peer { origin: PeerOrigin::Unix, ..Peer::default() },
                };
                Accepted::Connection(socket, peer)
            }
            Err(error) => Accepted::Exhausted(error),
        }
    }

    /// Refuses new clients immediately, in all processes that share the socket, and frees its address. Waiting clients are reset.
    pub fn shut(&self) {
        if self.is_ours {
            // It fails if another process has shut the socket down before, which has the same result.
            let _ = shutdown(self.descriptor.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// Moves a socket above the numbers of the standard streams, even if the application has closed those: otherwise a client would
/// get the output that a library prints.
pub fn above_standard(socket: OwnedFd) -> io::Result<OwnedFd> {
    // `try_clone` guarantees that the copy's number is above 2 (F_DUPFD_CLOEXEC from 3 on).
    if socket.as_raw_fd() > 2 { Ok(socket) } else { socket.try_clone() }
}
