//! The transport of one connection: the socket or the stream, its state, and the bytes that wait to be sent.
//!
//! It does not know about protocols: sessions make bytes, and it moves them, in plain or within TLS. A stream of HTTP/2 passes
//! them to the connection that it shares, which makes frames of them. The bytes that a connection may send in a turn are bounded,
//! so that others have their turn. Worker threads run it, each for the connection that it attends to.

mod encrypted;
mod read_times;
mod room_wait;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bolide_protocol::response::{Outgoing, StreamEnd};
use bolide_scoreboard::Recorder;
use bolide_tls::{ListenerTls, TlsFacts};

use crate::sockets::body_file::BodyFile;
use crate::sockets::socket::{self, Read, Written};
use crate::sockets::taken_connections::{Held, TakenConnections};
use crate::sockets::tls::{Alpn, TlsFault, TlsStream};
pub use read_times::ReadTimes;
pub use room_wait::{RoomWait, StreamWait};

/// Bytes that are sent to one client before others have their turn; bytes of files are counted separately.
pub const SEND_TURN_BYTES: usize = 256 * 1024;

/// The kernel may hold outputs up to this many bytes, to send them together with others.
const CORKED_BYTES: usize = 16 * 1024;

/// Bytes that may wait for slow clients, over all connections of a worker. Beyond this, no more bytes are kept for a client whose
/// socket is full: its application is suspended immediately.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a file that a stream reads at a time.
const FILE_PIECE_BYTES: usize = 16 * 1024;

/// Bytes that wait for slow clients in this process, which is one worker.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The transport of one stream within a connection that it shares.
pub trait StreamTransport: Send {
    /// Moves waiting bytes, from `sent` on, and then `part`, to the connection, as far as there is room; advances `sent`. They
    /// are sent immediately, or, if the answer `may_wait`, possibly together with others. Also returns how many bytes of `part`
    /// were taken.
    fn send(&self, outgoing: &mut Outgoing, sent: &mut usize, part: StreamPart<'_>, may_wait: bool) -> (Moved, usize);

    /// Reads bytes of the request's body.
    fn read(&self, buffer: &mut [u8]) -> Read;

    fn has_input(&self) -> bool;

    /// The client has cancelled its request, or has gone.
    fn is_gone(&self) -> bool;

    /// The same, after a look at what the client has sent since its request.
    fn has_gone_by_now(&self) -> bool;

    /// For a thread that must wait until there is room.
    fn room_wait(&self) -> Box<dyn StreamWait>;
}

/// A part of a body that is sent without a copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamPart<'a> {
    pub bytes: &'a [u8],
    /// The stream ends behind it.
    pub is_last: bool,
}

/// How much of a stream's bytes was moved.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    All,
    /// The rest waits for room.
    Part,
    /// The client has cancelled its request, or has gone.
    Gone,
}

/// How bytes are sent and received.
enum Carrier {
    /// In plain.
    Socket,
    Tls(Box<TlsStream>),
    /// As a stream of HTTP/2.
    Stream(Box<dyn StreamTransport>),
}

pub struct Transport {
    /// The streams of a connection share it.
    socket: Arc<OwnedFd>,
    carrier: Carrier,
    /// Bytes that wait to be sent, or with TLS to be encrypted.
    pub outgoing: Outgoing,
    /// How many of these bytes were sent.
    sent: usize,
    /// The socket does not accept anything now.
    pub is_full: bool,
    /// The client is gone.
    pub is_broken: bool,
    /// Set if the application has taken the connection over: the call that holds it. Nothing more is sent or read here.
    held: Option<Box<Held>>,
    /// The kernel holds the last bytes until they are pushed.
    is_corked: bool,
    /// The part of [`WAITING_BYTES`] that this transport has added.
    counted: usize,
    /// Bytes that may be sent in this turn.
    turn_left: usize,
    /// An answer that only the end of the connection delimits was given up: a client must not take it for complete.
    pub ends_short: bool,
    /// When bytes were read, if the settings need it.
    pub read_times: Option<Box<ReadTimes>>,
}

impl Drop for Transport {
    fn drop(&mut self) {
        WAITING_BYTES.fetch_sub(self.counted, Relaxed);
    }
}

impl Transport {
    pub fn new(socket: OwnedFd) -> Transport {
        Transport::with(Arc::new(socket), Carrier::Socket)
    }

    /// The transport of one stream. `connection` is the transport of the connection that has the socket.
    pub fn of_stream(connection: &Transport, stream: Box<dyn StreamTransport>) -> Transport {
        Transport::with(connection.socket.clone(), Carrier::Stream(stream))
    }

    /// Takes the transport out of a connection whose streams share it from now on; the rest only names the socket.
    pub fn take(&mut self) -> Transport {
        let mut left = Transport::with(self.socket.clone(), Carrier::Socket);
        left.is_broken = true;
        std::mem::replace(self, left)
    }

    fn with(socket: Arc<OwnedFd>, carrier: Carrier) -> Transport {
        Transport {
            socket,
            carrier,
            outgoing: Outgoing::default(),
            sent: 0,
            is_full: false,
            is_broken: false,
            held: None,
            is_corked: false,
            turn_left: SEND_TURN_BYTES,
            counted: 0,
            ends_short: false,
            read_times: None,
        }
    }

    /// TLS begins here. `received` holds bytes of it that were read already.
    pub fn begin_tls(&mut self, listener: &Arc<ListenerTls>, received: &[u8]) {
        self.carrier = Carrier::Tls(Box::new(TlsStream::new(listener, received)));
    }

    /// Everything is sent in plain from here on: the peer does not speak TLS.
    pub fn leave_tls(&mut self) {
        self.carrier = Carrier::Socket;
    }

    fn tls(&self) -> Option<&TlsStream> {
        if let Carrier::Tls(tls) = &self.carrier { Some(tls) } else { None }
    }

    fn tls_mut(&mut self) -> Option<&mut TlsStream> {
        if let Carrier::Tls(tls) = &mut self.carrier { Some(tls) } else { None }
    }

    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// A handshake is not done: no byte of a request can have arrived.
    pub fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_handshaking)
    }

    /// A handshake has begun, and is not complete.
    pub fn is_within_handshake(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_within_handshake)
    }

    /// The facts of TLS on this connection, from the handshake's end on.
    pub fn tls_facts(&self) -> Option<&Arc<TlsFacts>> {
        self.tls()?.facts()
    }

    /// The protocol that ALPN has chosen. It is known before [`Transport::read`] returns the first byte.
    pub fn alpn(&self) -> Option<Alpn> {
        self.tls()?.alpn()
    }

    /// Returns the reason why the handshake failed, and clears it.
    pub fn take_tls_fault(&mut self) -> Option<TlsFault> {
        self.tls_mut()?.take_fault()
    }

    /// The socket is the whole connection: it is neither encrypted nor shared by streams.
    pub fn is_movable_kind(&self) -> bool {
        matches!(self.carrier, Carrier::Socket)
    }

    /// The same, and none of its bytes wait here.
    pub fn is_movable(&self) -> bool {
        self.is_movable_kind() && !self.is_given_away() && !self.is_broken && !self.is_corked && !self.has_unsent()
    }

    /// It is one of several streams on a connection.
    pub fn is_stream(&self) -> bool {
        matches!(self.carrier, Carrier::Stream(_))
    }

    /// Whether this many bytes more may be kept here, if waiting bytes are limited to `most_bytes`.
    pub fn has_room(&self, bytes: usize, most_bytes: usize) -> bool {
        let worker_has_room = || WAITING_BYTES.load(Relaxed) <= MAX_WAITING_BYTES;
        self.unsent() + bytes <= most_bytes && (!self.is_full || worker_has_room())
    }

    /// Updates the worker's count of waiting bytes.
    pub fn count_waiting(&mut self) {
        let waiting = self.unsent();
        if waiting != self.counted {
            WAITING_BYTES.fetch_add(waiting, Relaxed);
            WAITING_BYTES.fetch_sub(self.counted, Relaxed);
            self.counted = waiting;
        }
    }

    pub fn unsent(&self) -> usize {
        self.waiting() + self.tls().map_or(0, TlsStream::unsent)
    }

    /// Waiting bytes that are not encrypted yet.
    fn waiting(&self) -> usize {
        self.outgoing.bytes.len() - self.sent
    }

    /// Begins a turn: the other connections have had theirs.
    pub fn begin_turn(&mut self) {
        self.turn_left = SEND_TURN_BYTES;
    }

    /// Nothing more is sent before the next [`Transport::begin_turn`], whatever room the socket has.
    pub fn turn_is_over(&self) -> bool {
        self.turn_left == 0
    }

    /// Bytes that may still be sent in this turn.
    pub fn turn_left(&self) -> usize {
        self.turn_left
    }

    fn may_send(&self) -> bool {
        !self.is_full && !self.is_broken && !self.turn_is_over()
    }

    /// Uses up this many bytes of the turn.
    pub fn note_sent(&mut self, count: usize) {
        self.turn_left = self.turn_left.saturating_sub(count);
    }

    /// Sends waiting bytes as far as the socket accepts them and the turn goes. With `more_follows`, they leave in one packet
    /// with the start of the next bytes.
    pub fn send(&mut self, more_follows: bool) {
        match self.carrier {
            Carrier::Socket => {}
            Carrier::Tls(_) => return self.send_encrypted(more_follows),
            Carrier::Stream(_) => return self.send_on_stream(more_follows),
        }
        if more_follows
            && self.unsent() > 0
            && let Written::Bytes(count) = socket::write_corked(self.socket.as_fd(), &self.outgoing.bytes[self.sent..])
        {
            self.sent += count;
            self.note_sent(count);
        }
        while self.unsent() > 0 && self.may_send() {
            let piece = self.unsent().min(self.turn_left);
            match socket::write(self.socket.as_fd(), &self.outgoing.bytes[self.sent..self.sent + piece], &[]) {
                Written::Bytes(count) => {
                    self.sent += count;
                    self.note_sent(count);
                }
                Written::Full => self.is_full = true,
                Written::Broken => self.is_broken = true,
            }
        }
        self.recycle();
    }

    /// Moves waiting bytes of a stream to its connection. With `may_wait`, they may be sent together with those of others.
    fn send_on_stream(&mut self, may_wait: bool) {
        // The end of a stream does not need room.
        let is_due = self.unsent() == 0 && self.outgoing.end == StreamEnd::Due && !self.is_broken;
        if is_due || self.unsent() > 0 && self.may_send() {
            self.move_on_stream(StreamPart::default(), may_wait);
        }
    }

    /// The same with a part behind it. Returns the bytes of it that were taken.
    fn send_through_stream(&mut self, part: &[u8], is_last: bool) -> usize {
        if !self.may_send() {
            return 0;
        }
        let bytes = &part[..part.len().min(self.turn_left)];
        self.move_on_stream(StreamPart { bytes, is_last: is_last && bytes.len() == part.len() }, false)
    }

    fn move_on_stream(&mut self, part: StreamPart<'_>, may_wait: bool) -> usize {
        let Carrier::Stream(stream) = &self.carrier else { return 0 };
        let before = self.sent;
        let (moved, taken) = stream.send(&mut self.outgoing, &mut self.sent, part, may_wait);
        match moved {
            Moved::All => {}
            Moved::Part => self.is_full = true,
            Moved::Gone => self.is_broken = true,
        }
        self.note_sent(self.sent - before + taken);
        self.recycle();
        taken
    }

    /// Like [`Transport::send`], but the kernel holds small outputs until they are pushed.
    pub fn cork(&mut self) {
        match self.carrier {
            Carrier::Socket => {}
            Carrier::Tls(_) => return self.cork_encrypted(),
            Carrier::Stream(_) => return self.send_on_stream(true),
        }
        if (1..=CORKED_BYTES).contains(&self.unsent()) && !self.is_broken {
            match socket::write_corked(self.socket.as_fd(), &self.outgoing.bytes[self.sent..]) {
                Written::Bytes(count) => {
                    self.sent += count;
                    self.note_sent(count);
                    self.is_corked = true;
                }
                Written::Full => {}
                Written::Broken => self.is_broken = true,
            }
        }
        self.send(false);
    }

    /// Sends waiting bytes and then `part`, without a copy, as far as the turn goes. Returns the bytes of `part` that were taken.
    /// `is_last`: the body ends behind it.
    pub fn send_through(&mut self, part: &[u8], is_last: bool) -> usize {
        match self.carrier {
            Carrier::Socket => {}
            Carrier::Tls(_) => return self.send_encrypted_through(part),
            Carrier::Stream(_) => return self.send_through_stream(part, is_last),
        }
        let mut taken = 0;
        while taken < part.len() && self.may_send() {
            let piece = &part[taken..part.len().min(taken + self.turn_left)];
            match socket::write(self.socket.as_fd(), &self.outgoing.bytes[self.sent..], piece) {
                Written::Bytes(count) => {
                    self.note_sent(count);
                    let of_buffer = count.min(self.unsent());
                    self.sent += of_buffer;
                    taken += count - of_buffer;
                    self.recycle();
                }
                Written::Full => self.is_full = true,
                Written::Broken => self.is_broken = true,
            }
        }
        taken
    }

    /// Nothing is waiting before the next piece of a file, except bytes that are sent with it.
    pub fn is_clear_for_file(&self) -> bool {
        match self.tls() {
            None => self.waiting() == 0,
            Some(tls) => tls.unsent() == 0 && self.may_leave_with_file(),
        }
    }

    /// Sends the next piece of a file, `most` bytes at most; returns its bytes.
    pub fn send_file(&mut self, part: &mut BodyFile, most: u64) -> u64 {
        if part.left <= most && part.has_changed() {
            self.is_broken = true;
            return 0;
        }
        part.has_begun = true;
        let count = usize::try_from(part.left.min(most)).unwrap_or(usize::MAX);
        match self.carrier {
            Carrier::Socket => {}
            Carrier::Tls(_) => return self.send_encrypted_file(part, count),
            Carrier::Stream(_) => return self.send_file_copied(part, count.min(FILE_PIECE_BYTES)),
        }
        match socket::send_file(self.socket.as_fd(), &part.file, &mut part.offset, count) {
            // The file is shorter than when its length was announced: this answer can't be completed.
            Written::Bytes(0) | Written::Broken => self.is_broken = true,
            Written::Bytes(sent) => {
                part.left -= sent as u64;
                return sent as u64;
            }
            Written::Full => self.is_full = true,
        }
        0
    }

    /// Reads the file behind the waiting bytes, if the kernel can't send it by itself.
    fn send_file_copied(&mut self, part: &mut BodyFile, count: usize) -> u64 {
        let start = self.outgoing.bytes.len();
        self.outgoing.bytes.resize(start + count, 0);
        if part.file.read_exact_at(&mut self.outgoing.bytes[start..], part.offset.cast_unsigned()).is_err() {
            self.is_broken = true;
            return 0;
        }
        part.offset += count.cast_signed() as i64;
        part.left -= count as u64;
        count as u64
    }

    /// Sends a few independent bytes before anything of an answer; on a stream they are a header block. They are dropped if the
    /// socket has no room for them, which must be allowed. A part of them would corrupt the following bytes.
    pub fn send_aside(&mut self, bytes: &[u8]) {
        debug_assert!(self.waiting() == 0);
        match self.carrier {
            Carrier::Socket => {}
            Carrier::Tls(_) => return self.send_encrypted_aside(bytes),
            Carrier::Stream(_) => {
                self.outgoing.bytes.extend_from_slice(bytes);
                self.outgoing.head_bytes = bytes.len();
                self.send_on_stream(false);
                return self.clear();
            }
        }
        match socket::write(self.socket.as_fd(), bytes, &[]) {
            Written::Bytes(count) if count == bytes.len() => {}
            Written::Full => {}
            Written::Bytes(_) | Written::Broken => self.is_broken = true,
        }
    }

    /// The same for bytes that must arrive: a client whose socket has no room for them is given up.
    pub fn send_whole(&mut self, bytes: &[u8]) {
        debug_assert!(self.waiting() == 0);
        if self.is_encrypted() {
            return self.send_encrypted_aside(bytes);
        }
        let written = socket::write(self.socket.as_fd(), bytes, &[]);
        self.is_broken |= !matches!(written, Written::Bytes(count) if count == bytes.len());
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads bytes of the peer. Within TLS a handshake comes first, which this advances without returning bytes.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        if self.read_times.is_some() { self.read_and_note(buffer) } else { self.read_bytes(buffer) }
    }

    #[cold]
    fn read_and_note(&mut self, buffer: &mut [u8]) -> Read {
        let is_encrypted = self.is_encrypted();
        if let Some(times) = self.read_times.as_mut().filter(|_| is_encrypted) {
            times.note_encrypted(self.socket.as_fd());
        }
        let read = self.read_bytes(buffer);
        if let (Read::Bytes(_), Some(times)) = (&read, &mut self.read_times) {
            times.note_read(self.socket.as_fd());
        }
        read
    }

    fn read_bytes(&mut self, buffer: &mut [u8]) -> Read {
        match &self.carrier {
            Carrier::Socket => socket::read(self.socket.as_fd(), buffer),
            Carrier::Tls(_) => self.read_encrypted(buffer),
            Carrier::Stream(stream) => stream.read(buffer),
        }
    }

    /// The last read has left bytes that the poll will not report, though the buffer was not filled.
    pub fn has_more(&self) -> bool {
        self.tls().is_some_and(TlsStream::has_more)
    }

    /// How much the last read, which has returned this many bytes, uses up of the turn. With TLS each record counts, however
    /// short its plaintext is.
    pub fn read_cost(&self, bytes: usize) -> usize {
        self.tls().map_or(bytes, TlsStream::came_bytes)
    }

    /// Whether the peer has sent bytes that were not read yet; its end of stream counts too.
    pub fn has_input(&self) -> bool {
        match &self.carrier {
            Carrier::Tls(tls) if tls.has_unprocessed() => true,
            Carrier::Socket | Carrier::Tls(_) => socket::has_input(self.socket.as_fd()),
            Carrier::Stream(stream) => stream.has_input(),
        }
    }

    /// Whether the peer has ended its side, and everything that it sent before was read.
    pub fn peer_has_ended(&self) -> bool {
        match &self.carrier {
            Carrier::Tls(tls) if tls.peer_has_closed() => true,
            Carrier::Socket | Carrier::Tls(_) => socket::has_ended(self.socket.as_fd()),
            Carrier::Stream(stream) => stream.is_gone(),
        }
    }

    /// Whether the peer reads no more by now: it has reset or closed the connection, or its stream. With `counts_fin`, a peer
    /// that has ended its sending side counts too. Costs a system call.
    pub fn peer_has_gone(&self, counts_fin: bool) -> bool {
        let has_gone = || match &self.carrier {
            Carrier::Stream(stream) => stream.has_gone_by_now(),
            Carrier::Tls(tls) if counts_fin && tls.peer_has_closed() => true,
            Carrier::Socket | Carrier::Tls(_) if counts_fin => socket::has_stopped_sending(self.socket.as_fd()),
            Carrier::Socket | Carrier::Tls(_) => socket::has_hung_up(self.socket.as_fd()),
        };
        self.is_broken || has_gone()
    }

    /// The peer has sent close_notify. The poll reports the end of a connection, but not this.
    pub fn peer_has_closed(&self) -> bool {
        self.tls().is_some_and(TlsStream::peer_has_closed)
    }

    /// Ends our side of the connection; the peer may still send.
    pub fn end_sending(&mut self) {
        if self.is_stream() {
            return;
        }
        self.end_tls();
        // Encrypted bytes that have no room yet would be lost behind the end; the connection's own end comes soon enough.
        if self.tls().is_none_or(|tls| tls.unsent() == 0) {
            socket::end_sending(self.socket.as_fd());
        }
    }

    /// Within TLS, sends close_notify (RFC 8446 section 6.1), unless the answer is incomplete.
    pub fn end_tls(&mut self) {
        if self.is_encrypted() && !self.is_broken && !self.ends_short {
            self.send_close_notify();
        }
    }

    /// Sends the bytes that the kernel holds.
    pub fn push(&self) {
        socket::push(self.socket.as_fd());
    }

    /// Returns whether the kernel holds the last bytes until they are pushed, and clears the mark.
    pub fn take_corked(&mut self) -> bool {
        std::mem::take(&mut self.is_corked)
    }

    /// Lends a send buffer while no bytes are waiting.
    pub fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.waiting() == 0);
        self.outgoing.bytes = buffer;
        self.clear();
    }

    /// Takes the buffer back when everything was sent, so that idle connections own none.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.sent = 0;
        std::mem::take(&mut self.outgoing.bytes)
    }

    /// Discards waiting bytes.
    pub fn clear(&mut self) {
        self.outgoing.clear();
        self.sent = 0;
    }

    /// Ends the connection in both directions, or the stream. This process keeps the socket until it is closed.
    pub fn disconnect(&mut self) {
        if !self.is_stream() {
            self.push();
            self.end_tls();
            socket::end(self.socket.as_fd());
        }
        self.is_broken = true;
    }

    /// Returns a descriptor for an application that takes the connection over: nothing more is read or sent here from now on. It
    /// is a copy of the connection's own, or with TLS one end of a pair with plain bytes. `slot` shows the request.
    ///
    /// # Errors
    /// No file descriptor or thread is left, or the connection carries other requests too.
    pub fn give_away(&mut self, taken: &'static TakenConnections, slot: Option<Recorder<'static>>) -> std::io::Result<OwnedFd> {
        let (own, held) = match &self.carrier {
            Carrier::Socket => (self.socket.try_clone()?, taken.hold_socket(&self.socket, slot)?),
            Carrier::Tls(_) => self.bridge(taken, slot)?,
            Carrier::Stream(_) => {
                let reason = "the connection carries other requests too (HTTP/2)";
                return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, reason));
            }
        };
        self.is_broken = true;
        self.held = Some(Box::new(held));
        Ok(own)
    }

    pub fn is_given_away(&self) -> bool {
        self.held.is_some()
    }

    /// Bytes or a stream's end wait for the client, or the socket took only a part of the bytes.
    pub fn has_unsent(&self) -> bool {
        (self.unsent() > 0) | self.is_full | (self.outgoing.end == StreamEnd::Due)
    }

    /// Bytes wait for the client. A large part is sent without a copy: then the socket may be full while the buffer is empty.
    pub fn wants_room(&self) -> bool {
        (self.unsent() > 0 || self.is_full) && !self.is_broken
    }

    /// Continues after a wait for the socket. `has_room` is false if the client read nothing within the time.
    pub fn room_came(&mut self, has_room: bool) {
        self.is_full = false;
        self.is_broken |= !has_room;
        self.begin_turn();
        self.send(false);
    }

    /// Drops bytes that were sent.
    pub fn recycle(&mut self) {
        if self.sent == self.outgoing.bytes.len() {
            self.outgoing.bytes.clear();
            self.sent = 0;
        }
    }
}
