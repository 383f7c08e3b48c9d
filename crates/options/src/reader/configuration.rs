//! A configuration as read: pairs in their order, and what was noticed meanwhile. It knows no option; runs in the process that reads the
//! configuration.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Location};
use crate::pair::Pair;
use crate::sources::OtherSection;

/// The configuration as read, before anything is resolved.
#[derive(Debug, Default)]
pub struct Configuration {
    /// Every pair in the order in which it was read: what `--show-config` prints.
    pub pairs: Vec<Pair>,
    /// Pairs that take effect, in that order: first those that acted at once, then the others.
    pub effects: Vec<Pair>,
    pub diagnostics: Vec<Diagnostic>,
    /// Where `strict` was set.
    pub strict: Option<Location>,
    /// Names of the files that were read.
    pub files: Vec<String>,
    /// File and name of each section that was read.
    pub sections_read: Vec<(String, String)>,
    /// Sections that lie beside one that was read without being asked for by name.
    pub sections_elsewhere: Vec<(Location, OtherSection)>,
    /// Texts of `print`.
    pub printed: Vec<String>,
    pub show_config: Option<Location>,
    /// Names that a placeholder or a condition asked for.
    pub used: HashSet<String>,
    /// Environment variables that `$(…)` asked for.
    pub used_variables: HashSet<String>,
    /// Names that `declare-option` made.
    pub declared: HashSet<String>,
    /// uWSGI's magic variables, as they were when all was read.
    pub magic: Vec<(char, String)>,
}

impl Configuration {
    /// A placeholder, a condition or, for a key that came from the environment, `$(VARIABLE)` asks for this key.
    pub fn uses(&self, pair: &Pair) -> bool {
        let variable = pair.location.file.strip_prefix(Location::VARIABLE);
        self.used.contains(&pair.key) || variable.is_some_and(|variable| self.used_variables.contains(variable))
    }
}
