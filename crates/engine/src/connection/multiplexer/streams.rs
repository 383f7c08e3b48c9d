//! The streams of a connection: their input, and what each of them waits for. Any protocol that carries several requests on one
//! connection has them.
//!
//! It does not know the frames of the protocol, its windows or the socket. The threads that attend to the connection or to one of
//! its streams run it, under the connection's lock.

use bolide_protocol::http1::Framing;
use bolide_protocol::session::{HeadBytes, HeadEvent, HeadParts};
use bolide_protocol::{Fault, Span};

use super::bells::Bells;
use crate::logging::waiting::RequestStart;
use crate::scheduling::connections::Key;

/// A stream, from its request's head to the end of its answer.
pub struct StreamEntry {
    pub number: u32,
    /// Name of the stream's connection, once it has one.
    pub key: Option<Key>,
    /// The body as received.
    pub inbound: Vec<u8>,
    /// The body is passed on in chunks, as its length is unknown.
    is_chunked: bool,
    /// The bytes are another protocol's, and the client's end of the stream is its end.
    pub is_tunnel: bool,
    pub has_ended: bool,
    /// The client has cancelled its request.
    pub is_reset: bool,
    /// Bytes of the answer that were accepted.
    pub sent_bytes: u64,
}

/// A request whose head is complete, or the fault in it.
pub struct Arrival {
    pub number: u32,
    /// It asks for another protocol (RFC 8441).
    pub is_tunnel: bool,
    /// When the head was read, if the application is told.
    pub start: Option<RequestStart>,
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
            start: None,
            request: if is_known { Ok((head, parts)) } else { Err(UNKNOWN_PROTOCOL) },
        }
    }

    /// A request that is refused before it has a head.
    pub fn refused(number: u32, fault: Fault) -> Arrival {
        Arrival { number, is_tunnel: false, start: None, request: Err(fault) }
    }
}

#[derive(Default)]
pub struct OpenStreams {
    /// The open streams, by number.
    open: Vec<StreamEntry>,
    /// Requests that wait to become connections.
    arrived: Vec<Arrival>,
    /// Streams that wait until waiting bytes were sent, in the order in which they began to wait.
    blocked: Vec<u32>,
    /// Streams that wait for the client's flow-control windows.
    starved: Vec<u32>,
    /// Streams with events.
    woken: Vec<u32>,
    pub bells: Bells,
    /// Requests that are cancelled before they have a connection get one all the same, which logs them (`cancel-on-disconnect`).
    keeps_cancelled: bool,
}

impl OpenStreams {
    pub fn new(bells: Bells, keeps_cancelled: bool) -> OpenStreams {
        OpenStreams { bells, keeps_cancelled, ..OpenStreams::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn entries(&self) -> impl Iterator<Item = &StreamEntry> {
        self.open.iter()
    }

    pub fn entry(&mut self, number: u32) -> Option<&mut StreamEntry> {
        let place = self.place(number)?;
        self.open.get_mut(place)
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.open.binary_search_by_key(&number, |line| line.number).ok()
    }

    /// The stream has ended, or the client has cancelled it.
    pub fn is_gone(&self, number: u32) -> bool {
        self.place(number).is_none_or(|place| self.open[place].is_reset)
    }

    // Input.

    /// A request begins.
    pub fn arrive(&mut self, arrival: Arrival) {
        let line = StreamEntry {
            number: arrival.number,
            key: None,
            inbound: Vec::new(),
            is_chunked: matches!(&arrival.request, Ok((head, _)) if head.body == Framing::Chunked),
            is_tunnel: arrival.is_tunnel,
            has_ended: false,
            is_reset: false,
            sent_bytes: 0,
        };
        let place = self.open.partition_point(|line| line.number < arrival.number);
        self.open.insert(place, line);
        self.arrived.push(arrival);
    }

    pub fn arrived(&self) -> usize {
        self.arrived.len()
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

    /// Takes in a part of a stream's body.
    pub fn take_in(&mut self, number: u32, bytes: &[u8]) {
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

    /// A stream's body is complete.
    pub fn end_inbound(&mut self, number: u32) {
        let Some(line) = self.entry(number) else { return };
        line.has_ended = true;
        if line.is_chunked {
            line.inbound.extend_from_slice(b"0\r\n\r\n");
        }
        self.woken.push(number);
    }

    /// The client cancels a request. If the request has no connection yet, it is usually dropped.
    pub fn reset(&mut self, number: u32) {
        if !self.keeps_cancelled {
            self.arrived.retain(|arrival| arrival.number != number);
        }
        if let Some(line) = self.entry(number) {
            line.is_reset = true;
            // Its bytes were returned to the client's window, so they are not kept either.
            line.inbound = Vec::new();
            self.woken.push(number);
            self.bells.ring();
        }
        let keeps_cancelled = self.keeps_cancelled;
        self.open.retain(|line| !line.is_reset || line.key.is_some() || keeps_cancelled);
    }

    /// The client has gone, or violates the protocol: wakes all streams with a reset.
    pub fn break_all(&mut self) {
        self.arrived.clear();
        self.open.retain(|line| line.key.is_some());
        for line in &mut self.open {
            line.is_reset = true;
            self.woken.push(line.number);
        }
        self.bells.ring();
    }

    /// The stream's exchange is over. Returns false if it was already.
    pub fn end(&mut self, number: u32) -> bool {
        let Some(place) = self.place(number) else { return false };
        self.open.remove(place);
        self.blocked.retain(|blocked| *blocked != number);
        self.starved.retain(|starved| *starved != number);
        true
    }

    // Waiting for room, and waking.

    /// A stream has more to send than there is room for: because too many bytes wait already, or because of the client's windows.
    pub fn note_waiting(&mut self, number: u32, for_bytes: bool) {
        let waiting = if for_bytes { &mut self.blocked } else { &mut self.starved };
        if !waiting.contains(&number) {
            waiting.push(number);
        }
    }

    pub fn waits_for_bytes(&self, number: u32) -> bool {
        self.blocked.contains(&number)
    }

    pub fn waits_for_window(&self, number: u32) -> bool {
        self.starved.contains(&number)
    }

    /// Bytes were sent: streams that have waited for it continue.
    pub fn wake_blocked(&mut self) {
        if !self.blocked.is_empty() {
            self.woken.append(&mut self.blocked);
            self.bells.ring();
        }
    }

    /// A window has opened: the stream's, or with 0 the connection's.
    pub fn wake_starved(&mut self, stream: u32) {
        let starved = std::mem::take(&mut self.starved);
        let (mut woken, starved) = starved.into_iter().partition(|number| stream == 0 || *number == stream);
        self.starved = starved;
        self.woken.append(&mut woken);
        self.bells.ring();
    }

    /// The stream has had its turn and wants another one, behind all other connections.
    pub fn wake_later(&mut self, number: u32) {
        self.woken.push(number);
    }

    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Takes the names of the connections of streams that have events.
    pub fn take_woken(&mut self) -> Vec<Key> {
        let mut woken = std::mem::take(&mut self.woken);
        woken.sort_unstable();
        woken.dedup();
        woken.into_iter().filter_map(|number| self.entry(number)?.key).collect()
    }
}
