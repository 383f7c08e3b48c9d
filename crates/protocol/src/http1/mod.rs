//! HTTP/1.0 and HTTP/1.1 as an origin server reads them: RFC 9110 (meaning) and RFC 9112 (bytes).
//!
//! The reading is strict wherever two readers of the same bytes could disagree about where a request ends or what
//! it names: whoever stands in front of Bolide may be one of them (RFC 9112 section 11.2, request smuggling).

pub mod chunked;
pub mod framing;
pub mod head;
pub(crate) mod scan;
pub mod target;
mod version;

pub use framing::{Framing, HeaderFacts};
pub use scan::is_token;
