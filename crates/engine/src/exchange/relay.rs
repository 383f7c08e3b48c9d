//! A relayed exchange: another worker serves the request, because it has its session (`sticky`), and the client's connection,
//! which can't move there, stays here. The exchange goes over a socket pair, of which the other worker has an end that is a
//! connection of HTTP/1.1 to it.
//!
//! It carries bytes and knows nothing of the client. The exchange is counted and logged where it is served. The thread that
//! attends to the client's connection runs it.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bolide_protocol::Fault;
use bolide_protocol::http1::response::{AnswerTo, ResponseDecoder, ResponsePart};
use bolide_protocol::http1::{Field, Framing};
use bolide_scoreboard::session_owners::Owner;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use crate::forks;
use crate::response::Response;
use crate::scheduling::body_timeout::BodyTimeout;
use crate::scheduling::deadlines::NEVER_MS;
use crate::sockets::socket::{self, Read, Written};

/// The most exchanges that a worker relays at a time. Others are served where they come to. Each takes a descriptor in both
/// workers.
const MAX_RELAYS: usize = 1024;

/// Bytes of a request that wait for the worker that serves it. Beyond this its client is not read.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// The exchanges that this process relays, which is one worker.
static RELAYS: AtomicUsize = AtomicUsize::new(0);

/// The last chunk of a body (RFC 9112 section 7.1).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A place among the relays.
struct RelayPlace;

pub struct Relay {
    socket: OwnedFd,
    /// The worker that serves the request.
    pub owner: Owner,
    pub watched: RelayWatch,
    /// Bytes of the request that the socket has not accepted, from `sent` on.
    request: Vec<u8>,
    sent: usize,
    upload: Upload,
    /// The client has closed its sending side.
    pub client_has_ended: bool,
    /// How the body is framed.
    is_chunked: bool,
    /// Bytes of the answer that were read, of which the first `used` were passed on. The `decoded` ones behind those belong to
    /// the body.
    response: Vec<u8>,
    used: usize,
    decoded: usize,
    decoder: ResponseDecoder,
    /// Those of the part that was decoded last.
    pub fields: Vec<Field>,
    pub body_timeout: BodyTimeout,
    /// The client waits for `100 Continue`.
    pub owes_continue: bool,
    /// Both sides have switched to another protocol.
    pub is_tunnel: bool,
    /// When it is cut off while the worker drains, in monotonic milliseconds: a stream, and any exchange.
    pub stream_ends_ms: u64,
    pub mercy_ends_ms: u64,
    /// When a tunnel is told that its client leaves, in monotonic milliseconds.
    pub leaves_ms: u64,
    _place: RelayPlace,
}

/// The events of a relay's socket that the poll reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelayWatch {
    Nothing,
    Input,
    /// Room for more of the request too. Without need for it the poll would report it once more than anything happens.
    InputAndRoom,
}

/// How far the client's side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upload {
    Open,
    /// The request is complete.
    Complete,
    /// The client has closed its sending side. The other worker learns that when it has read the rest.
    Ending,
    /// It was told, or it does not read any more.
    Over,
}

/// A request that is to be relayed.
pub struct RelayedRequest {
    pub owner: Owner,
    /// The body, as the head that the other worker has says.
    pub framing: Framing,
    pub to: AnswerTo,
    pub owes_continue: bool,
    pub body_timeout: BodyTimeout,
}

impl Drop for RelayPlace {
    fn drop(&mut self) {
        RELAYS.fetch_sub(1, Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if forks::has_forked() {
            // Processes that the application has forked have the socket too, so closing it would not tell the other worker.
            socket::end(self.socket.as_fd());
        }
    }
}

/// Makes the two ends of a relay. `None`: there are [`MAX_RELAYS`], or no descriptor is left.
pub fn open(request: RelayedRequest) -> Option<(Relay, OwnedFd)> {
    let place = RelayPlace;
    if RELAYS.fetch_add(1, Relaxed) >= MAX_RELAYS {
        return None;
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (socket, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags).ok()?;
    let RelayedRequest { owner, framing, to, owes_continue, body_timeout } = request;
    let relay = Relay {
        socket,
        owner,
        watched: RelayWatch::Nothing,
        request: Vec::new(),
        sent: 0,
        upload: if framing == Framing::None { Upload::Complete } else { Upload::Open },
        client_has_ended: false,
        is_chunked: framing == Framing::Chunked,
        response: Vec::new(),
        used: 0,
        decoded: 0,
        decoder: ResponseDecoder::new(to),
        fields: Vec::new(),
        body_timeout,
        owes_continue,
        is_tunnel: false,
        stream_ends_ms: NEVER_MS,
        mercy_ends_ms: NEVER_MS,
        leaves_ms: NEVER_MS,
        _place: place,
    };
    Some((relay, other))
}

impl Relay {
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn wanted_watch(&self) -> RelayWatch {
        if self.has_unsent() { RelayWatch::InputAndRoom } else { RelayWatch::Input }
    }

    // From the client.

    /// Bytes of the request wait for the other worker.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.request.len()
    }

    /// More of the client's bytes are wanted.
    pub fn wants_request(&self) -> bool {
        let is_open = self.upload == Upload::Open || self.is_tunnel && self.upload == Upload::Complete;
        is_open && self.request.len() - self.sent < MAX_REQUEST_BYTES
    }

    /// Takes a part of the body, or of a tunnel.
    pub fn push(&mut self, part: &[u8]) {
        if part.is_empty() || self.upload == Upload::Over {
            return;
        }
        self.owes_continue = false;
        if self.is_chunked && !self.is_tunnel {
            // A write to memory does not fail.
            let _ = write!(self.request, "{:x}\r\n", part.len());
            self.request.extend_from_slice(part);
            self.request.extend_from_slice(b"\r\n");
        } else {
            self.request.extend_from_slice(part);
        }
    }

    /// The body is complete.
    pub fn complete(&mut self) {
        if self.upload == Upload::Open {
            self.upload = Upload::Complete;
            if self.is_chunked {
                self.request.extend_from_slice(LAST_CHUNK);
            }
        }
    }

    pub fn is_request_complete(&self) -> bool {
        self.upload != Upload::Open
    }

    /// The client has closed its sending side.
    pub fn end_request(&mut self) {
        self.client_has_ended = true;
        if self.upload != Upload::Over {
            self.upload = Upload::Ending;
        }
    }

    /// The worker leaves: the other side of a tunnel says goodbye, as it knows the protocol.
    pub fn leave_if_due(&mut self, now_ms: u64) {
        if self.leaves_ms <= now_ms {
            self.leaves_ms = NEVER_MS;
            self.end_request();
        }
    }

    /// Sends what waits for the other worker. Returns whether some of it has left.
    pub fn flush(&mut self) -> bool {
        let mut has_left = false;
        while self.has_unsent() {
            match socket::write(self.socket.as_fd(), &self.request[self.sent..], &[]) {
                Written::Bytes(count) => {
                    self.sent += count;
                    has_left = true;
                }
                Written::Full => return has_left,
                // It has answered without the rest, or is gone: its answer tells.
                Written::Broken => {
                    self.upload = Upload::Over;
                    break;
                }
            }
        }
        (self.request, self.sent) = (Vec::new(), 0);
        if self.upload == Upload::Ending {
            self.upload = Upload::Over;
            socket::end_sending(self.socket.as_fd());
        }
        has_left
    }

    // From the other worker.

    /// Reads more of the answer, after all parts that were here are used. So one read waits at most, behind a part of a head.
    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        let read = socket::read(self.socket.as_fd(), buffer);
        if let Read::Bytes(count) = read {
            self.response.drain(..std::mem::take(&mut self.used));
            self.response.extend_from_slice(&buffer[..count]);
        }
        read
    }

    /// Returns the next part of the answer, with the bytes that its spans refer to, and how many of them it uses.
    ///
    /// # Errors
    /// They are not an answer.
    pub fn next(&mut self) -> Result<(ResponsePart, usize), Fault> {
        if self.decoded > 0 {
            return Ok((ResponsePart::Data(0..self.decoded), self.decoded));
        }
        let (used, part) = self.decoder.next(&self.response[self.used..], &mut self.fields)?;
        Ok((part, used))
    }

    /// Bytes that were read and not used.
    pub fn input(&self) -> &[u8] {
        &self.response[self.used..]
    }

    /// The first bytes are used. The `decoded` ones behind them belong to the body.
    pub fn use_up(&mut self, used: usize, decoded: usize) {
        self.decoded = decoded;
        self.used += used;
        if self.used == self.response.len() {
            (self.response, self.used) = (Vec::new(), 0);
        }
    }

    /// When a worker that exits ends it, in monotonic milliseconds.
    pub fn given_up_ms(&self, response: &Response) -> u64 {
        let is_stream = !self.is_tunnel && response.is_endless();
        if is_stream { self.mercy_ends_ms.min(self.stream_ends_ms) } else { self.mercy_ends_ms }
    }

    /// The other worker has ended its side. Returns whether its answer is complete.
    pub fn is_complete_at_end(&self) -> bool {
        self.decoder.is_complete_at_end()
    }
}
