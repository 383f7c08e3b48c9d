//! The protocols of reverse proxies as events: FastCGI, SCGI and uwsgi. Each sends the variables of CGI instead of a head, and
//! then a body.
//!
//! The body of FastCGI ends with its stream, and the protocol's own records come in between. Its requests come one after the
//! other; the decoder refuses multiplexed ones. The bodies of SCGI and uwsgi end by their CONTENT_LENGTH. A connection of SCGI
//! has one request, and its end ends the answer. A persistent one of uwsgi (`puwsgi`) has one packet after the other, and its
//! client finds the end of an answer by its Content-Length, or by the connection's end.
//!
//! Workers run it.

use super::event::{HeadBytes, HeadEvent, HeadParts, NextEvent, SessionEvent};
use crate::fastcgi::{Decoder, FastCgiEvent, FastCgiLimits};
use crate::fault::{Fault, Progress};
use crate::http1::Framing;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
use crate::scgi::request_head;
use crate::session::body::BodyDecoder;
use crate::uwsgi::{PACKET_HEAD_BYTES, not_a_request, packet_head, variables};

/// FastCGI as events: parameters, a body that its stream ends, and the protocol's own records in between.
#[derive(Debug)]
pub struct FastCgi {
    pub(super) decoder: Decoder,
    /// Answers have an HTTP head, not a CGI one (`nph`).
    has_status_line: bool,
}

impl FastCgi {
    pub(super) fn new(limits: FastCgiLimits, has_status_line: bool) -> FastCgi {
        FastCgi { decoder: Decoder::new(limits), has_status_line }
    }

    pub(super) fn next(&mut self, input: &[u8], parts: &mut HeadParts) -> NextEvent {
        let (used, event) = self.decoder.next(input, &mut parts.variables)?;
        let event = match event {
            None => SessionEvent::More,
            Some(FastCgiEvent::Head { facts, keep_connection }) => {
                let bytes = HeadBytes::Own(self.decoder.take_parameters());
                // Its stream ends the body, also an empty one.
                let body = facts.content_length.filter(|length| *length > 0).map_or(Framing::Chunked, Framing::Length);
                let wire = self.wire().unwrap_or(Wire::Cgi);
                SessionEvent::Head(HeadEvent::of_cgi(facts, keep_connection, bytes, body, wire)?)
            }
            Some(FastCgiEvent::Data(range)) => SessionEvent::Data(range),
            Some(FastCgiEvent::End) => SessionEvent::End,
            Some(FastCgiEvent::Aborted { end, keep_connection }) => SessionEvent::Aborted { end, keep_alive: keep_connection },
            Some(FastCgiEvent::Send { answer, close }) => SessionEvent::Send { answer, close },
        };
        Ok((used, event))
    }

    /// Returns `None` if no request is in progress.
    pub(super) fn wire(&self) -> Option<Wire> {
        let has_status_line = self.has_status_line;
        self.decoder.request_id().map(|id| Wire::FastCgi { id, has_status_line })
    }
}

/// SCGI as events: a netstring of variables, and a body by its CONTENT_LENGTH.
#[derive(Debug, Default)]
pub struct Scgi {
    pub(super) body: BodyDecoder,
    /// Answers have an HTTP head, not a CGI one (`nph`).
    pub(super) has_status_line: bool,
}

impl Scgi {
    /// Returns the next request's head, while no body is open.
    pub(super) fn head(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> NextEvent {
        let Progress::Complete(found) = request_head(input, limits.head_bytes, &mut parts.variables)? else {
            return Ok((0, SessionEvent::More));
        };
        let bytes = HeadBytes::Input(found.block.start as usize..found.block.end as usize);
        let body = self.body.begin(Framing::Length(found.facts.content_length.unwrap_or(0)));
        let head = HeadEvent::of_cgi(found.facts, false, bytes, body, self.wire())?;
        Ok((found.length, SessionEvent::Head(head)))
    }

    pub(super) fn wire(&self) -> Wire {
        if self.has_status_line { Wire::Uwsgi } else { Wire::Cgi }
    }
}

/// The uwsgi protocol as events: a packet, and a body by its CONTENT_LENGTH; on a persistent connection, one after the other.
#[derive(Debug, Default)]
pub struct Uwsgi {
    pub(super) body: BodyDecoder,
    /// More packets may follow an answer.
    pub(super) is_persistent: bool,
}

impl Uwsgi {
    /// Returns the next request's head, while no body is open.
    pub(super) fn head(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> NextEvent {
        let Progress::Complete(packet) = packet_head(input) else { return Ok((0, SessionEvent::More)) };
        if packet.modifier1 != 0 && packet.modifier1 != limits.language_modifier {
            return Err(not_a_request(input));
        }
        let length = usize::from(packet.vars_bytes);
        if length > limits.head_bytes {
            return Err(Fault::new(431, "The uwsgi packet is larger than buffer-size."));
        }
        let bytes = PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + length;
        let Some(block) = input.get(bytes.clone()) else { return Ok((0, SessionEvent::More)) };
        if block.is_empty() {
            return Err(Fault::bad_request("The uwsgi packet has no variables."));
        }
        // A request without REQUEST_METHOD is served, as uWSGI does.
        let facts = variables(block, &mut parts.variables)?;
        let body = self.body.begin(Framing::Length(facts.content_length.unwrap_or(0)));
        let used = bytes.end;
        let head = HeadEvent::of_variables(facts, self.is_persistent, HeadBytes::Input(bytes), body, Wire::Uwsgi);
        Ok((used, SessionEvent::Head(head)))
    }
}
