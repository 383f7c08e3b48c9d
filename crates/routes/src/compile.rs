//! Compiles lines of configuration into tables of rules, and reports all mistakes in them.
//!
//! Must not know requests. The process that reads the configuration and workers run it, at their start.

use std::path::Path;

use bolide_contract::answering::RouteRule;
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::action;
use crate::client_limits::ClientLimits;
use crate::compiler::{Compiler, Groups, Labels, Mistake, Needs, Stage};
use crate::condition::{Condition, Subject};
use crate::pattern::pattern;
use crate::rate_limiting::{self, CompiledRule};
use crate::visit::{Action, Step};

/// The option whose limits come before all rules.
const RATE_LIMIT: &str = "rate-limit";

/// Maximum size of a set of expressions, in bytes.
const SET_BYTES: usize = 16 * 1024 * 1024;

/// Fewest expressions that are worth a set: `examples/walk_speed` has the measurements.
const MIN_TEXTS_OF_A_SET: usize = 3;

/// All rules of an instance.
#[derive(Default)]
pub struct Routes {
    /// `rate-limit`, if the client's address is the key: these are counted first, without a walk.
    pub client_limits: ClientLimits,
    /// The other limits of `rate-limit`: before everything else.
    pub limits: Table,
    /// `route…`: before the application is called.
    pub requests: Table,
    /// `response-route…`: when an answer's head is complete.
    pub responses: Table,
    pub needs: Needs,
}

/// Rules in the order in which they run.
#[derive(Default)]
pub struct Table {
    pub(crate) rules: Vec<Rule>,
    labels: Labels,
    /// For each subject of several expressions: a set of them all, so that one search finds all matches.
    pub(crate) sets: [Option<RegexSet>; Subject::COUNT],
    /// The variables that its rules read.
    pub variables: Vec<Vec<u8>>,
}

/// One rule. Labels are rules too, so that positions match the configuration.
pub(crate) struct Rule {
    pub condition: Condition,
    pub action: Action,
    /// The action inserts groups of the expression's match.
    pub needs_groups: bool,
    /// Its place in the configuration, for the log.
    pub origin: String,
}

impl Routes {
    /// Compiles rules in their order. `None` if a mistake is fatal; the other mistakes are warnings. Relative file names are
    /// relative to `directory`.
    pub fn compile(rules: &[RouteRule], directory: &Path) -> (Option<Routes>, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        let mut routes = Routes::default();
        routes.requests.labels = labels(rules, Stage::Request);
        routes.responses.labels = labels(rules, Stage::Response);
        for (number, rule) in rules.iter().enumerate() {
            let (stage, kind) = stage_and_kind(&rule.option);
            let table = match stage {
                Stage::Limit => &mut routes.limits,
                Stage::Request => &mut routes.requests,
                Stage::Response => &mut routes.responses,
            };
            let mut compiler = Compiler {
                rule: number,
                origin: &rule.origin,
                paths: paths_of(kind, &rule.text),
                stage,
                position: table.rules.len(),
                labels: &table.labels,
                directory,
                groups: Groups::Literal,
                needs_groups: false,
                variables: &mut table.variables,
                needs: &mut routes.needs,
                mistakes: &mut mistakes,
            };
            // A rule with a mistake keeps its place, so that the positions of the others stay correct.
            let (condition, action) = match compile_rule(kind, rule, &mut compiler) {
                Some(CompiledRule::Rule(condition, action)) => (condition, action),
                Some(CompiledRule::ClientLimit(limit)) => {
                    routes.client_limits.0.push(limit);
                    continue;
                }
                None => nothing(),
            };
            let needs_groups = compiler.needs_groups;
            table.rules.push(Rule { condition, action, needs_groups, origin: rule.origin.clone() });
        }
        routes.requests.build_sets();
        routes.responses.build_sets();
        let is_fatal = mistakes.iter().any(|mistake| mistake.is_fatal);
        ((!is_fatal).then_some(routes), mistakes)
    }

    pub fn is_empty(&self) -> bool {
        self.client_limits.is_empty() && [&self.limits, &self.requests, &self.responses].iter().all(|table| table.is_empty())
    }
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Builds a set of the expressions that have the same subject.
    fn build_sets(&mut self) {
        for (subject, set) in self.sets.iter_mut().enumerate() {
            let mut texts = Vec::new();
            let mut members = Vec::new();
            for rule in &mut self.rules {
                if let Condition::Match { subject: own, pattern, in_set } = &mut rule.condition
                    && *own as usize == subject
                {
                    texts.push(pattern.as_str().to_owned());
                    members.push(in_set);
                }
            }
            if texts.len() < MIN_TEXTS_OF_A_SET {
                continue;
            }
            // Each expression compiles alone; a set that is too large is omitted.
            *set = RegexSetBuilder::new(&texts).unicode(false).size_limit(SET_BYTES).build().ok();
            if set.is_some() {
                members.into_iter().enumerate().for_each(|(number, in_set)| *in_set = Some(number));
            }
        }
    }

    /// Returns the position of a label.
    pub(crate) fn label(&self, name: &[u8]) -> Option<usize> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, position)| *position)
    }
}

/// The labels of a table's rules.
fn labels(rules: &[RouteRule], wanted: Stage) -> Labels {
    let kinds = rules.iter().map(|rule| (stage_and_kind(&rule.option), rule)).filter(|((stage, _), _)| *stage == wanted);
    let labels = kinds.enumerate().filter(|(_, ((_, kind), _))| *kind == "label");
    labels.map(|(position, (_, rule))| (rule.text.clone().into_bytes(), position)).collect()
}

/// `response-route-if` is `if` in the table for answers; `route` alone means the path.
fn stage_and_kind(option: &str) -> (Stage, &str) {
    if option == RATE_LIMIT {
        return (Stage::Limit, option);
    }
    let (stage, rest) = match option.strip_prefix("response-") {
        Some(rest) => (Stage::Response, rest),
        None => (Stage::Request, option),
    };
    (stage, rest.strip_prefix("route").unwrap_or(rest).trim_start_matches('-'))
}

/// The expression for paths of a rule, as [`Compiler::paths`].
fn paths_of<'a>(kind: &str, text: &'a str) -> Option<&'a str> {
    match kind {
        "" => text.split_once(' ').map(|(expression, _)| expression),
        "run" | RATE_LIMIT => Some(""),
        _ => None,
    }
}

/// The rule of a label, and of a line that has a mistake.
fn nothing() -> (Condition, Action) {
    (Condition::Never, Box::new(|_| Step::Next))
}

/// Compiles one rule. `None`: it is a label, or the mistake was reported.
fn compile_rule(kind: &str, rule: &RouteRule, compiler: &mut Compiler<'_>) -> Option<CompiledRule> {
    match kind {
        "label" => return None,
        "run" => {
            compiler.groups = Groups::None;
            return Some(CompiledRule::Rule(Condition::Always, action::compile(&rule.text, compiler)?));
        }
        RATE_LIMIT => return rate_limiting::option(&rule.text, compiler),
        _ => {}
    }
    let Some((left, command)) = rule.text.split_once(' ') else {
        compiler.error(format!("`{} = {}` has no action", rule.option, rule.text), example(kind));
        return None;
    };
    let (condition, groups) = match kind {
        "if" | "if-not" => Condition::compile(left, kind == "if", compiler)?,
        "status" => (Condition::status(left, compiler)?, Groups::None),
        _ => {
            let pattern = compiler.noted(pattern(left))?;
            let (subject, groups) = (Subject::of_kind(kind), Groups::Upto(pattern.groups()));
            compiler.reads(subject.variable());
            (Condition::Match { subject, pattern, in_set: None }, groups)
        }
    };
    compiler.groups = groups;
    Some(CompiledRule::Rule(condition, action::compile(command, compiler)?))
}

fn example(kind: &str) -> &'static str {
    match kind {
        "if" | "if-not" => "write CONDITION:TEXT, one space, and ACTION:TEXT, such as `equal:${HTTPS};on addvar:SECURE=1`",
        "status" => "write a status, one space, and ACTION:TEXT, such as `404 addheader:Cache-Control: no-store`",
        _ => "write a regular expression without spaces, one space, and ACTION:TEXT, such as `^/healthz$ donotlog:`",
    }
}

#[cfg(test)]
#[path = "tests/compile.rs"]
mod tests;
