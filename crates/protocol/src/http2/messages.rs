//! The frames of which requests consist (RFC 9113 section 8.1): HEADERS and CONTINUATION (sections 6.2 and 6.10), which begin
//! requests and end bodies with trailers, and DATA with the receive windows (sections 5.2 and 6.1). Workers run it.

use super::error::{ErrorCode, Http2Error};
use super::event::{Http2Event, Step};
use super::frame::{FRAME_HEAD_BYTES, FrameHead, flag, number_31, write_reset, write_window_update};
use super::head::{HeadContext, HeadError, are_trailers};
use super::limits::{BLOCK_SURPLUS_BYTES, MAX_CONTINUATIONS};
use super::session::{DataFrame, FrameReading, Http2, OpenBlock};
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
                fragment.split_at_checked(5).ok_or(Http2Error::size("HEADERS is too short for its priority."))?;
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
        if block.continuations > MAX_CONTINUATIONS || block.bytes.len() > limits.head_bytes + BLOCK_SURPLUS_BYTES {
            return Err(Http2Error::calm("A header block continues in more or larger frames than the limit."));
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
            _ if stream.is_multiple_of(2) => Err(Http2Error::protocol("A client opened a stream with an even number.")),
            StreamState::Skipped => Err(Http2Error::protocol("A stream was opened with a number below the previous one.")),
            StreamState::Closed(Closing::Complete) => {
                Err(Http2Error::new(ErrorCode::STREAM_CLOSED, "HEADERS arrived on a stream that had ended."))
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

    /// Reads the head of a frame, and the pad length if it is padded.
    pub(super) fn begin_data(&mut self, head: FrameHead, input: &[u8]) -> Result<Step, Http2Error> {
        if head.stream == 0 {
            return Err(Http2Error::protocol("DATA does not belong to a stream."));
        }
        let (padding, used) = if head.has(flag::PADDED) {
            match input.get(FRAME_HEAD_BYTES) {
                _ if head.length == 0 => return Err(Http2Error::PADDING),
                Some(&padding) => (u32::from(padding), FRAME_HEAD_BYTES + 1),
                None => return Ok(Step::More),
            }
        } else {
            (0, FRAME_HEAD_BYTES)
        };
        let payload = head.length - (used - FRAME_HEAD_BYTES) as u32;
        let Some(left) = payload.checked_sub(padding) else { return Err(Http2Error::PADDING) };
        if i64::from(head.length) > self.receive_window {
            return Err(Http2Error::new(ErrorCode::FLOW_CONTROL_ERROR, "DATA exceeds the connection's window."));
        }
        self.receive_window -= i64::from(head.length);
        let place = self.streams.state(head.stream);
        if let StreamState::Open(_) = place
            && let Some(code) = self.violation_of(head, left)
        {
            self.skip(head.length, payload);
            let event = self.fault_stream(head.stream, code)?;
            return Ok(event.map_or(Step::Used(used), |event| Step::Event(used, event)));
        }
        match place {
            StreamState::Open(_) => {}
            StreamState::Idle | StreamState::Skipped => {
                return Err(Http2Error::protocol("DATA arrived on a stream that was not opened."));
            }
            StreamState::Closed(closing) => return self.late_data(head, used, payload, closing != Closing::ResetHere),
            StreamState::Forgotten => return self.late_data(head, used, payload, true),
        }
        let is_last = head.has(flag::END_STREAM);
        if left == 0 && !is_last {
            self.flood_budget.spend(1)?;
        }
        if let Some(stream) = self.streams.get_mut(head.stream) {
            stream.receive_window -= i64::from(head.length);
            stream.announced = stream.announced.map(|announced| announced.saturating_sub(u64::from(left)));
        }
        // Padding is returned to the windows here, because no caller sees it.
        self.give_back(head.stream, head.length - left);
        self.reading = FrameReading::Data(DataFrame { stream: head.stream, left, padding, is_last });
        Ok(Step::Used(used))
    }

    /// Returns the error code for a violation by DATA on an open stream.
    fn violation_of(&self, head: FrameHead, bytes: u32) -> Option<ErrorCode> {
        let stream = self.streams.get(head.stream)?;
        if !stream.is_body_open {
            return Some(ErrorCode::STREAM_CLOSED);
        }
        if i64::from(head.length) > stream.receive_window {
            return Some(ErrorCode::FLOW_CONTROL_ERROR);
        }
        // RFC 9113 section 8.1.1.
        stream.announced.is_some_and(|announced| announced < u64::from(bytes)).then_some(ErrorCode::PROTOCOL_ERROR)
    }

    /// DATA on a closed stream. It is dropped, and answered with an error if the peer should have known.
    fn late_data(&mut self, head: FrameHead, used: usize, payload: u32, is_mistake: bool) -> Result<Step, Http2Error> {
        self.flood_budget.spend(1)?;
        if is_mistake {
            write_reset(head.stream, ErrorCode::STREAM_CLOSED, &mut self.output);
        }
        self.skip(head.length, payload);
        Ok(Step::Used(used))
    }

    /// Skips a payload, and returns its bytes to the connection's window.
    fn skip(&mut self, length: u32, payload: u32) {
        self.give_back_to_connection(length);
        self.reading = FrameReading::Skipped(payload);
    }

    /// Reads as many of a frame's bytes as have arrived, then its padding, then the body's end if the frame ends it.
    pub(super) fn data(&mut self, input: &[u8], frame: DataFrame) -> Result<Step, Http2Error> {
        let DataFrame { stream, left, padding, is_last } = frame;
        let here = input.len().min(u32::MAX as usize) as u32;
        if left > 0 {
            let taken = left.min(here);
            if taken == 0 {
                return Ok(Step::More);
            }
            self.reading = FrameReading::Data(DataFrame { left: left - taken, ..frame });
            let used = taken as usize;
            if let Some(open) = self.streams.get_mut(stream).filter(|stream| !stream.is_refused) {
                open.in_flight = open.in_flight.saturating_add(taken);
                return Ok(Step::Event(used, Http2Event::Data { stream, range: 0..used }));
            }
            self.give_back(stream, taken);
            return Ok(Step::Used(used));
        }
        if padding > 0 {
            let taken = padding.min(here);
            self.reading = FrameReading::Data(DataFrame { padding: padding - taken, ..frame });
            return Ok(if taken == 0 { Step::More } else { Step::Used(taken as usize) });
        }
        self.reading = FrameReading::Frames;
        let event = if is_last { self.end_body(stream)? } else { None };
        Ok(event.map_or(Step::Used(0), |event| Step::Event(0, event)))
    }

    /// The peer has ended the request's body.
    pub(super) fn end_body(&mut self, id: u32) -> Result<Option<Http2Event>, Http2Error> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        stream.is_body_open = false;
        if stream.announced.is_some_and(|announced| announced > 0) {
            return self.fault_stream(id, ErrorCode::PROTOCOL_ERROR);
        }
        Ok((!stream.is_refused).then_some(Http2Event::End { stream: id }))
    }

    /// Returns the body bytes of open streams that were handed out and not yet returned to the connection's window.
    pub fn in_flight(&self) -> i64 {
        let coming = if let FrameReading::Data(frame) = self.reading { frame.left } else { 0 };
        i64::from(self.limits.connection_window_bytes) - self.receive_window - i64::from(self.due) - i64::from(coming)
    }

    /// Records that `bytes` of a request's body were consumed: the peer may send as many again. The end of a stream has already
    /// returned its bytes.
    #[inline]
    pub fn note_taken(&mut self, stream: u32, bytes: u64) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let taken = u64::from(open.in_flight).min(bytes) as u32;
        open.in_flight -= taken;
        self.flood_budget.note_taken(taken.into());
        self.give_back(stream, taken);
    }

    /// Windows are returned in batches: a WINDOW_UPDATE for each DATA frame would double the frames. The connection's batch is
    /// half of what streams with unread bytes leave of the window. With half of the whole window, the rest could be used up
    /// before anything was returned.
    pub(super) fn give_back_to_connection(&mut self, bytes: u32) {
        self.due = self.due.saturating_add(bytes);
        if self.due > 0 && i64::from(self.due) >= self.receive_window {
            let due = std::mem::take(&mut self.due);
            self.receive_window += i64::from(due);
            write_window_update(0, due, &mut self.output);
        }
    }

    /// Returns bytes to a stream's window and to the connection's. A stream blocks only itself, and continues when half of its
    /// window was read.
    fn give_back(&mut self, id: u32, bytes: u32) {
        self.give_back_to_connection(bytes);
        let half = self.limits.stream_window_bytes / 2;
        if let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_body_open) {
            stream.due = stream.due.saturating_add(bytes);
            if stream.due >= half {
                let due = std::mem::take(&mut stream.due);
                stream.receive_window += i64::from(due);
                write_window_update(id, due, &mut self.output);
            }
        }
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
