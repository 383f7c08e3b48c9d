//! Flags and examples of commands, as the tables of commands have them. Pure data.

/// A flag of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandFlag {
    pub name: &'static str,
    /// The words that it accepts; none for a switch.
    pub words: &'static [&'static str],
    pub help: &'static str,
}

/// An example command line, and what it does.
pub type Example = (&'static str, &'static str);

/// The value of a flag that takes a file name.
pub const FILE: &[&str] = &["FILE"];

/// A flag without a value.
pub const fn flag(name: &'static str, help: &'static str) -> CommandFlag {
    CommandFlag { name, words: &[], help }
}
