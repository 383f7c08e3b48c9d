//! A connection within TLS that an application has taken over: the application has one end of a pair of sockets, and what it says there leaves
//! as records, while what its client's records hold comes to it as it is.
//!
//! It knows no protocol and waits for nothing: the thread that looks after taken connections runs it when there is news. Neither side is read
//! while the other takes nothing, so a bridge holds a read of plaintext and a write of records at the most.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::poll::PollFlags;

use crate::sockets::socket::{self, Read, Written};
use crate::sockets::tls::{SEALED_BYTES, TlsStream, with_workbench};

/// Bytes that are read at once, from either side.
const CARRIED_BYTES: usize = SEALED_BYTES;

/// Reads of each side before other bridges have their turn.
const READS_MOST: usize = 4;

/// How long the last records may wait for a client that takes nothing, once the application has closed, in milliseconds.
const LAST_RECORDS_MS: u64 = 30_000;

/// A descriptor, and what the poll is to tell of it.
type Interest<'a> = Option<(BorrowedFd<'a>, PollFlags)>;

/// How far one of the two ways has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Nothing more comes in; what came is still to be handed on.
    Ending,
    Over,
}

pub struct TlsBridge {
    id: u64,
    /// The client's, which the connection's call refers to as well.
    socket: Arc<OwnedFd>,
    tls: Box<TlsStream>,
    /// Ours of the pair.
    inner: OwnedFd,
    /// What the client said and the application has not taken, and how much of it it has.
    heard: Vec<u8>,
    handed: usize,
    to_application: Way,
    to_client: Way,
    /// When the application closed, in monotonic milliseconds.
    closed_ms: u64,
    /// What the application has written was not all read.
    has_unread: bool,
    is_broken: bool,
}

impl TlsBridge {
    pub fn new(id: u64, socket: Arc<OwnedFd>, tls: Box<TlsStream>, inner: OwnedFd) -> TlsBridge {
        TlsBridge {
            id,
            socket,
            tls,
            inner,
            heard: Vec::new(),
            handed: 0,
            to_application: Way::Open,
            to_client: Way::Open,
            closed_ms: 0,
            has_unread: false,
            is_broken: false,
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// The application is to hear nothing more of its client, as if that had left.
    pub fn end_input(&mut self) {
        if self.to_application == Way::Open {
            self.to_application = Way::Ending;
        }
    }

    /// Both ends are done with.
    pub fn is_over(&self) -> bool {
        self.is_broken || self.to_client == Way::Over
    }

    /// Something that the application has said has not left.
    pub fn is_behind(&self) -> bool {
        self.has_unread || self.tls.unsent() > 0
    }

    /// There is something to carry of which no poll tells.
    pub fn has_more(&self) -> bool {
        self.tls.has_more() && self.may_hear()
    }

    fn may_hear(&self) -> bool {
        self.to_application == Way::Open && self.heard.is_empty()
    }

    fn may_say(&self) -> bool {
        self.to_client == Way::Open && self.tls.unsent() == 0
    }

    /// What the poll is to tell: of the client's socket, and of the application's end. One of which nothing is wanted is left out, since its
    /// hang-up would be told without end.
    pub fn interest(&self) -> [Interest<'_>; 2] {
        let mut outer = PollFlags::empty();
        outer.set(PollFlags::POLLIN, self.may_hear());
        outer.set(PollFlags::POLLOUT, self.tls.unsent() > 0);
        let mut inner = PollFlags::empty();
        inner.set(PollFlags::POLLIN, self.may_say());
        inner.set(PollFlags::POLLOUT, !self.heard.is_empty());
        [(self.socket.as_fd(), outer), (self.inner.as_fd(), inner)]
            .map(|(descriptor, wanted)| (!wanted.is_empty()).then_some((descriptor, wanted)))
    }

    /// Carries what there is, either way. The buffer is the thread's.
    pub fn carry(&mut self, now_ms: u64, buffer: &mut Vec<u8>) {
        buffer.resize(CARRIED_BYTES, 0);
        self.hand_on();
        self.hear(buffer);
        self.flush();
        self.say(now_ms, buffer);
        if self.to_client == Way::Ending && (self.tls.unsent() == 0 || now_ms >= self.closed_ms + LAST_RECORDS_MS) {
            self.to_client = Way::Over;
        }
        if self.is_over() {
            socket::end(self.socket.as_fd());
        }
    }

    /// From the client to the application.
    fn hear(&mut self, buffer: &mut [u8]) {
        for _ in 0..READS_MOST {
            if !self.may_hear() || self.is_broken {
                break;
            }
            match self.tls.read(self.socket.as_fd(), buffer) {
                Read::Bytes(count) => {
                    self.heard.extend_from_slice(&buffer[..count]);
                    self.hand_on();
                }
                Read::Nothing => break,
                // A client that left without a word (RFC 8446 section 6.1) has sent what came before all the same.
                Read::End | Read::Broken => self.to_application = Way::Ending,
            }
        }
        self.hand_on();
    }

    fn hand_on(&mut self) {
        while self.handed < self.heard.len() {
            match socket::write(self.inner.as_fd(), &self.heard[self.handed..], &[]) {
                Written::Bytes(count) => self.handed += count,
                Written::Full => return,
                // The application reads no more; it may still have something to say.
                Written::Broken => {
                    self.to_application = Way::Over;
                    break;
                }
            }
        }
        self.heard = Vec::new();
        self.handed = 0;
        if self.to_application == Way::Ending {
            self.to_application = Way::Over;
            socket::end_sending(self.inner.as_fd());
        }
    }

    /// From the application to the client.
    fn say(&mut self, now_ms: u64, buffer: &mut [u8]) {
        self.has_unread = false;
        for _ in 0..READS_MOST {
            if !self.may_say() || self.is_broken {
                self.has_unread = self.to_client == Way::Open;
                return;
            }
            match socket::read(self.inner.as_fd(), buffer) {
                Read::Bytes(count) => self.seal(&buffer[..count]),
                Read::Nothing => return,
                // One that closes over what it has not read breaks its end, and has said all that it had to say.
                Read::End | Read::Broken => self.say_goodbye(now_ms),
            }
        }
        self.has_unread = self.to_client == Way::Open;
    }

    fn seal(&mut self, plain: &[u8]) {
        let (tls, socket) = (&mut self.tls, &self.socket);
        let has_left = with_workbench(|bench| {
            bench.begin();
            tls.seal(plain, bench).is_ok() && tls.write_sealed(bench, socket.as_fd(), false) != Written::Broken
        });
        self.is_broken |= !has_left;
    }

    /// RFC 8446 section 6.1: the client knows that nothing was cut off.
    fn say_goodbye(&mut self, now_ms: u64) {
        self.to_client = Way::Ending;
        self.closed_ms = now_ms;
        let (tls, socket) = (&mut self.tls, &self.socket);
        let has_left = with_workbench(|bench| {
            bench.begin();
            tls.seal_goodbye(bench).is_ok() && tls.write_sealed(bench, socket.as_fd(), false) != Written::Broken
        });
        self.is_broken |= !has_left;
    }

    fn flush(&mut self) {
        if self.tls.unsent() > 0 && !self.is_broken {
            self.is_broken = self.tls.flush(self.socket.as_fd(), false) == Written::Broken;
        }
    }
}
