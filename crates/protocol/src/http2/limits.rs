//! The bounds of a connection, and the patience with what a peer may send without end. Workers run it.

use super::error::Http2Error;

/// What a peer is told that it may do, and held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    /// Requests of a connection that may be in work at once.
    pub streams: u32,
    /// Bytes of a request's fields as RFC 9113 section 6.5.2 counts them: 32 are added to each. It is told to the peer; what is refused with
    /// 431 are the `head_bytes` and the `header_count` of [`crate::http1::head::HeadLimits`].
    pub header_list_bytes: u32,
    /// Bytes of a request's body that may be on their way before the application has taken some.
    pub stream_window_bytes: u32,
    /// The same of all requests of a connection.
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

/// Bytes of the protocol's own frames that may wait for a peer that takes none of them.
pub const CONTROL_BYTES_MOST: usize = 64 * 1024;

/// Frames of CONTINUATION in one header block.
pub const CONTINUATIONS_MOST: u32 = 64;

/// Bytes that a header block may have on the wire beyond what its fields may have: who sends more is no client that went a little too far.
pub const BLOCK_SURPLUS_BYTES: usize = 16 * 1024;

/// Streams in work that may be reset, by the peer or by its mistakes, before others are answered: rapid reset (CVE-2023-44487) and
/// the resets that a server is made to do (CVE-2025-8671). A browser that leaves a page resets all that it had asked for.
pub const RESETS_MOST: u32 = 200;

/// Frames that may come without one that moves a request on: SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA, refused streams.
pub const IDLE_FRAMES_MOST: u32 = 2000;

/// What each answered request earns back of [`IDLE_FRAMES_MOST`].
const ANSWER_EARNS: u32 = 20;

/// What each part of an answer that was sent earns back: a client may give its room back at once, on the stream and on the connection.
const SENT_EARNS: u32 = 2;

/// Bytes of a body, in either direction, that earn one frame back.
const BYTES_A_FRAME: u64 = 256;

/// What each second earns back of [`IDLE_FRAMES_MOST`] and of [`RESETS_MOST`]: idle clients ask by PING whether the connection lives.
const SECOND_EARNS: u64 = 10;

/// How much a peer may still ask for that serves nobody.
#[derive(Debug)]
pub(super) struct Patience {
    frames_left: u32,
    resets: u32,
    /// Bytes that have not earned a whole frame yet.
    bytes: u64,
    /// When time has last earned something, in milliseconds of the caller's clock.
    earned_ms: u64,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { frames_left: IDLE_FRAMES_MOST, resets: 0, bytes: 0, earned_ms: 0 }
    }

    /// A frame came that moves nothing on.
    #[inline]
    pub(super) fn spend(&mut self, frames: u32) -> Result<(), Http2Error> {
        match self.frames_left.checked_sub(frames) {
            Some(left) => {
                self.frames_left = left;
                Ok(())
            }
            None => Err(Http2Error::calm("More frames came that move no request on than patience lasts for.")),
        }
    }

    /// A stream in work ended by a reset that the peer has sent or caused.
    pub(super) fn note_reset(&mut self) -> Result<(), Http2Error> {
        self.resets += 1;
        if self.resets > RESETS_MOST {
            return Err(Http2Error::calm("Too many requests were begun and reset before they were answered."));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn note_answered(&mut self) {
        self.resets = self.resets.saturating_sub(1);
        self.earn(ANSWER_EARNS);
    }

    /// So many bytes of an answer were put into frames, of each of which the peer may say that it has come.
    #[inline]
    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.earn(SENT_EARNS);
        self.note_taken(bytes);
    }

    /// So many bytes of a request's body were of use.
    #[inline]
    pub(super) fn note_taken(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= BYTES_A_FRAME {
            self.earn((self.bytes / BYTES_A_FRAME).min(u64::from(IDLE_FRAMES_MOST)) as u32);
            self.bytes %= BYTES_A_FRAME;
        }
    }

    #[inline]
    pub(super) fn note_time(&mut self, now_ms: u64) {
        let seconds = now_ms.saturating_sub(self.earned_ms) / 1000;
        if seconds > 0 {
            let earned = (seconds.saturating_mul(SECOND_EARNS)).min(u64::from(IDLE_FRAMES_MOST)) as u32;
            self.earn(earned);
            self.resets = self.resets.saturating_sub(earned);
            self.earned_ms = now_ms;
        }
    }

    fn earn(&mut self, frames: u32) {
        self.frames_left = self.frames_left.saturating_add(frames).min(IDLE_FRAMES_MOST);
    }
}
