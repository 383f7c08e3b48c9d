//! The master: it owns the listening sockets, the scoreboard, the timers and the signals, starts prototypes, has them fork
//! workers, and replaces what dies. No application code, no HTTP and no thread is in it.
//!
//! The way in is [`main`], for the program `bolide` and for the Python package's console script alike, and [`run`] for the program of
//! another language. [`supervise`] runs settings that are already made.

mod announce;
mod children;
mod cli;
mod control;
mod daemons;
mod development;
mod generations;
mod hooking;
mod log_keeping;
pub mod manual;
mod outcomes;
mod provision;
mod start;
mod statistics;
mod supervisor;
mod token;
mod touch_hooks;
mod upgrade;
mod workers;

pub use bolide_options::keyword_words;
pub use bolide_supervision::error::{EXIT_START_FAILED, StartError};
pub use bolide_supervision::processes::process_attributes::set_name as set_process_name;
pub use cli::{Invocation, main, run};
pub use provision::interpreter::Program;
pub use start::supervise;
