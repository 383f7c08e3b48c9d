//! The atomics of what processes share. `models`, which runs the same files under each order of reads and writes, has its own in their place.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
