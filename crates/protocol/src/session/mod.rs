//! A connection's protocol: bytes that a peer sent become the events of its requests.
//!
//! One [`Session`] a connection. It must not know sockets, applications or time; whoever has bytes hands them in and gets back how many
//! were used and what they meant. Answers go the other way through [`crate::response::ResponseEncoder`]. Workers run it.

mod body;
mod event;
mod http1;

use crate::fault::{Fault, Progress};
use crate::http1::Framing;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
use crate::uwsgi::{PACKET_HEAD_BYTES, not_a_request, packet_head, variables};
use body::BodyDecoder;
pub use event::{HeadEvent, HeadParts, RequestHead, SessionEvent};
use http1::Http1;

/// What a connection speaks.
#[derive(Debug)]
pub enum Session {
    Http1(Http1),
    Uwsgi(BodyDecoder),
}

impl Session {
    pub fn http1() -> Session {
        Session::Http1(Http1::default())
    }

    pub fn uwsgi() -> Session {
        Session::Uwsgi(BodyDecoder::default())
    }

    /// Makes one event of the bytes; returns how many were used. It is called again with what is left, and what is added to it, until it
    /// wants more.
    ///
    /// # Errors
    /// The peer's mistake: nothing that follows on this connection can be understood.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> Result<(usize, SessionEvent), Fault> {
        match self {
            Session::Http1(http1) => http1.next(input, limits, parts),
            Session::Uwsgi(body) if body.is_open() => body.next(input),
            Session::Uwsgi(body) => uwsgi_head(body, input, limits, parts),
        }
    }

    /// The body of the request in work has not come to its end.
    pub fn is_body_open(&self) -> bool {
        match self {
            Session::Http1(http1) => http1.body.is_open(),
            Session::Uwsgi(body) => body.is_open(),
        }
    }

    /// How a request is answered whose head was not understood.
    pub fn wire(&self) -> Wire {
        match self {
            Session::Http1(_) => Wire::Http11,
            Session::Uwsgi(_) => Wire::Uwsgi,
        }
    }

    /// The peer is a client of its own, and no front server: it is told when it is too slow.
    pub fn is_http(&self) -> bool {
        matches!(self, Session::Http1(_))
    }
}

fn uwsgi_head(
    body: &mut BodyDecoder,
    input: &[u8],
    limits: &HeadLimits,
    parts: &mut HeadParts,
) -> Result<(usize, SessionEvent), Fault> {
    let Progress::Complete(packet) = packet_head(input) else { return Ok((0, SessionEvent::More)) };
    if packet.modifier1 != 0 {
        return Err(not_a_request(input));
    }
    let length = usize::from(packet.vars_bytes);
    if length > limits.head_bytes {
        return Err(Fault::new(431, "The uwsgi packet is larger than buffer-size."));
    }
    let bytes = PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + length;
    let Some(block) = input.get(bytes.clone()) else { return Ok((0, SessionEvent::More)) };
    let facts = variables(block, &mut parts.variables)?;
    let framing = body.begin(Framing::Length(facts.content_length.unwrap_or(0)));
    let head = RequestHead::Variables { facts };
    let used = bytes.end;
    Ok((used, SessionEvent::Head(HeadEvent { head, bytes, body: framing, is_repeated: false, is_remembered: false })))
}
