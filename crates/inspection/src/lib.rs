//! Reads the stacks of a running Python process from its memory: from any state, also while it is in C code that holds the GIL,
//! in a busy loop or in a deadlock. The process is neither stopped nor changed, and no ptrace is used.
//!
//! It knows neither an instance nor its workers; the crate `master` does. The processes of `bolide trace` and `bolide profile`
//! run it, and workers with `slow-request`, which read themselves; the master and prototypes never do. No `unsafe`: the one
//! system call that reads memory is the crate nix'.

pub mod codes;
pub mod frames;
pub mod greenlets;
pub mod layout;
pub mod lines;
pub mod maps;
pub mod memory;
pub mod objects;
pub mod own;
pub mod process;
pub mod python;
pub mod requests;
pub mod sockets;
pub mod symbols;
pub mod tasks;
pub mod trace;
pub mod waits;
