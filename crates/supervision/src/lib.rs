//! The mechanisms of a process that supervises others: how sockets are bound and passed on, how children are started and
//! confined, how files in folders of other users are opened, how log lines reach their files and programs. The master uses them.
//!
//! The crate decides nothing: it knows no worker, no generation and no command. Its callers do. Times are milliseconds of the
//! monotonic clock (`bolide_contract::scoreboard::now_ms`) and are given by the caller, unless an item says otherwise.

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
