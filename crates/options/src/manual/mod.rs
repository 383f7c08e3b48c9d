//! Texts about options, all made from the catalogue's rows: nothing is written down twice.

pub mod completions;
pub mod help;
pub mod man;
pub mod paint;
pub mod reference;
pub mod schema;
pub mod show;
pub mod words;
