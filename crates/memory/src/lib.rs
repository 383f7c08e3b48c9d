//! Memory that the processes of an instance share beside the scoreboard, and that survives any of them: mappings with a checked
//! head, locks whose holder may die, and the structures that stand in them.
//!
//! The master makes the memory, a prototype recovers what a dead process held, and every process that has the application reads
//! and writes it.
//! It knows neither languages nor options nor logs.

pub mod atomics;
pub mod attached;
pub mod cache;
pub mod engines;
pub mod inboxes;
pub mod mapping;
pub mod metrics;
pub mod queue;
pub mod rate_limits;
pub mod region;
pub mod robust_lock;
pub mod shared_area;
pub mod user_locks;
pub mod wanted;

pub use attached::Attached;
use bolide_contract::rate;
pub use mapping::{Identity, Mapping, Mismatch};
pub use robust_lock::{Guard, Left, Recovery, RobustLock};
pub use wanted::Wanted;
