//! What the master decides of request workers: how many there are, which are replaced, paused or killed, and what follows from their ends. The
//! master runs it.

pub mod ends;
pub mod harakiri;
pub mod memory_limits;
pub mod pausing;
pub mod recycling;
pub mod scaling;
