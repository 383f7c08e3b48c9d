//! The uwsgi protocol as events: a packet, and a body by its CONTENT_LENGTH; on a persistent connection, one after the other.
//!
//! Workers run it. The client of a persistent connection (`puwsgi`) finds the end of an answer by its Content-Length, or by the
//! connection's end.

use super::body::BodyDecoder;
use super::event::{HeadBytes, HeadEvent, HeadParts, SessionEvent};
use crate::fault::{Fault, Progress};
use crate::http1::Framing;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
use crate::uwsgi::{PACKET_HEAD_BYTES, not_a_request, packet_head, variables};

#[derive(Debug, Default)]
pub struct Uwsgi {
    pub(super) body: BodyDecoder,
    /// More packets may follow an answer.
    pub(super) is_persistent: bool,
}

impl Uwsgi {
    /// Returns the next request's head, while no body is open.
    pub(super) fn head(
        &mut self,
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
