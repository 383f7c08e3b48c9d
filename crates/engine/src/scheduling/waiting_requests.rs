//! The requests of a worker that wait for a permit of one bulkhead, in the order in which they came.
//!
//! It does not know what a bulkhead is, or which of them still wait. The threads that attend to connections use it with the table
//! locked.

use std::collections::VecDeque;

use crate::scheduling::connections::Key;

/// The requests that wait for permits of one bulkhead.
#[derive(Debug, Default)]
pub struct WaitingRequests {
    /// Their connections. Some may not wait any more.
    pub keys: VecDeque<Key>,
    /// The poll reports the bell.
    pub is_watched: bool,
}
