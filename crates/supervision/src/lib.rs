//! The mechanisms of a supervising process: binding and passing on sockets, starting and confining children, opening files in
//! directories of other users, and delivering log lines to files and programs. The master uses them.
//!
//! The crate does not make decisions. It knows neither workers nor generations nor commands. Its callers do. Times are
//! milliseconds of the monotonic clock (`bolide_contract::clock::now_ms`) and are passed in by the caller, unless an item says
//! otherwise.
//!
//! The files beside this one are below all directories, except for `daemonize`. Of the directories, `sockets` knows `files`,
//! `processes` knows both, and `logs` knows `files` and `processes`.

#![warn(missing_docs)]

pub mod daemonize;
pub mod error;
pub mod files;
pub mod log_sink;
pub mod logs;
pub mod polling;
pub mod privileges;
pub mod process_state;
pub mod processes;
pub mod sockets;
pub mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
