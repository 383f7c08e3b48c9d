//! The uwsgi protocol's packet: a head of four bytes, then variables, each a name and a value preceded by their lengths.
//!
//! Must not know sockets, nor the meaning of variables (`variables`). Workers run it. The body after a packet has CONTENT_LENGTH
//! bytes and is not read here.

use crate::fault::{Fault, Progress, Span};
use crate::variables::{Faults, Found, Variable, VariableFacts, collect};

/// Bytes of a packet before its variables.
pub const PACKET_HEAD_BYTES: usize = 4;

/// The first four bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHead {
    /// The packet's type: 0 is a request, and so is the number of the application's language.
    pub modifier1: u8,
    /// Bytes of the variables that follow.
    pub vars_bytes: u16,
    pub modifier2: u8,
}

/// Parses a packet's head.
#[inline]
pub fn packet_head(bytes: &[u8]) -> Progress<PacketHead> {
    match *bytes {
        [modifier1, low, high, modifier2, ..] => {
            Progress::Complete(PacketHead { modifier1, vars_bytes: u16::from_le_bytes([low, high]), modifier2 })
        }
        _ => Progress::Partial,
    }
}

/// Returns the fault for a packet that is not a request. `start` are its bytes, as far as they have come.
#[cold]
pub fn not_a_request(start: &[u8]) -> Fault {
    match start {
        [0x16, ..] => Fault::mixup("The client speaks TLS (https://), but this socket speaks the uwsgi protocol."),
        // Not a modifier of uWSGI, but the method of a request line.
        [first, second, third, ..] if [first, second, third].iter().all(|byte| byte.is_ascii_uppercase()) => Fault::mixup(
            "A uwsgi socket received HTTP: write `http-socket` instead of `socket`, or `uwsgi_pass` instead of nginx's \
                `proxy_pass`.",
        ),
        _ => Fault::bad_request("The uwsgi packet's modifier1 is not that of a request to this application."),
    }
}

/// Parses one block of variables. `bytes` starts after the packet's head and is exactly `vars_bytes` long. `out` is cleared and
/// filled in the order of the block; its capacity is reused.
///
/// Values may contain any byte, including line ends: front ends send client certificates in them.
///
/// # Errors
/// 400 for a length that leads beyond the block, a variable without a name, and a CONTENT_LENGTH that occurs twice or is not a
/// number; 431 for more than [`MAX_VARIABLE_COUNT`](crate::variables::MAX_VARIABLE_COUNT) variables.
pub fn variables(bytes: &[u8], out: &mut Vec<Variable>) -> Result<VariableFacts, Fault> {
    collect(bytes, out, &FAULTS, |at| {
        let name = counted(bytes, at)?;
        let value = counted(bytes, name.end as usize)?;
        Ok(Found { name, value, next: value.end as usize })
    })
}

const FAULTS: Faults = Faults {
    nameless: Fault::bad_request("A variable of the uwsgi packet has no name."),
    too_many: Fault::new(431, "The uwsgi packet has more variables than the limit."),
    doubled_length: Fault::bad_request("The uwsgi packet has more than one CONTENT_LENGTH."),
    bad_length: Fault::bad_request("The uwsgi packet's CONTENT_LENGTH is not a single number."),
};

/// Returns the bytes after a little-endian length of two bytes at `at`.
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
