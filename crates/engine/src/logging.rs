//! The log lines of a worker: request lines, warnings about peers, and the counters.
//!
//! It does not know about sockets or requests, only their values. Workers run it.

pub mod access_log;
pub mod counting;
pub mod identity;
pub mod log_format;
pub mod log_line;
pub mod log_styles;
pub mod peer_warnings;
pub mod route_groups;
pub mod waiting;
