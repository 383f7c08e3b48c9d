//! A configuration after reading: pairs in their order, and what was noted while reading them. It must not know options. Runs in
//! the process that reads the configuration.

use std::collections::HashSet;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::sources::OtherSection;

use crate::server::Server;
use crate::start_words::StartWords;

/// The configuration after reading, before `resolve`.
#[derive(Debug, Default)]
pub struct Configuration {
    /// Every pair in reading order, which `--show-config` prints.
    pub pairs: Vec<Pair>,
    /// Pairs in the order in which they take effect: first those that acted immediately, then the others.
    pub effects: Vec<Pair>,
    pub diagnostics: Vec<Diagnostic>,
    /// Where `strict` was set.
    pub strict: Option<Location>,
    /// Names of the files that were read.
    pub files: Vec<String>,
    /// File and name of each section that was read.
    pub sections_read: Vec<(String, String)>,
    /// Sections beside one that was read, which were not requested by name.
    pub sections_elsewhere: Vec<(Location, OtherSection)>,
    /// Texts of `print`.
    pub printed: Vec<String>,
    pub show_config: Option<Location>,
    /// Names that a placeholder or a condition has used.
    pub used: HashSet<String>,
    /// Environment variables that `$(…)` has used.
    pub used_variables: HashSet<String>,
    /// Names that `declare-option` defined.
    pub declared: HashSet<String>,
    /// uWSGI's magic variables, with their values after the last file.
    pub magic: Vec<(char, String)>,
    /// The server whose command line this is, if it can be only one's.
    pub server: Option<Server>,
    /// The servers of those files that are configurations of other servers.
    pub servers_of_files: Vec<Server>,
    /// In whose words the instance is started.
    pub words: StartWords,
    /// The level of another server's log, if there is one on the command line.
    pub log_level: Option<String>,
    /// There are options on the command line that uWSGI does not have, or not with this meaning.
    pub has_words_of_others: bool,
}

/// The options of a PasteDeploy file, with an application.
const PASTE: &str = "paste";

impl Configuration {
    /// Whether the command line gives an application by `--paste`, as gunicorn's does.
    pub fn has_typed_paste(&self) -> bool {
        self.pairs.iter().any(|pair| pair.key == PASTE && pair.location == Location::command_line())
    }

    /// Whether this key is used by a placeholder, by a condition or, if it came from the environment, by `$(VARIABLE)`.
    pub fn uses(&self, pair: &Pair) -> bool {
        let variable = pair.location.file.strip_prefix(Location::VARIABLE);
        self.used.contains(&pair.key) || variable.is_some_and(|variable| self.used_variables.contains(variable))
    }
}
