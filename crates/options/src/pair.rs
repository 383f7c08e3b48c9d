//! An option as it was written: its key, its value and its location. It must not know the meaning of an option. Runs in the
//! process that reads a configuration.

use crate::diagnostic::Location;

/// A key, its value (`None` if the command line has none), and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: Option<String>,
    pub location: Location,
    /// It has already taken effect: placeholders in it are not filled in, and `resolve` does not see it again.
    pub acted: bool,
    /// Set by `set-placeholder`: not an option, whatever its name.
    pub placeholder: bool,
}
