//! One HTTP/2 request as its exchange sees it: the head is complete, and the body arrives as the connection's session decodes it,
//! as bytes of a known length, or as chunks.
//!
//! Must not know frames: [`crate::http2`] has parsed them. Workers run it.

use super::body::BodyDecoder;
use super::event::{HeadEvent, HeadParts, NextEvent, SessionEvent};
use crate::fault::Fault;

#[derive(Debug)]
pub struct Http2Stream {
    /// The head, or the fault instead of it; `None` once it was returned.
    pub(super) head: Option<Result<(HeadEvent, HeadParts), Fault>>,
    pub(super) body: BodyDecoder,
}

impl Http2Stream {
    pub(super) fn new(mut head: HeadEvent, parts: HeadParts) -> Http2Stream {
        let mut body = BodyDecoder::default();
        head.body = body.begin(head.body);
        Http2Stream { head: Some(Ok((head, parts))), body }
    }

    pub(super) fn refused(fault: Fault) -> Http2Stream {
        Http2Stream { head: Some(Err(fault)), body: BodyDecoder::default() }
    }

    /// Returns the head, once.
    pub(super) fn head(&mut self, parts: &mut HeadParts) -> NextEvent {
        let Some(request) = self.head.take() else { return Ok((0, SessionEvent::More)) };
        let (head, own) = request?;
        *parts = own;
        Ok((0, SessionEvent::Head(head)))
    }
}
