//! FastCGI as events: parameters, a body that its stream ends, and the protocol's own records in between.
//!
//! Workers run it. Requests come one after the other; the decoder refuses multiplexed ones.

use super::event::{HeadBytes, HeadEvent, HeadParts, SessionEvent};
use crate::fastcgi::{Decoder, FastCgiEvent, FastCgiLimits};
use crate::fault::Fault;
use crate::http1::Framing;
use crate::response::Wire;

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

    pub(super) fn next(&mut self, input: &[u8], parts: &mut HeadParts) -> Result<(usize, SessionEvent), Fault> {
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
