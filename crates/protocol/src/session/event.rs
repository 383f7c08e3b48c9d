//! What the bytes of a connection may mean: a request's head, its body, its end.
//!
//! It knows no protocol's bytes. Workers run it.

use std::ops::Range;

use crate::fastcgi::Answer;
use crate::fault::Fault;
use crate::http1::head::{Field, RequestLine};
use crate::http1::{Framing, HeaderFacts};
use crate::response::Wire;
use crate::variables::{Variable, VariableFacts};

/// The parts of a head that are many: filled by [`super::Session::next`], their capacity is reused.
#[derive(Debug, Default, Clone)]
pub struct HeadParts {
    /// Of HTTP; spans relative to the header block.
    pub fields: Vec<Field>,
    /// Of front servers; spans relative to the head's bytes.
    pub variables: Vec<Variable>,
    /// Of HTTP/2, whose heads are compressed: the head as HTTP/1 writes one.
    pub bytes: Vec<u8>,
    /// What [`HeadParts::bytes`] are made of.
    pub scratch: Scratch,
}

/// Room for what a head of HTTP/2 is made of.
#[derive(Debug, Default, Clone)]
pub struct Scratch {
    pub(crate) values: Vec<u8>,
    pub(crate) literal: Vec<u8>,
}

/// A request's head.
#[derive(Debug, Clone, Copy)]
pub enum RequestHead {
    /// Spans of the line are relative to the head's first byte, those of the facts to the header block behind the line.
    Http { line: RequestLine, facts: HeaderFacts },
    Variables {
        facts: VariableFacts,
        /// The front server and its protocol let the connection go on after this request.
        keep_alive: bool,
    },
}

/// Where a head's bytes are.
#[derive(Debug, Clone)]
pub enum HeadBytes {
    /// In the input, at this range.
    Input(Range<usize>),
    /// They came in pieces.
    Own(Vec<u8>),
    /// All of [`HeadParts::bytes`], or of where they were taken to.
    Parts,
}

/// A head and what comes with it.
#[derive(Debug, Clone)]
pub struct HeadEvent {
    pub head: RequestHead,
    pub bytes: HeadBytes,
    pub body: Framing,
    /// How the request is answered.
    pub wire: Wire,
    /// The header block is that of the connection's last request, byte for byte: its fields are not given again.
    pub is_repeated: bool,
    /// The header block will be known again: it is worth to keep what is made of it.
    pub is_remembered: bool,
}

/// What the next bytes meant.
#[derive(Debug, Clone)]
pub enum SessionEvent {
    /// Nothing yet: more of them are needed.
    More,
    /// A request begins. Its body follows as data and an end, unless there is none.
    Head(HeadEvent),
    /// Bytes of its body: this range of the input.
    Data(Range<usize>),
    /// Its body is complete.
    End,
    /// The front server does not want its answer any more. Where nothing was answered yet, these bytes end it, and the connection goes on
    /// or not.
    Aborted { end: Answer, keep_alive: bool },
    /// The protocol itself has something to say, whatever becomes of requests; `close`: and nothing after it.
    Send { answer: Answer, close: bool },
}

impl HeadParts {
    /// Takes out what is a head's, for a request that waits. What is room alone stays for the next one.
    #[must_use]
    pub fn take_head(&mut self) -> HeadParts {
        let scratch = std::mem::take(&mut self.scratch);
        let head = std::mem::take(self);
        self.scratch = scratch;
        head
    }
}

impl HeadBytes {
    /// The head's bytes, where `input` is what the head was found in: the buffer that was read, or those of [`HeadBytes::Parts`].
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
    /// A front server's request, which no connection remembers.
    pub(super) fn of_variables(facts: VariableFacts, keep_alive: bool, bytes: HeadBytes, body: Framing, wire: Wire) -> HeadEvent {
        let head = RequestHead::Variables { facts, keep_alive };
        HeadEvent { head, bytes, body, wire, is_repeated: false, is_remembered: false }
    }

    /// The same of a protocol that carries CGI's variables (RFC 3875).
    ///
    /// # Errors
    /// They name no method.
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
    /// The request is one for HTTP, whatever else the client would like.
    pub fn forget_upgrade(&mut self) {
        if let RequestHead::Http { facts, .. } = self {
            facts.upgrade = false;
        }
    }

    /// The client waits for `100 Continue`, to send the body.
    pub fn expects_continue(&self) -> bool {
        matches!(self, RequestHead::Http { facts, .. } if facts.expect_continue)
    }
}
