//! What the bytes of an HTTP/2 connection may mean to whoever serves its streams. Workers run it.

use std::ops::Range;

use super::error::ErrorCode;
use crate::fault::{Fault, Span};
use crate::session::HeadEvent;

#[derive(Debug, Clone)]
pub enum Http2Event {
    /// Nothing for a stream yet: more bytes are needed.
    More,
    /// A request begins. Its body follows as data and an end, unless `is_complete`.
    ///
    /// Its bytes lie in [`crate::session::HeadParts::bytes`]: a request line `METHOD target HTTP/2.0` and a header block, as HTTP/1 has them.
    Head {
        stream: u32,
        head: HeadEvent,
        is_complete: bool,
        /// Of an extended CONNECT (RFC 8441): the protocol that is asked for, in `HeadParts::bytes` behind the header block.
        protocol: Option<Span>,
    },
    /// A request begins that is to be answered with this fault's status. Its body, if any, is read and dropped here: no more is told of
    /// it but a reset.
    Refused { stream: u32, fault: Fault },
    /// Bytes of a request's body: this range of the input.
    Data { stream: u32, range: Range<usize> },
    /// A request's body is complete. Trailer fields are checked and dropped.
    End { stream: u32 },
    /// A stream that was told of is no more, and nothing may be sent on it. By the peer, or by the session, for what the peer has done on it.
    Reset { stream: u32, code: ErrorCode, is_by_peer: bool },
    /// A window that was closed is open again: of this stream, or with 0 of all streams.
    Room { stream: u32 },
    /// The peer opens no more streams; those that are open go on.
    Ended,
}

/// What reading on has come to.
#[derive(Debug)]
pub(super) enum Step {
    More,
    /// So many bytes meant nothing to a stream.
    Used(usize),
    Event(usize, Http2Event),
}

impl Http2Event {
    /// The same event, where so many bytes stand in front of the input.
    #[inline]
    pub(super) fn behind(self, bytes: usize) -> Http2Event {
        match self {
            Http2Event::Data { stream, range } => Http2Event::Data { stream, range: range.start + bytes..range.end + bytes },
            event => event,
        }
    }
}
