//! The ways to command a running master: the one table of commands, the endpoints where they arrive (signals, `master-fifo`, the
//! control socket), and the client for the command line (`bolide reload`). The effect of each command is in
//! `supervisor/commands`. The client runs in a process of its own; the master runs everything else. docs/internals/how-to-add.md
//! describes how to add a command.

pub mod client;
pub mod commands;
pub mod endpoints;
mod fifo;
pub mod signals;
