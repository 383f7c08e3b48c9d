//! Resolves the options of work in the background.

pub mod spooler;
