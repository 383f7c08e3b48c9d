//! DATA frames and the receive windows (RFC 9113 sections 5.2 and 6.1). Workers run it.

use super::error::{ErrorCode, Http2Error};
use super::event::{Http2Event, Step};
use super::frame::{FRAME_HEAD_BYTES, FrameHead, flag, write_reset, write_window_update};
use super::session::{FrameReading, Http2};
use super::streams::{Closing, StreamState};

impl Http2 {
    /// Reads the head of a frame, and the pad length if it is padded.
    pub(super) fn begin_data(&mut self, head: FrameHead, input: &[u8]) -> Result<Step, Http2Error> {
        if head.stream == 0 {
            return Err(Http2Error::protocol("DATA names no stream."));
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
            return Err(Http2Error::new(
                ErrorCode::FLOW_CONTROL_ERROR,
                "More DATA came than the connection's window has room for.",
            ));
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
                return Err(Http2Error::protocol("DATA came on a stream that was not opened."));
            }
            StreamState::Closed(closing) => return self.late_data(head, (used, payload), closing != Closing::ResetHere),
            StreamState::Forgotten => return self.late_data(head, (used, payload), true),
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
        self.reading = FrameReading::Data { stream: head.stream, left, padding, is_last };
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
    fn late_data(&mut self, head: FrameHead, (used, payload): (usize, u32), is_mistake: bool) -> Result<Step, Http2Error> {
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
    pub(super) fn data(
        &mut self,
        input: &[u8],
        (stream, is_last): (u32, bool),
        left: u32,
        padding: u32,
    ) -> Result<Step, Http2Error> {
        let here = input.len().min(u32::MAX as usize) as u32;
        if left > 0 {
            let taken = left.min(here);
            if taken == 0 {
                return Ok(Step::More);
            }
            self.reading = FrameReading::Data { stream, left: left - taken, padding, is_last };
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
            self.reading = FrameReading::Data { stream, left, padding: padding - taken, is_last };
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
        let coming = if let FrameReading::Data { left, .. } = self.reading { left } else { 0 };
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
