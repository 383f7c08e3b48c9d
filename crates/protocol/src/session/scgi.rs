//! SCGI as events: a netstring of variables, and a body by its CONTENT_LENGTH. A connection has one request, and its end ends the
//! answer.
//!
//! Workers run it.

use super::body::BodyDecoder;
use super::event::{HeadBytes, HeadEvent, HeadParts, SessionEvent};
use crate::fault::{Fault, Progress};
use crate::http1::Framing;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
use crate::scgi::request_head;

#[derive(Debug, Default)]
pub struct Scgi {
    pub(super) body: BodyDecoder,
    /// Answers have an HTTP head, not a CGI one (`nph`).
    pub(super) has_status_line: bool,
}

impl Scgi {
    /// Returns the next request's head, while no body is open.
    pub(super) fn head(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
        parts: &mut HeadParts,
    ) -> Result<(usize, SessionEvent), Fault> {
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
