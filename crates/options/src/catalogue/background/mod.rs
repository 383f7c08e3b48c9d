//! Rows of work in the background. Pure data.

pub mod spooler;
