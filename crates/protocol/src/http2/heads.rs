//! HEADERS and CONTINUATION (RFC 9113 sections 6.2 and 6.10): the beginnings of requests, and the trailers that end bodies.
//! Workers run it.

use super::error::{ErrorCode, Http2Error};
use super::event::Http2Event;
use super::frame::{FrameHead, flag, number_31, write_reset};
use super::head::{HeadContext, HeadError, are_trailers};
use super::limits::{BLOCK_SURPLUS_BYTES, CONTINUATIONS_MOST};
use super::session::{Http2, OpenBlock};
use super::streams::{Closing, StreamState};
use super::text::HeadText;
use crate::http1::Framing;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
use crate::session::{HeadBytes, HeadEvent, HeadParts, RequestHead};

/// Facts about a complete header block.
#[derive(Debug, Clone, Copy)]
struct BlockHead {
    stream: u32,
    is_complete: bool,
    is_self_dependent: bool,
}

impl Http2 {
    pub(super) fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        limits: &HeadLimits,
        parts: &mut HeadParts,
    ) -> Result<Option<Http2Event>, Http2Error> {
        let mut fragment = without_padding(head, payload)?;
        let mut is_self_dependent = false;
        if head.has(flag::PRIORITY) {
            let (priority, rest) =
                fragment.split_at_checked(5).ok_or(Http2Error::size("HEADERS has no room for its priority."))?;
            is_self_dependent = number_31(priority) == Some(head.stream);
            fragment = rest;
        }
        let is_complete = head.has(flag::END_STREAM);
        self.check_stream(head.stream)?;
        if head.has(flag::END_HEADERS) {
            return self.finish_block(fragment, BlockHead { stream: head.stream, is_complete, is_self_dependent }, limits, parts);
        }
        let bytes = fragment.to_vec();
        self.block = Some(Box::new(OpenBlock { stream: head.stream, is_complete, is_self_dependent, continuations: 0, bytes }));
        Ok(None)
    }

    pub(super) fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        limits: &HeadLimits,
        parts: &mut HeadParts,
    ) -> Result<Option<Http2Event>, Http2Error> {
        let Some(mut block) = self.block.take() else { return Ok(None) };
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        if block.continuations > CONTINUATIONS_MOST || block.bytes.len() > limits.head_bytes + BLOCK_SURPLUS_BYTES {
            return Err(Http2Error::calm("A header block goes on in more or larger frames than the limit."));
        }
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        let OpenBlock { stream, is_complete, is_self_dependent, bytes, .. } = *block;
        self.finish_block(&bytes, BlockHead { stream, is_complete, is_self_dependent }, limits, parts)
    }

    /// Refuses header blocks on streams that can't have one, whatever the content.
    fn check_stream(&self, stream: u32) -> Result<(), Http2Error> {
        match self.streams.state(stream) {
            _ if stream.is_multiple_of(2) => Err(Http2Error::protocol("A client has opened a stream of an even number.")),
            StreamState::Skipped => Err(Http2Error::protocol("A stream was opened whose number is below the last one's.")),
            StreamState::Closed(Closing::Complete) => {
                Err(Http2Error::new(ErrorCode::STREAM_CLOSED, "HEADERS came on a stream that had ended."))
            }
            _ => Ok(()),
        }
    }

    fn finish_block(
        &mut self,
        block: &[u8],
        head: BlockHead,
        limits: &HeadLimits,
        parts: &mut HeadParts,
    ) -> Result<Option<Http2Event>, Http2Error> {
        let (mut text, literal) = HeadText::new(parts, limits);
        self.decoder.decode(block, &mut text, literal)?;
        let stream = head.stream;
        match self.streams.state(stream) {
            StreamState::Idle if self.refuses_streams() => {
                self.streams.last = stream;
                self.streams.note_closed(stream, Closing::ResetHere);
                write_reset(stream, ErrorCode::REFUSED_STREAM, &mut self.output);
                self.flood_budget.spend(2)?;
                Ok(None)
            }
            StreamState::Idle => self.request(text, head, limits),
            StreamState::Open(_) => self.trailers(text, head),
            // The peer may not know yet that the stream was reset.
            StreamState::Closed(Closing::ResetHere) => self.flood_budget.spend(1).map(|()| None),
            _ => {
                write_reset(stream, ErrorCode::STREAM_CLOSED, &mut self.output);
                self.flood_budget.spend(1).map(|()| None)
            }
        }
    }

    fn request(&mut self, text: HeadText<'_>, head: BlockHead, limits: &HeadLimits) -> Result<Option<Http2Event>, Http2Error> {
        let BlockHead { stream, is_complete, is_self_dependent } = head;
        let context = HeadContext { is_complete, has_extended_connect: self.limits.has_extended_connect };
        let read = if is_self_dependent { Err(HeadError::Malformed) } else { self.memory.read(text, limits, context) };
        if let Err(HeadError::Malformed) = read {
            self.streams.last = stream;
            self.streams.note_closed(stream, Closing::ResetHere);
            return self.fault_stream(stream, ErrorCode::PROTOCOL_ERROR);
        }
        let early = self.take_early_priority(stream);
        let open = self.streams.open(stream);
        open.is_body_open = !is_complete;
        let read = match read {
            Ok(read) => read,
            Err(HeadError::Malformed) => return Ok(None),
            Err(HeadError::Refused(fault)) => {
                open.is_refused = true;
                return Ok(Some(Http2Event::Refused { stream, fault }));
            }
        };
        open.priority = early.unwrap_or(read.priority);
        if let Framing::Length(length) = read.facts.framing {
            open.announced = Some(length);
        }
        let event = HeadEvent {
            head: RequestHead::Http { line: read.line, facts: read.facts },
            bytes: HeadBytes::Parts,
            body: read.facts.framing,
            wire: Wire::Http2,
            // Each request has its own exchange, which remembers no other.
            is_repeated: false,
            is_remembered: false,
        };
        Ok(Some(Http2Event::Head { stream, head: event, is_complete, protocol: read.protocol }))
    }

    /// RFC 9113 section 8.1: a header block after a body ends it.
    fn trailers(&mut self, text: HeadText<'_>, head: BlockHead) -> Result<Option<Http2Event>, Http2Error> {
        if !self.is_body_open(head.stream) {
            return self.fault_stream(head.stream, ErrorCode::STREAM_CLOSED);
        }
        if !head.is_complete || head.is_self_dependent || !are_trailers(text) {
            return self.fault_stream(head.stream, ErrorCode::PROTOCOL_ERROR);
        }
        self.end_body(head.stream)
    }
}

/// Returns the payload without its padding (RFC 9113 section 6.2).
fn without_padding(head: FrameHead, payload: &[u8]) -> Result<&[u8], Http2Error> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let unpadded = payload.split_first().and_then(|(padding, rest)| rest.get(..rest.len().checked_sub(usize::from(*padding))?));
    unpadded.ok_or(Http2Error::PADDING)
}
