//! The master's decisions about request workers: how many there are, which are replaced, paused or killed, and the consequences
//! of their ends. It does not know request contents. The master runs it.

pub mod crash_reports;
pub mod ends;
pub mod harakiri;
pub mod memory_limits;
pub mod pausing;
pub mod recycling;
pub mod refork;
pub mod scaling;
pub mod unfinished;
