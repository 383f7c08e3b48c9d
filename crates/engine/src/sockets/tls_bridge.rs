//! A TLS connection that an application has taken over: the application has one end of a socket pair. Its bytes are sent to the
//! client as records, and the plaintext of the client's records is sent to it.
//!
//! It does not know about protocols and waits for nothing: the thread that looks after taken connections runs it when there are
//! events. Neither side is read while the other one accepts nothing, so a bridge holds one read of plaintext and one write of
//! records at most.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::poll::PollFlags;

use crate::sockets::socket::{self, Read, Written};
use crate::sockets::tls::{SEALED_BYTES, TlsStream, with_workbench};

/// Bytes per read, from either side.
const CARRIED_BYTES: usize = SEALED_BYTES;

/// Reads of each side before other bridges have their turn.
const MAX_READS: usize = 4;

/// Milliseconds for which the last records may wait for a client that reads nothing, after the application has closed its end.
const LAST_RECORDS_MS: u64 = 30_000;

/// A descriptor, and the events to poll it for.
type Interest<'a> = Option<(BorrowedFd<'a>, PollFlags)>;

/// The state of one direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// No more input; the bytes read before still have to be passed on.
    Ending,
    Over,
}

pub struct TlsBridge {
    id: u64,
    /// The client's socket, which the connection's call refers to as well.
    socket: Arc<OwnedFd>,
    tls: Box<TlsStream>,
    /// The bridge's end of the pair.
    inner: OwnedFd,
    /// Plaintext of the client that the application has not read, and how much of it was written to the pair.
    received: Vec<u8>,
    passed_on: usize,
    to_application: Way,
    to_client: Way,
    /// When the application closed its end, in monotonic milliseconds.
    closed_ms: u64,
    /// Bytes that the application has written are still unread.
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
            received: Vec::new(),
            passed_on: 0,
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

    /// Does not give the application more input, as if its client had left.
    pub fn end_input(&mut self) {
        if self.to_application == Way::Open {
            self.to_application = Way::Ending;
        }
    }

    /// Both directions have ended.
    pub fn is_over(&self) -> bool {
        self.is_broken || self.to_client == Way::Over
    }

    /// Bytes of the application have not been sent yet.
    pub fn is_behind(&self) -> bool {
        self.has_unread || self.tls.unsent() > 0
    }

    /// There are bytes to carry that no poll will report.
    pub fn has_more(&self) -> bool {
        self.tls.has_more() && self.may_read_client()
    }

    fn may_read_client(&self) -> bool {
        self.to_application == Way::Open && self.received.is_empty()
    }

    fn may_read_application(&self) -> bool {
        self.to_client == Way::Open && self.tls.unsent() == 0
    }

    /// Returns the events to poll for, of the client's socket and of the application's end. A descriptor without wanted events is
    /// left out, since the poll would report its hang-up without end.
    pub fn interest(&self) -> [Interest<'_>; 2] {
        let mut outer = PollFlags::empty();
        outer.set(PollFlags::POLLIN, self.may_read_client());
        outer.set(PollFlags::POLLOUT, self.tls.unsent() > 0);
        let mut inner = PollFlags::empty();
        inner.set(PollFlags::POLLIN, self.may_read_application());
        inner.set(PollFlags::POLLOUT, !self.received.is_empty());
        [(self.socket.as_fd(), outer), (self.inner.as_fd(), inner)]
            .map(|(descriptor, wanted)| (!wanted.is_empty()).then_some((descriptor, wanted)))
    }

    /// Carries pending bytes in both directions. The buffer is the thread's.
    pub fn carry(&mut self, now_ms: u64, buffer: &mut Vec<u8>) {
        buffer.resize(CARRIED_BYTES, 0);
        self.pass_on();
        self.read_client(buffer);
        self.flush();
        self.read_application(now_ms, buffer);
        if self.to_client == Way::Ending && (self.tls.unsent() == 0 || now_ms >= self.closed_ms + LAST_RECORDS_MS) {
            self.to_client = Way::Over;
        }
        if self.is_over() {
            socket::end(self.socket.as_fd());
        }
    }

    /// From the client to the application.
    fn read_client(&mut self, buffer: &mut [u8]) {
        for _ in 0..MAX_READS {
            if !self.may_read_client() || self.is_broken {
                break;
            }
            match self.tls.read(self.socket.as_fd(), buffer) {
                Read::Bytes(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    self.pass_on();
                }
                Read::Nothing => break,
                // A client that left without close_notify (RFC 8446 section 6.1) has sent the earlier bytes all the same.
                Read::End | Read::Broken => self.to_application = Way::Ending,
            }
        }
        self.pass_on();
    }

    fn pass_on(&mut self) {
        while self.passed_on < self.received.len() {
            match socket::write(self.inner.as_fd(), &self.received[self.passed_on..], &[]) {
                Written::Bytes(count) => self.passed_on += count,
                Written::Full => return,
                // The application does not read more, but may still send.
                Written::Broken => {
                    self.to_application = Way::Over;
                    break;
                }
            }
        }
        self.received = Vec::new();
        self.passed_on = 0;
        if self.to_application == Way::Ending {
            self.to_application = Way::Over;
            socket::end_sending(self.inner.as_fd());
        }
    }

    /// From the application to the client.
    fn read_application(&mut self, now_ms: u64, buffer: &mut [u8]) {
        self.has_unread = false;
        for _ in 0..MAX_READS {
            if !self.may_read_application() || self.is_broken {
                self.has_unread = self.to_client == Way::Open;
                return;
            }
            match socket::read(self.inner.as_fd(), buffer) {
                Read::Bytes(count) => self.seal(&buffer[..count]),
                Read::Nothing => return,
                // An application that closes its end with unread input breaks it, but has sent all that it wanted to send.
                Read::End | Read::Broken => self.end_tls(now_ms),
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

    /// RFC 8446 section 6.1: close_notify tells the client that nothing was cut off.
    fn end_tls(&mut self, now_ms: u64) {
        self.to_client = Way::Ending;
        self.closed_ms = now_ms;
        let (tls, socket) = (&mut self.tls, &self.socket);
        let has_left = with_workbench(|bench| {
            bench.begin();
            tls.seal_close_notify(bench).is_ok() && tls.write_sealed(bench, socket.as_fd(), false) != Written::Broken
        });
        self.is_broken |= !has_left;
    }

    fn flush(&mut self) {
        if self.tls.unsent() > 0 && !self.is_broken {
            self.is_broken = self.tls.flush(self.socket.as_fd(), false) == Written::Broken;
        }
    }
}
