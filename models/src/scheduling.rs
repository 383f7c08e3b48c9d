//! In place of `crates/engine/src/scheduling.rs`: those of its files whose threads meet.

mod clock;
pub mod concurrency;
#[path = "../../crates/engine/src/scheduling/connections.rs"]
pub mod connections;
#[path = "../../crates/engine/src/scheduling/deadlines.rs"]
#[allow(dead_code, reason = "the loop's clock is not modeled")]
mod deadlines;
#[path = "../../crates/engine/src/scheduling/handover.rs"]
#[allow(dead_code, reason = "when the companion begins is not modeled")]
pub mod handover;
#[path = "../../crates/engine/src/scheduling/held_answers.rs"]
pub mod held_answers;
#[path = "../../crates/engine/src/scheduling/leadership.rs"]
pub mod leadership;
#[path = "../../crates/engine/src/scheduling/turn.rs"]
pub mod turn;
