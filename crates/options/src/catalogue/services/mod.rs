//! Rows of the services that processes share, on this machine and on several, and of alarms. Pure data.

pub mod alarms;
pub mod cached_answers;
pub mod caching;
pub mod distributed;
pub mod sharing;
pub mod tracing;
