//! SCGI's request head: a netstring of variables, each a name and a value with a NUL behind them.
//!
//! Must not know sockets, nor what variables mean (`variables`). Workers run it. The body that follows a head is of CONTENT_LENGTH
//! bytes and is not looked at here. The protocol is https://python.ca/scgi/protocol.txt, of October 2009.

use crate::fault::{Fault, Progress, Span};
use crate::variables::{Faults, Found, Variable, VariableFacts, collect};

/// Digits of a netstring's length. More of them would be a length that no limit allows.
pub const LENGTH_DIGITS_MOST: usize = 9;

/// A head that is here in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScgiHead {
    /// Bytes of the head, up to and with the netstring's comma.
    pub length: usize,
    /// Where the variables stand; the spans of them and of `facts` are relative to it.
    pub block: Span,
    /// CONTENT_LENGTH is always told.
    pub facts: VariableFacts,
}

/// Reads a request's head at the start of `bytes`, of which `block_bytes_most` may be variables. `out` is cleared and filled in
/// their order, once the head is here in full; its capacity is reused.
///
/// A variable that comes twice is let pass, though the protocol forbids it: front servers send a header line that their client has
/// sent twice, and the last one counts, as in `environ`.
///
/// # Errors
/// 400 for what is no netstring, a variable that is not ended or has no name, a first variable that is not CONTENT_LENGTH,
/// and a missing `SCGI`; 431 for more bytes than `block_bytes_most` and more variables than
/// [`VARIABLE_COUNT_MOST`](crate::variables::VARIABLE_COUNT_MOST).
pub fn request_head(bytes: &[u8], block_bytes_most: usize, out: &mut Vec<Variable>) -> Result<Progress<ScgiHead>, Fault> {
    let Some((block_bytes, start)) = netstring_length(bytes)? else { return Ok(Progress::Partial) };
    if block_bytes > block_bytes_most {
        return Err(Fault::new(431, "The SCGI request's variables are larger than buffer-size."));
    }
    let end = start + block_bytes;
    let Some(comma) = bytes.get(end) else { return Ok(Progress::Partial) };
    if *comma != b',' {
        return Err(Fault::bad_request("The SCGI request's netstring does not end with a comma where its length says."));
    }
    let facts = variables(&bytes[start..end], out)?;
    Ok(Progress::Complete(ScgiHead { length: end + 1, block: Span::between(start, end), facts }))
}

const FAULTS: Faults = Faults {
    nameless: Fault::bad_request("A variable of the SCGI request has no name."),
    too_many: Fault::new(431, "The SCGI request has more variables than the limit."),
    doubled_length: Fault::bad_request("The SCGI request has more than one CONTENT_LENGTH."),
    bad_length: Fault::bad_request("The SCGI request's CONTENT_LENGTH is not one number of bytes."),
};

/// The length before the colon, and where what is counted begins; `None` while the colon has not come.
fn netstring_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    let digits = bytes.iter().take(LENGTH_DIGITS_MOST + 1).take_while(|byte| byte.is_ascii_digit()).count();
    match bytes.get(digits) {
        _ if digits > LENGTH_DIGITS_MOST => Err(Fault::new(431, "The SCGI request's netstring has a length of too many digits.")),
        Some(b':') if digits == 0 => Err(not_a_netstring(bytes)),
        // "Leading zeros are prohibited", and a second reader could take them for octal.
        Some(b':') if digits > 1 && bytes[0] == b'0' => {
            Err(Fault::bad_request("The SCGI request's netstring has a length with a zero before it."))
        }
        Some(b':') => {
            let length = bytes[..digits].iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
            Ok(Some((length, digits + 1)))
        }
        Some(_) => Err(not_a_netstring(bytes)),
        None => Ok(None),
    }
}

/// Names what came in place of a netstring, as far as its first bytes tell.
#[cold]
fn not_a_netstring(start: &[u8]) -> Fault {
    match start {
        [0x16, ..] => Fault::mixup("The client speaks TLS (https://), and this socket speaks SCGI."),
        [first, ..] if first.is_ascii_uppercase() => Fault::mixup(
            "HTTP came to a socket of SCGI: write `http-socket` in place of `scgi-socket`, or `scgi_pass` in place of nginx's `proxy_pass`.",
        ),
        _ => Fault::bad_request("The SCGI request does not begin with a netstring's length."),
    }
}

fn variables(bytes: &[u8], out: &mut Vec<Variable>) -> Result<VariableFacts, Fault> {
    let mut has_version = false;
    let facts = collect(bytes, out, &FAULTS, |at| {
        let name = ended(bytes, at)?;
        let value = ended(bytes, name.end as usize + 1)?;
        match name.of(bytes) {
            b"CONTENT_LENGTH" if value.is_empty() => return Err(FAULTS.bad_length),
            b"CONTENT_LENGTH" => {}
            // "The first header must have the name CONTENT_LENGTH": a reader that takes the body without parsing the rest relies on it.
            _ if at == 0 => return Err(Fault::bad_request("The SCGI request's first variable is not CONTENT_LENGTH.")),
            b"SCGI" => has_version = value.of(bytes) == b"1",
            _ => {}
        }
        Ok(Found { name, value, next: value.end as usize + 1 })
    })?;
    if facts.content_length.is_none() {
        return Err(Fault::bad_request("The SCGI request has no variables, and so no CONTENT_LENGTH."));
    }
    if !has_version {
        return Err(Fault::bad_request("The SCGI request has no variable SCGI with the value 1 (nginx: `scgi_param SCGI 1`)."));
    }
    Ok(facts)
}

/// The bytes from `at` up to the next NUL.
#[inline]
fn ended(bytes: &[u8], at: usize) -> Result<Span, Fault> {
    const OPEN: Fault = Fault::bad_request("A variable of the SCGI request is not ended by a NUL.");
    let rest = bytes.get(at..).ok_or(OPEN)?;
    let length = memchr::memchr(0, rest).ok_or(OPEN)?;
    Ok(Span::between(at, at + length))
}
