//! In place of `crates/contract/src/atomics.rs`.

pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
