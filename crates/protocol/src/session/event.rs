//! The events of a connection: a request's head, its body, its end.
//!
//! Must not know the bytes of any protocol. Workers run it.

use std::ops::Range;

use crate::fastcgi::Answer;
use crate::fault::Fault;
use crate::http1::head::{Field, RequestLine};
use crate::http1::{Framing, HeaderFacts};
use crate::response::Wire;
use crate::variables::{Variable, VariableFacts};

/// How many bytes of the input were used, and the event that they are; or what is wrong with them.
pub type NextEvent = Result<(usize, SessionEvent), Fault>;

/// The lists of a head: filled by [`super::Session::next`], their capacity is reused.
#[derive(Debug, Default, Clone)]
pub struct HeadParts {
    /// For HTTP; spans relative to the header block.
    pub fields: Vec<Field>,
    /// For reverse proxies' protocols; spans relative to the head's bytes.
    pub variables: Vec<Variable>,
    /// For HTTP/2, whose heads are compressed: the head in the format of HTTP/1.
    pub bytes: Vec<u8>,
    /// Scratch space for [`HeadParts::bytes`].
    pub scratch: Scratch,
}

/// Scratch space for the parts of an HTTP/2 head.
#[derive(Debug, Default, Clone)]
pub struct Scratch {
    pub(crate) values: Vec<u8>,
    pub(crate) literal: Vec<u8>,
}

/// A request's head.
#[derive(Debug, Clone, Copy)]
pub enum RequestHead {
    /// Spans of the line are relative to the head's first byte, those of the facts to the header block after the line.
    Http { line: RequestLine, facts: HeaderFacts },
    Variables {
        facts: VariableFacts,
        /// The reverse proxy and its protocol keep the connection open after this request.
        keep_alive: bool,
    },
}

impl RequestHead {
    /// Returns the method and the target, from the head's bytes.
    pub fn first_line<'a>(&self, bytes: &'a [u8]) -> [&'a [u8]; 2] {
        let (method, target) = match self {
            RequestHead::Http { line, .. } => (Some(line.method), Some(line.target)),
            RequestHead::Variables { facts, .. } => (facts.method, facts.uri),
        };
        [method, target].map(|span| span.map_or(&b""[..], |span| span.of(bytes)))
    }
}

/// The location of a head's bytes.
#[derive(Debug, Clone)]
pub enum HeadBytes {
    /// In the input, at this range.
    Input(Range<usize>),
    /// In an own buffer: they came in pieces.
    Own(Vec<u8>),
    /// All of [`HeadParts::bytes`], or of the buffer that these were moved to.
    Parts,
}

/// A head and its context.
#[derive(Debug, Clone)]
pub struct HeadEvent {
    pub head: RequestHead,
    pub bytes: HeadBytes,
    pub body: Framing,
    /// How the request is answered.
    pub wire: Wire,
    /// The header block equals that of the connection's last request, byte for byte: its fields are not returned again.
    pub is_repeated: bool,
    /// The header block is remembered: caching results for it is worthwhile.
    pub is_remembered: bool,
}

/// The result of the next bytes.
#[derive(Debug, Clone)]
pub enum SessionEvent {
    /// No event yet: more bytes are needed.
    More,
    /// A request begins. Its body follows as data and an end, unless there is none.
    Head(HeadEvent),
    /// Bytes of its body: this range of the input.
    Data(Range<usize>),
    /// Its body is complete.
    End,
    /// The reverse proxy no longer wants the answer. If nothing was answered yet, these bytes end it; `keep_alive`: the
    /// connection continues.
    Aborted { end: Answer, keep_alive: bool },
    /// Bytes of the protocol itself, to be sent independently of requests; `close`: they are the last.
    Send { answer: Answer, close: bool },
}

impl HeadParts {
    /// Takes out the data of a head, for a request that is queued. Scratch space stays for the next one.
    #[must_use]
    pub fn take_head(&mut self) -> HeadParts {
        let scratch = std::mem::take(&mut self.scratch);
        let head = std::mem::take(self);
        self.scratch = scratch;
        head
    }
}

impl HeadBytes {
    /// Returns the head's bytes. `input` is the buffer in which the head was found: the read buffer, or that of
    /// [`HeadBytes::Parts`].
    #[inline]
    pub fn of<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            HeadBytes::Input(range) => input.get(range.clone()).unwrap_or_default(),
            HeadBytes::Own(bytes) => bytes,
            HeadBytes::Parts => input,
        }
    }
}

impl HeadEvent {
    /// A reverse proxy's request, which the connection does not remember.
    pub(super) fn of_variables(facts: VariableFacts, keep_alive: bool, bytes: HeadBytes, body: Framing, wire: Wire) -> HeadEvent {
        let head = RequestHead::Variables { facts, keep_alive };
        HeadEvent { head, bytes, body, wire, is_repeated: false, is_remembered: false }
    }

    /// The same for a protocol that carries CGI's variables (RFC 3875).
    ///
    /// # Errors
    /// They do not contain a method.
    pub(super) fn of_cgi(
        facts: VariableFacts,
        keep_alive: bool,
        bytes: HeadBytes,
        body: Framing,
        wire: Wire,
    ) -> Result<HeadEvent, Fault> {
        facts.check_method()?;
        Ok(HeadEvent::of_variables(facts, keep_alive, bytes, body, wire))
    }
}

impl RequestHead {
    /// Treats the request as one for HTTP and ignores the requested upgrade.
    pub fn forget_upgrade(&mut self) {
        if let RequestHead::Http { facts, .. } = self {
            facts.upgrade = false;
        }
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        matches!(self, RequestHead::Http { facts, .. } if facts.expect_continue)
    }
}
