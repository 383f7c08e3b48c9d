//! The master: it owns the listening sockets, the scoreboard, the timers and the signals, starts prototypes, has them fork
//! workers, and replaces what dies. No application code, no HTTP and no thread is in it.
//!
//! The way in is [`main`], for the program `bolide` and for the Python package's console script alike.
//! [`supervise`] runs settings that are already made, with a program of the caller's choice as prototype.

mod announce;
mod backoff;
pub mod child;
mod door;
mod exchange;
mod fleet;
mod harakiri;
mod interpreter;
mod listeners;
mod log_sink;
pub mod manual;
mod notify;
mod obituary;
mod passed;
mod privileges;
pub mod process_name;
mod reason;
mod reload;
mod retirement;
pub mod signals;
mod spawn;
mod start;
mod stop;
mod supervisor;
mod tell;
#[cfg(test)]
mod testing;

pub use door::{Invocation, main};
pub use interpreter::Program;
pub use start::{EXIT_START_FAILED, StartError, supervise};
