//! Bytes to meaning: HTTP/1.1 requests, uwsgi packets and WebSocket messages, read from slices.
//!
//! There is no I/O here, no clock and no memory of a peer beyond what a decoder's struct shows. Workers
//! run it, on every byte that a peer sends, so nothing in it may panic and nothing may grow without a
//! bound. It must not know sockets, applications or settings: limits are handed in by the caller.

#![forbid(unsafe_code)]

pub mod fault;
pub mod http1;
pub mod uwsgi;
pub mod websocket;

pub use fault::{Fault, Progress, Span};
