//! An HTTP/2 connection as its requests share it: the transport, the session, and the state of each stream.
//!
//! Each stream is a separate connection in the table, with a [`StreamLink`] to this as its transport. So streams wait, are given
//! up and are served by threads like other connections. The connection that has the socket reads for all of them. The lock is
//! held for moments, in which no application code runs. A thread that holds the table's lock may take this one, never the other
//! way round. It does not know about the application or the table. Workers run it.

mod bells;
mod deadline;
mod room_wait;
mod stream_link;
mod streams;
mod turns;
mod urgency;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{ErrorCode, Http2, Http2Error, Http2Event};
use bolide_protocol::session::HeadParts;

use crate::exchange::worker::Worker;
use crate::scheduling::clock::precise_us;
use crate::scheduling::connections::Key;
use crate::scheduling::held_answers::{HeldAnswers, Holding};
use crate::sockets::socket::Read;
use crate::sockets::transport::Transport;
use bells::Bells;
use deadline::{Deadline, Facts};
pub use stream_link::StreamLink;
pub use streams::Arrival;
use streams::OpenStreams;
pub use turns::Call;
use turns::Turns;
pub use urgency::Ranks;

/// Bytes of frames that wait for a client, over all streams of its connection. Beyond this their applications wait.
const OUTPUT_BYTES: usize = 256 * 1024;

/// A connection as its streams share it.
pub struct SharedMultiplexer {
    /// Never locked while application code runs.
    state: Mutex<Multiplexer>,
}

pub struct Multiplexer {
    pub transport: Transport,
    pub session: Http2,
    limits: HeadLimits,
    streams: OpenStreams,
    turns: Turns,
    /// Name of the connection that has the socket.
    pub key: Key,
    /// Bytes that were read and not processed yet.
    input: Vec<u8>,
    /// Frames wait to be sent together with later ones, and the worker knows of it.
    is_dirty: bool,
    is_held: bool,
    held_answers: Arc<HeldAnswers>,
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

/// The start of an HTTP/2 connection.
pub struct Beginning {
    pub session: Http2,
    /// The request that asked for the upgrade.
    pub upgraded: Option<Arrival>,
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
        key: Key,
        deadline_ms: u64,
        input: Vec<u8>,
    ) -> Arc<SharedMultiplexer> {
        let multiplexer = Multiplexer {
            transport,
            session,
            limits: worker.head_limits,
            streams: OpenStreams::new(Bells::new(!worker.has_one_thread), worker.may_cancel),
            turns: Turns::new(worker.slots.len()),
            key,
            input,
            is_dirty: false,
            is_held: false,
            held_answers: worker.held_answers.clone(),
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
        self.is_dirty
            || self.turns.has_rest
            || self.streams.has_woken()
            || !self.session.output().is_empty()
            || self.may_go_on_sending()
    }

    /// A stream asks for the connection's turn, unless it was asked for already. `must_wait`: others come first in any case.
    pub fn call(&mut self, must_wait: bool) -> Call {
        self.turns.call(must_wait || self.transport.turn_is_over())
    }

    /// There is more to send, which waits only for the next turn.
    fn may_go_on_sending(&self) -> bool {
        self.transport.unsent() > 0 && !self.transport.is_full && !self.transport.is_broken
    }

    /// Begins a turn: the other connections have had theirs.
    pub fn begin_turn(&mut self) {
        self.transport.begin_turn();
        self.transport.is_full = false;
        self.turns.begin(precise_us());
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
            if self.turns.has_rest || self.is_behind() {
                self.turns.has_rest |= !self.input.is_empty();
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
                        && !self.turns.has_rest
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
            if self.streams.arrived() >= self.turns.batch() || self.is_behind() {
                self.turns.has_rest = used < bytes.len();
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
                    self.arrive(Arrival::new(stream, head, parts.take_head(), protocol));
                }
                Http2Event::Refused { stream, fault } => self.streams.arrive(Arrival::refused(stream, fault)),
                Http2Event::Data { stream, range } => self.streams.take_in(stream, &rest[range]),
                Http2Event::End { stream } => self.streams.end_inbound(stream),
                Http2Event::Reset { stream, .. } => self.streams.reset(stream),
                Http2Event::Room { stream } => self.streams.wake_starved(stream),
                Http2Event::Ended => {}
            }
        }
        self.has_understood |= used > 0;
        used
    }

    /// A request begins.
    pub fn arrive(&mut self, mut arrival: Arrival) {
        if let Some(times) = &mut self.transport.read_times {
            // Its head is in the bytes that were read last.
            times.begin_request();
            arrival.start = Some(times.take());
        }
        self.streams.arrive(arrival);
    }

    /// Sends waiting bytes, and wakes streams that have waited for room.
    pub fn flush(&mut self) {
        self.is_dirty = false;
        self.write_own();
        let before = self.transport.turn_left();
        self.transport.send(false);
        self.has_sent |= self.transport.turn_left() < before;
        if self.transport.unsent() <= OUTPUT_BYTES / 2 && !self.transport.is_broken {
            self.streams.wake_blocked();
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

    /// A stream has more to send than there is room for.
    fn note_waiting(&mut self, number: u32) {
        let is_behind = self.is_behind();
        self.streams.note_waiting(number, is_behind);
    }

    /// The client has gone, or violates the protocol: wakes all streams with a reset.
    pub fn break_all(&mut self) {
        self.streams.break_all();
    }

    /// Takes the names of the connections of streams that have events.
    pub fn take_woken(&mut self) -> Vec<Key> {
        self.streams.take_woken()
    }

    pub fn take_arrived(&mut self) -> Vec<Arrival> {
        self.streams.take_arrived()
    }

    /// The stream has its connection now.
    pub fn name(&mut self, number: u32, key: Key) {
        self.streams.name(number, key);
    }

    /// The stream has had its turn and wants another one, behind all other connections.
    pub fn wake_later(&mut self, number: u32) {
        self.streams.wake_later(number);
    }

    /// An answer is complete: its frames wait a moment for others, or are sent immediately. `shared` is this multiplexer.
    fn hold(&mut self, shared: &Arc<SharedMultiplexer>) {
        self.is_dirty = true;
        let may_hold = self.turns.note_answer(precise_us()) && !self.is_behind();
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
        if self.streams.end(number) {
            self.session.reset(number, ErrorCode::INTERNAL_ERROR);
        }
    }
}
