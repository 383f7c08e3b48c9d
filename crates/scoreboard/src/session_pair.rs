//! Connections that move to the worker that has their session (`sticky`): each worker has a SOCK_SEQPACKET pair of its own.
//! Another worker that has read the head of a request puts the connection in with everything that it has read and not answered,
//! and the owner begins again from those bytes. A request on a connection that can't move comes with one end of a socket pair
//! instead, and is relayed over it.
//!
//! It does not decide which worker owns a session. Workers use both ends; the master creates the pairs, keeps them while workers
//! come and go, and never reads from them.
//!
//! A packet is [`HEAD_BYTES`] long, little-endian. The facts of a relay and the input follow. It carries the connection's
//! descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, setsockopt, socketpair};

use crate::connection_queue::{MovedConnection, PACKET_BYTES, Put, has_free_descriptors};
use bolide_contract::message::first_descriptor;

/// The most input that moves with a connection, in bytes: what one read takes at most.
pub const MAX_INPUT_BYTES: usize = 64 * 1024;

/// The most moves of a connection in a second. A client that alternates between sessions is served where it is then.
pub const MAX_MOVES_PER_SECOND: u8 = 64;

/// Length of a packet without the input, in bytes.
const HEAD_BYTES: usize = PACKET_BYTES + 20;

/// Bytes that the kernel counts in a pair before it is full, which is about as many connections as the queue has room for. The
/// kernel takes one packet more, of any length.
const PAIR_BYTES: usize = 96 * 1024;

/// The moves of a connection within a second of the monotonic clock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    second: u32,
    count: u8,
}

impl Moves {
    /// Counts a move; `None` if there were [`MAX_MOVES_PER_SECOND`] in this second.
    pub fn next(self, now_ms: u64) -> Option<Moves> {
        let second = (now_ms / 1000) as u32;
        let count = if second == self.second { self.count } else { 0 };
        (count < MAX_MOVES_PER_SECOND).then_some(Moves { second, count: count + 1 })
    }
}

/// A connection on its way to the worker that has its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionMove {
    pub connection: MovedConnection,
    pub moves: Moves,
    /// When the first byte of the input was read, in microseconds since 1970; 0 if nothing needs it.
    pub arrived_us: u64,
    /// `None`: the connection is the client's own.
    pub relay: Option<RelayedHttp>,
}

/// The protocol that a client speaks whose request is relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayedHttp {
    Http1 = 1,
    Http2 = 2,
}

/// The bytes that come with a connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SessionBytes<'a> {
    /// Facts about the client of a relay, whose format the workers know.
    pub facts: &'a [u8],
    pub input: &'a [u8],
}

/// Both ends of a worker's pair.
#[derive(Debug)]
pub struct SessionPair {
    pub put: OwnedFd,
    pub take: OwnedFd,
}

impl SessionPair {
    /// Makes a pair. The master calls it.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<SessionPair> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (put, take) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        // The kernel doubles the value (socket(7), SO_SNDBUF).
        setsockopt(&put, SndBuf, &(PAIR_BYTES / 2))?;
        Ok(SessionPair { put, take })
    }

    /// Puts a connection in, with what belongs to it. On [`Put::Done`] the caller closes its own descriptor of it.
    ///
    /// # Errors
    /// The other end is closed, or other errors of `sendmsg`.
    pub fn put(&self, moved: &SessionMove, socket: BorrowedFd<'_>, bytes: SessionBytes<'_>) -> io::Result<Put> {
        let SessionBytes { facts, input } = bytes;
        let fits = facts.len() + input.len() <= MAX_INPUT_BYTES;
        let Some(head) = moved.head(facts.len()).filter(|_| fits) else { return Ok(Put::Full) };
        let descriptors = [socket.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let slices = [IoSlice::new(&head), IoSlice::new(facts), IoSlice::new(input)];
        loop {
            return match sendmsg::<()>(self.put.as_raw_fd(), &slices, &rights, flags, None) {
                Ok(_) => Ok(Put::Done),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::ETOOMANYREFS | Errno::EMSGSIZE) => Ok(Put::Full),
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Takes out the connection that has waited longest. `buffer` is the caller's, for any number of calls: clearing so much
    /// memory would cost as much as all the rest.
    ///
    /// # Errors
    /// Errors of `recvmsg`, or a packet that this build would not write.
    pub fn take(&self, buffer: &mut Vec<u8>) -> io::Result<TakenSession> {
        if !has_free_descriptors(self.take.as_fd()) {
            return Ok(TakenSession::NoDescriptor);
        }
        let mut head = [0u8; HEAD_BYTES];
        buffer.resize(MAX_INPUT_BYTES, 0);
        let mut slices = [IoSliceMut::new(&mut head), IoSliceMut::new(buffer)];
        let mut space = cmsg_space!([RawFd; 1]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let (length, socket) = match recvmsg::<()>(self.take.as_raw_fd(), &mut slices, Some(&mut space), flags) {
            Ok(received) => (received.bytes, first_descriptor(&received).unwrap_or(None)),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(TakenSession::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        match (length.checked_sub(HEAD_BYTES), socket, SessionMove::of(&head)) {
            (None, ..) if length == 0 => Ok(TakenSession::Nothing),
            (Some(length), Some(socket), Some((moved, facts_bytes))) if facts_bytes <= length => {
                let (facts, input) = buffer[..length].split_at(facts_bytes);
                let (facts, input) = (facts.to_vec(), input.to_vec());
                Ok(TakenSession::Connection(Box::new(ArrivedSession { moved, socket, facts, input })))
            }
            (Some(_), None, Some(_)) => Ok(TakenSession::Lost),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a connection of a session arrived with a packet of another build",
            )),
        }
    }
}

/// The outcome of [`SessionPair::take`].
#[derive(Debug)]
pub enum TakenSession {
    Connection(Box<ArrivedSession>),
    /// The pair is empty, or empty again.
    Nothing,
    /// This process has no free descriptor. The pair keeps its connections.
    NoDescriptor,
    /// A packet arrived without its connection, because another thread opened the last free descriptors first.
    Lost,
}

/// A connection that was taken out, with the bytes that came with it.
#[derive(Debug)]
pub struct ArrivedSession {
    pub moved: SessionMove,
    pub socket: OwnedFd,
    pub facts: Vec<u8>,
    pub input: Vec<u8>,
}

impl SessionMove {
    fn head(&self, facts_bytes: usize) -> Option<[u8; HEAD_BYTES]> {
        let mut head = [0; HEAD_BYTES];
        head[..PACKET_BYTES].copy_from_slice(&self.connection.packet()?);
        head[40..44].copy_from_slice(&self.moves.second.to_le_bytes());
        head[44] = self.moves.count;
        head[45] = self.relay.map_or(0, |relay| relay as u8);
        head[48..56].copy_from_slice(&self.arrived_us.to_le_bytes());
        head[56..60].copy_from_slice(&u32::try_from(facts_bytes).ok()?.to_le_bytes());
        Some(head)
    }

    /// Also returns the number of bytes of the facts.
    fn of(head: &[u8; HEAD_BYTES]) -> Option<(SessionMove, usize)> {
        let connection = MovedConnection::of(head[..PACKET_BYTES].try_into().ok()?)?;
        let moves = Moves { second: u32::from_le_bytes(head[40..44].try_into().ok()?), count: head[44] };
        let relay = match head[45] {
            0 => None,
            1 => Some(RelayedHttp::Http1),
            2 => Some(RelayedHttp::Http2),
            _ => return None,
        };
        let is_ours = head[46..48] == [0; 2] && moves.count <= MAX_MOVES_PER_SECOND;
        let arrived_us = u64::from_le_bytes(head[48..56].try_into().ok()?);
        let facts_bytes = u32::from_le_bytes(head[56..60].try_into().ok()?) as usize;
        is_ours.then_some((SessionMove { connection, moves, arrived_us, relay }, facts_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::settings::Protocol;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const MOVED: SessionMove = SessionMove {
        connection: MovedConnection {
            listener: 17,
            protocol: Protocol::Http,
            has_served: true,
            has_input: true,
            proxy_header_was_read: true,
            is_shared: false,
            client: None,
            deadline_ms: 99,
        },
        moves: Moves { second: 5, count: 64 },
        arrived_us: u64::MAX,
        relay: Some(RelayedHttp::Http2),
    };

    fn with(input: &[u8]) -> SessionBytes<'_> {
        SessionBytes { facts: b"facts", input }
    }

    #[test]
    fn a_connection_arrives_with_its_input_up_to_the_limit() {
        let pair = SessionPair::new().expect("made");
        for length in [0, 1, 1000, MAX_INPUT_BYTES - 5] {
            let (mut here, there) = UnixStream::pair().expect("a pair");
            let input: Vec<u8> = (0..length).map(|place| place as u8).collect();
            assert_eq!(pair.put(&MOVED, there.as_fd(), with(&input)).expect("sent"), Put::Done, "{length} bytes");
            drop(there);
            let Ok(TakenSession::Connection(arrived)) = pair.take(&mut Vec::new()) else { panic!("it did not arrive") };
            assert_eq!((arrived.moved, arrived.input == input, &arrived.facts[..]), (MOVED, true, &b"facts"[..]));
            here.write_all(b"x").expect("open");
            UnixStream::from(arrived.socket).read_exact(&mut [0]).expect("it is the same one");
        }
        let (_here, there) = UnixStream::pair().expect("a pair");
        assert_eq!(pair.put(&MOVED, there.as_fd(), with(&vec![0; MAX_INPUT_BYTES - 4])).expect("open"), Put::Full);
        assert!(matches!(pair.take(&mut Vec::new()), Ok(TakenSession::Nothing)));
    }

    #[test]
    fn a_pair_has_room_for_about_as_many_connections_as_the_queue() {
        let pair = SessionPair::new().expect("made");
        let (_here, there) = UnixStream::pair().expect("a pair");
        let count = |input: &[u8]| {
            let waiting =
                (0..1000).take_while(|_| pair.put(&MOVED, there.as_fd(), with(input)).expect("open") == Put::Done).count();
            for _ in 0..waiting {
                assert!(matches!(pair.take(&mut Vec::new()), Ok(TakenSession::Connection(..))));
            }
            waiting
        };
        let (small, large) = (count(&[0; 300]), count(&vec![0; MAX_INPUT_BYTES - 5]));
        assert!((32..=96).contains(&small), "{small} connections fit");
        assert!((1..=3).contains(&large), "{large} large ones fit");
    }

    #[test]
    fn moves_are_counted_within_a_second() {
        let mut moves = Moves::default();
        for _ in 0..MAX_MOVES_PER_SECOND {
            moves = moves.next(5_999).expect("below the limit");
        }
        assert_eq!(moves.next(5_000), None);
        assert_eq!(moves.next(6_000), Some(Moves { second: 6, count: 1 }));
    }

    #[test]
    fn a_packet_that_this_build_would_not_write_is_refused() {
        let head = MOVED.head(7).expect("a protocol that is known");
        assert_eq!(SessionMove::of(&head), Some((MOVED, 7)));
        for (place, byte) in [(0, 9), (44, 65), (45, 3), (46, 1), (47, 1)] {
            let mut other = head;
            other[place] = byte;
            assert_eq!(SessionMove::of(&other), None, "byte {place} is {byte}");
        }
    }
}
