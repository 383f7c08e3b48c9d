//! Compiles lines of configuration into tables of rules, and reports all mistakes in them.
//!
//! Must not know requests. The process that reads the configuration and workers run it, at their start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_contract::answering::RouteRule;
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::action::{self, Action};
use crate::condition::{Condition, Subject};
use crate::diagnostics::{CompileContext, Labels, Mistake, Mistakes, Stage};
use crate::pattern::pattern;
use crate::template::Groups;

/// Most bytes of a set of expressions.
const SET_BYTES: usize = 16 * 1024 * 1024;

/// Fewest expressions that are worth a set: `examples/walk_speed` has the measurements.
const MIN_TEXTS_OF_A_SET: usize = 3;

/// All rules of an instance.
#[derive(Debug, Default)]
pub struct Routes {
    /// `route…`: before the application is called.
    pub requests: Table,
    /// `response-route…`: when an answer's head is complete.
    pub responses: Table,
    /// The folders or single files of `static:` and the related actions. Rules refer to them by index.
    pub folders: Vec<PathBuf>,
    /// The rules that use a cache whose name is known, and its name; an empty one is the first cache.
    pub caches: Vec<(usize, String)>,
    /// The rules that raise an alarm whose name is known, and its name.
    pub alarms: Vec<(usize, String)>,
    /// The rules that change a metric whose name is known, and its name.
    pub metrics: Vec<(usize, String)>,
    /// A rule needs the media types of file names.
    pub needs_types: bool,
}

/// Rules in the order in which they run.
#[derive(Debug, Default)]
pub struct Table {
    pub(crate) rules: Vec<Rule>,
    labels: Vec<(Vec<u8>, usize)>,
    /// For each subject of several expressions: a set of them all, so that one search finds all matches.
    pub(crate) sets: [Option<RegexSet>; Subject::COUNT],
}

/// One rule. Labels are rules too, so that positions match the configuration.
#[derive(Debug)]
pub(crate) struct Rule {
    pub condition: Condition,
    pub action: Action,
    /// Its place in the configuration, for the log.
    pub origin: String,
}

impl Routes {
    /// Compiles rules in their order. `None` if a mistake is fatal; the other mistakes are warnings. Relative file names are
    /// relative to `folder`.
    pub fn compile(rules: &[RouteRule], folder: &Path) -> (Option<Routes>, Vec<Mistake>) {
        let mut found = Vec::new();
        let mut routes = Routes::default();
        let positions = positions(rules);
        routes.requests.labels = owned(&positions.requests);
        routes.responses.labels = owned(&positions.responses);
        for (number, rule) in rules.iter().enumerate() {
            let (stage, kind) = stage_and_kind(&rule.option);
            let mut mistakes = Mistakes::new(number, stage, &mut found);
            let (table, labels) = match stage {
                Stage::Request => (&mut routes.requests, &positions.requests),
                Stage::Response => (&mut routes.responses, &positions.responses),
            };
            let position = table.rules.len();
            let made = compile_rule(kind, rule, CompileContext { stage, position, labels, folder }, &mut mistakes);
            // A rule with a mistake keeps its place, so that the positions of the others stay correct.
            let (condition, mut action) = made.unwrap_or((Condition::Never, Action::Continue));
            if let Action::Serve(served) = &mut action
                && let Some(served) = Arc::get_mut(served)
            {
                served.folder = folder_number(&mut routes.folders, &served.folder_path);
            }
            let of_action = if let Action::Cache(action) = &action { action.cache_name() } else { None };
            for name in of_action.into_iter().chain(condition.cache_name()) {
                routes.caches.push((number, String::from_utf8_lossy(name).into_owned()));
            }
            if let Action::Service(action) = &action {
                let named = |name: &[u8]| (number, String::from_utf8_lossy(name).into_owned());
                routes.alarms.extend(action.alarm_name().map(named));
                routes.metrics.extend(action.metric_name().map(named));
            }
            routes.needs_types |= matches!(&action, Action::Cache(action) if action.needs_types());
            table.rules.push(Rule { condition, action, origin: rule.origin.clone() });
        }
        routes.requests.build_sets();
        routes.responses.build_sets();
        let is_fatal = found.iter().any(|mistake| mistake.is_fatal);
        ((!is_fatal).then_some(routes), found)
    }

    /// Returns the shortest `harakiri:` of all rules, in milliseconds.
    pub fn shortest_harakiri_ms(&self) -> Option<u64> {
        let limits = self.requests.rules.iter().filter_map(|rule| match rule.action {
            Action::Harakiri(limit_ms) => Some(u64::from(limit_ms)),
            _ => None,
        });
        limits.min()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.responses.is_empty()
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

    /// Calls `see` with the name of every variable that a rule reads.
    pub fn variables(&self, see: &mut dyn FnMut(&[u8])) {
        for rule in &self.rules {
            rule.condition.variables(see);
            rule.action.variables(see);
        }
    }
}

/// Returns the index of a folder among those of the rules.
fn folder_number(folders: &mut Vec<PathBuf>, folder: &Path) -> usize {
    folders.iter().position(|known| known == folder).unwrap_or_else(|| {
        folders.push(folder.to_owned());
        folders.len() - 1
    })
}

#[derive(Default)]
struct Positions<'a> {
    requests: Labels<'a>,
    responses: Labels<'a>,
}

fn positions(rules: &[RouteRule]) -> Positions<'_> {
    let mut made = Positions::default();
    let (mut requests, mut responses) = (0, 0);
    for rule in rules {
        let (stage, kind) = stage_and_kind(&rule.option);
        let (labels, position) = match stage {
            Stage::Request => (&mut made.requests, &mut requests),
            Stage::Response => (&mut made.responses, &mut responses),
        };
        if kind == "label" {
            labels.push((rule.text.as_str(), *position));
        }
        *position += 1;
    }
    made
}

fn owned(labels: &Labels<'_>) -> Vec<(Vec<u8>, usize)> {
    labels.iter().map(|(name, position)| (name.as_bytes().to_vec(), *position)).collect()
}

/// `response-route-if` is `if` in the table for answers; `route` alone means the path.
fn stage_and_kind(option: &str) -> (Stage, &str) {
    let (stage, rest) = match option.strip_prefix("response-") {
        Some(rest) => (Stage::Response, rest),
        None => (Stage::Request, option),
    };
    (stage, rest.strip_prefix("route").unwrap_or(rest).trim_start_matches('-'))
}

/// Compiles one rule. `None`: the mistake was reported.
fn compile_rule(
    kind: &str,
    rule: &RouteRule,
    context: CompileContext<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<(Condition, Action)> {
    match kind {
        "label" => return Some((Condition::Never, Action::Continue)),
        "run" => {
            let action = action::compile(&rule.text, Groups::None, context, mistakes)?;
            return Some((Condition::Always, action));
        }
        _ => {}
    }
    let Some((left, command)) = rule.text.split_once(' ') else {
        mistakes.error(format!("`{} = {}` has no action", rule.option, rule.text), example(kind));
        return None;
    };
    let (condition, groups) = match kind {
        "if" | "if-not" => Condition::compile(left, kind == "if", mistakes)?,
        "status" => (Condition::status(left, mistakes)?, Groups::None),
        _ => {
            let pattern = pattern(left, mistakes)?;
            let groups = Groups::Upto(pattern.groups());
            (Condition::Match { subject: Subject::of_kind(kind), pattern, in_set: None }, groups)
        }
    };
    let action = action::compile(command, groups, context, mistakes)?;
    Some((condition, action))
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
