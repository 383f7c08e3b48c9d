//! How a running master is told something: the one table of commands, the ways in which they arrive (signals, `master-fifo`, the control
//! socket), who is told how they end, and the client for the command line (`bolide reload`). What each leads to
//! is in `supervisor/news`. The client runs in a process of its own, all else in the master. How to add a command is in CONTRIBUTING.md.

pub mod client;
pub mod commands;
pub mod endpoints;
mod fifo;
pub mod pidfile_client;
pub mod signals;
