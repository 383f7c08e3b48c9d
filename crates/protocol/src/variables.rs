//! Variables of a request, as reverse proxies send them: CGI's names and values (RFC 3875 section 4.1) as spans of one block of
//! bytes.
//!
//! The uwsgi protocol, SCGI and FastCGI encode the same list with different lengths; their codecs find the spans, and the names
//! are interpreted here, once. Must not know how a list is encoded, nor sockets. Workers run it.

use crate::fault::{Fault, Span};
use crate::http1::framing::decimal;

/// Maximum number of variables of one request. uWSGI itself stops at about 30 (`vec-size`); a packet of 64 KiB could have 13,000.
pub const MAX_VARIABLE_COUNT: usize = 1024;

/// One variable: spans relative to the bytes of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Never empty.
    pub name: Span,
    pub value: Span,
}

/// Facts about the request from a block of variables. Of duplicate variables the last one counts, as in `environ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VariableFacts {
    /// Bytes of the body, CONTENT_LENGTH; `None` if it is missing or empty, as nginx sends it for a request without a body.
    pub content_length: Option<u64>,
    /// REQUEST_METHOD
    pub method: Option<Span>,
    /// REQUEST_URI
    pub uri: Option<Span>,
    /// SERVER_PROTOCOL
    pub protocol: Option<Span>,
    /// The method is HEAD.
    pub head_request: bool,
}

impl VariableFacts {
    /// Checks that the variables are those of a CGI request.
    ///
    /// # Errors
    /// 400: REQUEST_METHOD is missing or empty. RFC 3875 section 4.1.12 requires it, and PEP 3333 says that it "can never be an
    /// empty string".
    #[inline]
    pub(crate) fn check_method(&self) -> Result<(), Fault> {
        const NO_METHOD: Fault = Fault::bad_request(
            "The request has no REQUEST_METHOD: configure the reverse proxy to send the usual variables (nginx: `include \
                uwsgi_params;`, `fastcgi_params` or `scgi_params`).",
        );
        if self.method.is_some_and(|method| !method.is_empty()) { Ok(()) } else { Err(NO_METHOD) }
    }
}

/// The faults of a list, in the terms of the protocol that sent it.
pub(crate) struct Faults {
    pub nameless: Fault,
    pub too_many: Fault,
    pub doubled_length: Fault,
    pub bad_length: Fault,
}

/// One step of a codec through a block: a name, its value, and where the next variable begins.
pub(crate) struct Found {
    pub name: Span,
    pub value: Span,
    pub next: usize,
}

/// Parses all of `bytes` by the steps of `find`, which is called with the start of each variable. `out` is cleared and filled in
/// the order of the block; its capacity is reused. Each codec gets its own copy of this loop, with its steps inlined.
#[inline(always)]
pub(crate) fn collect(
    bytes: &[u8],
    out: &mut Vec<Variable>,
    faults: &'static Faults,
    mut find: impl FnMut(usize) -> Result<Found, Fault>,
) -> Result<VariableFacts, Fault> {
    out.clear();
    let mut facts = VariableFacts::default();
    let mut has_length = false;
    let mut at = 0;
    while at < bytes.len() {
        let Found { name, value, next } = find(at)?;
        if name.is_empty() {
            return Err(faults.nameless);
        }
        if out.len() == MAX_VARIABLE_COUNT {
            return Err(faults.too_many);
        }
        match name.of(bytes) {
            // Parsers could use either of two lengths: that is refused, even if both are the same.
            b"CONTENT_LENGTH" if has_length => return Err(faults.doubled_length),
            b"CONTENT_LENGTH" => {
                has_length = true;
                facts.content_length = body_length(value.of(bytes)).ok_or(faults.bad_length)?;
            }
            b"REQUEST_METHOD" => facts.method = Some(value),
            b"REQUEST_URI" => facts.uri = Some(value),
            b"SERVER_PROTOCOL" => facts.protocol = Some(value),
            _ => {}
        }
        out.push(Variable { name, value });
        at = next;
    }
    facts.head_request = facts.method.is_some_and(|method| method.of(bytes) == b"HEAD");
    Ok(facts)
}

/// Returns `None` for an invalid number; an empty text means that there is no length, and is allowed.
fn body_length(text: &[u8]) -> Option<Option<u64>> {
    if text.is_empty() { Some(None) } else { decimal(text).map(Some) }
}
