//! The channel between the master and a process that it has forked: a SOCK_SEQPACKET pair. Orders of one byte come from the
//! master; reports go to it, packets of a byte for the kind and a text. Neither side ever waits. It does not know orders, and of
//! the reports only the line for the log. The master and its auxiliary processes run it.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

/// Maximum bytes of a packet.
const MAX_PACKET_BYTES: usize = 4096;
/// Maximum bytes of its text; the rest is cut off.
pub const MAX_TEXT_BYTES: usize = MAX_PACKET_BYTES - 1;
/// The kind of a line for the log, of every process.
const LINE: u8 = b't';

/// The master's end.
#[derive(Debug)]
pub struct ChildChannel(OwnedFd);

/// The other end, in the process that the master has forked.
#[derive(Debug)]
pub struct MasterChannel(OwnedFd);

/// What comes from the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromMaster {
    /// An order.
    Order(u8),
    /// The master is gone, and no order follows.
    Gone,
}

/// A report to the master.
#[derive(Debug, PartialEq, Eq)]
pub enum ChildReport<'a> {
    /// A line for the log.
    Line(Cow<'a, str>),
    /// A packet of another kind, with its text.
    Other(u8, &'a [u8]),
}

/// Makes a channel.
///
/// # Errors
/// No descriptor is left.
pub fn pair() -> io::Result<(ChildChannel, MasterChannel)> {
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    Ok((ChildChannel(near), MasterChannel(far)))
}

impl ChildChannel {
    /// Sends an order. A process that is gone needs none.
    ///
    /// # Errors
    /// The buffer, which holds hundreds of orders, is full.
    pub fn order(&self, order: u8) -> io::Result<()> {
        match send(self.0.as_raw_fd(), &[order], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes on the reports that have arrived, at most `most` of them, so that a talkative process does not delay other work.
    pub fn take_reports(&self, most: usize, mut take: impl FnMut(ChildReport<'_>)) {
        let mut packet = [0; MAX_PACKET_BYTES];
        for _ in 0..most {
            let Ok(length) = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) else { return };
            match packet[..length].split_first() {
                Some((&LINE, text)) => take(ChildReport::Line(String::from_utf8_lossy(text))),
                Some((kind, text)) => take(ChildReport::Other(*kind, text)),
                None => return,
            }
        }
    }
}

impl MasterChannel {
    /// Returns the next order, or the news that the master is gone.
    pub fn next(&self) -> Option<FromMaster> {
        let mut order = [0; 1];
        loop {
            return match recv(self.0.as_raw_fd(), &mut order, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::ECONNRESET) => Some(FromMaster::Gone),
                Ok(_) => Some(FromMaster::Order(order[0])),
                Err(Errno::EINTR) => continue,
                Err(_) => None,
            };
        }
    }

    /// Has the master write a line to the log. Returns false if it has no room for the report.
    pub fn say(&self, words: &str) -> bool {
        self.report(LINE, words.as_bytes())
    }

    /// Sends a report of another kind. Returns false if the master has no room for it.
    pub fn report(&self, kind: u8, text: &[u8]) -> bool {
        let packet = [&[kind], &text[..text.len().min(MAX_TEXT_BYTES)]].concat();
        send(self.0.as_raw_fd(), &packet, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_ok()
    }
}

impl AsFd for ChildChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for MasterChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reports_arrive_whole_and_the_end_of_either_side_is_seen() {
        let (near, far) = pair().expect("made");
        assert_eq!(far.next(), None);
        near.order(b'e').expect("sent");
        assert_eq!((far.next(), far.next()), (Some(FromMaster::Order(b'e')), None));
        assert!(far.say("a line") && far.report(b'w', &[b'x'; 10_000]) && far.say("not read in this turn"));
        let mut lengths = Vec::new();
        near.take_reports(2, |report| match report {
            ChildReport::Line(words) => lengths.push(words.len()),
            ChildReport::Other(kind, text) => lengths.extend([kind.into(), text.len()]),
        });
        assert_eq!(lengths, [6, b'w'.into(), MAX_TEXT_BYTES]);
        drop(near);
        // A process that another test forks has a copy of it until it executes its program.
        while far.say("no process reads it") {
            std::thread::yield_now();
        }
        let (near, far) = pair().expect("made");
        drop(near);
        assert_eq!(far.next(), Some(FromMaster::Gone));
        let (near, far) = pair().expect("made");
        drop(far);
        assert!(near.order(b'e').is_ok());
        near.take_reports(9, |report| panic!("{report:?}"));
    }
}
