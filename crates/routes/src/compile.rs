//! From lines of configuration to tables of rules, with everything that is wrong with them.
//!
//! Both the process that reads the configuration and workers run it, at their start.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_contract::answering::RouteRule;
use regex::bytes::{RegexBuilder, RegexSet, RegexSetBuilder};

use crate::action::{self, Action};
use crate::condition::{Condition, Subject};
use crate::pattern::Pattern;
use crate::template::Groups;

/// Bytes that one compiled regular expression may take.
const PATTERN_BYTES: usize = 2 * 1024 * 1024;

/// Bytes that a set of them may take.
const SET_BYTES: usize = 16 * 1024 * 1024;

/// Expressions that are worth a set: `examples/walk_speed` has the figures.
const LEAST_OF_A_SET: usize = 3;

/// Something wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Number of the rule in the list that was compiled.
    pub rule: usize,
    /// Routing can't begin with it.
    pub is_fatal: bool,
    pub message: String,
    /// What to do about it; may be empty.
    pub advice: String,
}

/// Collects what is wrong with the rule at hand.
pub struct Mistakes<'a> {
    rule: usize,
    pub(crate) stage: Stage,
    found: &'a mut Vec<Mistake>,
}

impl Mistakes<'_> {
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

/// All rules of an instance.
#[derive(Debug, Default)]
pub struct Routes {
    /// `route…`: before the application is asked.
    pub requests: Table,
    /// `response-route…`: when an answer's head is complete.
    pub responses: Table,
    /// Where the files of `static:` and its kin lie: folders, or single files. Rules name them by their number.
    pub folders: Vec<PathBuf>,
}

/// Rules that are walked in their order.
#[derive(Debug, Default)]
pub struct Table {
    pub(crate) rules: Vec<Rule>,
    labels: Vec<(Vec<u8>, usize)>,
    /// For subjects that several expressions look at: all of them, so that one look tells which match.
    pub(crate) sets: [Option<RegexSet>; Subject::COUNT],
}

/// One rule. Labels are rules too, so that positions are those of the configuration.
#[derive(Debug)]
pub(crate) struct Rule {
    pub condition: Condition,
    pub action: Action,
    /// Where it stands, for the log.
    pub origin: String,
}

/// Where a rule belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Request,
    Response,
}

impl Routes {
    /// Compiles rules in their order. `None` where a mistake is fatal; the others are warnings. Relative names of files are looked
    /// for in `folder`.
    pub fn compile(rules: &[RouteRule], folder: &Path) -> (Option<Routes>, Vec<Mistake>) {
        let mut found = Vec::new();
        let mut routes = Routes::default();
        let positions = positions(rules);
        routes.requests.labels = owned(&positions.requests);
        routes.responses.labels = owned(&positions.responses);
        for (number, rule) in rules.iter().enumerate() {
            let (stage, kind) = stage_and_kind(&rule.option);
            let mut mistakes = Mistakes { rule: number, stage, found: &mut found };
            let (table, labels) = match stage {
                Stage::Request => (&mut routes.requests, &positions.requests),
                Stage::Response => (&mut routes.responses, &positions.responses),
            };
            let position = table.rules.len();
            let made = compile_rule(kind, rule, CompileContext { stage, position, labels, folder }, &mut mistakes);
            // A rule with a mistake keeps its place, so that the positions of the others are right.
            let (condition, mut action) = made.unwrap_or((Condition::Never, Action::Continue));
            if let Action::Serve(served) = &mut action
                && let Some(served) = Arc::get_mut(served)
            {
                served.folder = folder_number(&mut routes.folders, &served.folder_path);
            }
            table.rules.push(Rule { condition, action, origin: rule.origin.clone() });
        }
        routes.requests.build_sets();
        routes.responses.build_sets();
        let is_fatal = found.iter().any(|mistake| mistake.is_fatal);
        ((!is_fatal).then_some(routes), found)
    }

    /// The shortest `harakiri:` of all rules, in milliseconds.
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

    /// Makes a set of the expressions that look at the same subject.
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
            if texts.len() < LEAST_OF_A_SET {
                continue;
            }
            // Each compiled alone; a set that is too large is done without.
            *set = RegexSetBuilder::new(&texts).unicode(false).size_limit(SET_BYTES).build().ok();
            if set.is_some() {
                members.into_iter().enumerate().for_each(|(number, in_set)| *in_set = Some(number));
            }
        }
    }

    /// Where a label stands.
    pub(crate) fn label(&self, name: &[u8]) -> Option<usize> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, position)| *position)
    }

    /// Names every variable that a rule reads.
    pub fn variables(&self, see: &mut dyn FnMut(&[u8])) {
        for rule in &self.rules {
            rule.condition.variables(see);
            rule.action.variables(see);
        }
    }
}

/// The number of a folder among those that rules name.
fn folder_number(folders: &mut Vec<PathBuf>, folder: &Path) -> usize {
    folders.iter().position(|known| known == folder).unwrap_or_else(|| {
        folders.push(folder.to_owned());
        folders.len() - 1
    })
}

/// Labels and where they stand.
pub(crate) type Labels<'a> = Vec<(&'a str, usize)>;

/// The table in which a rule is compiled, and its position there.
#[derive(Clone, Copy)]
pub(crate) struct CompileContext<'a> {
    pub stage: Stage,
    pub position: usize,
    pub labels: &'a Labels<'a>,
    pub folder: &'a Path,
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

/// `response-route-if` is `if` of the answers' table; `route` alone is about the path.
fn stage_and_kind(option: &str) -> (Stage, &str) {
    let (stage, rest) = match option.strip_prefix("response-") {
        Some(rest) => (Stage::Response, rest),
        None => (Stage::Request, option),
    };
    (stage, rest.strip_prefix("route").unwrap_or(rest).trim_start_matches('-'))
}

/// `None`: what is wrong has been said.
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

/// Compiles a regular expression as uWSGI does: it looks anywhere in the bytes, and knows no Unicode.
pub(crate) fn pattern(text: &str, mistakes: &mut Mistakes<'_>) -> Option<Pattern> {
    if let Some(at) = possessive(text) {
        let message =
            format!("the regular expression `{text}` has a possessive quantifier at `{}`, which is not supported", &text[at..]);
        mistakes.error(message, "leave out the second `+`: nothing is ever tried twice here");
        return None;
    }
    let compile = |text: &str| RegexBuilder::new(&with_plain_classes(text)).unicode(false).size_limit(PATTERN_BYTES).build();
    match Pattern::new(text, compile) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            match unsupported_by_regex(text) {
                Some((what, instead)) => {
                    mistakes.error(format!("the regular expression `{text}` has {what}, which is not supported"), instead);
                }
                None => mistakes.error(
                    format!("`{text}` is no regular expression: {}", last_line(&error.to_string())),
                    "a character that stands for itself may need a backslash",
                ),
            }
            None
        }
    }
}

/// What PCRE has and a search in linear time can't have: the first of it in the text, and what to write instead.
fn unsupported_by_regex(text: &str) -> Option<(String, &'static str)> {
    const MARKS: &[(&str, &str, &str)] = &[
        ("(?!", "a negative lookahead", "say it with a second rule, or with `route-if-not = regexp:${PATH_INFO};EXPRESSION`"),
        ("(?=", "a lookahead", "match the whole text, and put in parentheses what the action needs"),
        ("(?<!", "a negative lookbehind", "say it with a second rule, or with `route-if-not = regexp:${PATH_INFO};EXPRESSION`"),
        ("(?<=", "a lookbehind", "match the whole text, and put in parentheses what the action needs"),
        ("(?>", "an atomic group", "leave out the `?>`: nothing is ever tried twice here"),
        ("(?|", "a branch reset", "give each branch a rule of its own"),
        ("(?(", "a conditional group", "give each branch a rule of its own"),
        ("\\K", "a `\\K`", "put in parentheses what the action needs"),
        ("(?R)", "a recursion", "match what is needed of it"),
        ("(?P=", "a backreference", "compare with `route-if = equal:…` instead"),
        ("\\k", "a backreference", "compare with `route-if = equal:…` instead"),
    ];
    if let Some((at, mark)) = first_of(text, MARKS) {
        return Some((format!("{} at `{}`", mark.1, &text[at..]), mark.2));
    }
    let digits: Range<char> = '1'..':';
    let reference = text.match_indices('\\').find(|(at, _)| {
        let escaped = text[..*at].bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
        !escaped && text[at + 1..].starts_with(|next: char| digits.contains(&next))
    });
    if let Some((at, _)) = reference {
        let what = format!("a backreference at `{}`", &text[at..]);
        return Some((what, "compare with `route-if = equal:…` instead"));
    }
    None
}

/// To PCRE a bracket within brackets is a letter, as are `&&`, `~~` and `--`; the library would calculate with classes.
fn with_plain_classes(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    // While nothing is in a class, `]` is a letter.
    let (mut in_class, mut is_first) = (false, false);
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        let was_first = is_first;
        is_first = was_first && letter == '^';
        match letter {
            '\\' => {
                made.push(letter);
                made.extend(rest.next());
                continue;
            }
            '[' if !in_class => (in_class, is_first) = (true, true),
            ']' if in_class && !was_first => in_class = false,
            // A class by its name: `[:alpha:]`.
            '[' if rest.peek() == Some(&':') => {
                made.push(letter);
                while let Some(part) = rest.next() {
                    made.push(part);
                    if part == ':' && rest.peek() == Some(&']') {
                        made.extend(rest.next());
                        break;
                    }
                }
                continue;
            }
            '[' | '&' | '~' if in_class => made.push('\\'),
            '-' if made.ends_with('-') && in_class => made.push('\\'),
            _ => {}
        }
        made.push(letter);
    }
    made
}

/// Where a quantifier with a `+` after it stands outside brackets. PCRE then gives nothing back that was once matched; to the library it
/// would be a repetition of a repetition, which matches more.
fn possessive(text: &str) -> Option<usize> {
    let (mut in_class, mut escaped, mut before) = (false, false, b' ');
    for (at, byte) in text.bytes().enumerate() {
        if std::mem::take(&mut escaped) {
            before = b' ';
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'[' if !in_class => in_class = true,
            b']' if in_class => in_class = false,
            b'+' if !in_class && matches!(before, b'*' | b'+' | b'?' | b'}') => return Some(at - 1),
            _ => {}
        }
        before = if in_class { b' ' } else { byte };
    }
    None
}

fn first_of<'a>(text: &str, marks: &'a [(&str, &str, &str)]) -> Option<(usize, &'a (&'a str, &'a str, &'a str))> {
    marks.iter().filter_map(|mark| text.find(mark.0).map(|at| (at, mark))).min_by_key(|(at, _)| *at)
}

/// The library draws the expression over several lines and says what is wrong in the last.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ")
}

#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
