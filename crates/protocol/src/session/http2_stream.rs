//! One request of HTTP/2, as its exchange sees it: its head is here already, and its body comes as the connection's session decodes it,
//! bytes of a length that is known, or chunks.
//!
//! It knows no frames: [`crate::http2`] has taken them apart. Workers run it.

use super::body::BodyDecoder;
use super::event::{HeadEvent, HeadParts, SessionEvent};
use crate::fault::Fault;

#[derive(Debug)]
pub struct Http2Stream {
    /// Until it was handed out: the head, or why there is none.
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

    /// The head, once.
    pub(super) fn head(&mut self, parts: &mut HeadParts) -> Result<(usize, SessionEvent), Fault> {
        let Some(request) = self.head.take() else { return Ok((0, SessionEvent::More)) };
        let (head, own) = request?;
        *parts = own;
        Ok((0, SessionEvent::Head(head)))
    }
}
