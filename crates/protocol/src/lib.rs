//! Protocol codecs: requests of HTTP/1.1, HTTP/2, uwsgi, SCGI and FastCGI, and WebSocket messages, parsed from slices.
//!
//! Must not know sockets, applications or settings: the caller passes limits in. There is no I/O here, no clock and no state of a
//! peer besides a decoder's struct. Workers run it, on every byte that a peer sends, so nothing here may panic or grow without a
//! bound.

#![forbid(unsafe_code)]

pub mod fastcgi;
pub mod fault;
pub mod forwarded;
mod hpack;
pub mod http1;
pub mod http2;
pub mod proxy_header;
pub mod response;
pub mod scgi;
pub mod session;
pub mod trace_context;
pub mod uwsgi;
pub mod variables;
pub mod websocket;

pub use fault::{Fault, Progress, Span};
