//! Facts about the whole request from its version and its header fields: where its body ends, whether the connection continues,
//! its host.
//!
//! Request smuggling is refused here: a length that two parsers could read differently is a fault, never a guess. Must not know
//! how fields are found in the bytes. Workers run it, once for each head.

use super::Field;
pub use super::scan::decimal;
use super::scan::{is_token_byte, without_blanks};
use super::target::{is_authority, names_a_host};
use super::underscores::{REFUSED, Underscores};
use crate::fault::{Fault, Span};

/// The versions of HTTP that a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    /// HTTP/1.1, or a later minor version, which RFC 9110 section 2.5 has a server treat as the highest that it supports.
    Http11,
    Http2,
}

impl Version {
    /// SERVER_PROTOCOL.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}

/// How the end of a request's body is determined (RFC 9112 section 6.3). A request without both headers has no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    /// Bytes as given by Content-Length; may be 0.
    Length(u64),
    Chunked,
}

/// Facts of a complete header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderFacts {
    /// Bytes of the block including the empty line at its end.
    pub length: u32,
    pub framing: Framing,
    /// Whether the client keeps the connection open after this request, by its version and its Connection options; `close` wins.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body. False if there is no body to wait for, and in HTTP/1.0,
    /// where RFC 9110 section 10.1.1 has the expectation ignored.
    pub expect_continue: bool,
    /// Value of the only Host header, which may be empty in HTTP/1. `None` in HTTP/1.0 only.
    pub host: Option<Span>,
    /// The client asks for another protocol: an Upgrade header, and `upgrade` among the Connection options, in HTTP/1.1.
    pub upgrade: bool,
    /// Name of the first field that was left out because its name has an underscore.
    pub underscored: Option<Span>,
    /// Value of the last field `SCRIPT_NAME`, which is always left out: gunicorn has reverse proxies send it.
    pub script_name: Option<Span>,
}

/// Collects the facts of a header block field by field.
pub(crate) struct FieldFacts {
    version: Version,
    host: Option<Span>,
    content_length: Option<u64>,
    transfer_coding: Option<TransferCoding>,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    upgrade_field: bool,
    expectation: Expectation,
    pub(crate) underscored: Option<Span>,
    pub(crate) keeps_underscored: bool,
    script_name: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TransferCoding {
    Chunked,
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expectation {
    None,
    Continue,
    Unknown,
}

impl FieldFacts {
    pub(crate) fn new(version: Version) -> FieldFacts {
        FieldFacts {
            version,
            host: None,
            content_length: None,
            transfer_coding: None,
            close: false,
            keep_alive: false,
            upgrade_option: false,
            upgrade_field: false,
            expectation: Expectation::None,
            underscored: None,
            keeps_underscored: false,
            script_name: None,
        }
    }

    /// Records one field. The lengths of the relevant names differ, so most fields cost one comparison of a length.
    #[inline]
    pub(crate) fn note(&mut self, name: &[u8], block: &[u8], value: Span) -> Result<(), Fault> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.note_host(value.of(block), value),
            6 if name.eq_ignore_ascii_case(b"expect") => self.note_expect(value.of(block)),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade_field = true;
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.note_connection(value.of(block));
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_content_length(value.of(block)),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.note_transfer_encoding(value.of(block)),
            _ => Ok(()),
        }
    }

    /// Records a field whose name has an underscore. Returns whether it stays until the whole head is known.
    #[cold]
    pub(crate) fn note_underscored(&mut self, field: Field, block: &[u8], what: Underscores) -> Result<bool, Fault> {
        if field.name.of(block).eq_ignore_ascii_case(b"script_name") {
            self.script_name = Some(field.value);
            return Ok(false);
        }
        match what {
            Underscores::Drop => {
                self.underscored = self.underscored.or(Some(field.name));
                Ok(false)
            }
            Underscores::Keep => {
                self.keeps_underscored = true;
                Ok(true)
            }
            Underscores::Refuse => Err(Fault::bad_request(REFUSED)),
        }
    }

    /// Returns the facts, after the last field. `length` is the block's, in bytes.
    pub(crate) fn settle(&self, length: u32) -> Result<HeaderFacts, Fault> {
        let framing = match (self.transfer_coding, self.content_length) {
            (Some(TransferCoding::Chunked), _) => Framing::Chunked,
            // RFC 9112 section 6.1: a transfer coding that the server does not understand is 501.
            (Some(TransferCoding::Unknown), _) => {
                return Err(Fault::new(501, "The request's transfer coding is not supported."));
            }
            (None, Some(length)) => Framing::Length(length),
            (None, None) => Framing::None,
        };
        if self.version != Version::Http10 && self.host.is_none() {
            return Err(Fault::bad_request("The request has no Host header."));
        }
        if self.expectation == Expectation::Unknown {
            return Err(Fault::new(417, "The request expects something other than 100-continue."));
        }
        // In HTTP/2 the frames tell whether there is a body.
        let has_body = self.version == Version::Http2 || !matches!(framing, Framing::None | Framing::Length(0));
        let modern = self.version != Version::Http10;
        Ok(HeaderFacts {
            length,
            framing,
            keep_alive: !self.close && (modern || self.keep_alive),
            expect_continue: modern && has_body && self.expectation == Expectation::Continue,
            host: self.host,
            upgrade: self.version == Version::Http11 && self.upgrade_field && self.upgrade_option,
            underscored: self.underscored,
            script_name: self.script_name,
        })
    }

    fn note_host(&mut self, text: &[u8], value: Span) -> Result<(), Fault> {
        if self.host.is_some() {
            return Err(Fault::bad_request("The request has more than one Host header."));
        }
        if !is_authority(text) {
            return Err(Fault::bad_request("The Host header is not a host with an optional port."));
        }
        // RFC 9112 section 3.2: if the target has no authority, "a client MUST send a Host header field with an empty field
        // value". In HTTP/2 the host "MUST NOT be empty" (RFC 9113 section 8.3.1).
        let is_good_without = text.is_empty() && self.version != Version::Http2;
        if !is_good_without && !names_a_host(text) {
            return Err(Fault::bad_request("The Host header does not contain a host."));
        }
        self.host = Some(value);
        Ok(())
    }

    fn note_expect(&mut self, text: &[u8]) -> Result<(), Fault> {
        for member in members(text) {
            if !member.eq_ignore_ascii_case(b"100-continue") {
                self.expectation = Expectation::Unknown;
            } else if self.expectation == Expectation::None {
                self.expectation = Expectation::Continue;
            }
        }
        Ok(())
    }

    fn note_connection(&mut self, text: &[u8]) {
        for option in members(text) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade_option = true;
            }
        }
    }

    /// RFC 9112 section 6.3 allows a server to read a list of equal lengths as one. It is refused here, because it shows a broken
    /// parser on the path.
    fn note_content_length(&mut self, text: &[u8]) -> Result<(), Fault> {
        if self.content_length.is_some() {
            return Err(Fault::bad_request("The request has more than one Content-Length header."));
        }
        if self.transfer_coding.is_some() {
            return Err(BOTH_LENGTHS);
        }
        let Some(length) = decimal(text) else {
            return Err(Fault::bad_request("The Content-Length header is not a single number."));
        };
        // The grammar allows leading zeros (RFC 9110 section 8.6), but some parsers read such a number as octal.
        if let [b'0', _, ..] = text {
            return Err(Fault::bad_request("The Content-Length header's number has a leading zero."));
        }
        self.content_length = Some(length);
        Ok(())
    }

    fn note_transfer_encoding(&mut self, text: &[u8]) -> Result<(), Fault> {
        if self.version == Version::Http10 {
            // RFC 9112 section 6.1: the framing of such a message must be treated as faulty.
            return Err(Fault::bad_request("An HTTP/1.0 request has a Transfer-Encoding header."));
        }
        if self.content_length.is_some() {
            return Err(BOTH_LENGTHS);
        }
        if self.transfer_coding.is_some() {
            return Err(Fault::bad_request("The request has more than one Transfer-Encoding header."));
        }
        self.transfer_coding = Some(if text.eq_ignore_ascii_case(b"chunked") {
            TransferCoding::Chunked
        } else if !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte)) {
            TransferCoding::Unknown
        } else {
            return Err(Fault::bad_request("The Transfer-Encoding header is not the single word chunked."));
        });
        Ok(())
    }
}

const BOTH_LENGTHS: Fault = Fault::bad_request("The request has both a Content-Length and a Transfer-Encoding header.");

/// Returns the non-empty members of a comma-separated list (RFC 9110 section 5.6.1).
fn members(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b',').map(without_blanks).filter(|member| !member.is_empty())
}
