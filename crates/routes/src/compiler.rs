//! The context of a rule while it is compiled: the table that contains it, the collected mistakes, and everything that rules need
//! of a request and of the server.
//!
//! Must not know conditions or actions. The process that reads the configuration and workers run it, at their start.

use std::path::{Path, PathBuf};

use bolide_contract::rate::Rate;
use bolide_contract::services::RateLimitSettings;

/// A mistake in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Index of the rule in the compiled list.
    pub rule: usize,
    /// Routing can't start with it.
    pub is_fatal: bool,
    pub message: String,
    /// Advice; may be empty.
    pub advice: String,
}

/// What all rules of an instance need of the server.
#[derive(Debug, Default)]
pub struct Needs {
    /// The directories or single files of `static:` and the related actions. Rules refer to them by index.
    pub directories: Vec<PathBuf>,
    /// The rules that use a cache whose name is known, and its name; an empty one is the first cache.
    pub caches: Vec<(usize, String)>,
    /// The rules that raise an alarm whose name is known, and its name.
    pub alarms: Vec<(usize, String)>,
    /// The rules that change a metric whose name is known, and its name.
    pub metrics: Vec<(usize, String)>,
    /// A rule needs the media types of file names.
    pub media_types: bool,
    /// The rate limits, in the order of their rules. A limit's place here is its number.
    pub rate_limits: Vec<NeededLimit>,
    /// The shortest `harakiri:`, in milliseconds.
    pub harakiri_ms: Option<u32>,
    /// A rule decides whether a request's body is read: it is walked before that.
    pub comes_before_body: bool,
    /// A rule has the work for a request end when its client has left.
    pub cancels_on_disconnect: bool,
}

/// A limit that a rule needs.
#[derive(Debug)]
pub struct NeededLimit {
    pub settings: RateLimitSettings,
    pub rate: Rate,
    /// Limits of the same scope count the same requests by the same key. `None`: it is not known.
    pub scope: Option<String>,
    /// Its key is the client's address.
    pub is_by_address: bool,
    /// Index of the rule in the compiled list.
    pub rule: usize,
    /// Where the rule was configured.
    pub origin: String,
}

/// The table that a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The limits of `rate-limit`.
    Limit,
    Request,
    Response,
}

/// The meaning of `$1` in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// Groups of an expression with this many pairs of parentheses.
    Upto(usize),
    /// There is no regular expression: no group can be expanded.
    None,
    /// Not expanded: literal text.
    Literal,
}

/// Labels and their positions.
pub type Labels = Vec<(Vec<u8>, usize)>;

/// Compiles one rule. Texts note here which variables and groups they read, so no condition and no action can forget one.
pub struct Compiler<'a> {
    /// Index of the rule in the compiled list.
    pub rule: usize,
    /// Where the rule was configured.
    pub origin: &'a str,
    /// The expression for paths that the rule has; empty: it runs for all requests. `None`: it has another condition.
    pub paths: Option<&'a str>,
    pub stage: Stage,
    /// The rule's position in its table.
    pub position: usize,
    /// Those of its table.
    pub labels: &'a Labels,
    /// Relative file names are relative to it.
    pub directory: &'a Path,
    /// Of the text that is compiled next.
    pub groups: Groups,
    /// The rule reads groups of its expression's match.
    pub needs_groups: bool,
    /// All variables that the table reads.
    pub variables: &'a mut Vec<Vec<u8>>,
    pub needs: &'a mut Needs,
    pub mistakes: &'a mut Vec<Mistake>,
}

impl Compiler<'_> {
    pub fn error(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.add(true, message.into(), advice.into());
    }

    pub fn warn(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.add(false, message.into(), advice.into());
    }

    fn add(&mut self, is_fatal: bool, message: String, advice: String) {
        self.mistakes.push(Mistake { rule: self.rule, is_fatal, message, advice });
    }

    /// Returns the result; a mistake, which has its advice, is noted.
    pub fn noted<T>(&mut self, result: Result<T, (String, &'static str)>) -> Option<T> {
        result.map_err(|(message, advice)| self.error(message, advice)).ok()
    }

    /// Notes a variable that the rule reads.
    pub fn reads(&mut self, variable: &[u8]) {
        if !self.variables.iter().any(|known| known == variable) {
            self.variables.push(variable.to_vec());
        }
    }

    /// Returns the rule with the name of something that it uses, for [`Needs`].
    pub fn named(&self, name: &[u8]) -> (usize, String) {
        (self.rule, String::from_utf8_lossy(name).into_owned())
    }
}
