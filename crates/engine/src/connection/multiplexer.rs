//! A connection of HTTP/2 as its requests share it: the transport, the session, and what waits for each stream.
//!
//! Each stream is a connection of its own in the table, whose transport is a [`StreamLink`] to this; so streams wait, are given up and are
//! served by threads as other connections are. The connection that has the socket reads for all of them. It is locked for moments, in
//! which no code of an application runs; whoever holds the table's lock may take this one, never the other way round.

mod deadline;
mod room;
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

/// Bytes of frames that wait for a client, all streams of its connection together. Beyond it their applications wait.
const OUTPUT_BYTES: usize = 256 * 1024;

/// Requests of a connection that begin before others have their turn: so many at the most, and after ones that were slow no more than there are
/// threads, or two.
const BATCH_MOST: usize = 32;
const BATCH_LEAST: usize = 2;

/// A batch that took longer than this many microseconds halves the next.
const BATCH_US: u64 = 1_000;

/// An answer that came within this many microseconds of the one before it was quick.
const HOLD_US: u64 = 200;

/// Behind so many quick answers the next one waits for those of the other requests of its batch, so that they leave together. None waits while
/// code of an application runs ([`HeldAnswers`]): these are answers of files and routes.
const QUICK_ANSWERS: u32 = 16;

/// Times that the streams of a connection may ask for its turn before it must stand in line behind all others, at the poll.
const CALLS_MOST: u32 = 4;

/// A connection as its streams share it.
pub struct SharedMultiplexer {
    /// Never locked while code of an application runs.
    state: Mutex<Multiplexer>,
}

pub struct Multiplexer {
    pub transport: Transport,
    pub session: Http2,
    limits: HeadLimits,
    /// The streams that are open, by number.
    lines: Vec<Line>,
    /// Requests that wait to be made connections of.
    arrived: Vec<Arrival>,
    /// Streams that wait until something of what waits for the client has left, in the order in which they began to.
    blocked: Vec<u32>,
    /// Those that wait until the client takes more, by its windows.
    starved: Vec<u32>,
    /// Streams with news.
    woken: Vec<u32>,
    /// Other threads may read and send for the connection while one waits for room; and those that wait, to be told of it.
    has_threads: bool,
    bells: Vec<Arc<EventFd>>,
    /// Name of the connection that has the socket.
    pub key: Key,
    /// Bytes that were read and not understood yet.
    input: Vec<u8>,
    /// Frames wait to be sent together with those that follow, and the worker knows of it.
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
    /// What the client has said that is not HTTP/2.
    fault: Option<Http2Error>,
    /// The poll has told that the client sends no more: what is left to read ends with the end itself.
    pub peer_has_ended: bool,
    /// How far the end has come that a draining worker gives it.
    pub farewell: Farewell,
    deadline: Deadline,
    /// Since the last look at the deadline something has left for the client, or was understood of what it has said.
    has_sent: bool,
    has_understood: bool,
}

/// When a connection has its turn that a stream asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Another has asked already.
    Made,
    /// Behind those that have news now.
    Next,
    /// Behind all others, at the poll.
    Last,
}

/// The end of a connection by a worker that drains (RFC 9113 section 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    Unsaid,
    /// The client knows that there is an end; requests that were on their way are served until then, in monotonic milliseconds.
    Announced {
        until_ms: u64,
    },
    /// It knows which request was the last.
    Said,
}

/// A stream, from its request's head to the end of its answer.
struct Line {
    number: u32,
    /// Name of its own connection, once it has one.
    key: Option<Key>,
    /// The body as it has come.
    inbound: Vec<u8>,
    /// The body is handed on in chunks, as nobody knows its length.
    is_chunked: bool,
    /// What comes is another protocol's, whose end is the client's.
    is_tunnel: bool,
    has_ended: bool,
    /// The client has taken its request back.
    is_reset: bool,
    /// Bytes of the answer that have found room.
    sent_bytes: u64,
}

/// A connection of HTTP/2 that begins.
pub struct Beginning {
    pub session: Http2,
    /// The request that asked for it.
    pub upgraded: Option<Arrival>,
}

/// A request whose head is here, or the fault in it.
pub struct Arrival {
    pub number: u32,
    /// It asks for another protocol (RFC 8441).
    pub is_tunnel: bool,
    pub request: Result<(HeadEvent, HeadParts), Fault>,
}

/// RFC 8441 section 4: a server that does not know the protocol answers 501.
const UNKNOWN_PROTOCOL: Fault = Fault::new(501, "The only protocol for an extended CONNECT is websocket.");

impl Arrival {
    /// `protocol` is what an extended CONNECT asks for, a span of the head's bytes.
    pub fn new(number: u32, mut head: HeadEvent, mut parts: HeadParts, protocol: Option<Span>) -> Arrival {
        let is_known = protocol.is_none_or(|name| name.of(&parts.bytes) == b"websocket");
        if matches!(head.bytes, HeadBytes::Parts) {
            head.bytes = HeadBytes::Own(std::mem::take(&mut parts.bytes));
        }
        if protocol.is_some() {
            // What follows is the other protocol's.
            head.body = Framing::None;
        }
        Arrival {
            number,
            is_tunnel: protocol.is_some(),
            request: if is_known { Ok((head, parts)) } else { Err(UNKNOWN_PROTOCOL) },
        }
    }
}

/// The result of reading what a client has sent.
#[derive(Debug)]
pub enum Pumped {
    /// All that has come is understood.
    All,
    /// More is here, which waits for the requests before it, or for room for what would be answered.
    Rest,
    /// More may be here, and its turn comes after those of others.
    Later,
    /// The client says no more.
    End,
    Broken,
    /// It is not HTTP/2 what it says: it was told, and nothing that follows can be understood.
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
    /// `input` is what was read and is the session's to understand; by `deadline_ms` the client must have asked something.
    pub fn shared(
        transport: Transport,
        session: Http2,
        worker: &Worker,
        (key, deadline_ms): (Key, u64),
        input: Vec<u8>,
    ) -> Arc<SharedMultiplexer> {
        let batch_least = worker.slots.len().clamp(BATCH_LEAST, BATCH_MOST);
        let multiplexer = Multiplexer {
            transport,
            session,
            limits: worker.head_limits,
            lines: Vec::new(),
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
            farewell: Farewell::Unsaid,
            deadline: Deadline::new(deadline_ms),
            has_sent: false,
            has_understood: false,
        };
        Arc::new(SharedMultiplexer { state: Mutex::new(multiplexer) })
    }

    /// No request is begun or under way.
    pub fn is_idle(&self) -> bool {
        self.lines.is_empty() && !self.has_part() && !self.transport.has_unsent()
    }

    /// Something of a frame or of a head is here.
    pub fn has_part(&self) -> bool {
        !self.input.is_empty() || self.session.has_part_of_head()
    }

    /// Until when the client may keep us waiting now. `timeout_ms` is for what it is in the middle of, `keepalive_ms` for its next request.
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
        !self.lines.is_empty()
    }

    /// The connection that has the socket must have its turn: streams have left something for it.
    pub fn wants_turn(&mut self) -> bool {
        self.is_dirty || self.has_rest || !self.woken.is_empty() || !self.session.output().is_empty() || self.may_go_on_sending()
    }

    /// Its turn is asked for by a stream, where it was not yet. `must_wait`: others come first in any case.
    pub fn call(&mut self, must_wait: bool) -> Call {
        if std::mem::replace(&mut self.is_called, true) {
            return Call::Made;
        }
        self.calls += 1;
        if self.calls <= CALLS_MOST && !must_wait && !self.transport.turn_is_over() {
            return Call::Next;
        }
        self.calls = 0;
        Call::Last
    }

    /// There is more to send, which waits for nothing but its turn.
    fn may_go_on_sending(&self) -> bool {
        self.transport.unsent() > 0 && !self.transport.is_full && !self.transport.is_broken
    }

    /// The others have had theirs.
    pub fn begin_turn(&mut self) {
        self.is_called = false;
        self.transport.begin_turn();
        self.transport.is_full = false;
        let now_us = precise_us();
        if std::mem::take(&mut self.has_rest) {
            let is_quick = now_us.saturating_sub(self.marked_us) < BATCH_US;
            self.batch = if is_quick { (self.batch * 2).min(BATCH_MOST) } else { (self.batch / 2).max(self.batch_least) };
        }
        self.marked_us = now_us;
        self.flush();
    }

    /// Reads and understands what the client has sent, into `buffer`. `may_read` is asked before each read.
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
                        // What was kept stays where it is: a frame that drips is not copied as often as it has bytes.
                        let mut input = std::mem::take(&mut self.input);
                        input.extend_from_slice(came);
                        let used = self.feed(&input, &mut parts);
                        input.drain(..used);
                        self.input = input;
                    }
                    // An edge-triggered poll tells of what comes after a read that did not fill the buffer.
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

    /// Understands bytes, as far as requests may begin; returns how many.
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
                    // One that nobody has seen yet never was.
                    self.arrived.retain(|arrival| arrival.number != stream);
                    if let Some(line) = self.line(stream) {
                        line.is_reset = true;
                        // Its bytes have been given back to the client's window: so they are not kept either.
                        line.inbound = Vec::new();
                        self.woken.push(stream);
                        self.ring();
                    }
                    self.lines.retain(|line| !line.is_reset || line.key.is_some());
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
        let line = Line {
            number: arrival.number,
            key: None,
            inbound: Vec::new(),
            is_chunked,
            is_tunnel: arrival.is_tunnel,
            has_ended: false,
            is_reset: false,
            sent_bytes: 0,
        };
        let place = self.lines.partition_point(|line| line.number < arrival.number);
        self.lines.insert(place, line);
        self.arrived.push(arrival);
    }

    fn take_in(&mut self, number: u32, bytes: &[u8]) {
        let Some(line) = self.line(number) else { return };
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
        let Some(line) = self.line(number) else { return };
        line.has_ended = true;
        if line.is_chunked {
            line.inbound.extend_from_slice(b"0\r\n\r\n");
        }
        self.woken.push(number);
    }

    /// Sends what waits, and lets streams go on that have waited for room.
    pub fn flush(&mut self) {
        self.is_dirty = false;
        self.write_own();
        let before = self.transport.turn_left();
        self.transport.send(false);
        self.has_sent |= self.transport.turn_left() < before;
        if self.transport.unsent() <= OUTPUT_BYTES / 2 && !self.transport.is_broken {
            self.wake_blocked();
        }
        if self.transport.unsent() == 0 && self.lines.is_empty() {
            drop(self.transport.take_buffer());
            self.session.rest();
        }
    }

    /// Puts what the session itself has to say behind the frames that wait.
    fn write_own(&mut self) {
        let own = self.session.output();
        self.transport.outgoing.bytes.append(own);
    }

    /// No more is made of requests, or read, before the client has taken something.
    pub fn is_behind(&self) -> bool {
        self.transport.unsent() >= OUTPUT_BYTES
    }

    /// Says that the client is to open no more streams. `is_last`: those that are open were the last.
    pub fn go_away(&mut self, is_last: bool) {
        self.session.go_away(is_last);
        self.flush();
    }

    /// Something has left: those that waited for it go on.
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

    /// The client has gone, or nothing of it can be understood any more: all streams learn of it.
    pub fn break_all(&mut self) {
        self.arrived.clear();
        self.lines.retain(|line| line.key.is_some());
        for line in &mut self.lines {
            line.is_reset = true;
            self.woken.push(line.number);
        }
        self.ring();
    }

    /// Takes the names of the connections of streams that have news.
    pub fn take_woken(&mut self) -> Vec<Key> {
        let mut woken = std::mem::take(&mut self.woken);
        woken.sort_unstable();
        woken.dedup();
        woken.into_iter().filter_map(|number| self.line(number)?.key).collect()
    }

    pub fn take_arrived(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrived)
    }

    /// The stream has a connection of its own now.
    pub fn name(&mut self, number: u32, key: Key) {
        if let Some(line) = self.line(number) {
            line.key = Some(key);
        }
    }

    /// The stream has had its turn and wants another, behind those of all other connections.
    pub fn wake_later(&mut self, number: u32) {
        self.woken.push(number);
    }

    fn line(&mut self, number: u32) -> Option<&mut Line> {
        let place = self.lines.binary_search_by_key(&number, |line| line.number).ok()?;
        self.lines.get_mut(place)
    }

    /// An answer is complete: its frames wait a moment for others, or leave at once. `shared` is this one.
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

    /// Sends what was held, where it has not left meanwhile.
    fn let_go(&mut self) {
        self.is_held = false;
        if self.is_dirty {
            self.flush();
            // What streams have waited for is the next turn's, which they have asked for with their answers.
            self.is_dirty = true;
        }
    }

    /// The stream's exchange is over. An answer that has not ended is broken off, as nothing says that it is whole.
    fn end_line(&mut self, number: u32) {
        let Ok(place) = self.lines.binary_search_by_key(&number, |line| line.number) else { return };
        self.lines.remove(place);
        self.blocked.retain(|blocked| *blocked != number);
        self.starved.retain(|starved| *starved != number);
        self.session.reset(number, ErrorCode::INTERNAL_ERROR);
    }
}
