//! An HTTP/2 connection as its requests share it: the transport, the session, and the state of each stream.
//!
//! Each stream is a separate connection in the table, with a [`StreamLink`] to this as its transport. So streams wait, are given
//! up and are served by threads like other connections. The connection that has the socket reads for all of them. The lock is
//! held for moments, in which no application code runs. A thread that holds the table's lock may take this one, never the other
//! way round. It does not know about the application or the table. Workers run it.

mod deadline;
mod room_wait;
mod stream_link;
mod urgency;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bolide_protocol::http1::Framing;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{ErrorCode, Http2, Http2Error, Http2Event};
use bolide_protocol::session::{HeadBytes, HeadEvent, HeadParts};
use bolide_protocol::{Fault, Span};

use nix::sys::eventfd::EventFd;

use crate::exchange::worker::Worker;
use crate::scheduling::clock::precise_us;
use crate::scheduling::connections::Key;
use crate::scheduling::held_answers::{HeldAnswers, Holding};
use crate::sockets::socket::Read;
use crate::sockets::transport::Transport;
use deadline::{Deadline, Facts};
pub use stream_link::StreamLink;
pub use urgency::Ranks;

/// Bytes of frames that wait for a client, over all streams of its connection. Beyond this their applications wait.
const OUTPUT_BYTES: usize = 256 * 1024;

/// Maximum number of requests of a connection that begin before others have their turn. After slow ones it shrinks to the number
/// of threads, but not below two.
const MAX_BATCH: usize = 32;
const MIN_BATCH: usize = 2;

/// A batch that took longer than this many microseconds halves the next one.
const BATCH_US: u64 = 1_000;

/// An answer within this many microseconds of the one before it was quick.
const HOLD_US: u64 = 200;

/// After this many quick answers, the next one waits for those of the other requests of its batch, so that they are sent
/// together. None waits while application code runs ([`HeldAnswers`]): these are answers of files and routes.
const QUICK_ANSWERS: u32 = 16;

/// How often the streams of a connection may ask for its turn before it must queue behind all others, at the poll.
const MAX_CALLS: u32 = 4;

/// A connection as its streams share it.
pub struct SharedMultiplexer {
    /// Never locked while application code runs.
    state: Mutex<Multiplexer>,
}

pub struct Multiplexer {
    pub transport: Transport,
    pub session: Http2,
    limits: HeadLimits,
    /// The open streams, by number.
    streams: Vec<StreamEntry>,
    /// Requests that wait to become connections.
    arrived: Vec<Arrival>,
    /// Streams that wait until waiting bytes were sent, in the order in which they began to wait.
    blocked: Vec<u32>,
    /// Streams that wait for the client's flow-control windows.
    starved: Vec<u32>,
    /// Streams with events.
    woken: Vec<u32>,
    /// Other threads may read and send for the connection while one waits for room. `bells` notify the waiting threads.
    has_threads: bool,
    bells: Vec<Arc<EventFd>>,
    /// Name of the connection that has the socket.
    pub key: Key,
    /// Bytes that were read and not processed yet.
    input: Vec<u8>,
    /// Frames wait to be sent together with later ones, and the worker knows of it.
    is_dirty: bool,
    is_held: bool,
    held_answers: Arc<HeldAnswers>,
    /// More requests are here than began in this turn.
    has_rest: bool,
    batch: usize,
    batch_least: usize,
    /// Its turn was asked for, and has not come yet.
    is_called: bool,
    calls: u32,
    /// When the last answer was complete, or the batch began, in microseconds.
    marked_us: u64,
    quick_answers: u32,
    /// The client's violation of HTTP/2.
    fault: Option<Http2Error>,
    /// The poll has reported that the client sends no more: reading must continue to the end of stream.
    pub peer_has_ended: bool,
    /// The state of the shutdown by a draining worker.
    pub goaway: Goaway,
    deadline: Deadline,
    /// Since the last look at the deadline, bytes were sent to the client, or received bytes were processed.
    has_sent: bool,
    has_understood: bool,
}

/// When a connection has the turn that a stream asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Another stream has asked already.
    Made,
    /// Behind the connections that have events now.
    Next,
    /// Behind all others, at the poll.
    Last,
}

/// The shutdown of a connection by a draining worker (RFC 9113 section 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goaway {
    Unsent,
    /// The client knows that the connection ends; requests that were on their way are served until this time, in monotonic
    /// milliseconds.
    Announced {
        until_ms: u64,
    },
    /// It knows the number of the last request.
    Final,
}

/// A stream, from its request's head to the end of its answer.
struct StreamEntry {
    number: u32,
    /// Name of the stream's connection, once it has one.
    key: Option<Key>,
    /// The body as received.
    inbound: Vec<u8>,
    /// The body is passed on in chunks, as its length is unknown.
    is_chunked: bool,
    /// The bytes are another protocol's, and the client's end of the stream is its end.
    is_tunnel: bool,
    has_ended: bool,
    /// The client has cancelled its request.
    is_reset: bool,
    /// Bytes of the answer that were accepted.
    sent_bytes: u64,
}

/// The start of an HTTP/2 connection.
pub struct Beginning {
    pub session: Http2,
    /// The request that asked for the upgrade.
    pub upgraded: Option<Arrival>,
}

/// A request whose head is complete, or the fault in it.
pub struct Arrival {
    pub number: u32,
    /// It asks for another protocol (RFC 8441).
    pub is_tunnel: bool,
    pub request: Result<(HeadEvent, HeadParts), Fault>,
}

/// RFC 8441 section 4: a server that does not know the protocol answers 501.
const UNKNOWN_PROTOCOL: Fault = Fault::new(501, "The only protocol for an extended CONNECT is websocket.");

impl Arrival {
    /// `protocol` is the protocol that an extended CONNECT asks for, a span of the head's bytes.
    pub fn new(number: u32, mut head: HeadEvent, mut parts: HeadParts, protocol: Option<Span>) -> Arrival {
        let is_known = protocol.is_none_or(|name| name.of(&parts.bytes) == b"websocket");
        if matches!(head.bytes, HeadBytes::Parts) {
            head.bytes = HeadBytes::Own(std::mem::take(&mut parts.bytes));
        }
        if protocol.is_some() {
            // The bytes that follow are the other protocol's.
            head.body = Framing::None;
        }
        Arrival {
            number,
            is_tunnel: protocol.is_some(),
            request: if is_known { Ok((head, parts)) } else { Err(UNKNOWN_PROTOCOL) },
        }
    }
}

/// The result of reading from a client.
#[derive(Debug)]
pub enum Pumped {
    /// All received bytes are processed.
    All,
    /// More bytes are here, which wait for the requests before them, or for room for their answers.
    Rest,
    /// More may be here, but other connections have their turn first.
    Later,
    /// The client does not send more.
    End,
    Broken,
    /// The client does not speak HTTP/2: it was sent an error, and no more bytes can be processed.
    Fault(Http2Error),
}

impl SharedMultiplexer {
    pub fn lock(&self) -> MutexGuard<'_, Multiplexer> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding for SharedMultiplexer {
    fn let_go(&self) {
        self.lock().let_go();
    }
}

impl Multiplexer {
    /// `input` holds bytes that were read for the session; the client must have sent a request by `deadline_ms`.
    pub fn shared(
        transport: Transport,
        session: Http2,
        worker: &Worker,
        (key, deadline_ms): (Key, u64),
        input: Vec<u8>,
    ) -> Arc<SharedMultiplexer> {
        let batch_least = worker.slots.len().clamp(MIN_BATCH, MAX_BATCH);
        let multiplexer = Multiplexer {
            transport,
            session,
            limits: worker.head_limits,
            streams: Vec::new(),
            arrived: Vec::new(),
            blocked: Vec::new(),
            starved: Vec::new(),
            woken: Vec::new(),
            has_threads: !worker.has_one_thread,
            bells: Vec::new(),
            key,
            input,
            is_dirty: false,
            is_held: false,
            held_answers: worker.held_answers.clone(),
            has_rest: false,
            batch: batch_least,
            batch_least,
            is_called: false,
            calls: 0,
            marked_us: 0,
            quick_answers: 0,
            fault: None,
            peer_has_ended: false,
            goaway: Goaway::Unsent,
            deadline: Deadline::new(deadline_ms),
            has_sent: false,
            has_understood: false,
        };
        Arc::new(SharedMultiplexer { state: Mutex::new(multiplexer) })
    }

    /// No request has begun or is in progress.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty() && !self.has_part() && !self.transport.has_unsent()
    }

    /// A part of a frame or of a head is here.
    pub fn has_part(&self) -> bool {
        !self.input.is_empty() || self.session.has_part_of_head()
    }

    /// Returns until when the client may keep the worker waiting. `timeout_ms` is for incomplete input or output, `keepalive_ms`
    /// for its next request.
    pub fn look_at_deadline(&mut self, now_ms: u64, timeout_ms: u64, keepalive_ms: u64) -> u64 {
        let facts = Facts {
            has_streams: self.has_streams(),
            has_unsent: self.transport.has_unsent(),
            has_sent: std::mem::take(&mut self.has_sent),
            has_part_of_head: self.session.has_part_of_head(),
            has_part: !self.input.is_empty(),
            has_understood: std::mem::take(&mut self.has_understood),
        };
        self.deadline.look(facts, now_ms, timeout_ms, keepalive_ms)
    }

    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// The connection that has the socket needs a turn: streams have work for it.
    pub fn wants_turn(&mut self) -> bool {
        self.is_dirty || self.has_rest || !self.woken.is_empty() || !self.session.output().is_empty() || self.may_go_on_sending()
    }

    /// A stream asks for the connection's turn, unless it was asked for already. `must_wait`: others come first in any case.
    pub fn call(&mut self, must_wait: bool) -> Call {
        if std::mem::replace(&mut self.is_called, true) {
            return Call::Made;
        }
        self.calls += 1;
        if self.calls <= MAX_CALLS && !must_wait && !self.transport.turn_is_over() {
            return Call::Next;
        }
        self.calls = 0;
        Call::Last
    }

    /// There is more to send, which waits only for the next turn.
    fn may_go_on_sending(&self) -> bool {
        self.transport.unsent() > 0 && !self.transport.is_full && !self.transport.is_broken
    }

    /// Begins a turn: the other connections have had theirs.
    pub fn begin_turn(&mut self) {
        self.is_called = false;
        self.transport.begin_turn();
        self.transport.is_full = false;
        let now_us = precise_us();
        if std::mem::take(&mut self.has_rest) {
            let is_quick = now_us.saturating_sub(self.marked_us) < BATCH_US;
            self.batch = if is_quick { (self.batch * 2).min(MAX_BATCH) } else { (self.batch / 2).max(self.batch_least) };
        }
        self.marked_us = now_us;
        self.flush();
    }

    /// Reads into `buffer` and processes the client's bytes. `may_read` is asked before each read.
    pub fn pump(&mut self, buffer: &mut [u8], mut may_read: impl FnMut(usize) -> bool) -> Pumped {
        let mut parts = HeadParts::default();
        loop {
            let mut before = std::mem::take(&mut self.input);
            if !before.is_empty() {
                let used = self.feed(&before, &mut parts);
                before.drain(..used);
                self.input = before;
            }
            if let Some(fault) = self.fault {
                return Pumped::Fault(fault);
            }
            if self.has_rest || self.is_behind() {
                self.has_rest |= !self.input.is_empty();
                return Pumped::Rest;
            }
            if !may_read(0) {
                return Pumped::Later;
            }
            let held = self.input.len();
            let Some(room) = buffer.get_mut(held..).filter(|room| !room.is_empty()) else { return Pumped::Broken };
            match self.transport.read(room) {
                Read::Nothing => return Pumped::All,
                Read::End => return Pumped::End,
                Read::Broken => return Pumped::Broken,
                Read::Bytes(count) => {
                    may_read(self.transport.read_cost(count));
                    let is_full = held + count == buffer.len() || self.transport.has_more();
                    let came = &buffer[held..held + count];
                    if held == 0 {
                        let used = self.feed(came, &mut parts);
                        self.input.extend_from_slice(&came[used..]);
                    } else {
                        // Kept bytes are not copied: a frame that trickles in would be copied for each of its bytes.
                        let mut input = std::mem::take(&mut self.input);
                        input.extend_from_slice(came);
                        let used = self.feed(&input, &mut parts);
                        input.drain(..used);
                        self.input = input;
                    }
                    // An edge-triggered poll reports bytes that arrive after a read that did not fill the buffer.
                    if !is_full
                        && self.fault.is_none()
                        && !self.has_rest
                        && !self.peer_has_ended
                        && !self.transport.peer_has_closed()
                    {
                        return Pumped::All;
                    }
                }
            }
        }
    }

    /// Processes bytes as far as requests may begin; returns how many.
    fn feed(&mut self, bytes: &[u8], parts: &mut HeadParts) -> usize {
        let mut used = 0;
        while self.fault.is_none() {
            if self.arrived.len() >= self.batch || self.is_behind() {
                self.has_rest = used < bytes.len();
                break;
            }
            let rest = &bytes[used..];
            let (count, event) = match self.session.next(rest, &self.limits, parts) {
                Ok(understood) => understood,
                Err(fault) => {
                    self.fault = Some(fault);
                    break;
                }
            };
            used += count;
            match event {
                Http2Event::More => break,
                Http2Event::Head { stream, head, protocol, .. } => {
                    let arrival = Arrival::new(stream, head, parts.take_head(), protocol);
                    self.arrive(arrival);
                }
                Http2Event::Refused { stream, fault } => {
                    self.arrive(Arrival { number: stream, is_tunnel: false, request: Err(fault) })
                }
                Http2Event::Data { stream, range } => self.take_in(stream, &rest[range]),
                Http2Event::End { stream } => self.end_inbound(stream),
                Http2Event::Reset { stream, .. } => {
                    // A request that has no connection yet is dropped.
                    self.arrived.retain(|arrival| arrival.number != stream);
                    if let Some(line) = self.entry(stream) {
                        line.is_reset = true;
                        // Its bytes were returned to the client's window, so they are not kept either.
                        line.inbound = Vec::new();
                        self.woken.push(stream);
                        self.ring();
                    }
                    self.streams.retain(|line| !line.is_reset || line.key.is_some());
                }
                Http2Event::Room { stream } => self.wake_starved(stream),
                Http2Event::Ended => {}
            }
        }
        self.has_understood |= used > 0;
        used
    }

    /// A request begins.
    pub fn arrive(&mut self, arrival: Arrival) {
        let is_chunked = matches!(&arrival.request, Ok((head, _)) if head.body == Framing::Chunked);
        let line = StreamEntry {
            number: arrival.number,
            key: None,
            inbound: Vec::new(),
            is_chunked,
            is_tunnel: arrival.is_tunnel,
            has_ended: false,
            is_reset: false,
            sent_bytes: 0,
        };
        let place = self.streams.partition_point(|line| line.number < arrival.number);
        self.streams.insert(place, line);
        self.arrived.push(arrival);
    }

    fn take_in(&mut self, number: u32, bytes: &[u8]) {
        let Some(line) = self.entry(number) else { return };
        if bytes.is_empty() {
            return;
        }
        if line.is_chunked {
            line.inbound.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            line.inbound.extend_from_slice(bytes);
            line.inbound.extend_from_slice(b"\r\n");
        } else {
            line.inbound.extend_from_slice(bytes);
        }
        self.woken.push(number);
    }

    fn end_inbound(&mut self, number: u32) {
        let Some(line) = self.entry(number) else { return };
        line.has_ended = true;
        if line.is_chunked {
            line.inbound.extend_from_slice(b"0\r\n\r\n");
        }
        self.woken.push(number);
    }

    /// Sends waiting bytes, and wakes streams that have waited for room.
    pub fn flush(&mut self) {
        self.is_dirty = false;
        self.write_own();
        let before = self.transport.turn_left();
        self.transport.send(false);
        self.has_sent |= self.transport.turn_left() < before;
        if self.transport.unsent() <= OUTPUT_BYTES / 2 && !self.transport.is_broken {
            self.wake_blocked();
        }
        if self.transport.unsent() == 0 && self.streams.is_empty() {
            drop(self.transport.take_buffer());
            self.session.rest();
        }
    }

    /// Appends the session's own frames to the waiting ones.
    fn write_own(&mut self) {
        let own = self.session.output();
        self.transport.outgoing.bytes.append(own);
    }

    /// Nothing more is read or served before the client has read some of the waiting bytes.
    pub fn is_behind(&self) -> bool {
        self.transport.unsent() >= OUTPUT_BYTES
    }

    /// Tells the client to open no more streams. `is_last`: the open ones were the last.
    pub fn go_away(&mut self, is_last: bool) {
        self.session.go_away(is_last);
        self.flush();
    }

    /// Bytes were sent: streams that have waited for it continue.
    fn wake_blocked(&mut self) {
        if !self.blocked.is_empty() {
            self.woken.append(&mut self.blocked);
            self.ring();
        }
    }

    /// A window has opened: the stream's, or with 0 the connection's.
    fn wake_starved(&mut self, stream: u32) {
        let starved = std::mem::take(&mut self.starved);
        let (mut woken, starved) = starved.into_iter().partition(|number| stream == 0 || *number == stream);
        self.starved = starved;
        self.woken.append(&mut woken);
        self.ring();
    }

    /// A stream has more to send than there is room for.
    fn note_waiting(&mut self, number: u32) {
        let waiting = if self.is_behind() { &mut self.blocked } else { &mut self.starved };
        if !waiting.contains(&number) {
            waiting.push(number);
        }
    }

    /// The client has gone, or violates the protocol: wakes all streams with a reset.
    pub fn break_all(&mut self) {
        self.arrived.clear();
        self.streams.retain(|line| line.key.is_some());
        for line in &mut self.streams {
            line.is_reset = true;
            self.woken.push(line.number);
        }
        self.ring();
    }

    /// Takes the names of the connections of streams that have events.
    pub fn take_woken(&mut self) -> Vec<Key> {
        let mut woken = std::mem::take(&mut self.woken);
        woken.sort_unstable();
        woken.dedup();
        woken.into_iter().filter_map(|number| self.entry(number)?.key).collect()
    }

    pub fn take_arrived(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrived)
    }

    /// The stream has its connection now.
    pub fn name(&mut self, number: u32, key: Key) {
        if let Some(line) = self.entry(number) {
            line.key = Some(key);
        }
    }

    /// The stream has had its turn and wants another one, behind all other connections.
    pub fn wake_later(&mut self, number: u32) {
        self.woken.push(number);
    }

    fn entry(&mut self, number: u32) -> Option<&mut StreamEntry> {
        let place = self.streams.binary_search_by_key(&number, |line| line.number).ok()?;
        self.streams.get_mut(place)
    }

    /// An answer is complete: its frames wait a moment for others, or are sent immediately. `shared` is this multiplexer.
    fn hold(&mut self, shared: &Arc<SharedMultiplexer>) {
        let now_us = precise_us();
        let took_us = now_us.saturating_sub(std::mem::replace(&mut self.marked_us, now_us));
        self.quick_answers = if took_us < HOLD_US { self.quick_answers.saturating_add(1) } else { 0 };
        self.is_dirty = true;
        let may_hold = self.quick_answers >= QUICK_ANSWERS && !self.is_behind();
        let was_held = std::mem::replace(&mut self.is_held, true);
        let entry = || (!was_held).then(|| shared.clone() as Arc<dyn Holding>);
        if !(may_hold && self.held_answers.hold(entry)) {
            self.is_held = was_held;
            self.flush();
        }
    }

    /// Sends held answers, unless they were sent in the meantime.
    fn let_go(&mut self) {
        self.is_held = false;
        if self.is_dirty {
            self.flush();
            // Streams that have waited continue in the connection's next turn, which their answers have asked for.
            self.is_dirty = true;
        }
    }

    /// The stream's exchange is over. An incomplete answer is reset, as otherwise it would look complete.
    fn end_stream(&mut self, number: u32) {
        let Ok(place) = self.streams.binary_search_by_key(&number, |line| line.number) else { return };
        self.streams.remove(place);
        self.blocked.retain(|blocked| *blocked != number);
        self.starved.retain(|starved| *starved != number);
        self.session.reset(number, ErrorCode::INTERNAL_ERROR);
    }
}
