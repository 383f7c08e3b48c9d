//! A worker inside an event loop of Python, whichever it is.

pub mod hosted;
pub mod watcher;
