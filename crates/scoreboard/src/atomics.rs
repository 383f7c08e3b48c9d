//! The atomics of memory that processes share. `models` compiles the same files with its own atomics, to run them under every
//! order of reads and writes.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
