//! Models of the data that threads and processes of Bolide share. They include the server's own source files, with atomics and
//! locks of `loom`, which runs a test with each order in which its threads can interleave (up to a bound of preemptions), and
//! with each value that a relaxed read may return.
//!
//! The tests are in `tests`. Nothing here is part of the server.

mod atomics;
mod clock;
pub mod concurrency;
#[path = "../../crates/engine/src/connections.rs"]
pub mod connections;
#[path = "../../crates/engine/src/deadlines.rs"]
#[allow(dead_code, reason = "the loop's clock is not modelled")]
mod deadlines;
#[path = "../../crates/engine/src/elsewhere.rs"]
#[allow(dead_code, reason = "when the companion begins is not modelled")]
pub mod elsewhere;
#[path = "../../crates/engine/src/held_answers.rs"]
pub mod held_answers;
#[path = "../../crates/engine/src/leadership.rs"]
pub mod leadership;
#[path = "../../crates/contract/src/published.rs"]
pub mod published;
#[path = "../../crates/contract/src/slot.rs"]
pub mod slot;
#[path = "../../crates/engine/src/turn.rs"]
pub mod turn;

/// How often a thread of a model may be preempted. Errors that need more than three preemptions are rare, and each further one
/// multiplies the time.
const PREEMPTIONS_MOST: usize = 3;

/// Runs a model with each order of its threads.
pub fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MOST);
    builder.check(model);
}
