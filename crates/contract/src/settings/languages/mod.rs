//! Settings of languages other than Python, which their adapters alone read. Plain data.

pub mod cgi;
pub mod plugin;
