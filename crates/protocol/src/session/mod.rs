//! A connection's protocol: bytes that a peer sent become the events of its requests.
//!
//! One [`Session`] a connection. It must not know sockets, applications or time; whoever has bytes hands them in and gets back how many
//! were used and what they meant. Answers go the other way through [`crate::response::ResponseEncoder`]. Workers run it.

mod body;
mod event;
mod fastcgi;
mod http1;
mod http2_stream;
pub(crate) mod last_block;
mod scgi;
mod uwsgi;

use crate::fastcgi::FastCgiLimits;
use crate::fault::Fault;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
pub use event::{HeadBytes, HeadEvent, HeadParts, RequestHead, SessionEvent};
use fastcgi::FastCgi;
use http1::Http1;
use http2_stream::Http2Stream;
use scgi::Scgi;
use uwsgi::Uwsgi;

/// What a connection speaks.
#[derive(Debug)]
pub enum Session {
    Http1(Http1),
    Uwsgi(Uwsgi),
    Scgi(Scgi),
    FastCgi(Box<FastCgi>),
    /// One request of a connection that has several.
    Http2Stream(Box<Http2Stream>),
}

impl Session {
    pub fn http1() -> Session {
        Session::Http1(Http1::default())
    }

    /// `is_persistent`: more packets may follow an answer.
    pub fn uwsgi(is_persistent: bool) -> Session {
        Session::Uwsgi(Uwsgi { is_persistent, ..Uwsgi::default() })
    }

    /// `has_status_line`: answers have a head of HTTP, and not of CGI.
    pub fn scgi(has_status_line: bool) -> Session {
        Session::Scgi(Scgi { has_status_line, ..Scgi::default() })
    }

    /// The same.
    pub fn fastcgi(limits: FastCgiLimits, has_status_line: bool) -> Session {
        Session::FastCgi(Box::new(FastCgi::new(limits, has_status_line)))
    }

    /// A request of HTTP/2, whose body follows as the framing of its head says: its bytes, or chunks.
    pub fn http2_stream(head: HeadEvent, parts: HeadParts) -> Session {
        Session::Http2Stream(Box::new(Http2Stream::new(head, parts)))
    }

    /// The same for one that is to be answered with a fault.
    pub fn refused_http2_stream(fault: Fault) -> Session {
        Session::Http2Stream(Box::new(Http2Stream::refused(fault)))
    }

    /// Makes one event of the bytes; returns how many were used. It is called again with what is left, and what is added to it, until it
    /// wants more.
    ///
    /// # Errors
    /// The peer's mistake: nothing that follows on this connection can be understood.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> Result<(usize, SessionEvent), Fault> {
        match self {
            Session::Http1(Http1 { body, .. }) | Session::Uwsgi(Uwsgi { body, .. }) | Session::Scgi(Scgi { body, .. })
                if body.is_open() =>
            {
                body.next(input)
            }
            Session::Http1(http1) => http1.head(input, limits, parts),
            Session::Uwsgi(uwsgi) => uwsgi.head(input, limits, parts),
            Session::Scgi(scgi) => scgi.head(input, limits, parts),
            Session::FastCgi(fastcgi) => fastcgi.next(input, parts),
            Session::Http2Stream(stream) if stream.body.is_open() && stream.head.is_none() => stream.body.next(input),
            Session::Http2Stream(stream) => stream.head(parts),
        }
    }

    /// The body of the request in work has not come to its end.
    pub fn is_body_open(&self) -> bool {
        match self {
            Session::Http1(Http1 { body, .. }) | Session::Uwsgi(Uwsgi { body, .. }) | Session::Scgi(Scgi { body, .. }) => {
                body.is_open()
            }
            Session::FastCgi(fastcgi) => fastcgi.decoder.is_body_open(),
            Session::Http2Stream(stream) => stream.body.is_open(),
        }
    }

    /// A part of a request that is not complete was understood, and is kept here.
    pub fn has_part_of_head(&self) -> bool {
        match self {
            Session::Http1(_) | Session::Uwsgi(_) | Session::Scgi(_) => false,
            Session::FastCgi(fastcgi) => !fastcgi.decoder.is_idle(),
            Session::Http2Stream(stream) => stream.head.is_some(),
        }
    }

    /// A head is here that waits for no more bytes.
    pub fn has_head(&self) -> bool {
        matches!(self, Session::Http2Stream(stream) if stream.head.is_some())
    }

    /// The request in work is here in full, and its client may say that it does not want the answer any more.
    pub fn may_be_aborted(&self) -> bool {
        matches!(self, Session::FastCgi(fastcgi) if fastcgi.decoder.is_complete())
    }

    /// The answer of the request in work is complete.
    pub fn note_answered(&mut self) {
        if let Session::FastCgi(fastcgi) = self {
            fastcgi.decoder.note_answered();
        }
    }

    /// How a request is answered whose head was not understood; `None` where nobody could tell which one is meant.
    pub fn wire(&self) -> Option<Wire> {
        match self {
            Session::Http1(_) => Some(Wire::Http11),
            Session::Uwsgi(_) => Some(Wire::Uwsgi),
            Session::Scgi(scgi) => Some(scgi.wire()),
            Session::FastCgi(fastcgi) => fastcgi.wire(),
            Session::Http2Stream(_) => Some(Wire::Http2),
        }
    }

    /// The peer is a client of its own, and no front server: it is told when it is too slow.
    pub fn is_http(&self) -> bool {
        matches!(self, Session::Http1(_) | Session::Http2Stream(_))
    }
}
