//! Where log lines go: files, sockets and programs that the supervising process opens and passes to its children.

pub mod captured_output;
pub mod log_files;
mod log_guard;
pub mod log_programs;
pub mod log_reach;
mod stacks;
