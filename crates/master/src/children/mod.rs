//! The children of the master: what is known of each, what can be done to them, and what their lives lead to. The master runs it.

pub mod chain;
pub mod child;
pub mod elasticity;
pub mod endings;
pub mod fleet;
pub mod harakiri;
pub mod ledger;
pub mod memory_limits;
pub mod pausing;
pub mod recycling;
pub mod reports;
pub mod scaling;
