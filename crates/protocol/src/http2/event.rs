//! The events of an HTTP/2 connection for the code that serves its streams. Workers run it.

use std::ops::Range;

use super::error::ErrorCode;
use crate::fault::{Fault, Span};
use crate::session::HeadEvent;

#[derive(Debug, Clone)]
pub enum Http2Event {
    /// No event for a stream yet: more bytes are needed.
    More,
    /// A request begins. Its body follows as data and an end, unless `is_complete`.
    ///
    /// Its bytes are in [`crate::session::HeadParts::bytes`]: a request line `METHOD target HTTP/2.0` and a header block, as in
    /// HTTP/1.
    Head {
        stream: u32,
        head: HeadEvent,
        is_complete: bool,
        /// For an extended CONNECT (RFC 8441): the requested protocol, in `HeadParts::bytes` after the header block.
        protocol: Option<Span>,
    },
    /// A request begins that must be answered with this fault's status. Its body, if any, is read and dropped here: the only
    /// event that may follow is a reset.
    Refused { stream: u32, fault: Fault },
    /// Bytes of a request's body: this range of the input.
    Data { stream: u32, range: Range<usize> },
    /// A request's body is complete. Trailer fields were checked and dropped.
    End { stream: u32 },
    /// A reported stream was closed, and nothing may be sent on it: by the peer, or by the session for a violation of the peer.
    Reset { stream: u32, code: ErrorCode, is_by_peer: bool },
    /// A closed send window has opened: of this stream, or with 0 of all streams.
    Room { stream: u32 },
    /// The peer opens no more streams; open ones continue.
    Ended,
}

/// The result of reading.
#[derive(Debug)]
pub(super) enum Step {
    More,
    /// This many bytes were used without an event.
    Used(usize),
    Event(usize, Http2Event),
}

impl Http2Event {
    /// Returns the same event if this many bytes precede the input.
    #[inline]
    pub(super) fn behind(self, bytes: usize) -> Http2Event {
        match self {
            Http2Event::Data { stream, range } => Http2Event::Data { stream, range: range.start + bytes..range.end + bytes },
            event => event,
        }
    }
}
