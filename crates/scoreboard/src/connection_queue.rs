//! The queue of open connections that need another worker: a SOCK_SEQPACKET pair shared by all workers of an instance. A worker
//! that can't serve an open connection at present puts it in, between two requests and with nothing read. Any worker with a free
//! thread takes it out.
//!
//! It does not decide when to do so. Workers use both ends; the master creates the pair, and keeps it while workers come and go.
//! While no worker can take connections out, the master does.
//!
//! A packet is [`PACKET_BYTES`] long, little-endian, and carries the connection's descriptor. A packet of [`WAKE`] alone carries
//! nothing and wakes a worker. Packets that this build would not write are refused.
//!
//! Each connection in the queue is a descriptor in flight. The kernel counts those of all processes of a user together, and
//! refuses others above the sender's RLIMIT_NOFILE (unix(7), ETOOMANYREFS). Orders of masters carry descriptors too. So the
//! queue has room for a small part of that limit ([`room`]), and several instances of a user leave room for the orders of each.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{ControlMessage, MsgFlags, recvmsg, send, sendmsg, setsockopt};

use bolide_contract::message::first_descriptor;
use bolide_contract::settings::Protocol;

/// Length of a packet in bytes.
pub const PACKET_BYTES: usize = 40;

/// The first byte of a packet. Builds with another layout have another version.
pub const VERSION: u8 = 2;

/// The packet of [`pass_wake_on`].
const WAKE: [u8; 2] = [VERSION, 0xff];

/// The most connections in the queue, and the part of the limit of open files that they may be.
const MAX_QUEUED: u64 = 64;
const QUEUED_PART: u64 = 8;

/// The most packets of [`pass_wake_on`] that are skipped for one connection: more than the queue has room for.
const MAX_WAKES: usize = 4096;

/// Bytes that the kernel counts for a packet: its data and the structures around it.
const COUNTED_BYTES: usize = 768;

const HAS_SERVED: u8 = 1;
const HAS_INPUT: u8 = 2;
const PROXY_HEADER_WAS_READ: u8 = 4;
const IS_SHARED: u8 = 8;
const FLAGS: u8 = HAS_SERVED | HAS_INPUT | PROXY_HEADER_WAS_READ | IS_SHARED;

/// The client's address; zeros if the client has none.
const CLIENT: Range<usize> = 3..22;

/// Reserved bytes, which must be zero.
const SPARE: Range<usize> = 22..24;

/// Protocols by their number in a packet.
const PROTOCOLS: [Protocol; 7] = [
    Protocol::Http,
    Protocol::Uwsgi,
    Protocol::PersistentUwsgi,
    Protocol::Scgi,
    Protocol::ScgiNph,
    Protocol::FastCgi,
    Protocol::FastCgiNph,
];

/// A connection on its way to another worker: all state that can't be read from its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedConnection {
    /// Inode of the listening socket that accepted it.
    pub listener: u64,
    pub protocol: Protocol,
    /// It has served a request.
    pub has_served: bool,
    /// Input of its next request can be read.
    pub has_input: bool,
    /// Its PROXY header has already been read.
    pub proxy_header_was_read: bool,
    /// Child processes of the application may have the socket open too: closing it does not end the connection.
    pub is_shared: bool,
    /// The client's address; `None` for a client without one, at a UNIX socket.
    pub client: Option<SocketAddr>,
    /// The end of its keep-alive time, in monotonic milliseconds.
    pub deadline_ms: u64,
}

/// The outcome of [`put`].
#[derive(Debug, PartialEq, Eq)]
pub enum Put {
    Done,
    /// The queue is full, or too many descriptors of this user are in flight (ETOOMANYREFS): the connection stays where it is.
    Full,
}

impl MovedConnection {
    /// Nothing has been read from it: the receiving worker treats it as a new connection.
    pub fn is_untouched(&self) -> bool {
        !self.has_served && !self.proxy_header_was_read
    }

    /// Encodes the connection as a packet.
    pub fn packet(&self) -> Option<[u8; PACKET_BYTES]> {
        let protocol = PROTOCOLS.iter().position(|protocol| *protocol == self.protocol)?;
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let mut packet = [0; PACKET_BYTES];
        packet[0] = VERSION;
        packet[1] = protocol as u8;
        packet[2] = flag(self.has_served, HAS_SERVED)
            | flag(self.has_input, HAS_INPUT)
            | flag(self.proxy_header_was_read, PROXY_HEADER_WAS_READ)
            | flag(self.is_shared, IS_SHARED);
        if let Some(client) = self.client {
            let (family, octets) = match client.ip() {
                IpAddr::V4(address) => (4, address.to_ipv6_mapped().octets()),
                IpAddr::V6(address) => (6, address.octets()),
            };
            packet[3] = family;
            packet[4..20].copy_from_slice(&octets);
            packet[20..22].copy_from_slice(&client.port().to_le_bytes());
        }
        packet[24..32].copy_from_slice(&self.listener.to_le_bytes());
        packet[32..40].copy_from_slice(&self.deadline_ms.to_le_bytes());
        Some(packet)
    }

    /// Decodes a packet. Returns `None` for a packet of another build.
    pub fn of(packet: &[u8; PACKET_BYTES]) -> Option<MovedConnection> {
        let [VERSION, protocol, flags, family, ..] = *packet else { return None };
        let is_zero = |bytes: Range<usize>| packet[bytes].iter().all(|byte| *byte == 0);
        if flags & !FLAGS != 0 || !is_zero(SPARE) {
            return None;
        }
        let octets: [u8; 16] = packet[4..20].try_into().ok()?;
        let address = Ipv6Addr::from(octets);
        let ip = match family {
            0 if is_zero(CLIENT) => None,
            4 => Some(IpAddr::V4(address.to_ipv4_mapped()?)),
            6 => Some(IpAddr::V6(address)),
            _ => return None,
        };
        let port = u16::from_le_bytes(packet[20..22].try_into().ok()?);
        Some(MovedConnection {
            listener: u64::from_le_bytes(packet[24..32].try_into().ok()?),
            protocol: *PROTOCOLS.get(usize::from(protocol))?,
            has_served: flags & HAS_SERVED != 0,
            has_input: flags & HAS_INPUT != 0,
            proxy_header_was_read: flags & PROXY_HEADER_WAS_READ != 0,
            is_shared: flags & IS_SHARED != 0,
            client: ip.map(|ip| SocketAddr::new(ip, port)),
            deadline_ms: u64::from_le_bytes(packet[32..40].try_into().ok()?),
        })
    }
}

/// Returns the name of a listening socket in packets, its inode: the same in all processes that share it.
///
/// # Errors
/// The error of fstat(2).
pub fn listener_id(socket: &OwnedFd) -> io::Result<u64> {
    Ok(nix::sys::stat::fstat(socket)?.st_ino)
}

/// Puts a connection into the queue. On [`Put::Done`] the caller closes its own descriptor of it.
///
/// # Errors
/// The other end is closed, or other errors of `sendmsg`.
pub fn put(queue: BorrowedFd<'_>, connection: &MovedConnection, socket: BorrowedFd<'_>) -> io::Result<Put> {
    let Some(packet) = connection.packet() else { return Ok(Put::Full) };
    let descriptors = [socket.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    loop {
        return match sendmsg::<()>(queue.as_raw_fd(), &[IoSlice::new(&packet)], &rights, flags, None) {
            Ok(_) => Ok(Put::Done),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::ETOOMANYREFS) => Ok(Put::Full),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Returns how many connections the queue may hold, if its processes may open this many files.
pub fn room(open_files: u64) -> usize {
    (open_files / QUEUED_PART).min(MAX_QUEUED) as usize
}

/// Limits the queue to about this many connections. The kernel allows at least six.
///
/// # Errors
/// Errors of `setsockopt`.
pub fn limit(put: BorrowedFd<'_>, connections: usize) -> io::Result<()> {
    // The kernel doubles the value (socket(7), SO_SNDBUF).
    Ok(setsockopt(&put, SndBuf, &(connections * COUNTED_BYTES / 2))?)
}

/// The outcome of [`take`].
#[derive(Debug)]
pub enum Taken {
    Connection(MovedConnection, OwnedFd),
    /// The queue is empty, or empty again.
    Nothing,
    /// This process has no free descriptor. The queue keeps its connections for another process.
    NoDescriptor,
    /// A packet arrived without its connection, because another thread opened the last free descriptors first.
    Lost,
}

/// Descriptors that must be free before a connection is taken: one for the connection, one for its copy above the standard
/// streams. The kernel drops a connection that finds none.
const FREE_DESCRIPTORS: usize = 2;

/// Whether this process could take a connection out of the queue.
pub fn has_free_descriptors(queue: BorrowedFd<'_>) -> bool {
    let copies = [(); FREE_DESCRIPTORS].map(|()| queue.try_clone_to_owned());
    copies.iter().all(Result::is_ok)
}

/// For a worker that does not wait for the queue any more, or has exited. The kernel wakes one worker for a connection
/// (EPOLLEXCLUSIVE, epoll_ctl(2)), and if it was this one, no other worker knows of what is in the queue. So another is woken.
pub fn pass_wake_on(put: BorrowedFd<'_>, take: BorrowedFd<'_>) {
    let mut ends = [PollFd::new(take, PollFlags::POLLIN)];
    if poll(&mut ends, PollTimeout::ZERO).is_ok_and(|count| count > 0) {
        // Connections that have filled the queue in the meantime have woken others, which take the first one first.
        let _ = send(put.as_raw_fd(), &WAKE, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
    }
}

/// Takes out the connection that has waited longest.
///
/// # Errors
/// Errors of `recvmsg`, or a packet of another build.
pub fn take(queue: BorrowedFd<'_>) -> io::Result<Taken> {
    if !has_free_descriptors(queue) {
        return Ok(Taken::NoDescriptor);
    }
    for _ in 0..MAX_WAKES {
        if let Some(taken) = take_packet(queue)? {
            return Ok(taken);
        }
    }
    Ok(Taken::Nothing)
}

/// Returns `None` for a packet that only wakes.
fn take_packet(queue: BorrowedFd<'_>) -> io::Result<Option<Taken>> {
    let mut packet = [0u8; PACKET_BYTES];
    let mut slices = [IoSliceMut::new(&mut packet)];
    let mut space = cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let (length, descriptor) = match recvmsg::<()>(queue.as_raw_fd(), &mut slices, Some(&mut space), flags) {
        Ok(received) => (received.bytes, first_descriptor(&received).unwrap_or(None)),
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Some(Taken::Nothing)),
        Err(errno) => return Err(errno.into()),
    };
    match (length, descriptor, MovedConnection::of(&packet)) {
        (0, ..) => Ok(Some(Taken::Nothing)),
        (length, None, _) if packet.get(..length) == Some(&WAKE) => Ok(None),
        (PACKET_BYTES, Some(socket), Some(connection)) => Ok(Some(Taken::Connection(connection, socket))),
        (PACKET_BYTES, None, Some(_)) => Ok(Some(Taken::Lost)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a connection arrived with a packet of another build")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const MOVED: MovedConnection = MovedConnection {
        listener: 1 << 40,
        protocol: Protocol::PersistentUwsgi,
        has_served: true,
        has_input: false,
        proxy_header_was_read: true,
        is_shared: false,
        client: None,
        deadline_ms: u64::MAX - 1,
    };

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("a socket pair")
    }

    #[test]
    fn a_connection_comes_out_as_it_went_in_and_goes_on() {
        let (near, far) = pair();
        let clients = ["127.0.0.1:80", "[2001:db8::1]:65535"].map(|address| Some(address.parse().expect("an address")));
        for client in clients.into_iter().chain([None]) {
            for (protocol, has_input) in PROTOCOLS.into_iter().zip([true, false].into_iter().cycle()) {
                let (mut here, there) = UnixStream::pair().expect("a pair");
                let moved =
                    MovedConnection { client, protocol, has_input, has_served: !has_input, is_shared: has_input, ..MOVED };
                assert_eq!(put(near.as_fd(), &moved, there.as_fd()).expect("sent"), Put::Done);
                drop(there);
                let Ok(Taken::Connection(got, socket)) = take(far.as_fd()) else { panic!("it did not arrive") };
                assert_eq!(got, moved);
                here.write_all(b"x").expect("open");
                let mut byte = [0];
                UnixStream::from(socket).read_exact(&mut byte).expect("it is the same one");
            }
        }
        assert!(matches!(take(far.as_fd()), Ok(Taken::Nothing)));
    }

    #[test]
    fn a_queue_that_is_full_leaves_a_connection_where_it_is() {
        let (near, far) = pair();
        let (_here, there) = UnixStream::pair().expect("a pair");
        let mut waiting = 0;
        while put(near.as_fd(), &MOVED, there.as_fd()).expect("open") == Put::Done {
            waiting += 1;
            assert!(waiting < 100_000, "the queue has no bound");
        }
        for _ in 0..waiting {
            assert!(matches!(take(far.as_fd()), Ok(Taken::Connection(..))));
        }
        assert!(matches!(take(far.as_fd()), Ok(Taken::Nothing)));
    }

    #[test]
    fn the_queue_has_room_for_a_part_of_the_files_that_may_be_open() {
        for (open_files, wanted) in [(40, 5), (200, 25), (1024, 64), (1 << 30, 64)] {
            assert_eq!(room(open_files), wanted);
        }
        let (near, _far) = pair();
        limit(near.as_fd(), room(1024)).expect("limited");
        let (_here, there) = UnixStream::pair().expect("a pair");
        let waiting = (0..1000).take_while(|_| put(near.as_fd(), &MOVED, there.as_fd()).expect("open") == Put::Done).count();
        assert!((32..=96).contains(&waiting), "{waiting} connections fit");
    }

    #[test]
    fn a_packet_that_this_build_would_not_write_is_refused() {
        let whole = MOVED.packet().expect("a protocol that is known");
        assert_eq!(MovedConnection::of(&whole), Some(MOVED));
        // Another version, protocol, flag, family; an address or a port without a family; a spare byte.
        for (place, byte) in [(0, 1), (1, 7), (2, 16), (3, 5), (4, 1), (21, 1), (22, 1), (23, 1)] {
            let mut packet = whole;
            packet[place] = byte;
            assert_eq!(MovedConnection::of(&packet), None, "byte {place} is {byte}");
        }
        let not_mapped = MovedConnection { client: Some(([1, 2, 3, 4], 80).into()), ..MOVED };
        let mut packet = not_mapped.packet().expect("a protocol that is known");
        packet[14] = 0;
        assert_eq!(MovedConnection::of(&packet), None);
    }

    #[test]
    fn a_worker_that_leaves_wakes_another_one_for_the_connection_that_it_was_woken_for() {
        let (near, far) = pair();
        let (_here, there) = UnixStream::pair().expect("a pair");
        let watch = || {
            let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("a poll");
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, 0);
            poll.add(&far, event).expect("added");
            poll
        };
        let (first, second) = (watch(), watch());
        let is_woken =
            |poll: &Epoll| poll.wait(&mut [EpollEvent::empty()], EpollTimeout::from(10_000u16)).expect("waited for") == 1;
        std::thread::scope(|scope| {
            let leaving = scope.spawn(|| is_woken(&first) && first.delete(&far).is_ok());
            let other = scope.spawn(|| is_woken(&second));
            put(near.as_fd(), &MOVED, there.as_fd()).expect("sent");
            assert!(leaving.join().expect("no panic"), "the first that waits is woken");
            pass_wake_on(near.as_fd(), far.as_fd());
            assert!(other.join().expect("no panic"), "the other one is woken");
        });
        assert!(matches!(take(far.as_fd()), Ok(Taken::Connection(MOVED, _))));
        assert!(matches!(take(far.as_fd()), Ok(Taken::Nothing)), "what only wakes is nothing to take");
    }

    #[test]
    fn a_worker_that_leaves_an_empty_queue_wakes_nobody() {
        let (near, far) = pair();
        pass_wake_on(near.as_fd(), far.as_fd());
        assert_eq!(poll(&mut [PollFd::new(far.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO), Ok(0));
    }

    #[test]
    fn a_packet_of_another_build_is_an_error_and_not_a_guess() {
        let (near, far) = pair();
        let (_here, there) = UnixStream::pair().expect("a pair");
        bolide_contract::message::send(near.as_fd(), &bolide_contract::message::Order::Retire, Some(there.as_raw_fd()))
            .expect("sent");
        assert!(take(far.as_fd()).is_err());
    }
}
