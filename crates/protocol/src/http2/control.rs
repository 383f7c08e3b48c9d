//! Frames about a connection or a stream rather than about a request: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM, PRIORITY
//! (RFC 9113 section 6). Workers run it.

use super::error::{ErrorCode, Http2Error};
use super::event::Http2Event;
use super::frame::{
    FrameHead, MAX_FRAME_BYTES, MAX_STREAM, MAX_WINDOW_BYTES, flag, number_31, setting, write_ping_ack, write_settings_ack,
};
use super::priority::Priority;
use super::session::Http2;
use super::streams::{Closing, StreamState};

/// Maximum number of priorities that are kept for streams that are not open yet (RFC 9218 section 7.1).
const MAX_EARLY_PRIORITIES: usize = 16;

/// The cost of a SETTINGS frame in the flood budget: it may change the windows of all streams.
const SETTINGS_FRAMES: u32 = 10;

impl Http2 {
    pub(super) fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Http2Event>, Http2Error> {
        if head.has(flag::ACK) {
            return self.flood_budget.spend(1).map(|()| None);
        }
        self.flood_budget.spend(SETTINGS_FRAMES)?;
        let has_grown = self.apply_settings(payload)?;
        write_settings_ack(&mut self.output);
        Ok(has_grown.then_some(Http2Event::Room { stream: 0 }))
    }

    /// RFC 9113 section 6.5.2. Settings of our encoder's table do not have an effect: it never uses one. Returns whether a closed
    /// window has opened.
    pub(super) fn apply_settings(&mut self, payload: &[u8]) -> Result<bool, Http2Error> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Http2Error::size("A SETTINGS frame is truncated."));
        }
        let mut window = None;
        for &[n1, n0, v3, v2, v1, v0] in settings {
            let value = u32::from_be_bytes([v3, v2, v1, v0]);
            match u16::from_be_bytes([n1, n0]) {
                setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL | setting::NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Http2Error::protocol("A boolean setting has a value other than 0 and 1."));
                }
                setting::INITIAL_WINDOW_SIZE if value > MAX_STREAM => {
                    return Err(Http2Error::new(ErrorCode::FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31-1."));
                }
                setting::INITIAL_WINDOW_SIZE => window = Some(value),
                setting::MAX_FRAME_SIZE if !(MAX_FRAME_BYTES as u32..1 << 24).contains(&value) => {
                    return Err(Http2Error::protocol("SETTINGS_MAX_FRAME_SIZE is not between 2^14 and 2^24-1."));
                }
                _ => {}
            }
        }
        // RFC 9113 section 6.9.2: the windows of open streams change by the difference, and may become negative.
        let Some(window) = window else { return Ok(false) };
        let change = i64::from(window) - i64::from(self.streams.send_window);
        self.streams.send_window = window;
        let mut has_grown = false;
        for stream in self.streams.iter_mut() {
            let was_closed = stream.send_window <= 0;
            stream.send_window += change;
            if stream.send_window > MAX_WINDOW_BYTES {
                return Err(Http2Error::new(
                    ErrorCode::FLOW_CONTROL_ERROR,
                    "SETTINGS would make a stream's window larger than 2^31-1.",
                ));
            }
            has_grown |= was_closed && stream.send_window > 0;
        }
        Ok(has_grown)
    }

    pub(super) fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Http2Event>, Http2Error> {
        self.flood_budget.spend(1)?;
        if !head.has(flag::ACK) {
            write_ping_ack(payload, &mut self.output);
        }
        Ok(None)
    }

    pub(super) fn peer_goes_away(&mut self, _head: FrameHead) -> Result<Option<Http2Event>, Http2Error> {
        self.flood_budget.spend(1)?;
        Ok(Some(Http2Event::Ended))
    }

    pub(super) fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Http2Event>, Http2Error> {
        self.flood_budget.spend(1)?;
        let more = i64::from(number_31(payload).unwrap_or(0));
        if head.stream == 0 {
            if more == 0 {
                return Err(Http2Error::protocol("WINDOW_UPDATE increases the connection's window by 0."));
            }
            let before = self.send_window;
            self.send_window += more;
            if self.send_window > MAX_WINDOW_BYTES {
                return Err(Http2Error::new(ErrorCode::FLOW_CONTROL_ERROR, "The connection's window is larger than 2^31-1."));
            }
            return Ok((before <= 0 && self.send_window > 0).then_some(Http2Event::Room { stream: 0 }));
        }
        if self.streams.state(head.stream) == StreamState::Idle {
            return Err(Http2Error::protocol("WINDOW_UPDATE is for a stream that was not opened."));
        }
        let Some(stream) = self.streams.get_mut(head.stream) else { return Ok(None) };
        let before = stream.send_window;
        stream.send_window += more;
        let after = stream.send_window;
        if more == 0 {
            return self.fault_stream(head.stream, ErrorCode::PROTOCOL_ERROR);
        }
        if after > MAX_WINDOW_BYTES {
            return self.fault_stream(head.stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        Ok((before <= 0 && after > 0).then_some(Http2Event::Room { stream: head.stream }))
    }

    pub(super) fn peer_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Http2Event>, Http2Error> {
        if self.streams.state(head.stream) == StreamState::Idle {
            return Err(Http2Error::protocol("RST_STREAM is for a stream that was not opened."));
        }
        if !self.close(head.stream, Closing::ResetByPeer) {
            return self.flood_budget.spend(1).map(|()| None);
        }
        self.flood_budget.note_reset()?;
        let code = ErrorCode(payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)));
        Ok(Some(Http2Event::Reset { stream: head.stream, code, is_by_peer: true }))
    }

    /// The priorities of RFC 7540 have no effect: RFC 9113 section 5.3 deprecates them.
    pub(super) fn old_priority(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Http2Event>, Http2Error> {
        self.flood_budget.spend(1)?;
        if number_31(payload) != Some(head.stream) {
            return Ok(None);
        }
        if self.is_open(head.stream) {
            return self.fault_stream(head.stream, ErrorCode::PROTOCOL_ERROR);
        }
        Err(Http2Error::protocol("A stream's priority depends on itself."))
    }

    /// RFC 9218 section 7.1.
    pub(super) fn priority_update(&mut self, _head: FrameHead, payload: &[u8]) -> Result<Option<Http2Event>, Http2Error> {
        self.flood_budget.spend(1)?;
        let id = number_31(payload).unwrap_or(0);
        let priority = Priority::parse(payload.get(4..).unwrap_or_default());
        if id.is_multiple_of(2) {
            return Err(Http2Error::protocol("PRIORITY_UPDATE is not for a stream of the client."));
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
        } else if self.streams.state(id) == StreamState::Idle {
            self.early_priorities.retain(|(known, _)| *known != id);
            if self.early_priorities.len() == MAX_EARLY_PRIORITIES {
                self.early_priorities.remove(0);
            }
            self.early_priorities.push((id, priority));
        }
        Ok(None)
    }

    /// Returns the priority that was set for a stream before it was opened.
    #[inline]
    pub(super) fn take_early_priority(&mut self, id: u32) -> Option<Priority> {
        if self.early_priorities.is_empty() {
            return None;
        }
        let found = self.early_priorities.iter().find(|(known, _)| *known == id).map(|(_, priority)| *priority);
        // Streams below it can no longer be opened.
        self.early_priorities.retain(|(known, _)| *known > id);
        found
    }
}
