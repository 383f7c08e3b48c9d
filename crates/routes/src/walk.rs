//! Walks a table of rules for one request: runs the rules in their order, collects their changes, and returns the verdict.
//!
//! Workers run it on the thread that read the request. Labels only lead forward, so a walk takes at most as many steps as there
//! are rules.

use regex::bytes::SetMatches;

use crate::compile::{Rule, Table};
use crate::condition::{Condition, Subject};
use crate::values::{ServerValue, Values};
use crate::verdict::{Answer, Overrides, Verdict};
use crate::visit::{Step, Visit};

/// Matches of a table's sets for this request, by subject, as long as no rule has changed the subject.
#[derive(Default)]
struct MatchCache {
    of: [Option<SetMatches>; Subject::COUNT],
    /// The number of variables that were set at the last check.
    variables: usize,
}

impl MatchCache {
    /// Drops the matches of a subject that a rule has changed since.
    fn invalidate(&mut self, overrides: &Overrides) {
        for (name, _) in &overrides.variables[self.variables..] {
            if let Some(subject) = Subject::ALL.iter().find(|subject| subject.variable() == name) {
                self.of[*subject as usize] = None;
            }
        }
        self.variables = overrides.variables.len();
    }

    fn is_match(&mut self, table: &Table, subject: Subject, number: usize, values: &dyn Values) -> bool {
        let of = &mut self.of[subject as usize];
        if of.is_none() {
            let text = values.value(subject.variable()).unwrap_or_default();
            *of = table.sets[subject as usize].as_ref().map(|set| set.matches(&text));
        }
        of.as_ref().is_some_and(|matches| matches.matched(number))
    }
}

impl Table {
    /// Walks the rules. `overrides` collects changes, which the following rules see.
    pub fn walk(&self, request: &dyn Values, overrides: &mut Overrides) -> Verdict {
        let mut position = 0;
        let mut matched = MatchCache { variables: overrides.variables.len(), ..MatchCache::default() };
        while let Some(rule) = self.rules.get(position) {
            position += 1;
            match rule.apply(request, overrides, self, &mut matched) {
                Step::Next => {}
                Step::Goto(target) => position = target.max(position),
                Step::GotoLabel(label) => match self.label(&label) {
                    Some(target) if target >= position => position = target,
                    _ => {
                        let label = String::from_utf8_lossy(&label);
                        let message = format!("there is no label `{label}` after this rule; answered with 500");
                        Visit { request, overrides, groups: None, origin: &rule.origin }.log_error(&message);
                        return Verdict::Answer(Answer::failure());
                    }
                },
                Step::End(verdict) => return verdict,
            }
        }
        match overrides.sent.take() {
            // `send:` has made an answer, and there can't be a second one.
            Some(body) => overrides.own_answer(body),
            None => Verdict::Serve,
        }
    }
}

impl Rule {
    fn apply(&self, request: &dyn Values, overrides: &mut Overrides, table: &Table, matched: &mut MatchCache) -> Step {
        let (text, groups);
        let mut visit = Visit { request, overrides, groups: None, origin: &self.origin };
        let holds = match &self.condition {
            Condition::Never => false,
            Condition::Always => true,
            Condition::Status(status) => visit.server(ServerValue::Status) == u64::from(*status),
            Condition::If { test, wanted } => test.holds(&visit) == *wanted,
            Condition::Match { subject, pattern, in_set } => {
                matched.invalidate(visit.overrides);
                let found = || visit.value(subject.variable()).unwrap_or_default();
                let is_match = match in_set {
                    Some(number) => matched.is_match(table, *subject, *number, &visit) && !pattern.excepts(&found()),
                    None => pattern.is_match(&found()),
                };
                if is_match && self.needs_groups {
                    // The action may change the subject while it reads the groups.
                    text = found().into_owned();
                    groups = pattern.captures(&text);
                    visit.groups = groups.as_ref();
                }
                is_match
            }
            Condition::Regexp { text: template, pattern, wanted } => {
                text = visit.fill(template);
                groups = pattern.captures(&text);
                visit.groups = groups.as_ref();
                groups.is_some() == *wanted
            }
        };
        if holds { (self.action)(&mut visit) } else { Step::Next }
    }
}

#[cfg(test)]
#[path = "tests/walk.rs"]
mod tests;
