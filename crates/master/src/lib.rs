//! The master: it owns the listening sockets, the scoreboard, the timers and the signals, starts prototypes, has them fork
//! workers, and replaces what dies. No application code, no HTTP and no thread is in it.
//!
//! The way in is [`main`], for the program `bolide` and for the Python package's console script alike, and [`run`] for the program of
//! another language. [`supervise`] runs settings that are already made.

mod announce;
mod answering;
mod attendance;
mod attendant;
mod background;
mod backoff;
mod between;
mod chain;
mod changes;
pub mod child;
mod cli;
mod command;
mod configuration;
mod control_channel;
mod deeds;
mod elasticity;
mod endings;
mod endpoint;
mod error;
mod exit_report;
mod failure_note;
mod fifo;
mod fleet;
mod generation;
mod harakiri;
mod hooking;
mod imports;
mod instance_client;
mod interpreter;
mod jitter;
mod ledger;
mod listen_queue;
mod listeners;
mod log_sink;
mod logs;
pub mod manual;
mod memory_limits;
mod memory_watch;
mod notify;
mod obeying;
mod pidfile;
mod printed;
mod privileges;
pub mod process_name;
mod pushers;
mod queue_alarm;
mod recycling;
mod reload;
mod renewing;
mod reporting;
mod reports;
mod rotation;
mod scaling;
mod sight;
mod signal_instance;
pub mod signals;
mod snapshot;
mod socket_activation;
mod spawn;
mod start;
mod stats_address;
mod stats_server;
mod stats_token;
mod status;
mod stop;
mod stop_first;
mod stop_progress;
mod succession;
mod supervisor;
mod system;
#[cfg(test)]
mod testing;
mod tickets;
mod upgrade;
mod waiting;
mod watching;
mod ways;
mod words;

pub use cli::{Invocation, main, run};
pub use error::{EXIT_START_FAILED, StartError};
pub use interpreter::Program;
pub use start::supervise;
