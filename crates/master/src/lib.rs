//! The master: it owns the listening sockets, the scoreboard, the timers and the signals, starts prototypes, has them fork
//! workers, and replaces what dies. No application code, no HTTP and no thread is in it.
//!
//! The way in is [`main`], for the program `bolide` and for the Python package's console script alike, and [`run`] for the program of
//! another language. [`supervise`] runs settings that are already made.

mod announce;
mod attendance;
mod attendant;
mod canary;
mod chain;
mod changes;
pub mod child;
mod cli;
mod configuration;
mod control;
mod developing;
mod elasticity;
mod endings;
mod failure_note;
mod fleet;
mod generation;
mod harakiri;
mod helpers;
mod hooking;
mod imports;
mod interpreter;
mod ledger;
pub mod manual;
mod memory_limits;
mod packaged;
mod pausing;
mod reading_as_user;
mod recycling;
mod rehearsal;
mod reload;
mod renewing;
mod reporting;
mod reports;
mod rotation;
mod scaling;
mod settling;
mod snapshot;
mod start;
mod statistics;
mod stop;
mod stop_first;
mod stop_progress;
mod supervisor;
mod taking_place;
mod token;
mod touch_hooks;
mod unshared;
mod upgrade;

pub use bolide_options::keyword_words;
pub use bolide_supervision::error::{EXIT_START_FAILED, StartError};
pub use bolide_supervision::processes::process_attributes::set_name as set_process_name;
pub use cli::{Invocation, main, run};
pub use interpreter::Program;
pub use start::supervise;
