//! Walks a table of rules for one request: runs the rules in their order, collects their changes, and returns the verdict.
//!
//! Workers run it on the thread that read the request. Labels only lead forward, so a walk takes at most as many steps as there
//! are rules.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use regex::bytes::{Captures, SetMatches};

use crate::access::Credentials;
use crate::action::{Action, Target};
use crate::cache_access::Operator;
use crate::caching::{Cached, Effect, Store};
use crate::compile::{Rule, Table};
use crate::condition::{Condition, Subject, number};
use crate::served::Served;
use crate::service_access::Services;
use crate::service_action::Failed;
use crate::status;
use crate::template::Template;
use crate::values::{ServerValue, Values};

/// Most bytes that `send:` may collect for one answer.
const SENT_BYTES: usize = 1024 * 1024;

/// Characters that a URI can't have (RFC 3986 section 2), besides non-ASCII bytes. A `%` is kept, because REQUEST_URI is encoded.
const NO_URI: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The end of a walk: how the request is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The application is called, or its answer is sent.
    Serve,
    /// The application is not called.
    Answer(Answer),
    /// A file is the answer: which one, and its path below its folder.
    File(Arc<Served>, Vec<u8>),
    /// A value of a cache is the answer.
    Cached(Cached),
    /// `break:` without a status: the connection ends without an answer.
    Close,
}

/// The answer of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub reason: Cow<'static, str>,
    pub fields: Vec<(Cow<'static, str>, Vec<u8>)>,
    pub body: Vec<u8>,
    /// The connection ends after it.
    pub closes: bool,
    /// Its body is the server's own text, which a page may replace.
    pub is_in_own_words: bool,
}

/// Changes by the rules of a walk, whatever its verdict.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// In the order set; the last one of a name counts.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Fields for the answer, as `Name: value`.
    pub added: Vec<Vec<u8>>,
    /// Names of fields that are removed from the answer.
    pub removed: Vec<Vec<u8>>,
    /// `clearheaders`: the answer's fields are dropped, and this is its status.
    pub cleared: Option<(u16, String)>,
    /// `logvar`, in the order set: variables of the log line.
    pub log_variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// `donotlog`
    pub is_unlogged: bool,
    /// `gzip`
    pub is_compressed: bool,
    /// `harakiri`, in milliseconds.
    pub harakiri_ms: Option<u32>,
    /// `log`, and errors of rules: lines for the log.
    pub lines: Vec<Vec<u8>>,
    /// `send`
    pub sent: Option<Vec<u8>>,
    /// `cachestore`
    pub stores: Vec<Store>,
}

impl Overrides {
    /// Returns the value that a rule gave a variable.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.variables.iter().rfind(|(set, _)| set == name).map(|(_, value)| value.as_slice())
    }

    fn set(&mut self, name: &[u8], value: Vec<u8>) {
        self.variables.push((name.to_vec(), value));
    }
}

/// The request with the changes of the rules so far.
struct WithOverrides<'a> {
    request: &'a dyn Values,
    overrides: &'a Overrides,
}

impl Values for WithOverrides<'_> {
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

/// The next step after an action.
enum Step {
    Next,
    Goto(usize),
    End(Verdict),
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
                Step::End(verdict) => return verdict,
            }
        }
        match overrides.sent.take() {
            // `send:` has made an answer, and there can't be a second one.
            Some(body) => own_answer(overrides, body),
            None => Verdict::Serve,
        }
    }
}

impl Rule {
    fn apply(&self, request: &dyn Values, overrides: &mut Overrides, table: &Table, matched: &mut MatchCache) -> Step {
        let text;
        let groups = {
            let values = WithOverrides { request, overrides };
            match &self.condition {
                Condition::Never => return Step::Next,
                Condition::Always => None,
                Condition::Status(status) if values.server(ServerValue::Status) == u64::from(*status) => None,
                Condition::Status(_) => return Step::Next,
                Condition::If { test, wanted } => match test.holds(&values) == *wanted {
                    true => None,
                    false => return Step::Next,
                },
                Condition::Match { subject, pattern, in_set } => {
                    matched.invalidate(overrides);
                    let found = || values.value(subject.variable()).unwrap_or_default();
                    let is_match = match in_set {
                        Some(number) => matched.is_match(table, *subject, *number, &values) && !pattern.excepts(&found()),
                        None => pattern.is_match(&found()),
                    };
                    if !is_match {
                        return Step::Next;
                    }
                    if self.action.needs_groups() {
                        // The action may change the subject while it reads the groups.
                        text = found().into_owned();
                        pattern.captures(&text)
                    } else {
                        None
                    }
                }
                Condition::Regexp { text: template, pattern, wanted } => {
                    text = template.filled(&values, None);
                    let found = pattern.captures(&text);
                    if found.is_some() != *wanted {
                        return Step::Next;
                    }
                    found
                }
            }
        };
        self.run(request, overrides, table, groups.as_ref())
    }

    fn run(&self, request: &dyn Values, overrides: &mut Overrides, table: &Table, groups: Option<&Captures<'_>>) -> Step {
        let fill = |template: &Template, overrides: &Overrides| template.filled(&WithOverrides { request, overrides }, groups);
        match &self.action {
            Action::Nothing => {}
            Action::Continue => return Step::End(Verdict::Serve),
            Action::Break(status) => return Step::End(broken_off(status.as_ref(), overrides)),
            Action::Return(code, reason) => {
                let body = status::reason(*code).unwrap_or_default();
                return Step::End(Verdict::Answer(Answer {
                    is_in_own_words: true,
                    reason: reason.clone(),
                    ..plain(*code, "", body)
                }));
            }
            Action::Redirect { permanent, to } => {
                let location = fill(to, overrides);
                return Step::End(Verdict::Answer(redirect(*permanent, &location)));
            }
            Action::Rewrite { to, is_last } => {
                let target = fill(to, overrides);
                rewrite(&target, request, overrides);
                if *is_last {
                    return Step::End(Verdict::Serve);
                }
            }
            Action::Set { variable, value, is_user } => {
                let mut value = fill(value, overrides);
                if let Some(colon) = value.iter().position(|&byte| byte == b':')
                    && *is_user
                {
                    value.truncate(colon);
                }
                overrides.set(variable, value);
            }
            Action::FixPathInfo => fix_path_info(request, overrides),
            Action::Calculate { variable, operator, value } => {
                let right = number(&fill(value, overrides));
                let left = WithOverrides { request, overrides }.value(variable).map_or(0, |text| number(&text));
                overrides.set(variable, operator.apply(left, right).to_string().into_bytes());
            }
            Action::AddHeader(text) => {
                let line = fill(text, overrides);
                overrides.added.push(line);
            }
            Action::RemoveHeader(text) => {
                let name = fill(text, overrides);
                overrides.removed.push(name);
            }
            Action::ClearHeaders(text) => {
                let text = fill(text, overrides);
                let text = String::from_utf8_lossy(&text);
                match status::split(&text) {
                    Some((code, "")) => {
                        overrides.cleared = Some((code, status::reason(code).unwrap_or("Unknown").to_owned()));
                    }
                    Some((code, reason)) => overrides.cleared = Some((code, reason.to_owned())),
                    None => self.log_error(overrides, &format!("`clearheaders:{text}` has no status")),
                }
            }
            Action::Send { text, line } => {
                let text = fill(text, overrides);
                let sent = overrides.sent.get_or_insert_default();
                sent.extend_from_slice(&text[..text.len().min(SENT_BYTES.saturating_sub(sent.len()))]);
                if *line {
                    sent.extend_from_slice(b"\r\n");
                }
            }
            Action::Log(text) => {
                let line = fill(text, overrides);
                overrides.lines.push(line);
            }
            Action::LogVariable { name, value } => {
                let value = fill(value, overrides);
                overrides.log_variables.push((name.clone(), value));
            }
            Action::DoNotLog => overrides.is_unlogged = true,
            Action::Harakiri(milliseconds) => overrides.harakiri_ms = Some(*milliseconds),
            Action::Gzip => overrides.is_compressed = true,
            Action::Goto(Target::Position(position)) => return Step::Goto(*position),
            Action::Goto(Target::Label(label)) => {
                let label = fill(label, overrides);
                return self.go_to(&label, table, overrides);
            }
            Action::Serve(served) => {
                let relative = Served::relative(fill(&served.rest, overrides));
                if !served.falls_through || served.is_there(&relative) {
                    return Step::End(Verdict::File(served.clone(), relative));
                }
            }
            Action::Cache(action) => match action.run(&WithOverrides { request, overrides }, groups) {
                Effect::None => {}
                Effect::Answer(cached) => return Step::End(Verdict::Cached(cached)),
                Effect::Store(store) => overrides.stores.push(store),
                Effect::Set(variable, value) => overrides.set(&variable, value),
            },
            Action::Service(action) => {
                if let Err(Failed(message)) = action.run(&WithOverrides { request, overrides }, groups) {
                    self.log_error(overrides, &message);
                    return Step::End(broken_off(None, overrides));
                }
            }
            Action::BasicAuth(guard) => return self.authenticate(guard, request, overrides),
        }
        Step::Next
    }

    fn go_to(&self, label: &[u8], table: &Table, overrides: &mut Overrides) -> Step {
        let here = table.rules.iter().position(|rule| std::ptr::eq(rule, self)).unwrap_or_default();
        match table.label(label) {
            Some(position) if position > here => Step::Goto(position),
            _ => {
                let label = String::from_utf8_lossy(label);
                self.log_error(overrides, &format!("there is no label `{label}` after this rule; answered with 500"));
                let reason = "Internal Server Error";
                Step::End(Verdict::Answer(plain(500, reason, reason)))
            }
        }
    }

    fn authenticate(&self, guard: &crate::access::BasicAuth, request: &dyn Values, overrides: &mut Overrides) -> Step {
        let values = WithOverrides { request, overrides };
        if values.value(b"REMOTE_USER").is_some_and(|user| !user.is_empty()) {
            return Step::Next;
        }
        let authorization = values.value(b"HTTP_AUTHORIZATION").unwrap_or_default();
        let mut checked = Ok(None);
        match guard.credentials {
            Credentials::File(_) => request.aside(&mut || checked = guard.check(&authorization)),
            Credentials::One { .. } => checked = guard.check(&authorization),
        }
        match checked {
            Ok(Some(user)) => overrides.set(b"REMOTE_USER", user),
            Ok(None) if guard.falls_through && !authorization.is_empty() => {}
            Ok(None) => {
                return Step::End(Verdict::Answer(Answer {
                    fields: vec![
                        ("WWW-Authenticate".into(), guard.challenge.clone()),
                        ("Content-Type".into(), b"text/plain".to_vec()),
                    ],
                    ..plain(401, "Authorization Required", "Unauthorized")
                }));
            }
            Err(fault) => {
                self.log_error(overrides, &fault);
                let reason = "Internal Server Error";
                return Step::End(Verdict::Answer(plain(500, reason, reason)));
            }
        }
        Step::Next
    }

    fn log_error(&self, overrides: &mut Overrides, message: &str) {
        overrides.lines.push(format!("bolide: {}: {message}", self.origin).into_bytes());
    }
}

impl Operator {
    fn apply(self, left: i64, right: i64) -> i64 {
        match self {
            Operator::Plus => left.saturating_add(right),
            Operator::Minus => left.saturating_sub(right),
            Operator::Times => left.saturating_mul(right),
            Operator::Divide => left.checked_div(right).unwrap_or(0),
        }
    }
}

fn plain(status: u16, reason: &'static str, text: &str) -> Answer {
    let fields = vec![("Content-Type".into(), b"text/plain".to_vec())];
    Answer { status, reason: reason.into(), fields, body: text.as_bytes().to_vec(), closes: false, is_in_own_words: false }
}

fn redirect(permanent: bool, location: &[u8]) -> Answer {
    let (status, reason, text) =
        if permanent { (301, "Moved Permanently", "Moved Permanently") } else { (302, "Found", "Moved") };
    let fields = vec![("Location".into(), as_uri(location)), ("Content-Type".into(), b"text/plain".to_vec())];
    Answer { fields, ..plain(status, reason, text) }
}

fn broken_off(status: Option<&(u16, String)>, overrides: &mut Overrides) -> Verdict {
    match (status, overrides.sent.take()) {
        (Some((code, reason)), _) => {
            Verdict::Answer(Answer { reason: reason.clone().into(), closes: true, ..plain(*code, "", "") })
        }
        (None, Some(body)) => own_answer(overrides, body),
        (None, None) => match overrides.cleared {
            Some(_) => own_answer(overrides, Vec::new()),
            None => Verdict::Close,
        },
    }
}

/// The answer that `clearheaders`, `addheader` and `send` have put together.
fn own_answer(overrides: &mut Overrides, body: Vec<u8>) -> Verdict {
    let (status, reason) = overrides.cleared.take().unwrap_or((200, "OK".to_owned()));
    let has_type =
        overrides.added.iter().any(|line| line.get(..13).is_some_and(|name| name.eq_ignore_ascii_case(b"content-type:")));
    let fields = if has_type { Vec::new() } else { vec![("Content-Type".into(), b"text/plain".to_vec())] };
    Verdict::Answer(Answer { status, reason: reason.into(), fields, body, closes: false, is_in_own_words: false })
}

/// `PATH?QUERY`: the path is decoded, and the request's own query follows the new one.
fn rewrite(target: &[u8], request: &dyn Values, overrides: &mut Overrides) {
    let (path, query) = match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    // A `%` that begins no escape stays as it is.
    let path = percent_decode(path).collect();
    if let Some(query) = query {
        let mut query = query.to_vec();
        let before = WithOverrides { request, overrides }.value(b"QUERY_STRING").unwrap_or_default().into_owned();
        if !before.is_empty() {
            query.push(b'&');
            query.extend_from_slice(&before);
        }
        overrides.set(b"QUERY_STRING", query);
    }
    overrides.set(b"PATH_INFO", path);
}

/// PATH_INFO without the SCRIPT_NAME that a front server left in it.
fn fix_path_info(request: &dyn Values, overrides: &mut Overrides) {
    let values = WithOverrides { request, overrides };
    let script = values.value(b"SCRIPT_NAME").unwrap_or_default();
    if script.is_empty() {
        return;
    }
    let path = values.value(b"PATH_INFO").unwrap_or_default();
    let rest = path.strip_prefix(&*script).map(<[u8]>::to_vec);
    if let Some(rest) = rest {
        overrides.set(b"PATH_INFO", rest);
    }
}

/// Encodes a Location so that a client can't inject into it: PATH_INFO is decoded, and may contain anything.
fn as_uri(text: &[u8]) -> Vec<u8> {
    percent_encode(text, NO_URI).to_string().into_bytes()
}

#[cfg(test)]
#[path = "tests/walk.rs"]
mod tests;
