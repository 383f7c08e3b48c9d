//! The queue of open connections that need a worker, as the master has it: it keeps both ends while workers come and go. While no
//! worker can take connections out, the master takes them, holds them, and puts them back for the next worker that can. So a
//! killed worker does not lose idle connections, and no descriptors stay in flight, which would keep the user's masters from
//! forking.
//!
//! The workers may be hostile. So the master holds a bounded number of connections, only those of its own listening sockets, for
//! a bounded time. It does not read bytes of them. The master runs it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use bolide_contract::message::order_pair;
use bolide_contract::succession::HandedQueue;
use bolide_scoreboard::connection_queue::{self, MovedConnection, Put, Taken, VERSION, listener_id};
use bolide_supervision::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::process_attributes::open_files_limit;
use bolide_supervision::sockets::accepted::{came_through, close_at_once};
use bolide_supervision::sockets::listeners::Listeners;
use bolide_supervision::text::{counted, duration};

use crate::owner::ConnectionMove;
use crate::token::Token;

/// The most connections that the master holds.
const MAX_HELD: usize = 4096;

/// The part of the limit of open files that the master leaves free for itself, and the least number.
const RESERVED_PART: u64 = 8;
const MIN_RESERVED: u64 = 16;

/// The longest time for which a connection is held, in milliseconds.
const HELD_MS: u64 = 300_000;

/// Packets taken in a turn of the master.
const MAX_TAKEN_TURN: usize = 256;

/// Milliseconds after which the master looks again whether a worker can take what it holds.
pub const LOOK_MS: u64 = 10;

/// The queue, and what the master holds of it.
#[derive(Debug)]
pub struct ConnectionQueue {
    put: OwnedFd,
    take: OwnedFd,
    held: VecDeque<HeldConnection>,
    /// No descriptor is left for another connection.
    is_full: bool,
}

#[derive(Debug)]
struct HeldConnection {
    moved: MovedConnection,
    socket: OwnedFd,
    since_ms: u64,
}

impl ConnectionQueue {
    /// Creates a queue with room for a part of the open files that the processes may have.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<ConnectionQueue> {
        let (put, take) = order_pair()?;
        connection_queue::limit(put.as_fd(), connection_queue::room(open_files_limit()))?;
        Ok(ConnectionQueue::of(put, take))
    }

    /// The queue of the previous master, whose workers use it too. `None` if it was built with other packets.
    pub fn handed((queue, put, take): (HandedQueue, OwnedFd, OwnedFd)) -> Option<ConnectionQueue> {
        (queue.version == VERSION).then(|| ConnectionQueue::of(put, take))
    }

    fn of(put: OwnedFd, take: OwnedFd) -> ConnectionQueue {
        ConnectionQueue { put, take, held: VecDeque::new(), is_full: false }
    }

    /// The ends to put into and to take from, as processes inherit them.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.put.as_raw_fd(), self.take.as_raw_fd()]
    }

    /// The record for the next master.
    pub fn to_hand(&self) -> HandedQueue {
        let [put, take] = self.descriptors();
        HandedQueue { put, take, version: VERSION }
    }

    /// The number of connections that the master holds.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The end that the master waits on for such a move, if it is possible.
    pub fn source(&self, of: ConnectionMove) -> Option<Source<'_, Token>> {
        match of {
            ConnectionMove::Take if !self.is_full => Some(Source::readable(Token::Connections, self.take.as_fd())),
            ConnectionMove::Give if !self.held.is_empty() => Some(Source::writable(Token::Connections, self.put.as_fd())),
            ConnectionMove::None | ConnectionMove::Take | ConnectionMove::Give => None,
        }
    }

    /// Wakes a worker for what is in the queue, instead of one that has exited.
    pub fn pass_wake_on(&self) {
        connection_queue::pass_wake_on(self.put.as_fd(), self.take.as_fd());
    }

    /// Takes out what waits in the queue. `listeners` are the sockets that workers listen on.
    pub fn take(&mut self, listeners: &[&Listeners], now_ms: u64) {
        for _ in 0..MAX_TAKEN_TURN {
            self.is_full = !self.has_room();
            if self.is_full {
                return;
            }
            match connection_queue::take(self.take.as_fd()) {
                Ok(Taken::Connection(moved, socket)) if is_own(&moved, &socket, listeners) => {
                    self.held.push_back(HeldConnection { moved, socket, since_ms: now_ms });
                }
                Ok(Taken::Connection(_, socket)) => close_at_once(socket),
                Ok(Taken::Nothing) => return,
                Ok(Taken::NoDescriptor) => {
                    self.is_full = true;
                    return;
                }
                // The sender's packet is not a connection. The next one may be.
                Ok(Taken::Lost) | Err(_) => {}
            }
        }
    }

    fn has_room(&self) -> bool {
        let limit = open_files_limit();
        let most = limit.saturating_sub((limit / RESERVED_PART).max(MIN_RESERVED));
        // The kernel gives out the lowest free number.
        let next = self.take.try_clone().map(|copy| copy.as_raw_fd().unsigned_abs());
        self.held.len() < MAX_HELD && next.is_ok_and(|number| u64::from(number) < most)
    }

    /// Puts back what is held, as far as there is room.
    pub fn give(&mut self, now_ms: u64) {
        while let Some(HeldConnection { moved, socket, since_ms }) = self.held.front() {
            // The time that a connection has waited here does not count against its client.
            let deadline_ms = moved.deadline_ms.saturating_add(now_ms.saturating_sub(*since_ms));
            match connection_queue::put(self.put.as_fd(), &MovedConnection { deadline_ms, ..*moved }, socket.as_fd()) {
                Ok(Put::Done) => drop(self.held.pop_front()),
                Ok(Put::Full) => break,
                Err(error) => {
                    log_sink::line(&format!("connections of a killed worker can't be handed on: {error}"));
                    return self.close_all();
                }
            }
            self.is_full = false;
        }
    }

    /// Closes connections that no worker has taken in time.
    pub fn close_late(&mut self, now_ms: u64) {
        let is_late = |held: &HeldConnection| now_ms.saturating_sub(held.since_ms) >= HELD_MS;
        let late = self.held.iter().take_while(|held| is_late(held)).count();
        if late > 0 {
            let (connections, most) = (counted(late as u64, "connection"), duration(HELD_MS));
            log_sink::line(&format!("closing {connections}: no worker could take them within {most}"));
            self.held.drain(..late).for_each(|held| close_at_once(held.socket));
            self.is_full = false;
        }
    }

    /// Closes everything that is held: no worker follows.
    pub fn close_all(&mut self) {
        self.held.drain(..).for_each(|held| close_at_once(held.socket));
        self.is_full = false;
    }
}

/// The packet names a listening socket of this instance, and the descriptor is a connection of it.
fn is_own(moved: &MovedConnection, socket: &OwnedFd, listeners: &[&Listeners]) -> bool {
    let mut sockets = listeners.iter().flat_map(|listeners| listeners.sockets());
    sockets.any(|listener| listener_id(listener).is_ok_and(|inode| inode == moved.listener) && came_through(listener, socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::settings::Protocol;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    fn moved(listener: u64) -> MovedConnection {
        MovedConnection {
            listener,
            protocol: Protocol::Http,
            has_served: true,
            has_input: false,
            proxy_header_was_read: false,
            is_shared: false,
            client: None,
            deadline_ms: 1_000,
        }
    }

    #[test]
    fn own_connections_are_held_and_put_back_and_others_are_closed() {
        let settings = bolide_supervision::testing::settings();
        let listeners = Listeners::bind(&settings.listeners, Vec::new(), None).expect("bound");
        let inode = listener_id(&listeners.sockets()[0]).expect("an inode");
        let _client = TcpStream::connect(&listeners.descriptors()[0].bound).expect("connected");
        let listener = TcpListener::from(listeners.sockets()[0].try_clone().expect("a copy"));
        listener.set_nonblocking(false).expect("set");
        let (waiting, _) = listener.accept().expect("accepted");
        let mut queue = ConnectionQueue::new().expect("made");
        let (_here, there) = UnixStream::pair().expect("a pair");
        for (listener, socket) in [(inode, waiting.as_fd()), (inode, there.as_fd()), (inode + 1, waiting.as_fd())] {
            assert_eq!(connection_queue::put(queue.put.as_fd(), &moved(listener), socket).expect("sent"), Put::Done);
        }
        queue.take(&[&listeners], 10_000);
        assert_eq!(queue.held(), 1);
        queue.give(10_500);
        assert_eq!(queue.held(), 0);
        let Ok(Taken::Connection(got, _)) = connection_queue::take(queue.take.as_fd()) else { panic!("it is not there") };
        assert_eq!(got, MovedConnection { deadline_ms: 1_500, ..moved(inode) });
        queue.take(&[&listeners], 10_000);
        assert_eq!(queue.held(), 0);
    }
}
