//! Replaces `crates/contract/src/atomics.rs` in the models.

pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
