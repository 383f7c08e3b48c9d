//! An option as it was written: its key, its value and its place. It knows no option's meaning; the process that reads a configuration
//! makes it.

use crate::diagnostic::Location;

/// A key, its value (`None` where the command line gave none), and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: Option<String>,
    pub location: Location,
    /// It has already had its effect: placeholders in it are not filled in, and `resolve` does not see it again.
    pub acted: bool,
    /// Set by `set-placeholder`: not an option, whatever its name.
    pub placeholder: bool,
}
