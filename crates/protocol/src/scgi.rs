//! SCGI's request head: a netstring of variables, each a name and a value that end with a NUL.
//!
//! Must not know sockets, nor the meaning of variables (`variables`). Workers run it. The body after a head has CONTENT_LENGTH
//! bytes and is not read here. The protocol is https://python.ca/scgi/protocol.txt, of October 2009.

use crate::fault::{Fault, Progress, Span};
use crate::variables::{Faults, Found, Variable, VariableFacts, collect};

/// Maximum number of digits of a netstring's length. With more digits the length exceeds every limit.
pub const MAX_LENGTH_DIGITS: usize = 9;

/// A complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScgiHead {
    /// Bytes of the head, including the netstring's comma.
    pub length: usize,
    /// The block of variables; their spans and those of `facts` are relative to it.
    pub block: Span,
    /// CONTENT_LENGTH is always set.
    pub facts: VariableFacts,
}

/// Parses a request's head at the start of `bytes`, of which at most `block_bytes_most` may be variables. `out` is cleared and
/// filled in their order once the head is complete; its capacity is reused.
///
/// Duplicate variables are accepted, though the protocol forbids them: reverse proxies pass on a header line that their client
/// has sent twice, and the last one counts, as in `environ`.
///
/// # Errors
/// 400 for anything but a netstring, a variable that is not ended or has no name, a first variable that is not CONTENT_LENGTH,
/// and a missing `SCGI`; 431 for more bytes than `block_bytes_most` and more variables than
/// [`MAX_VARIABLE_COUNT`](crate::variables::MAX_VARIABLE_COUNT).
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
    bad_length: Fault::bad_request("The SCGI request's CONTENT_LENGTH is not a single number."),
};

/// Returns the length before the colon, and where the counted bytes begin; `None` if the colon has not come.
fn netstring_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    let digits = bytes.iter().take(MAX_LENGTH_DIGITS + 1).take_while(|byte| byte.is_ascii_digit()).count();
    match bytes.get(digits) {
        _ if digits > MAX_LENGTH_DIGITS => Err(Fault::new(431, "The SCGI request's netstring length has too many digits.")),
        Some(b':') if digits == 0 => Err(not_a_netstring(bytes)),
        // "Leading zeros are prohibited", and another parser could read them as octal.
        Some(b':') if digits > 1 && bytes[0] == b'0' => {
            Err(Fault::bad_request("The SCGI request's netstring length has a leading zero."))
        }
        Some(b':') => {
            let length = bytes[..digits].iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
            Ok(Some((length, digits + 1)))
        }
        Some(_) => Err(not_a_netstring(bytes)),
        None => Ok(None),
    }
}

/// Names the data that came instead of a netstring, as far as its first bytes tell.
#[cold]
fn not_a_netstring(start: &[u8]) -> Fault {
    match start {
        [0x16, ..] => Fault::mixup("The client speaks TLS (https://), but this socket speaks SCGI."),
        [first, ..] if first.is_ascii_uppercase() => Fault::mixup(
            "An SCGI socket received HTTP: write `http-socket` instead of `scgi-socket`, or `scgi_pass` instead of nginx's \
                `proxy_pass`.",
        ),
        _ => Fault::bad_request("The SCGI request does not begin with the length of a netstring."),
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
            // "The first header must have the name CONTENT_LENGTH": a parser that reads the body without parsing the rest relies
            // on it.
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

/// Returns the bytes from `at` up to the next NUL.
#[inline]
fn ended(bytes: &[u8], at: usize) -> Result<Span, Fault> {
    const OPEN: Fault = Fault::bad_request("A variable of the SCGI request does not end with a NUL.");
    let rest = bytes.get(at..).ok_or(OPEN)?;
    let length = memchr::memchr(0, rest).ok_or(OPEN)?;
    Ok(Span::between(at, at + length))
}
