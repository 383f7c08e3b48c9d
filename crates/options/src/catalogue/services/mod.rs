//! Rows of the services that processes share, on this machine and on several. Pure data.

pub mod caching;
pub mod distributed;
pub mod sharing;
