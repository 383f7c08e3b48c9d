//! Parser of a request's head: its first line, and its header fields as spans of the read buffer.
//!
//! Bolide does not use `httparse`, for three reasons: `httparse` accepts a bare LF as the end of a line, which would need a
//! second pass to refuse; it says "invalid header name" for five mistakes that people need told apart; and it fills an array of
//! references that would be copied into spans. `cargo run --release --example head_speed` compares the two; tests and fuzz
//! targets use `httparse` as the second opinion: it must read every accepted head the same way.
//!
//! A head that arrives in pieces is parsed from its beginning each time: that costs less than half a nanosecond a byte, and
//! `head_bytes` bounds it. It must not know sockets or time. Workers run it on the hot path: it allocates nothing but space in
//! `fields`.

pub use super::Field;
use super::framing::FieldFacts;
pub use super::framing::{Framing, HeaderFacts, Version};
use super::scan::{first_below, is_token_byte, token};
use super::underscores::{self, Underscores};
use crate::fault::{Fault, Progress, Span};

/// Longest method in bytes. The longest that IANA has registered has 17 (`UPDATEREDIRECTREF`).
pub const MAX_METHOD_BYTES: usize = 32;

/// Bytes of `HTTP/1.1` and its CRLF.
const VERSION_BYTES: usize = 10;

/// The first line of a request. Spans are relative to the bytes that were parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLine {
    pub method: Span,
    pub target: Span,
    pub version: Version,
    /// Bytes of the line including its CRLF.
    pub length: u32,
}

/// Bounds of a head. A line or block of exactly the limit is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request line with its CRLF. Beyond it: 414.
    pub request_line_bytes: usize,
    /// Bytes of the header block: all fields and the empty line after them. Beyond it: 431.
    pub head_bytes: usize,
    /// Header fields. Beyond it: 431.
    pub header_count: usize,
    /// Accepts bytes of 0x80 and above and backslashes in targets (`lenient-targets`). Otherwise: 400.
    pub lenient_targets: bool,
    /// What happens to fields whose names have an underscore (`header-map`).
    pub underscores: Underscores,
    /// The modifier1 of uwsgi packets that is accepted besides 0: the number of the application's language.
    pub language_modifier: u8,
}

impl HeadLimits {
    /// These bounds, with everything else as it is by default.
    pub const fn of(request_line_bytes: usize, head_bytes: usize, header_count: usize) -> HeadLimits {
        HeadLimits {
            request_line_bytes,
            head_bytes,
            header_count,
            lenient_targets: false,
            underscores: Underscores::Drop,
            language_modifier: 0,
        }
    }
}

/// Returns the bytes to skip before a request line: 2 for an empty line, else 0.
///
/// RFC 9112 section 2.2: a server should ignore at least one empty line before the request line, since old clients send one after
/// a body. Only one is skipped: [`request_line`] refuses the next.
#[inline]
pub fn leading_blank(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"\r\n") { 2 } else { 0 }
}

/// Parses the request line: a method, one space, a target, one space, a version, CRLF.
///
/// The target must be visible ASCII. Bytes of 0x80 and above and backslashes are not allowed in a URI (RFC 3986), and RFC 9112
/// section 3.2 requires such a target to be refused: many applications expect ASCII and fail, and some parsers read `\` as `/`.
/// [`HeadLimits::lenient_targets`] accepts old clients that send raw UTF-8.
///
/// # Errors
/// 414 for a line beyond the limit; 505 for a major version other than 1; 400 for a method beyond [`MAX_METHOD_BYTES`] and for
/// every other deviation.
pub fn request_line(bytes: &[u8], limits: &HeadLimits) -> Result<Progress<RequestLine>, Fault> {
    let limit = limits.request_line_bytes.min(Span::REACH_BYTES);
    let line = &bytes[..bytes.len().min(limit)];
    match read_request_line(line, limits.lenient_targets).map_err(|fault| other_protocol(line).unwrap_or(fault))? {
        Progress::Partial if line.len() == limit => Err(Fault::new(414, "The request line is longer than the limit.")),
        progress => Ok(progress),
    }
}

/// Parses header fields from the bytes after the request line up to and including the empty line.
///
/// `fields` is cleared and filled in the order of the fields; its capacity is reused. Fields whose names have an underscore are
/// parsed, checked and counted, but left out of `fields`: in `environ` they would equal the same name with a dash, so a client
/// could forge a header that a front end sets (nginx drops them for the same reason). [`HeadLimits::underscores`] may keep those
/// that forge nothing.
///
/// # Errors
/// 431 beyond a limit; 417 for an expectation other than `100-continue`; 501 for one unknown transfer coding; 400 for everything
/// that RFC 9112 does not allow or that two parsers could read differently: see the case list of the tests.
pub fn header_block(
    bytes: &[u8],
    version: Version,
    limits: &HeadLimits,
    fields: &mut Vec<Field>,
) -> Result<Progress<HeaderFacts>, Fault> {
    fields.clear();
    let limit = limits.head_bytes.min(Span::REACH_BYTES);
    let block = &bytes[..bytes.len().min(limit)];
    let mut facts = FieldFacts::new(version);
    let mut count = 0usize;
    let mut at = 0usize;
    loop {
        match read_field(block, at)? {
            Line::Field { name_end, has_underscore, value, next } => {
                count += 1;
                if count > limits.header_count {
                    return Err(Fault::new(431, "The request has more header fields than the limit."));
                }
                facts.note(&block[at..name_end], block, value)?;
                let field = Field { name: Span::between(at, name_end), value };
                if !has_underscore || facts.note_underscored(field, block, limits.underscores)? {
                    fields.push(field);
                }
                at = next;
            }
            Line::End { next } => {
                if facts.keeps_underscored {
                    facts.underscored = underscores::settle(fields, block);
                }
                return Ok(Progress::Complete(facts.settle(next as u32)?));
            }
            Line::Partial if block.len() == limit => {
                return Err(Fault::new(431, "The request's header fields are longer than the limit."));
            }
            Line::Partial => return Ok(Progress::Partial),
        }
    }
}

fn read_request_line(line: &[u8], lenient_targets: bool) -> Result<Progress<RequestLine>, Fault> {
    let method_end = match line.iter().take(MAX_METHOD_BYTES + 1).position(|&byte| !is_token_byte(byte)) {
        Some(end) => end,
        None if line.len() > MAX_METHOD_BYTES => {
            return Err(Fault::bad_request("The request's method is longer than any known one."));
        }
        None => return Ok(Progress::Partial),
    };
    match line[method_end] {
        b' ' if method_end > 0 => {}
        // The first half of the empty line that `leading_blank` skips once it is complete.
        b'\r' if line.len() == 1 => return Ok(Progress::Partial),
        byte => return Err(method_fault(byte, method_end)),
    }
    let target_start = method_end + 1;
    let Some(target_end) = first_below::<0x21>(line, target_start) else { return Ok(Progress::Partial) };
    match line[target_end] {
        b' ' if target_end > target_start => {}
        byte => return Err(target_fault(byte, target_end == target_start)),
    }
    let target = &line[target_start..target_end];
    if !lenient_targets && (!target.is_ascii() || memchr::memchr(b'\\', target).is_some()) {
        return Err(Fault::bad_request("The request's target has a non-ASCII byte or a backslash, which clients must escape."));
    }
    let version_start = target_end + 1;
    let version = match &line[version_start..] {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b'\r', b'\n', ..] => Version::Http11,
        rest => match read_version(rest)? {
            Progress::Complete(version) => version,
            Progress::Partial => return Ok(Progress::Partial),
        },
    };
    Ok(Progress::Complete(RequestLine {
        method: Span::between(0, method_end),
        target: Span::between(target_start, target_end),
        version,
        length: (version_start + VERSION_BYTES) as u32,
    }))
}

/// Names another protocol that came instead of a request line. It is recognized by the bytes before the first invalid one, so
/// more bytes do not change the result.
#[cold]
fn other_protocol(line: &[u8]) -> Option<Fault> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(Fault::mixup(match line {
        // RFC 8446 section 5.1: the type of a client's first TLS record.
        [0x16, ..] => "The client speaks TLS (https://), but this socket speaks plain HTTP.",
        // A uwsgi request packet begins like this, a FastCGI record with its version, and an SCGI request with a netstring's
        // length.
        [0, ..] => {
            "An HTTP socket received the uwsgi protocol: use `proxy_pass` in nginx, or `socket` instead of `http-socket` here."
        }
        [1, ..] => {
            "An HTTP socket received FastCGI: use `proxy_pass` in nginx, or `fastcgi-socket` instead of `http-socket` here."
        }
        _ if digits > 0 && line.get(digits) == Some(&b':') => {
            "An HTTP socket received SCGI: use `proxy_pass` in nginx, or `scgi-socket` instead of `http-socket` here."
        }
        [b'P', b'R', b'O', b'X', b'Y', b' ', b'T' | b'U', ..] => {
            "A socket received a PROXY header that it does not expect: write `enable-proxy-protocol = true`, or \
                `http-enable-proxy-protocol` for `http`; or configure the reverse proxy not to send one."
        }
        [b'P', b'R', b'I', b' ', b'*', b' ', ..] => {
            let fault =
                Fault::mixup("The client speaks HTTP/2 without TLS, which is disabled: write `http2 = h2c` to enable it.");
            return Some(Fault { status: 505, ..fault });
        }
        _ => return None,
    }))
}

#[cold]
fn method_fault(byte: u8, method_end: usize) -> Fault {
    Fault::bad_request(match (byte, method_end) {
        (b' ', _) => "The request line begins with a space.",
        (b'\r' | b'\n', 0) => {
            return Fault::mixup(
                "More than one empty line, or one without CRLF, precedes the request line; a version 2 PROXY header looks like \
                    this if `enable-proxy-protocol` is missing.",
            );
        }
        (b'\r' | b'\n', _) => "The request's target is missing.",
        _ => "The request's method has an invalid character.",
    })
}

#[cold]
fn target_fault(byte: u8, empty: bool) -> Fault {
    Fault::bad_request(match (byte, empty) {
        (b' ', _) => "More than one space follows the request's method.",
        (b'\r' | b'\n', true) => "The request's target is missing.",
        (b'\r' | b'\n', false) => "The request's HTTP version is missing.",
        _ => "The request's target has a control character.",
    })
}

/// Diagnoses everything but `HTTP/1.1` and CRLF, which the caller has checked. Left to right, so that more bytes of the same
/// input never change one fault into another.
fn read_version(rest: &[u8]) -> Result<Progress<Version>, Fault> {
    const SHAPE: &[u8; VERSION_BYTES] = b"HTTP/d.d\r\n";
    for (&byte, &wanted) in rest.iter().zip(SHAPE) {
        let fits = if wanted == b'd' { byte.is_ascii_digit() } else { byte == wanted };
        if !fits {
            return Err(Fault::bad_request(match (wanted, byte) {
                (b'\r' | b'\n', b'\r' | b'\n') => "The request line does not end with CRLF.",
                (b'\r' | b'\n', _) => "Text follows the HTTP version in the request line.",
                (b'H', b' ') => "More than one space follows the request's target.",
                _ => "The request line's HTTP version is malformed.",
            }));
        }
    }
    match rest {
        [_, _, _, _, _, b'1', b'.', b'0', _, _, ..] => Ok(Progress::Complete(Version::Http10)),
        [_, _, _, _, _, b'1', b'.', _, _, _, ..] => Ok(Progress::Complete(Version::Http11)),
        [_, _, _, _, _, _, _, _, _, _, ..] => Err(Fault::new(505, "The request's HTTP version is not supported.")),
        _ => Ok(Progress::Partial),
    }
}

pub(super) enum Line {
    Field { name_end: usize, has_underscore: bool, value: Span, next: usize },
    End { next: usize },
    Partial,
}

/// Parses the line that begins at `at`.
#[inline]
pub(super) fn read_field(block: &[u8], at: usize) -> Result<Line, Fault> {
    let line = &block[at..];
    let name = token(line);
    let Some(name_length) = name.length else { return Ok(Line::Partial) };
    if line[name_length] != b':' || name_length == 0 {
        return match line {
            [b'\r'] => Ok(Line::Partial),
            [b'\r', b'\n', ..] => Ok(Line::End { next: at + 2 }),
            _ => Err(name_fault(line[name_length], name_length)),
        };
    }
    let name_end = at + name_length;
    let mut start = name_end + 1;
    while let Some(b' ' | b'\t') = block.get(start) {
        start += 1;
    }
    let mut stop = start;
    let end = loop {
        let Some(found) = first_below::<0x20>(block, stop) else { return Ok(Line::Partial) };
        match (block[found], block.get(found + 1)) {
            (b'\r', Some(b'\n')) => break found,
            (b'\r', None) => return Ok(Line::Partial),
            // A tab is allowed in a value (RFC 9110 section 5.5).
            (b'\t', _) => stop = found + 1,
            (byte, _) => return Err(value_fault(byte)),
        }
    };
    let next = end + 2;
    let blanks = block[start..end].iter().rev().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
    Ok(Line::Field { name_end, has_underscore: name.has_underscore, value: Span::between(start, end - blanks), next })
}

#[cold]
fn name_fault(byte: u8, name_length: usize) -> Fault {
    Fault::bad_request(match (byte, name_length) {
        // RFC 9112 section 5.2: `obs-fold` must be refused or replaced; parsers that replace it disagree with those that do not.
        (b' ' | b'\t', 0) => "A header line begins with a space or a tab.",
        (b' ' | b'\t', _) => "There is a space or a tab between a header's name and its colon.",
        (b':', _) => "A header line does not have a name before its colon.",
        (b'\r', 0) => "A header line begins with a CR without an LF.",
        (b'\n', 0) => "A header line begins with an LF without a CR.",
        (b'\r' | b'\n', _) => "A header line does not have a colon.",
        _ => "A header's name has an invalid character.",
    })
}

#[cold]
fn value_fault(byte: u8) -> Fault {
    Fault::bad_request(match byte {
        b'\r' => "A header's value has a CR without an LF.",
        b'\n' => "A header's value has an LF without a CR.",
        0 => "A header's value has a NUL.",
        _ => "A header's value has a control character.",
    })
}
