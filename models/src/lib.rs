//! Models of the data that threads and processes of Bolide share. They include the server's own source files, with atomics and
//! locks of `loom`, which runs a test with each order in which its threads can interleave (up to a bound of preemptions), and
//! with each value that a relaxed read may return.
//!
//! The tests are in `tests`. Nothing here is part of the server.

mod atomics;
#[path = "../../crates/scoreboard/src/bulkhead_permits.rs"]
pub mod bulkhead_permits;
/// The items of a cache: `crates/memory/src/cache/table.rs`.
#[path = "../../crates/memory/src/cache/table.rs"]
pub mod cache_table;
#[path = "../../crates/scoreboard/src/census.rs"]
pub mod census;
#[path = "../../crates/scoreboard/src/counters.rs"]
pub mod counters;
#[path = "../../crates/scoreboard/src/published.rs"]
pub mod published;
#[path = "../../crates/contract/src/rate.rs"]
pub mod rate;
/// The cells of a rate limit: `crates/memory/src/rate_limits/cells.rs`.
#[path = "../../crates/memory/src/rate_limits/cells.rs"]
pub mod rate_limit_cells;
pub mod scheduling;
#[path = "../../crates/scoreboard/src/session_cells.rs"]
pub mod session_cells;
#[path = "../../crates/scoreboard/src/slot.rs"]
pub mod slot;
#[path = "../../crates/scoreboard/src/work.rs"]
pub mod work;

/// How often a thread of a model may be preempted. Errors that need more than three preemptions are rare, and each additional one
/// multiplies the time.
const MAX_PREEMPTIONS: usize = 3;

/// Runs a model with each order of its threads.
pub fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MAX_PREEMPTIONS);
    builder.check(model);
}
