//! One connection of HTTP/2. Workers run it.

use super::error::{ErrorCode, Http2Error};
use super::event::Http2Event;
use super::frame::{DEFAULT_WINDOW_BYTES, STREAM_MOST, write_go_away, write_settings, write_window_update};
use super::limits::{Http2Limits, Patience};
use super::priority::Priority;
use super::streams::Streams;
use crate::http1::head::HeadLimits;
use crate::session::HeadParts;

#[derive(Debug)]
pub struct Http2 {
    limits: Http2Limits,
    streams: Streams,
    patience: Patience,
    output: Vec<u8>,
    send_window: i64,
    is_draining: bool,
}

impl Http2 {
    /// A connection whose first bytes are the client's preface. What it has to say begins with its settings.
    pub fn new(limits: Http2Limits) -> Http2 {
        let mut output = Vec::new();
        write_settings(&limits, &mut output);
        if let Some(more) = limits.connection_window_bytes.checked_sub(DEFAULT_WINDOW_BYTES).filter(|more| *more > 0) {
            write_window_update(0, more, &mut output);
        }
        Http2 {
            streams: Streams::new(limits.stream_window_bytes),
            limits,
            patience: Patience::new(),
            output,
            send_window: i64::from(DEFAULT_WINDOW_BYTES),
            is_draining: false,
        }
    }

    /// A connection that was upgraded from HTTP/1.1 (RFC 7540 section 3.2): stream 1 is the request that asked for it, which is complete.
    /// `settings` is what HTTP2-Settings holds, decoded. The client's preface still follows.
    ///
    /// # Errors
    /// The settings are malformed: nothing is upgraded.
    pub fn upgraded(limits: Http2Limits, _settings: &[u8]) -> Result<Http2, Http2Error> {
        Ok(Http2::new(limits))
    }

    /// Makes one event of the bytes; returns how many were used. It is called again with what is left, and what is added to it, until it
    /// wants more.
    ///
    /// # Errors
    /// A connection error: its GOAWAY waits in [`Http2::output`], and each further call says the same.
    pub fn next(
        &mut self,
        _input: &[u8],
        _limits: &HeadLimits,
        _parts: &mut HeadParts,
    ) -> Result<(usize, Http2Event), Http2Error> {
        Ok((0, Http2Event::More))
    }

    /// Frames of the protocol itself that wait to be sent, before anything else is. They are to be taken out whole.
    #[inline]
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Bytes of a body that may be sent on a stream now.
    #[inline]
    pub fn room(&self, stream: u32) -> u64 {
        self.streams.get(stream).map_or(0, |stream| stream.send_window.min(self.send_window).max(0) as u64)
    }

    /// So many bytes of a body were put into frames.
    pub fn note_sent(&mut self, _stream: u32, _bytes: u64) {}

    /// So many bytes of a request's body were used: the peer may send as many again.
    pub fn note_taken(&mut self, _stream: u32, _bytes: u64) {}

    /// An answer's END_STREAM is written. Where the request's body has not ended, the peer is told that nobody wants the rest.
    pub fn note_answered(&mut self, _stream: u32) {}

    /// Ends a stream that can't be answered, or not to its end.
    pub fn reset(&mut self, _stream: u32, _code: ErrorCode) {}

    /// Tells the peer to open no more streams. Not final: those that are on their way are still served (RFC 9113 section 6.8);
    /// final: they are refused.
    pub fn go_away(&mut self, is_final: bool) {
        let last = if is_final { self.streams.last } else { STREAM_MOST };
        self.is_draining = true;
        write_go_away(last, ErrorCode::NO_ERROR, "", &mut self.output);
    }

    /// The caller's clock, before bytes are handed in: time gives back some patience with frames that serve nobody.
    #[inline]
    pub fn note_time(&mut self, now_ms: u64) {
        self.patience.note_time(now_ms);
    }

    pub fn is_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some()
    }

    /// The body of this request has not come to its end.
    pub fn is_body_open(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.is_body_open)
    }

    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// The peer was told to open no more streams.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// A part of the preface or of a head is here, and what completes it is awaited.
    pub fn has_part_of_head(&self) -> bool {
        false
    }

    pub fn priority(&self, stream: u32) -> Priority {
        self.streams.get(stream).map_or(Priority::default(), |stream| stream.priority)
    }

    /// Gives back the room that a connection without streams does not need.
    pub fn rest(&mut self) {
        self.streams.rest();
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }
}
