//! A connection's protocol: turns the bytes of a peer into the events of its requests.
//!
//! One [`Session`] for each connection. Must not know sockets, applications or time: the caller passes bytes in, and gets back
//! how many were used and the event. [`crate::response::ResponseEncoder`] encodes the answers. Workers run it.

mod body;
mod event;
mod http1;
mod http2_stream;
pub(crate) mod last_block;
mod reverse_proxy;

use crate::fastcgi::FastCgiLimits;
use crate::fault::Fault;
use crate::http1::head::HeadLimits;
use crate::response::Wire;
pub use event::{HeadBytes, HeadEvent, HeadParts, NextEvent, RequestHead, SessionEvent};
use http1::Http1;
use http2_stream::Http2Stream;
use reverse_proxy::{FastCgi, Scgi, Uwsgi};

/// The protocol of a connection.
#[derive(Debug)]
pub enum Session {
    Http1(Http1),
    Uwsgi(Uwsgi),
    Scgi(Scgi),
    FastCgi(Box<FastCgi>),
    /// One request of a connection that multiplexes.
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

    /// `has_status_line`: answers have an HTTP head, not a CGI one.
    pub fn scgi(has_status_line: bool) -> Session {
        Session::Scgi(Scgi { has_status_line, ..Scgi::default() })
    }

    /// `has_status_line`: answers have an HTTP head, not a CGI one.
    pub fn fastcgi(limits: FastCgiLimits, has_status_line: bool) -> Session {
        Session::FastCgi(Box::new(FastCgi::new(limits, has_status_line)))
    }

    /// An HTTP/2 request. Its body follows in the framing of its head: with a length, or in chunks.
    pub fn http2_stream(head: HeadEvent, parts: HeadParts) -> Session {
        Session::Http2Stream(Box::new(Http2Stream::new(head, parts)))
    }

    /// An HTTP/2 request that must be answered with a fault.
    pub fn refused_http2_stream(fault: Fault) -> Session {
        Session::Http2Stream(Box::new(Http2Stream::refused(fault)))
    }

    /// Makes one event of the bytes; returns how many were used. Call it again with the rest, and with the bytes appended to it,
    /// until it returns `More`.
    ///
    /// # Errors
    /// The peer's mistake: no more bytes of this connection can be understood.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: &HeadLimits, parts: &mut HeadParts) -> NextEvent {
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

    /// Whether the body of the current request is incomplete.
    pub fn is_body_open(&self) -> bool {
        match self {
            Session::Http1(Http1 { body, .. }) | Session::Uwsgi(Uwsgi { body, .. }) | Session::Scgi(Scgi { body, .. }) => {
                body.is_open()
            }
            Session::FastCgi(fastcgi) => fastcgi.decoder.is_body_open(),
            Session::Http2Stream(stream) => stream.body.is_open(),
        }
    }

    /// Whether a part of an incomplete request was parsed, and is stored here.
    pub fn has_part_of_head(&self) -> bool {
        match self {
            Session::Http1(_) | Session::Uwsgi(_) | Session::Scgi(_) => false,
            Session::FastCgi(fastcgi) => !fastcgi.decoder.is_idle(),
            Session::Http2Stream(stream) => stream.head.is_some(),
        }
    }

    /// Whether a head is available without more bytes.
    pub fn has_head(&self) -> bool {
        matches!(self, Session::Http2Stream(stream) if stream.head.is_some())
    }

    /// Whether the current request is complete, and its client may still abort it.
    pub fn may_be_aborted(&self) -> bool {
        matches!(self, Session::FastCgi(fastcgi) if fastcgi.decoder.is_complete())
    }

    /// Records that the answer to the current request is complete.
    pub fn note_answered(&mut self) {
        if let Session::FastCgi(fastcgi) = self {
            fastcgi.decoder.note_answered();
        }
    }

    /// Returns the wire format for the answer to a head with a fault; `None` if the peer could not tell which request is meant.
    pub fn wire(&self) -> Option<Wire> {
        match self {
            Session::Http1(_) => Some(Wire::Http11),
            Session::Uwsgi(_) => Some(Wire::Uwsgi),
            Session::Scgi(scgi) => Some(scgi.wire()),
            Session::FastCgi(fastcgi) => fastcgi.wire(),
            Session::Http2Stream(_) => Some(Wire::Http2),
        }
    }

    /// Whether the peer is a client rather than a reverse proxy: a slow client gets an answer.
    pub fn is_http(&self) -> bool {
        matches!(self, Session::Http1(_) | Session::Http2Stream(_))
    }
}
