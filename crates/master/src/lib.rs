//! The master: it owns the listening sockets, the scoreboard, the timers and the signals, starts prototypes, has them fork
//! workers, and replaces processes that die. It does not contain application code, HTTP or threads.
//!
//! The entry points are [`main`], for the program `bolide` and for the console script of the Python package, and [`run`] for the
//! program of another language. [`supervise`] runs settings that exist already.

mod alarms;
mod announce;
mod children;
mod cli;
mod console_script;
mod control;
mod daemons;
mod development;
mod generations;
mod governing;
mod hooking;
mod log_keeping;
pub mod manual;
mod outcomes;
mod owner;
mod pager;
mod plugin_building;
mod process_setup;
mod provision;
mod signaling;
mod spans;
mod start;
mod statistics;
mod supervisor;
mod terminal;
mod token;
mod touch_hooks;
mod upgrade;
mod workers;

pub use bolide_other_servers::keywords::keyword_words;
pub use bolide_supervision::error::{EXIT_START_FAILED, StartError};
pub use bolide_supervision::processes::process_attributes::set_name as set_process_name;
pub use cli::{main, run};
pub use console_script::{Invocation, execute as execute_program};
pub use provision::own_program::{OwnPrototype, checked_library};
pub use provision::program::Program;
pub use start::supervise;
