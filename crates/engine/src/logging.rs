//! The lines of a worker: one for each request, peer_warnings about peers, and the counters beside them.
//!
//! It knows no sockets and no requests, only their values. Workers run it.

pub mod access_log;
pub mod counting;
pub mod log_format;
pub mod log_line;
pub mod log_styles;
pub mod peer_warnings;
