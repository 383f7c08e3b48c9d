//! The uwsgi protocol's packet: a head of four bytes, then variables, each a name and a value with their lengths before them.
//!
//! Must not know sockets, and of variables' names only those that a worker needs before it calls the application.
//! Workers run it. The body that follows a packet is of CONTENT_LENGTH bytes and is not looked at here.

use crate::fault::{Fault, Progress, Span};
use crate::http1::framing::decimal;

/// Bytes of a packet before its variables.
pub const PACKET_HEAD_BYTES: usize = 4;

/// Variables in one packet. uWSGI itself stops at about 30 (`vec-size`); a packet of 64 KiB could name 13,000.
pub const VARIABLE_COUNT_MOST: usize = 1024;

/// The first four bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHead {
    /// What the packet is for: 0 is a request.
    pub modifier1: u8,
    /// Bytes of variables that follow.
    pub vars_bytes: u16,
    pub modifier2: u8,
}

/// One variable: spans relative to the bytes of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Never empty.
    pub name: Span,
    pub value: Span,
}

/// What a block of variables says about the request as a whole. Of a variable that comes twice the last one counts, as in `environ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UwsgiFacts {
    /// Bytes of the body, CONTENT_LENGTH; 0 when it is missing or empty.
    pub content_length: u64,
    /// REQUEST_METHOD
    pub method: Option<Span>,
    /// REQUEST_URI
    pub uri: Option<Span>,
    /// SERVER_PROTOCOL
    pub protocol: Option<Span>,
    /// The method is HEAD.
    pub head_request: bool,
}

/// Reads a packet's head.
#[inline]
pub fn packet_head(bytes: &[u8]) -> Progress<PacketHead> {
    match *bytes {
        [modifier1, low, high, modifier2, ..] => {
            Progress::Complete(PacketHead { modifier1, vars_bytes: u16::from_le_bytes([low, high]), modifier2 })
        }
        _ => Progress::Partial,
    }
}

/// What is wrong with a packet that is none of a request. `start` are its bytes, as far as they have come.
#[cold]
pub fn not_a_request(start: &[u8]) -> Fault {
    Fault::bad_request(match start {
        [0x16, ..] => "The client speaks TLS (https://), and this socket speaks the uwsgi protocol.",
        // No modifier of uWSGI's, and the method of a request line.
        [first, second, third, ..] if [first, second, third].iter().all(|byte| byte.is_ascii_uppercase()) => {
            "HTTP came to a socket of the uwsgi protocol: write `http-socket` in place of `socket`, or `uwsgi_pass` in place of nginx's `proxy_pass`."
        }
        _ => "The uwsgi packet's modifier1 is not 0: only requests are served here.",
    })
}

/// Reads one block of variables. `bytes` starts after the packet's head and is exactly `vars_bytes` long.
/// `out` is cleared and filled in the order of the block; its capacity is reused.
///
/// Values may hold any byte, line ends included: front-ends send client certificates in them.
///
/// # Errors
/// 400 for a length that leads beyond the block, a variable without a name, and a CONTENT_LENGTH that comes twice or is not a
/// number; 431 for more than [`VARIABLE_COUNT_MOST`] variables.
pub fn variables(bytes: &[u8], out: &mut Vec<Variable>) -> Result<UwsgiFacts, Fault> {
    out.clear();
    let mut facts = UwsgiFacts::default();
    let mut content_length = None;
    let mut at = 0;
    while at < bytes.len() {
        let name = counted(bytes, at)?;
        let value = counted(bytes, name.end as usize)?;
        if name.is_empty() {
            return Err(Fault::bad_request("A variable of the uwsgi packet has no name."));
        }
        if out.len() == VARIABLE_COUNT_MOST {
            return Err(Fault::new(431, "The uwsgi packet has more variables than the limit."));
        }
        match name.of(bytes) {
            b"CONTENT_LENGTH" if content_length.is_some() => {
                return Err(Fault::bad_request("The uwsgi packet has more than one CONTENT_LENGTH."));
            }
            b"CONTENT_LENGTH" => content_length = Some(body_length(value.of(bytes))?),
            b"REQUEST_METHOD" => facts.method = Some(value),
            b"REQUEST_URI" => facts.uri = Some(value),
            b"SERVER_PROTOCOL" => facts.protocol = Some(value),
            _ => {}
        }
        out.push(Variable { name, value });
        at = value.end as usize;
    }
    facts.content_length = content_length.unwrap_or(0);
    facts.head_request = facts.method.is_some_and(|method| method.of(bytes) == b"HEAD");
    Ok(facts)
}

/// The bytes after a length of two bytes, little-endian, that stands at `at`.
#[inline]
fn counted(bytes: &[u8], at: usize) -> Result<Span, Fault> {
    const BEYOND: Fault = Fault::bad_request("A variable of the uwsgi packet ends beyond the packet.");
    let Some([low, high, rest @ ..]) = bytes.get(at..) else { return Err(BEYOND) };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    let start = at + 2;
    if length > rest.len() || start + length > Span::REACH_BYTES {
        return Err(BEYOND);
    }
    Ok(Span::between(start, start + length))
}

/// nginx sends an empty CONTENT_LENGTH for a request that has none.
fn body_length(text: &[u8]) -> Result<u64, Fault> {
    if text.is_empty() {
        return Ok(0);
    }
    decimal(text).ok_or(Fault::bad_request("The uwsgi packet's CONTENT_LENGTH is not one number of bytes."))
}
