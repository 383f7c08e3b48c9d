//! Bytes to meaning: requests of HTTP/1.1, HTTP/2, uwsgi, SCGI and FastCGI, and WebSocket messages, read from slices.
//!
//! There is no I/O here, no clock and no memory of a peer beyond what a decoder's struct shows. Workers
//! run it, on every byte that a peer sends, so nothing in it may panic and nothing may grow without a
//! bound. It must not know sockets, applications or settings: limits are handed in by the caller.

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
pub mod uwsgi;
pub mod variables;
pub mod websocket;

pub use fault::{Fault, Progress, Span};
