//! One HTTP/2 connection: dispatches its frames to streams, and keeps the output of the protocol itself. Workers run it.
//!
//! A frame is read when it is complete, except for DATA, whose bytes are handed out as they come, and for frames that are
//! skipped.

use super::error::{ErrorCode, Http2Error};
use super::event::{Http2Event, Step};
use super::frame::{
    DEFAULT_WINDOW_BYTES, FRAME_HEAD_BYTES, FrameHead, MAX_FRAME_BYTES, MAX_STREAM, PREFACE, kind, write_go_away, write_reset,
    write_settings, write_window_update,
};
use super::head::HeadMemory;
use super::hpack_decoder::HpackDecoder;
use super::limits::{FloodBudget, Http2Limits, MAX_CONTROL_BYTES};
use super::priority::Priority;
use super::streams::{Closing, Streams};
use crate::http1::head::HeadLimits;
use crate::session::HeadParts;

/// Capacity for its own frames that an idle connection keeps.
const IDLE_CAPACITY_BYTES: usize = 128;

#[derive(Debug)]
pub struct Http2 {
    pub(super) limits: Http2Limits,
    pub(super) reading: FrameReading,
    /// False until the first SETTINGS, which must be the first frame.
    pub(super) has_settings: bool,
    pub(super) streams: Streams,
    pub(super) decoder: HpackDecoder,
    pub(super) memory: HeadMemory,
    /// The header block that CONTINUATION continues.
    pub(super) block: Option<Box<OpenBlock>>,
    pub(super) flood_budget: FloodBudget,
    pub(super) output: Vec<u8>,
    /// The connection's send window.
    pub(super) send_window: i64,
    /// The connection's receive window, and the bytes that came and were not returned to it yet.
    pub(super) receive_window: i64,
    pub(super) due: u32,
    /// Priorities of streams that are not open yet.
    pub(super) early_priorities: Vec<(u32, Priority)>,
    draining: Draining,
    fault: Option<Http2Error>,
}

/// The part of a DATA frame that is not read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataFrame {
    pub stream: u32,
    /// Bytes of the body.
    pub left: u32,
    pub padding: u32,
    /// It ends the body.
    pub is_last: bool,
}

/// The position within the connection's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameReading {
    /// This many bytes of the preface have come.
    Preface(usize),
    Frames,
    Data(DataFrame),
    /// Within a skipped frame.
    Skipped(u32),
}

/// An incomplete header block.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub stream: u32,
    pub is_complete: bool,
    pub is_self_dependent: bool,
    pub continuations: u32,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draining {
    No,
    /// The peer was asked to open no more streams.
    Asked,
    /// GOAWAY has named the last stream that is served.
    After(u32),
}

impl Http2 {
    /// A connection whose first bytes are the client's preface. Its output begins with our settings.
    pub fn new(limits: Http2Limits) -> Http2 {
        // Peers assume a window of this size until they have read SETTINGS, so smaller ones are not possible.
        let limits = Http2Limits {
            stream_window_bytes: limits.stream_window_bytes.clamp(DEFAULT_WINDOW_BYTES, MAX_STREAM),
            connection_window_bytes: limits.connection_window_bytes.clamp(DEFAULT_WINDOW_BYTES, MAX_STREAM),
            ..limits
        };
        let mut output = Vec::new();
        write_settings(&limits, &mut output);
        let more = limits.connection_window_bytes - DEFAULT_WINDOW_BYTES;
        if more > 0 {
            write_window_update(0, more, &mut output);
        }
        Http2 {
            reading: FrameReading::Preface(0),
            has_settings: false,
            streams: Streams::new(limits.stream_window_bytes),
            decoder: HpackDecoder::new(),
            memory: HeadMemory::default(),
            block: None,
            flood_budget: FloodBudget::new(),
            output,
            send_window: i64::from(DEFAULT_WINDOW_BYTES),
            receive_window: i64::from(limits.connection_window_bytes),
            due: 0,
            early_priorities: Vec::new(),
            draining: Draining::No,
            fault: None,
            limits,
        }
    }

    /// A connection that was upgraded from HTTP/1.1 (RFC 7540 section 3.2): stream 1 is the complete request that asked for the
    /// upgrade. `settings` is the decoded HTTP2-Settings. The client's preface still follows.
    ///
    /// # Errors
    /// The settings are malformed, and nothing is upgraded.
    pub fn upgraded(limits: Http2Limits, settings: &[u8]) -> Result<Http2, Http2Error> {
        let mut connection = Http2::new(limits);
        connection.apply_settings(settings)?;
        connection.streams.open(1).is_body_open = false;
        Ok(connection)
    }

    /// Makes one event of the bytes; returns how many were used. Call it again with the rest, and with the bytes appended to it,
    /// until it returns `More`.
    ///
    /// # Errors
    /// A connection error: its GOAWAY is in [`Http2::output`], and each later call returns the same error.
    pub fn next(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> Result<(usize, Http2Event), Http2Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        debug_assert_eq!(self.in_flight(), self.streams.in_flight(), "the connection's window and those of its streams sum up");
        let mut used = 0;
        loop {
            let step = self.step(input.get(used..).unwrap_or_default(), limits, parts);
            let step = if self.output.len() > MAX_CONTROL_BYTES {
                step.and(Err(Http2Error::calm("The peer does not read the answers to its frames.")))
            } else {
                step
            };
            match step {
                Ok(Step::More) => return Ok((used, Http2Event::More)),
                Ok(Step::Used(count)) => used += count,
                Ok(Step::Event(count, event)) => {
                    let event = event.behind(used);
                    return Ok((used + count, event));
                }
                Err(error) => {
                    self.fault = Some(error);
                    write_go_away(self.last_served(), error.code, error.reason, &mut self.output);
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> Result<Step, Http2Error> {
        match self.reading {
            FrameReading::Frames => self.frame(input, limits, parts),
            FrameReading::Data(frame) => self.data(input, frame),
            FrameReading::Skipped(left) => {
                let count = input.len().min(left as usize);
                let left = left - count as u32;
                self.reading = if left == 0 { FrameReading::Frames } else { FrameReading::Skipped(left) };
                Ok(if left == 0 || count > 0 { Step::Used(count) } else { Step::More })
            }
            FrameReading::Preface(seen) => self.preface(input, seen),
        }
    }

    fn preface(&mut self, input: &[u8], seen: usize) -> Result<Step, Http2Error> {
        let wanted = PREFACE.get(seen..).unwrap_or_default();
        let count = wanted.len().min(input.len());
        if input.get(..count) != wanted.get(..count) {
            return Err(Http2Error::protocol("The connection does not begin with the HTTP/2 preface."));
        }
        self.reading = if count == wanted.len() { FrameReading::Frames } else { FrameReading::Preface(seen + count) };
        Ok(if count == 0 { Step::More } else { Step::Used(count) })
    }

    fn frame(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> Result<Step, Http2Error> {
        let Some(head) = FrameHead::read(input) else { return Ok(Step::More) };
        self.check_order(head)?;
        if head.kind == kind::DATA {
            return self.begin_data(head, input);
        }
        if !is_read(head.kind) {
            // RFC 9113 section 5.5.
            self.flood_budget.spend(1)?;
            self.reading = FrameReading::Skipped(head.length);
            return Ok(Step::Used(FRAME_HEAD_BYTES));
        }
        check_size(head)?;
        let end = FRAME_HEAD_BYTES + head.length as usize;
        let Some(payload) = input.get(FRAME_HEAD_BYTES..end) else { return Ok(Step::More) };
        let event = match head.kind {
            kind::HEADERS => self.headers(head, payload, limits, parts)?,
            kind::CONTINUATION => self.continuation(head, payload, limits, parts)?,
            kind::PRIORITY => self.old_priority(head, payload)?,
            kind::RST_STREAM => self.peer_reset(head, payload)?,
            kind::SETTINGS => self.settings(head, payload)?,
            kind::PING => self.ping(head, payload)?,
            kind::GOAWAY => self.peer_goes_away(head)?,
            kind::WINDOW_UPDATE => self.window_update(head, payload)?,
            kind::PRIORITY_UPDATE => self.priority_update(head, payload)?,
            _ => return Err(Http2Error::protocol("The client sent PUSH_PROMISE, which only servers may send.")),
        };
        Ok(event.map_or(Step::Used(end), |event| Step::Event(end, event)))
    }

    /// Checks whether this frame may come now.
    #[inline]
    fn check_order(&mut self, head: FrameHead) -> Result<(), Http2Error> {
        if head.length as usize > MAX_FRAME_BYTES {
            return Err(Http2Error::size("A frame is larger than 16,384 bytes."));
        }
        if !self.has_settings {
            if head.kind != kind::SETTINGS || head.flags & super::frame::flag::ACK != 0 {
                return Err(Http2Error::protocol("The first frame is not SETTINGS."));
            }
            self.has_settings = true;
        }
        // RFC 9113 section 4.3: no other frame may come within a header block.
        match &self.block {
            Some(block) if head.kind != kind::CONTINUATION || head.stream != block.stream => {
                Err(Http2Error::protocol("Another frame interrupts a header block."))
            }
            None if head.kind == kind::CONTINUATION => {
                Err(Http2Error::protocol("CONTINUATION does not continue a header block."))
            }
            _ => Ok(()),
        }
    }

    /// Closes a stream: its unread bytes are returned to the connection's window. Returns false if it is not open.
    #[inline]
    pub(super) fn close(&mut self, stream: u32, closing: Closing) -> bool {
        let Some(in_flight) = self.streams.close(stream, closing) else { return false };
        if in_flight > 0 {
            self.give_back_to_connection(in_flight);
        }
        true
    }

    /// Ends a stream with an error for a violation of the peer (RFC 9113 section 5.4.2).
    pub(super) fn fault_stream(&mut self, stream: u32, code: ErrorCode) -> Result<Option<Http2Event>, Http2Error> {
        write_reset(stream, code, &mut self.output);
        let was_open = self.close(stream, Closing::ResetHere);
        self.flood_budget.note_reset()?;
        Ok(was_open.then_some(Http2Event::Reset { stream, code, is_by_peer: false }))
    }

    /// Returns the output: the protocol's own frames, to be sent before any others. The caller must take all of it.
    #[inline]
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Returns the bytes of a body that may be sent on a stream now.
    #[inline]
    pub fn room(&self, stream: u32) -> u64 {
        self.streams.get(stream).map_or(0, |stream| stream.send_window.min(self.send_window).max(0) as u64)
    }

    /// Records that `bytes` of a body were put into frames.
    #[inline]
    pub fn note_sent(&mut self, stream: u32, bytes: u64) {
        // No more than a window is ever sent, and a window has 31 bits.
        let count = bytes.min(u64::from(MAX_STREAM)) as i64;
        self.send_window -= count;
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.send_window -= count;
        }
        self.flood_budget.note_sent(bytes);
    }

    /// Records that END_STREAM of an answer was written. If the request's body has not ended, the peer is told that the rest is
    /// not needed (RFC 9113 section 8.1).
    #[inline]
    pub fn note_answered(&mut self, stream: u32) {
        let Some(open) = self.streams.get(stream) else { return };
        if open.is_body_open {
            write_reset(stream, ErrorCode::NO_ERROR, &mut self.output);
            self.close(stream, Closing::ResetHere);
        } else {
            self.close(stream, Closing::Complete);
        }
        self.flood_budget.note_answered();
    }

    /// Ends a stream that can't be answered, or not completely.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.close(stream, Closing::ResetHere) {
            write_reset(stream, code, &mut self.output);
        }
    }

    /// Tells the peer to open no more streams. Not final: streams that the peer has already opened are still served (RFC 9113
    /// section 6.8). Final: they are refused.
    pub fn go_away(&mut self, is_final: bool) {
        let last = match (self.draining, is_final) {
            (Draining::No, false) => MAX_STREAM,
            (Draining::No | Draining::Asked, true) => self.streams.last,
            _ => return,
        };
        self.draining = if is_final { Draining::After(last) } else { Draining::Asked };
        write_go_away(last, ErrorCode::NO_ERROR, "", &mut self.output);
    }

    /// Returns the highest stream that is or was served.
    fn last_served(&self) -> u32 {
        match self.draining {
            Draining::After(last) => last.min(self.streams.last),
            Draining::No | Draining::Asked => self.streams.last,
        }
    }

    /// Whether a new stream is refused: too many are open, or the peer was told that none will be served.
    pub(super) fn refuses_streams(&self) -> bool {
        matches!(self.draining, Draining::After(_)) || self.streams.len() >= self.limits.streams as usize
    }

    /// Sets the caller's clock, before bytes are handed in: time refills the flood budget.
    #[inline]
    pub fn note_time(&mut self, now_ms: u64) {
        self.flood_budget.note_time(now_ms);
    }

    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Whether this request's body is incomplete.
    pub fn is_body_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.is_body_open)
    }

    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the peer was told to open no more streams.
    pub fn is_draining(&self) -> bool {
        self.draining != Draining::No
    }

    /// Whether a part of the preface or of a head has come, and the rest is missing.
    pub fn has_part_of_head(&self) -> bool {
        self.block.is_some() || matches!(self.reading, FrameReading::Preface(_))
    }

    pub fn priority(&self, stream: u32) -> Priority {
        self.streams.get(stream).map_or(Priority::default(), |stream| stream.priority)
    }

    /// Frees the capacity that a connection without streams does not need. Cheap if there is little.
    pub fn rest(&mut self) {
        self.streams.rest();
        if self.output.is_empty() && self.output.capacity() > IDLE_CAPACITY_BYTES {
            self.output = Vec::new();
        }
        if self.early_priorities.is_empty() {
            self.early_priorities = Vec::new();
        }
    }
}

/// Frames of other types are ignored.
fn is_read(frame_kind: u8) -> bool {
    frame_kind <= kind::CONTINUATION || frame_kind == kind::PRIORITY_UPDATE
}

/// Refuses frames of a wrong size before they are complete, frames with a stream whose type has none, and frames without one
/// whose type requires it.
#[inline]
fn check_size(head: FrameHead) -> Result<(), Http2Error> {
    let is_good = match head.kind {
        kind::PRIORITY => head.length == 5,
        kind::RST_STREAM | kind::WINDOW_UPDATE => head.length == 4,
        kind::SETTINGS => head.length.is_multiple_of(6) && (head.length == 0 || !head.has(super::frame::flag::ACK)),
        kind::PING => head.length == 8,
        kind::GOAWAY => head.length >= 8,
        kind::PRIORITY_UPDATE => head.length >= 4,
        _ => true,
    };
    if !is_good {
        return Err(Http2Error::size("A frame's size is invalid for its type."));
    }
    let is_of_connection = matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE);
    match head.kind {
        kind::WINDOW_UPDATE => Ok(()),
        _ if is_of_connection == (head.stream == 0) => Ok(()),
        _ => Err(Http2Error::protocol("A frame's stream identifier is invalid for its type.")),
    }
}
