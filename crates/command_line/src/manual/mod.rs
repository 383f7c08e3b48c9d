//! Texts about options, all generated from the rows of the catalog, so that no fact is written twice.

pub mod command_line_words;
pub mod completions;
pub mod help;
pub mod man;
pub mod paint;
pub mod reference;
pub mod schema;
