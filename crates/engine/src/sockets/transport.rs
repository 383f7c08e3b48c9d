//! One connection's way to its peer: the socket or the stream, what it said last, and the bytes that wait for it.
//!
//! It knows no protocol: sessions make bytes, it moves them, as they are or within TLS. A stream of HTTP/2 hands them to the
//! connection that it has in common with others, which makes frames of them. What it may send in a turn has a bound, so that
//! others have theirs. Worker threads run it, each for the connection that it attends to.

mod encrypted;
mod room_wait;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bolide_contract::scoreboard::Slot;
use bolide_protocol::response::{Outgoing, StreamEnd};
use bolide_tls::{ListenerTls, TlsFacts};

use crate::sockets::body_file::BodyFile;
use crate::sockets::socket::{self, Read, Written};
use crate::sockets::taken_connections::{Held, TakenConnections};
use crate::sockets::tls::{Alpn, TlsFault, TlsStream};
pub use room_wait::{RoomWait, StreamWait};

/// Bytes that are sent to one client before others have their turn; those of files have a measure of their own.
pub const SEND_TURN_BYTES: usize = 256 * 1024;

/// Outputs up to this many bytes may be held by the kernel, to leave together with others.
const CORKED_BYTES: usize = 16 * 1024;

/// Bytes that may wait for slow clients, all connections of a worker together. Beyond it nothing more is kept for a client whose socket
/// is full: its application is suspended at once.
const WAITING_MOST_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a file that a stream reads at once.
const FILE_PIECE_BYTES: usize = 16 * 1024;

/// Bytes that wait for slow clients in this process, which is one worker.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The way of one stream to its peer, within a connection that it has in common with others.
pub trait StreamTransport: Send {
    /// Moves what waits, from `sent` on, and then `part`, to the connection, as far as there is room; `sent` is moved along. It leaves at once, or,
    /// where the answer `may_wait`, perhaps with others. Returns also how many bytes of `part` were taken.
    fn send(&self, outgoing: &mut Outgoing, sent: &mut usize, part: StreamPart<'_>, may_wait: bool) -> (Moved, usize);

    /// Takes bytes of the request's body.
    fn read(&self, buffer: &mut [u8]) -> Read;

    fn has_input(&self) -> bool;

    /// The client has taken its request back, or has gone.
    fn is_gone(&self) -> bool;

    /// For a thread that is to wait until there is room.
    fn room_wait(&self) -> Box<dyn StreamWait>;
}

/// A part of a body that is sent from where it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamPart<'a> {
    pub bytes: &'a [u8],
    /// The stream ends behind it.
    pub is_last: bool,
}

/// What of a stream's bytes has left.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    All,
    /// The rest waits for room.
    Part,
    /// The client has taken its request back, or has gone.
    Gone,
}

/// How bytes come and go.
enum Carrier {
    /// As they are.
    Socket,
    Tls(Box<TlsStream>),
    /// As a stream of HTTP/2.
    Stream(Box<dyn StreamTransport>),
}

pub struct Transport {
    /// The streams of a connection have it in common.
    socket: Arc<OwnedFd>,
    carrier: Carrier,
    /// What waits to be sent, or with TLS to be encrypted.
    pub outgoing: Outgoing,
    /// How many of its bytes have left.
    sent: usize,
    /// The socket takes nothing at present.
    pub is_full: bool,
    /// The client is gone.
    pub is_broken: bool,
    /// The application has taken the connection over, and nothing more is sent or read here: the call that holds it.
    held: Option<Box<Held>>,
    /// The kernel keeps the last bytes until they are pushed.
    is_corked: bool,
    /// What [`WAITING_BYTES`] has of ours.
    counted: usize,
    /// Bytes that may leave in this turn.
    turn_left: usize,
    /// An answer that has no other end than the connection's was given up: a client must not take it for whole.
    pub ends_short: bool,
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

    /// The transport of one stream. `connection` is that of the connection that has the socket.
    pub fn of_stream(connection: &Transport, stream: Box<dyn StreamTransport>) -> Transport {
        Transport::with(connection.socket.clone(), Carrier::Stream(stream))
    }

    /// Takes the transport out of a connection whose streams have it in common from now on; what stays behind only names the socket.
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
        }
    }

    /// What comes next is TLS. `heard` is what was read of it already.
    pub fn begin_tls(&mut self, listener: &Arc<ListenerTls>, heard: &[u8]) {
        self.carrier = Carrier::Tls(Box::new(TlsStream::new(listener, heard)));
    }

    /// What is sent from here on leaves as it is: the peer does not speak TLS.
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

    /// A handshake is not done: nothing of a request can have come.
    pub fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_handshaking)
    }

    /// A handshake has begun to come, and not come to its end.
    pub fn is_within_handshake(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_within_handshake)
    }

    /// What there is to know of TLS on this connection, from the handshake's end on.
    pub fn tls_facts(&self) -> Option<&Arc<TlsFacts>> {
        self.tls()?.facts()
    }

    /// The protocol that was chosen within the handshake. It is there before the first byte that [`Transport::read`] hands on.
    pub fn alpn(&self) -> Option<Alpn> {
        self.tls()?.alpn()
    }

    /// Why the handshake came to nothing. Asking forgets it.
    pub fn take_tls_fault(&mut self) -> Option<TlsFault> {
        self.tls_mut()?.take_fault()
    }

    /// Whoever has the socket has all of it: it is neither encrypted nor one of several on a connection.
    pub fn is_movable_kind(&self) -> bool {
        matches!(self.carrier, Carrier::Socket)
    }

    /// The same, and nothing of it waits here.
    pub fn is_movable(&self) -> bool {
        self.is_movable_kind() && !self.is_given_away() && !self.is_broken && !self.is_corked && !self.has_unsent()
    }

    /// It is one of several on a connection.
    pub fn is_stream(&self) -> bool {
        matches!(self.carrier, Carrier::Stream(_))
    }

    /// Whether so many bytes more may be kept here, beside those that wait, for `most_bytes` at the most.
    pub fn has_room(&self, bytes: usize, most_bytes: usize) -> bool {
        let worker_has_room = || WAITING_BYTES.load(Relaxed) <= WAITING_MOST_BYTES;
        self.unsent() + bytes <= most_bytes && (!self.is_full || worker_has_room())
    }

    /// Counts what waits among what waits in the worker.
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

    /// Bytes of ours that wait; those that are encrypted already are not among them.
    fn waiting(&self) -> usize {
        self.outgoing.bytes.len() - self.sent
    }

    /// The others have had theirs.
    pub fn begin_turn(&mut self) {
        self.turn_left = SEND_TURN_BYTES;
    }

    /// Nothing more is sent before the next [`Transport::begin_turn`], whatever room the socket has.
    pub fn turn_is_over(&self) -> bool {
        self.turn_left == 0
    }

    /// Bytes that may still leave in this turn.
    pub fn turn_left(&self) -> usize {
        self.turn_left
    }

    fn may_send(&self) -> bool {
        !self.is_full && !self.is_broken && !self.turn_is_over()
    }

    /// So many bytes of the turn are used up.
    pub fn note_sent(&mut self, count: usize) {
        self.turn_left = self.turn_left.saturating_sub(count);
    }

    /// Sends what the socket takes, as far as the turn goes. With `more_follows`, what is sent leaves in one packet with the start of
    /// what is sent next.
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

    /// Hands what waits on a stream to its connection. With `may_wait`, it may leave together with that of others.
    fn send_on_stream(&mut self, may_wait: bool) {
        // The end of a stream needs no room.
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

    /// As [`Transport::send`], but what is small is kept by the kernel until it is pushed.
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

    /// Sends what waits and then `part`, from where they are, as far as the turn goes. Returns the bytes of `part` that were taken. `is_last`: the
    /// body ends behind it.
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

    /// Nothing stands before the next piece of a file, but what leaves with it.
    pub fn is_clear_for_file(&self) -> bool {
        match self.tls() {
            None => self.waiting() == 0,
            Some(tls) => tls.unsent() == 0 && self.may_leave_with_file(),
        }
    }

    /// Sends the next piece of a file, `most` bytes at the most; returns its bytes.
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
            // The file is shorter than it was when its length was announced: nothing can mend this answer.
            Written::Bytes(0) | Written::Broken => self.is_broken = true,
            Written::Bytes(sent) => {
                part.left -= sent as u64;
                return sent as u64;
            }
            Written::Full => self.is_full = true,
        }
        0
    }

    /// Reads it behind what waits, where the kernel can't send it by itself.
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

    /// Sends a few bytes that stand for themselves, before anything of an answer; on a stream they are a header block. A socket
    /// without room for them does without, which must be allowed; a part of them would spoil what follows.
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

    /// Reads what the peer has sent. Within TLS a handshake comes first, which this leads on: it has no bytes to show for that.
    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        match &self.carrier {
            Carrier::Socket => socket::read(self.socket.as_fd(), buffer),
            Carrier::Tls(_) => self.read_encrypted(buffer),
            Carrier::Stream(stream) => stream.read(buffer),
        }
    }

    /// The last read has left something of which the poll will not tell, though the buffer was not filled.
    pub fn has_more(&self) -> bool {
        self.tls().is_some_and(TlsStream::has_more)
    }

    /// What the last read took of the turn, where it has brought so many bytes: with TLS each record has its price, however short it is.
    pub fn read_cost(&self, bytes: usize) -> usize {
        self.tls().map_or(bytes, TlsStream::came_bytes)
    }

    /// Whether the peer has sent something that was not read yet; its end counts too.
    pub fn has_input(&self) -> bool {
        match &self.carrier {
            Carrier::Tls(tls) if tls.has_unheard() => true,
            Carrier::Socket | Carrier::Tls(_) => socket::has_input(self.socket.as_fd()),
            Carrier::Stream(stream) => stream.has_input(),
        }
    }

    /// Whether the peer has ended its side, and all that it sent before was read.
    pub fn peer_has_ended(&self) -> bool {
        match &self.carrier {
            Carrier::Tls(tls) if tls.peer_has_closed() => true,
            Carrier::Socket | Carrier::Tls(_) => socket::has_ended(self.socket.as_fd()),
            Carrier::Stream(stream) => stream.is_gone(),
        }
    }

    /// The peer has said within TLS that it sends no more. The poll tells of a connection's end, and nothing of this.
    pub fn peer_has_closed(&self) -> bool {
        self.tls().is_some_and(TlsStream::peer_has_closed)
    }

    /// Says that we send no more; the peer still may.
    pub fn end_sending(&mut self) {
        if self.is_stream() {
            return;
        }
        self.say_goodbye();
        // What is encrypted and has no room yet would be lost behind the end; the connection's own end comes soon enough.
        if self.tls().is_none_or(|tls| tls.unsent() == 0) {
            socket::end_sending(self.socket.as_fd());
        }
    }

    /// Within TLS, says that what came was all (RFC 8446 section 6.1), as far as that is true.
    pub fn say_goodbye(&mut self) {
        if self.is_encrypted() && !self.is_broken && !self.ends_short {
            self.send_encrypted_goodbye();
        }
    }

    /// Lets go what the kernel keeps.
    pub fn push(&self) {
        socket::push(self.socket.as_fd());
    }

    /// Whether the kernel keeps the last bytes until they are pushed. Asking forgets it.
    pub fn take_corked(&mut self) -> bool {
        std::mem::take(&mut self.is_corked)
    }

    /// Lends a buffer for what is sent, while nothing waits.
    pub fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.waiting() == 0);
        self.outgoing.bytes = buffer;
        self.clear();
    }

    /// Takes the buffer back when everything has left, so that idle connections own none.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.sent = 0;
        std::mem::take(&mut self.outgoing.bytes)
    }

    /// What waits is not sent.
    pub fn clear(&mut self) {
        self.outgoing.clear();
        self.sent = 0;
    }

    /// Ends the connection in both directions, or the stream: the socket stays ours until it is closed.
    pub fn disconnect(&mut self) {
        if !self.is_stream() {
            self.push();
            self.say_goodbye();
            socket::end(self.socket.as_fd());
        }
        self.is_broken = true;
    }

    /// A descriptor for whoever takes the connection over: nothing more is read or sent here from now on. It is the connection's own, or where
    /// that speaks TLS one end of a pair with plain bytes. `slot` shows the request.
    ///
    /// # Errors
    /// There is no further descriptor or thread; or the connection is not this request's alone.
    pub fn give_away(&mut self, taken: &'static TakenConnections, slot: Option<&Slot>) -> std::io::Result<OwnedFd> {
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

    /// Bytes or a stream's end wait for the client, or bytes did when the socket took a part of them only.
    pub fn has_unsent(&self) -> bool {
        (self.unsent() > 0) | self.is_full | (self.outgoing.end == StreamEnd::Due)
    }

    /// Something waits for the client. A large part is sent from where it is: then the socket may be full while the buffer is empty.
    pub fn wants_room(&self) -> bool {
        (self.unsent() > 0 || self.is_full) && !self.is_broken
    }

    /// Goes on after a wait for the socket. `has_room` is false where the client took nothing within the time.
    pub fn room_came(&mut self, has_room: bool) {
        self.is_full = false;
        self.is_broken |= !has_room;
        self.begin_turn();
        self.send(false);
    }

    /// What has left is forgotten.
    pub fn recycle(&mut self) {
        if self.sent == self.outgoing.bytes.len() {
            self.outgoing.bytes.clear();
            self.sent = 0;
        }
    }
}
