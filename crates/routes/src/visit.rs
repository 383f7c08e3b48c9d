//! A rule at work on one request: what its action sees, what it changes, and which step follows.
//!
//! Must not know rules or their tables. Workers run it, on the thread that read the request.

use std::borrow::Cow;

use regex::bytes::Captures;

use crate::service_access::Services;
use crate::template::Template;
use crate::values::{ServerValue, Values};
use crate::verdict::{Overrides, Verdict};

/// A compiled action. Everything that it needs of the configuration is in it, so a request only calls it.
pub type Action = Box<dyn Fn(&mut Visit<'_>) -> Step + Send + Sync>;

/// An action that decides which step follows.
pub fn decides(action: impl Fn(&mut Visit<'_>) -> Step + Send + Sync + 'static) -> Option<Action> {
    Some(Box::new(action))
}

/// An action that changes something, after which the next rule runs.
pub fn changes(action: impl Fn(&mut Visit<'_>) + Send + Sync + 'static) -> Option<Action> {
    decides(move |visit| {
        action(visit);
        Step::Next
    })
}

/// The next step after an action.
pub enum Step {
    Next,
    /// The rule at this position.
    Goto(usize),
    /// The rule at a label that was filled in for this request.
    GotoLabel(Vec<u8>),
    End(Verdict),
}

/// The request with the changes of the rules so far.
pub struct Visit<'a> {
    pub request: &'a dyn Values,
    pub overrides: &'a mut Overrides,
    /// The match of the rule's expression, if its action reads it.
    pub groups: Option<&'a Captures<'a>>,
    /// The rule's place in the configuration.
    pub origin: &'a str,
}

impl Visit<'_> {
    pub fn fill(&self, text: &Template) -> Vec<u8> {
        text.filled(self, self.groups)
    }

    pub fn log_error(&mut self, message: &str) {
        self.overrides.lines.push(format!("bolide: {}: {message}", self.origin).into_bytes());
    }
}

impl Values for Visit<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self.overrides.value(name) {
            Some(value) => Some(value.into()),
            None => self.request.value(name),
        }
    }

    fn server(&self, what: ServerValue) -> u64 {
        self.request.server(what)
    }

    fn services(&self) -> Option<&dyn Services> {
        self.request.services()
    }

    fn aside(&self, work: &mut dyn FnMut()) {
        self.request.aside(work);
    }
}
