//! The context of a rule while it is compiled: the collected mistakes, and the table that contains the rule.
//!
//! Must not know conditions or actions. The process that reads the configuration and workers run it, at their start.

use std::path::Path;

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

/// Collects the mistakes of the current rule.
pub struct Mistakes<'a> {
    rule: usize,
    pub(crate) stage: Stage,
    found: &'a mut Vec<Mistake>,
}

impl<'a> Mistakes<'a> {
    pub(crate) fn new(rule: usize, stage: Stage, found: &'a mut Vec<Mistake>) -> Mistakes<'a> {
        Mistakes { rule, stage, found }
    }

    pub fn error(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.add(true, message.into(), advice.into());
    }

    pub fn warn(&mut self, message: impl Into<String>, advice: impl Into<String>) {
        self.add(false, message.into(), advice.into());
    }

    fn add(&mut self, is_fatal: bool, message: String, advice: String) {
        self.found.push(Mistake { rule: self.rule, is_fatal, message, advice });
    }
}

/// The table that a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Request,
    Response,
}

/// Labels and their positions.
pub(crate) type Labels<'a> = Vec<(&'a str, usize)>;

/// The table in which a rule is compiled, and the rule's position there.
#[derive(Clone, Copy)]
pub(crate) struct CompileContext<'a> {
    pub stage: Stage,
    pub position: usize,
    pub labels: &'a Labels<'a>,
    pub folder: &'a Path,
}
