//! Models of what threads and processes of Bolide share: the very files of the server, on atomics and locks of `loom`, which runs a test
//! under each order in which its threads can meet (up to a bound of preemptions), and with each value that a relaxed read may give.
//!
//! The tests are in `tests`. Nothing here is part of the server.

mod atomics;
#[path = "../../crates/contract/src/published.rs"]
pub mod published;
pub mod scheduling;
#[path = "../../crates/contract/src/slot.rs"]
pub mod slot;

/// How often a thread of a model may be interrupted where it would go on. Two orders of events that no three interruptions can tell
/// apart are rare, and each further one multiplies the time.
const PREEMPTIONS_MOST: usize = 3;

/// Runs a model under each order of its threads.
pub fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MOST);
    builder.check(model);
}
