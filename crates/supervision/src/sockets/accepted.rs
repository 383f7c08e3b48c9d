//! Open connections that another process has passed to the master. That process may be hostile: it says what it likes about a
//! descriptor, which may be anything. So the kernel is asked. Nothing is read from a connection, and no close waits. The master
//! runs it.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use bolide_contract::message::never_linger;
use nix::sys::socket::sockopt::{AcceptConn, SockType as SocketType};
use nix::sys::socket::{SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt};

/// Whether a descriptor is a stream connection with the local address of this listening socket.
pub fn came_through(listener: &OwnedFd, connection: &OwnedFd) -> bool {
    let is_stream = getsockopt(connection, SocketType) == Ok(SockType::Stream);
    let is_listening = getsockopt(connection, AcceptConn) != Ok(false);
    if !is_stream || is_listening {
        return false;
    }
    let name = |socket: &OwnedFd| getsockname::<SockaddrStorage>(socket.as_raw_fd());
    let (Ok(here), Ok(there)) = (name(listener), name(connection)) else { return false };
    match (of_internet(&here), of_internet(&there)) {
        (Some((wanted, port)), Some((found, found_port))) => {
            port == found_port && (wanted.is_unspecified() || wanted.to_canonical() == found.to_canonical())
        }
        (None, None) => here.family() == there.family() && here == there,
        _ => false,
    }
}

fn of_internet(name: &SockaddrStorage) -> Option<(IpAddr, u16)> {
    let of_version_4 = name.as_sockaddr_in().map(|name| (IpAddr::V4(name.ip()), name.port()));
    of_version_4.or_else(|| name.as_sockaddr_in6().map(|name| (IpAddr::V6(name.ip()), name.port())))
}

/// Closes a descriptor immediately. A process that has it too may have asked for a close that waits since it came (socket(7),
/// SO_LINGER).
pub fn close_at_once(descriptor: OwnedFd) {
    never_linger(&descriptor);
    drop(descriptor);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::setsockopt;
    use nix::sys::socket::sockopt::Linger;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Instant;

    #[test]
    fn only_connections_of_the_listening_socket_are_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let everywhere = TcpListener::bind("0.0.0.0:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        let port = everywhere.local_addr().expect("an address").port();
        let _second = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let (elsewhere, _) = everywhere.accept().expect("accepted");
        let datagrams = UdpSocket::bind(address).expect("bound");
        let file = std::fs::File::open("/dev/null").expect("open");
        let (listener, everywhere) = (OwnedFd::from(listener), OwnedFd::from(everywhere));
        assert!(came_through(&listener, &accepted.into()));
        assert!(came_through(&everywhere, &elsewhere.try_clone().expect("a copy").into()));
        for other in [client.into(), elsewhere.into(), datagrams.into(), file.into(), listener.try_clone().expect("a copy")] {
            assert!(!came_through(&listener, &other));
        }
    }

    #[test]
    fn connections_of_local_sockets_are_known_by_their_name() {
        let path = std::env::temp_dir().join(format!("bolide-accepted-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("bound");
        let client = UnixStream::connect(&path).expect("connected");
        std::fs::remove_file(&path).expect("removed");
        let (accepted, _) = listener.accept().expect("accepted");
        let (loose, _) = UnixStream::pair().expect("a pair");
        let listener = OwnedFd::from(listener);
        assert!(came_through(&listener, &accepted.into()));
        assert!(!came_through(&listener, &client.into()));
        assert!(!came_through(&listener, &loose.into()));
    }

    #[test]
    fn a_close_does_not_wait_for_a_peer_that_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (_silent, _) = listener.accept().expect("accepted");
        client.set_nonblocking(true).expect("set");
        while std::io::Write::write(&mut &client, &[0; 65536]).is_ok() {}
        client.set_nonblocking(false).expect("set");
        let client = OwnedFd::from(client);
        setsockopt(&client, Linger, &libc::linger { l_onoff: 1, l_linger: 30 }).expect("set");
        let began = Instant::now();
        close_at_once(client);
        assert!(began.elapsed().as_secs() < 20);
    }
}
