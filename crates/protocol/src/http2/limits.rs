//! The limits of a connection, and the budget of frames and resets that bounds floods. Workers run it.

use super::error::Http2Error;

/// Limits that the settings announce to the peer, and that are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    /// Maximum number of concurrent requests of a connection.
    pub streams: u32,
    /// Maximum size of a request's fields in bytes, as RFC 9113 section 6.5.2 counts them: 32 are added to each. Announced to the
    /// peer only; 431 follows from the `head_bytes` and the `header_count` of [`crate::http1::head::HeadLimits`].
    pub header_list_bytes: u32,
    /// Maximum size of a request's body that the application has not consumed, in bytes.
    pub stream_window_bytes: u32,
    /// The same for all requests of a connection.
    pub connection_window_bytes: u32,
    /// WebSocket over HTTP/2 (RFC 8441) is offered.
    pub has_extended_connect: bool,
}

impl Default for Http2Limits {
    fn default() -> Http2Limits {
        Http2Limits {
            streams: 100,
            header_list_bytes: 64 * 1024,
            stream_window_bytes: 256 * 1024,
            connection_window_bytes: 1024 * 1024,
            has_extended_connect: false,
        }
    }
}

/// Maximum size of the protocol's own frames in the output while the peer reads none of them, in bytes.
pub const MAX_CONTROL_BYTES: usize = 64 * 1024;

/// Most CONTINUATION frames in one header block.
pub const MAX_CONTINUATIONS: u32 = 64;

/// Bytes that a header block may have on the wire beyond the limit of its fields. A sender of more is not a client that slightly
/// exceeds the limit.
pub const BLOCK_SURPLUS_BYTES: usize = 16 * 1024;

/// Maximum number of resets of active streams, by the peer or caused by its violations, that no answers make up for: rapid reset
/// (CVE-2023-44487) and the resets that a peer makes the server send (CVE-2025-8671). A browser that leaves a page resets all of
/// its requests.
pub const MAX_RESETS: u32 = 200;

/// Maximum number of frames that may come without one that advances a request: SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty
/// DATA, refused streams.
pub const MAX_IDLE_FRAMES: u32 = 2000;

/// Frames that each answered request adds to the budget of [`MAX_IDLE_FRAMES`].
const ANSWER_EARNS: u32 = 20;

/// Frames that each sent part of an answer adds: a client may return its window immediately, on the stream and on the connection.
const SENT_EARNS: u32 = 2;

/// Bytes of a body, in either direction, that add one frame.
const BYTES_A_FRAME: u64 = 256;

/// Frames and resets that each second adds to the budgets of [`MAX_IDLE_FRAMES`] and [`MAX_RESETS`]: idle clients check by PING
/// whether the connection is alive.
const SECOND_EARNS: u64 = 10;

/// The budget of frames and resets without useful work that a peer has left.
#[derive(Debug)]
pub(super) struct FloodBudget {
    frames_left: u32,
    resets: u32,
    /// Bytes that do not make up a whole frame yet.
    bytes: u64,
    /// When time has last added to the budget, in milliseconds of the caller's clock.
    earned_ms: u64,
}

impl FloodBudget {
    pub(super) fn new() -> FloodBudget {
        FloodBudget { frames_left: MAX_IDLE_FRAMES, resets: 0, bytes: 0, earned_ms: 0 }
    }

    /// Charges for a frame that advances no request.
    #[inline]
    pub(super) fn spend(&mut self, frames: u32) -> Result<(), Http2Error> {
        match self.frames_left.checked_sub(frames) {
            Some(left) => {
                self.frames_left = left;
                Ok(())
            }
            None => Err(Http2Error::calm("Too many frames did not make progress with a request.")),
        }
    }

    /// Charges for an active stream that ended by a reset that the peer has sent or caused.
    pub(super) fn note_reset(&mut self) -> Result<(), Http2Error> {
        self.resets += 1;
        if self.resets > MAX_RESETS {
            return Err(Http2Error::calm("Too many requests were started and reset before they were answered."));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn note_answered(&mut self) {
        self.resets = self.resets.saturating_sub(1);
        self.earn(ANSWER_EARNS);
    }

    /// Records that `bytes` of an answer were put into frames: the peer may acknowledge each with WINDOW_UPDATE.
    #[inline]
    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.earn(SENT_EARNS);
        self.note_taken(bytes);
    }

    /// Records that `bytes` of a request's body were used.
    #[inline]
    pub(super) fn note_taken(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= BYTES_A_FRAME {
            self.earn((self.bytes / BYTES_A_FRAME).min(u64::from(MAX_IDLE_FRAMES)) as u32);
            self.bytes %= BYTES_A_FRAME;
        }
    }

    #[inline]
    pub(super) fn note_time(&mut self, now_ms: u64) {
        let seconds = now_ms.saturating_sub(self.earned_ms) / 1000;
        if seconds > 0 {
            let earned = (seconds.saturating_mul(SECOND_EARNS)).min(u64::from(MAX_IDLE_FRAMES)) as u32;
            self.earn(earned);
            self.resets = self.resets.saturating_sub(earned);
            self.earned_ms = now_ms;
        }
    }

    fn earn(&mut self, frames: u32) {
        self.frames_left = self.frames_left.saturating_add(frames).min(MAX_IDLE_FRAMES);
    }
}
