//! The mechanisms of a supervising process: binding and passing on sockets, starting and confining children, opening files in
//! folders of other users, and delivering log lines to files and programs. The master uses them.
//!
//! The crate makes no decisions: it knows no worker, no generation and no command. Its callers do. Times are milliseconds of the
//! monotonic clock (`bolide_contract::scoreboard::now_ms`) and are passed in by the caller, unless an item says otherwise.

#![warn(missing_docs)]

pub mod error;
pub mod files;
pub mod logs;
pub mod polling;
pub mod processes;
pub mod sockets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
