//! HTTP/1.0 and HTTP/1.1 as an origin server reads them: RFC 9110 (meaning) and RFC 9112 (bytes).
//!
//! Parsing is strict wherever two parsers of the same bytes could disagree about where a request ends or what it asks for: the
//! server in front of Bolide may be the other one (RFC 9112 section 11.2, request smuggling). Workers run it.

pub mod chunked;
pub mod framing;
pub mod head;
pub mod response;
pub(crate) mod scan;
pub mod target;
pub mod underscores;

use crate::fault::Span;
pub use framing::{Framing, HeaderFacts};
pub use scan::is_token;

/// One header field: spans relative to the bytes of the header block. The value is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: Span,
    pub value: Span,
}
