//! Checks a head that was written from HTTP/2 fields (RFC 9113 sections 8.2 and 8.3), and returns the same facts as for HTTP/1.
//!
//! A header block with the same bytes as the previous one needs no check except for its request line. Workers run it.

use super::priority::Priority;
use super::text::{HeadText, is_good_field};
use crate::fault::{Fault, Span};
use crate::http1::framing::FieldFacts;
use crate::http1::head::{Field, HeadLimits, MAX_METHOD_BYTES, RequestLine, Version};
use crate::http1::scan::first_below;
use crate::http1::target::is_authority;
use crate::http1::{Framing, HeaderFacts, is_token, underscores};
use crate::session::last_block::LastBlock;

/// The remembered header blocks of a connection.
#[derive(Debug, Default)]
pub(super) struct HeadMemory {
    last: LastBlock,
    /// Of the last block: its number of lines, and its priority.
    lines: usize,
    priority: Priority,
}

/// A request's head.
#[derive(Debug)]
pub(super) struct ReadHead {
    pub line: RequestLine,
    pub facts: HeaderFacts,
    pub protocol: Option<Span>,
    pub priority: Priority,
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum HeadError {
    /// A stream error (RFC 9113 section 8.1.1).
    Malformed,
    /// It can be answered with a status.
    Refused(Fault),
}

/// Context of a head besides its limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadContext {
    /// The head had END_STREAM.
    pub is_complete: bool,
    pub has_extended_connect: bool,
}

impl HeadMemory {
    /// Parses the head of a request whose fields are complete.
    pub fn read(&mut self, mut text: HeadText<'_>, limits: &HeadLimits, context: HeadContext) -> Result<ReadHead, HeadError> {
        text.finish();
        if text.is_malformed {
            return Err(HeadError::Malformed);
        }
        if let Some(fault) = text.fault {
            return Err(HeadError::Refused(fault));
        }
        let line = request_line(&text, limits, context.has_extended_connect)?;
        let block = text.bytes.get(line.length as usize..).unwrap_or_default();
        if block.len() > limits.head_bytes {
            return Err(HeadError::Refused(Fault::new(431, "The request's header fields are longer than the limit.")));
        }
        let lines = text.fields.len();
        // A request for another protocol is parsed field by field, and is not repeated.
        let is_plain = text.pseudo.protocol.is_none();
        let known = self.last.facts_of(block, Version::Http2).filter(|_| is_plain);
        // Blocks of the same bytes in the same number of lines have the same fields: a valid block has a line end only at the end
        // of each line, and no name has a colon. Fields that a block must not contain were dropped before.
        let repeated = known.filter(|facts| facts.length as usize == block.len() && lines == self.lines);
        let (mut facts, priority) = match repeated {
            Some(facts) => (facts, self.priority),
            None => {
                let (facts, priority) = check_fields(block, text.fields)?;
                if is_plain {
                    self.last.remember(block, Version::Http2, facts);
                    (self.lines, self.priority) = (lines, priority);
                }
                (facts, priority)
            }
        };
        // The name of a field that was left out is in no bytes.
        facts.underscored = text.has_left_out.then(Span::default);
        if text.keeps_underscored {
            facts.underscored = facts.underscored.or(underscores::settle(text.fields, block));
        }
        match (context.is_complete, facts.framing) {
            (true, Framing::None | Framing::Length(0)) => facts.framing = Framing::None,
            // RFC 9113 section 8.1.1: the body must have exactly the announced bytes.
            (true, _) => return Err(HeadError::Malformed),
            (false, Framing::None) => facts.framing = Framing::Chunked,
            (false, _) => {}
        }
        facts.expect_continue &= !context.is_complete;
        let protocol = append_protocol(&mut text);
        facts.upgrade = protocol.is_some();
        Ok(ReadHead { line, facts, protocol, priority })
    }
}

/// Checks the trailer fields after a request's body, which are dropped. Returns false if they are malformed.
pub(super) fn are_trailers(mut text: HeadText<'_>) -> bool {
    text.finish();
    let pseudo = &text.pseudo;
    let has_pseudo = [pseudo.method, pseudo.scheme, pseudo.path, pseudo.authority, pseudo.protocol].iter().any(Option::is_some);
    let block = text.bytes.get(text.line_bytes.unwrap_or(0)..).unwrap_or_default();
    let are_good = text.fields.iter().all(|field| is_good_field(field.name.of(block), field.value.of(block)));
    !text.is_malformed && !has_pseudo && are_good
}

/// RFC 9113 section 8.3.1.
fn request_line(text: &HeadText<'_>, limits: &HeadLimits, has_extended_connect: bool) -> Result<RequestLine, HeadError> {
    let pseudo = &text.pseudo;
    let method = text.value_of(pseudo.method);
    if !is_token(method) {
        return Err(HeadError::Malformed);
    }
    if method.len() > MAX_METHOD_BYTES {
        return Err(Fault::bad_request("The request's method is longer than any known one.").into());
    }
    let target = text.value_of(pseudo.path.or(pseudo.authority));
    if method == b"CONNECT" && pseudo.protocol.is_none() {
        // RFC 9113 section 8.5.
        if pseudo.scheme.is_some() || pseudo.path.is_some() || target.is_empty() || !is_authority(target) {
            return Err(HeadError::Malformed);
        }
    } else {
        if pseudo.protocol.is_some() {
            // RFC 8441 section 4.
            let is_allowed = has_extended_connect && method == b"CONNECT" && pseudo.authority.is_some();
            if !is_allowed || !is_token(text.value_of(pseudo.protocol)) {
                return Err(HeadError::Malformed);
            }
        }
        let scheme = text.value_of(pseudo.scheme);
        if pseudo.path.is_none() || !is_scheme(scheme) {
            return Err(HeadError::Malformed);
        }
        // RFC 9113 section 8.3.1: other schemes are for gateways, which translate them. Bolide does not.
        if ![&b"https"[..], b"http"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(Fault::bad_request("The request's scheme is neither http nor https.").into());
        }
        check_target(target, method, limits)?;
    }
    let length = text.line_bytes.unwrap_or(0);
    if length > limits.request_line_bytes {
        return Err(Fault::new(414, "The request line is longer than the limit.").into());
    }
    let target_start = method.len() + 1;
    Ok(RequestLine {
        method: Span::between(0, method.len()),
        target: Span::between(target_start, target_start + target.len()),
        version: Version::Http2,
        length: length as u32,
    })
}

/// Checks `:path`: a path with its query, or `*` for OPTIONS.
fn check_target(target: &[u8], method: &[u8], limits: &HeadLimits) -> Result<(), HeadError> {
    let begins_well = match target {
        b"*" => method == b"OPTIONS",
        _ => target.first() == Some(&b'/'),
    };
    if !begins_well || first_below::<0x21>(target, 0).is_some() {
        return Err(HeadError::Malformed);
    }
    if !limits.lenient_targets && (!target.is_ascii() || memchr::memchr(b'\\', target).is_some()) {
        return Err(HeadError::Refused(Fault::bad_request(
            "The request's target has a non-ASCII byte or a backslash, which clients must escape.",
        )));
    }
    Ok(())
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &[u8]) -> bool {
    let is_rest = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_rest)
}

/// Checks a block's fields.
fn check_fields(block: &[u8], fields: &[Field]) -> Result<(HeaderFacts, Priority), HeadError> {
    let mut facts = FieldFacts::new(Version::Http2);
    let mut priority = Priority::default();
    for field in fields {
        let (name, value) = (field.name.of(block), field.value.of(block));
        if !is_good_field(name, value) {
            return Err(HeadError::Malformed);
        }
        facts.note(name, block, field.value)?;
        if name == b"priority" {
            priority = Priority::parse(value);
        }
    }
    Ok((facts.settle(block.len() as u32)?, priority))
}

/// Appends the protocol of an extended CONNECT to the head's bytes, after its block.
fn append_protocol(text: &mut HeadText<'_>) -> Option<Span> {
    let span = text.pseudo.protocol?;
    let protocol = text.value_of(Some(span)).to_vec();
    let start = text.bytes.len();
    text.bytes.extend_from_slice(&protocol);
    Some(Span::between(start, text.bytes.len()))
}

impl From<Fault> for HeadError {
    fn from(fault: Fault) -> HeadError {
        HeadError::Refused(fault)
    }
}
