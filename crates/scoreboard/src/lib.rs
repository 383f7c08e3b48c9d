//! What the processes of an instance write for each other without a lock: the scoreboard with a row for each worker and a slot
//! for each of its threads, histograms and meters, ticket keys, the counts of lost lines, the owners of sessions, the permits of
//! bulkheads, and the packets of connections that move.
//!
//! A writer never waits, and its death leaves the memory whole. It must not know who writes or reads, and when. Every process
//! uses it; `models` runs its orders of stores under loom.

mod atomics;
mod board;
mod bulkhead_permits;
pub mod bulkheads;
pub mod census;
pub mod coarse_histogram;
pub mod connection_queue;
mod counters;
pub mod histogram;
pub mod keyed_hash;
pub mod log_losses;
pub mod meters;
mod published;
pub mod sealed_memory;
mod session_cells;
pub mod session_owners;
pub mod session_pair;
mod slot;
pub mod ticket_keys;
mod work;

pub use board::*;
