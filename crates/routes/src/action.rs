//! The actions of rules: one row each, with its names, whether a response route may have it, and how it is compiled. Workers run
//! it, and the process that reads the configuration.
//!
//! A function that compiles an action returns what a request does: the action's argument is parsed, and its texts are compiled,
//! before there is a request. Actions of uWSGI that Bolide lacks have their rows too.

use std::borrow::Cow;
use std::sync::Arc;

use bolide_contract::answering::CancelOnDisconnect;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::cache_access::Operator;
use crate::compiler::{Compiler, Stage};
use crate::condition::number;
use crate::served::{Form, Served};
use crate::template::Template;
use crate::values::Values;
use crate::verdict::{Answer, Verdict};
use crate::visit::{Action, Step, Visit, changes, decides};
use crate::{access, caching, rate_limiting, service_action, status};

/// Maximum number of bytes that `send:` may collect for one answer.
const SENT_BYTES: usize = 1024 * 1024;

/// Characters that a URI can't have (RFC 3986 section 2), besides non-ASCII bytes. A `%` is kept, because REQUEST_URI is encoded.
const NO_URI: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

struct Row {
    /// The names of uWSGI's; messages list the first one.
    names: &'static [&'static str],
    /// It is useful when an answer's head is complete.
    is_for_responses: bool,
    meaning: Meaning,
}

/// Compiles the argument of an action with this name. `None`: the mistake was reported.
type Compile = fn(name: &str, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action>;

enum Meaning {
    Does(Compile),
    /// It always happens anyway.
    Nothing,
    /// Bolide lacks it. A rule without effect would admit requests that it should stop, or answer with the wrong content, so
    /// startup fails. The text is advice.
    Missing(&'static str),
    /// Bolide lacks it, and a rule without effect is harmless.
    WithoutEffect,
}

/// For requests.
const fn request(names: &'static [&'static str], compile: Compile) -> Row {
    Row { names, is_for_responses: false, meaning: Meaning::Does(compile) }
}

/// For requests and for responses.
const fn both(names: &'static [&'static str], compile: Compile) -> Row {
    Row { names, is_for_responses: true, meaning: Meaning::Does(compile) }
}

const fn missing(names: &'static [&'static str], advice: &'static str) -> Row {
    Row { names, is_for_responses: false, meaning: Meaning::Missing(advice) }
}

const ACTIONS: &[Row] = &[
    request(&["redirect", "redirect-302"], |_, to, compiler| redirect(false, to, compiler)),
    request(&["redirect-permanent", "redirect-301"], |_, to, compiler| redirect(true, to, compiler)),
    request(&["rewrite"], |_, target, compiler| rewrite(false, target, compiler)),
    request(&["rewrite-last"], |_, target, compiler| rewrite(true, target, compiler)),
    request(&["return", "break-with-status"], return_status),
    request(&["break"], |_, status, compiler| break_off(status, compiler)),
    both(&["continue"], |_, _, _| decides(|_| Step::End(Verdict::Serve))),
    both(&["last"], |_, _, _| decides(|_| Step::End(Verdict::Serve))),
    both(&["goto"], |_, label, compiler| go_to(label, compiler)),
    request(&["static"], |_, path, compiler| serve(false, Served::compile(path, Form::Static, compiler)?)),
    request(&["static-next"], |_, path, compiler| serve(true, Served::compile(path, Form::Static, compiler)?)),
    request(&["file", "sendfile", "fastfile"], |_, page, compiler| serve(false, Served::compile_page(page, compiler)?)),
    request(&["file-next", "sendfile-next", "fastfile-next"], |_, page, compiler| {
        serve(true, Served::compile_page(page, compiler)?)
    }),
    request(&["basicauth"], |_, argument, compiler| access::basic(false, argument, compiler)),
    request(&["basicauth-next"], |_, argument, compiler| access::basic(true, argument, compiler)),
    request(&["ratelimit"], |_, argument, compiler| rate_limiting::action(argument, compiler)),
    request(&["cache"], |_, argument, compiler| caching::answer(argument, compiler)),
    both(&["cachestore", "cache-store"], |_, argument, compiler| caching::store(argument, compiler)),
    both(&["cachevar"], |_, argument, compiler| caching::variable(argument, compiler)),
    both(&["cacheset"], |_, argument, compiler| caching::add(argument, compiler)),
    both(&["cacheinc"], |name, argument, compiler| caching::calculate(name, Operator::Plus, argument, compiler)),
    both(&["cachedec"], |name, argument, compiler| caching::calculate(name, Operator::Minus, argument, compiler)),
    both(&["cachemul"], |name, argument, compiler| caching::calculate(name, Operator::Times, argument, compiler)),
    both(&["cachediv"], |name, argument, compiler| caching::calculate(name, Operator::Divide, argument, compiler)),
    both(&["metricinc"], |_, argument, compiler| service_action::metric(Some(Operator::Plus), argument, compiler)),
    both(&["metricdec"], |_, argument, compiler| service_action::metric(Some(Operator::Minus), argument, compiler)),
    both(&["metricmul"], |_, argument, compiler| service_action::metric(Some(Operator::Times), argument, compiler)),
    both(&["metricdiv"], |_, argument, compiler| service_action::metric(Some(Operator::Divide), argument, compiler)),
    both(&["metricset"], |_, argument, compiler| service_action::metric(None, argument, compiler)),
    both(&["signal"], |_, number, compiler| service_action::signal(number, compiler)),
    both(&["alarm"], |_, argument, compiler| service_action::alarm(argument, compiler)),
    both(&["addheader"], |_, line, compiler| add_header(line, compiler)),
    both(&["delheader", "remheader"], remove_header),
    both(&["clearheaders", "resetheaders"], |_, status, compiler| clear_headers(status, compiler)),
    request(&["send"], |_, text, compiler| send(b"", text, compiler)),
    request(&["send-crnl"], |_, text, compiler| send(b"\r\n", text, compiler)),
    both(&["gzip"], |_, _, _| changes(|visit| visit.overrides.is_compressed = true)),
    both(&["addvar"], |name, argument, compiler| {
        let (variable, value) = assignment(name, argument, compiler)?;
        set(variable, value, compiler)
    }),
    request(&["setmethod"], |_, value, compiler| set("REQUEST_METHOD", value, compiler)),
    request(&["seturi"], |_, value, compiler| set("REQUEST_URI", value, compiler)),
    request(&["setpathinfo"], |_, value, compiler| set("PATH_INFO", value, compiler)),
    request(&["setscriptname"], |_, value, compiler| set("SCRIPT_NAME", value, compiler)),
    request(&["setremoteaddr"], |_, value, compiler| set("REMOTE_ADDR", value, compiler)),
    request(&["setdocroot"], |_, value, compiler| set("DOCUMENT_ROOT", value, compiler)),
    request(&["setscheme"], |_, value, compiler| set("UWSGI_SCHEME", value, compiler)),
    request(&["setuser"], |_, user, compiler| set_user(user, compiler)),
    request(&["fixpathinfo"], |_, _, _| changes(fix_path_info)),
    both(&["+"], |_, argument, compiler| calculate(Operator::Plus, argument, compiler)),
    both(&["-"], |_, argument, compiler| calculate(Operator::Minus, argument, compiler)),
    both(&["*"], |_, argument, compiler| calculate(Operator::Times, argument, compiler)),
    both(&["/"], |_, argument, compiler| calculate(Operator::Divide, argument, compiler)),
    both(&["log"], |_, line, compiler| {
        let line = Template::compile(line, compiler);
        changes(move |visit| visit.overrides.lines.push(visit.fill(&line)))
    }),
    both(&["logvar"], set_log_variable),
    both(&["donotlog"], |_, _, _| changes(|visit| visit.overrides.is_unlogged = true)),
    request(&["harakiri"], |_, seconds, compiler| limit(seconds, compiler)),
    request(&["cancel-on-disconnect"], |_, word, compiler| cancel_on_disconnect(word, compiler)),
    // Answers without a length are always chunked, and files never block a thread.
    Row { names: &["chunked"], is_for_responses: true, meaning: Meaning::Nothing },
    Row { names: &["donotoffload"], is_for_responses: false, meaning: Meaning::Nothing },
    Row { names: &["setprocname", "flush", "fixcl", "forcecl"], is_for_responses: false, meaning: Meaning::WithoutEffect },
    missing(
        &["http", "httpdumb", "httpconnect", "proxyhttp", "proxyhttpconnect", "uwsgi", "proxyuwsgi"],
        "forward requests with a reverse proxy",
    ),
    missing(&["cache-continue"], "use `cache`: the application can't answer a second time"),
    missing(&["memcached", "memcached-continue", "memcachedstore", "memcached-store"], ""),
    missing(&["redis", "redis-continue", "redisstore", "redis-store", "gridfs"], ""),
    missing(
        &["ldapauth", "ldapauth-next", "radius", "radius-next", "spnego", "spnego-next", "access"],
        "use `basicauth`, or authenticate in a reverse proxy",
    ),
    missing(&["rpc", "call", "rpcnext", "rpcret", "rpcblob", "rpcvar", "rpcraw", "symcall", "symcall-next", "lua"], ""),
    missing(&["ssi", "cgi", "cgihelper", "xslt", "toxslt", "xmldir", "template", "toupper"], ""),
    missing(&["setapp", "setfile", "sethome"], "mount the applications with `mount`"),
    missing(&["chdir"], "all requests of a worker share one directory; use `chdir`"),
    missing(&["setmodifier1", "setmodifier2"], "there are no modifiers: a path chooses an application with `mount`"),
    missing(&["sse", "websocket", "offload", "spool", "hash", "geoip", "expires", "tofile", "to-file", "disableheaders"], ""),
];

/// Compiles an action. `None`: the mistake was reported.
pub fn compile(text: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let Some((name, argument)) = text.split_once(':') else {
        compiler.error(format!("the action `{text}` has no colon"), format!("write `{text}:`"));
        return None;
    };
    let is_for_response = compiler.stage == Stage::Response;
    match ACTIONS.iter().find(|row| row.names.contains(&name)) {
        Some(Row { meaning: Meaning::Missing(advice), .. }) => {
            compiler.error(format!("the action `{name}` is known, but not supported yet"), *advice);
        }
        Some(Row { meaning: Meaning::WithoutEffect, .. }) => {
            compiler.warn(format!("the action `{name}` is known, but not supported yet: it has no effect"), "");
            return changes(|_| {});
        }
        Some(Row { meaning, is_for_responses, .. }) if *is_for_responses || !is_for_response => {
            return match meaning {
                Meaning::Does(compile) => compile(name, argument, compiler),
                _ => changes(|_| {}),
            };
        }
        _ if is_for_response => compiler.error(
            format!("the action `{name}` can't be used in a response-route: the application has already answered"),
            match name {
                // uWSGI's recipe for X-Sendfile.
                "static" | "file" => {
                    "for files that the application passes in X-Sendfile, write `x-sendfile = DIRECTORY` instead".into()
                }
                _ => format!("the actions on responses are {}", listed(|row| row.is_for_responses)),
            },
        ),
        _ => compiler.error(format!("there is no action `{name}`"), format!("the actions are {}", listed(|_| true))),
    }
    None
}

/// The names of actions that do something, for a message.
fn listed(is_wanted: fn(&Row) -> bool) -> String {
    let wanted = ACTIONS.iter().filter(|row| matches!(row.meaning, Meaning::Does(_)) && is_wanted(row));
    wanted.map(|row| row.names[0]).collect::<Vec<_>>().join(", ")
}

fn redirect(is_permanent: bool, to: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let to = Template::compile(to, compiler);
    let (status, reason, text) =
        if is_permanent { (301, "Moved Permanently", "Moved Permanently") } else { (302, "Found", "Moved") };
    decides(move |visit| {
        // PATH_INFO is decoded, and may contain anything: a client must not inject into the answer with it.
        let location = percent_encode(&visit.fill(&to), NO_URI).to_string().into_bytes();
        let fields = vec![("Location".into(), location), ("Content-Type".into(), b"text/plain".to_vec())];
        Step::End(Verdict::Answer(Answer { fields, ..Answer::plain(status, reason, text) }))
    })
}

/// `PATH?QUERY`: the path is decoded, and the request's own query follows the new one.
fn rewrite(is_last: bool, target: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let target = Template::compile(target, compiler);
    decides(move |visit| {
        let target = visit.fill(&target);
        let (path, query) = match target.iter().position(|&byte| byte == b'?') {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (&target[..], None),
        };
        if let Some(query) = query {
            let mut query = query.to_vec();
            let before = visit.value(b"QUERY_STRING").unwrap_or_default();
            if !before.is_empty() {
                query.push(b'&');
                query.extend_from_slice(&before);
            }
            visit.overrides.set(b"QUERY_STRING", query);
        }
        // A `%` that begins no escape stays as it is.
        visit.overrides.set(b"PATH_INFO", percent_decode(path).collect());
        if is_last { Step::End(Verdict::Serve) } else { Step::Next }
    })
}

/// An answer with the status as its text. Words behind the status are sent as its reason, as uWSGI sends them in front of the
/// standard's.
fn return_status(name: &str, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let found = status::split(argument.trim()).and_then(|(code, words)| Some((code, words.trim(), status::reason(code)?)));
    let Some((code, words, body)) = found else {
        compiler.error(
            format!("`{name}:{argument}` does not contain a standard status"),
            "write `return:404`, or `break:499 Own Words`",
        );
        return None;
    };
    let mut reason = Cow::Borrowed(body);
    if !words.is_empty() {
        without_control_characters(words, compiler)?;
        compiler.warn(
            format!("`{name}:{argument}` answers `{code} {words}` with the body `{body}`"),
            format!("write `{name}:{code}` for `{code} {body}`, or `break:{code} {words}` for an answer without a body"),
        );
        reason = Cow::Owned(words.to_owned());
    }
    decides(move |_| {
        let answer = Answer { is_in_own_words: true, reason: reason.clone(), ..Answer::plain(code, "", body) };
        Step::End(Verdict::Answer(answer))
    })
}

/// An answer with this status and no body, after which the connection ends. Without a status it ends without an answer.
fn break_off(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    if argument.is_empty() {
        return decides(|visit| Step::End(visit.overrides.broken_off()));
    }
    let Some((code, text)) = status::split(argument) else {
        compiler.error(
            format!("`break:{argument}` has no status"),
            "write `break:403 Forbidden`, or `break:` to close the connection",
        );
        return None;
    };
    let reason = if text.is_empty() { status::reason(code).unwrap_or("Unknown") } else { text };
    without_control_characters(reason, compiler)?;
    let reason = Cow::<'static, str>::Owned(reason.to_owned());
    decides(move |_| Step::End(Verdict::Answer(Answer { reason: reason.clone(), closes: true, ..Answer::plain(code, "", "") })))
}

fn without_control_characters(reason: &str, compiler: &mut Compiler<'_>) -> Option<()> {
    if reason.bytes().any(|byte| byte.is_ascii_control()) {
        compiler.error("a status can't contain control characters", "");
        return None;
    }
    Some(())
}

/// Resolves labels without variables: one that is missing, or leads backwards, is an error of the configuration rather than of a
/// request.
fn go_to(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let label = Template::compile(argument, compiler);
    let Some(text) = label.constant() else { return decides(move |visit| Step::GotoLabel(visit.fill(&label))) };
    let found = compiler.labels.iter().find(|(name, _)| name == text).map(|(_, position)| *position);
    match found.or_else(|| argument.parse().ok()) {
        Some(position) if position > compiler.position => decides(move |_| Step::Goto(position)),
        Some(_) => {
            compiler.error(format!("`goto:{argument}` leads backwards"), "a label must follow the rules that go to it");
            None
        }
        None => {
            compiler.error(
                format!("there is no label `{argument}`"),
                format!("write `route-label = {argument}` where it should continue"),
            );
            None
        }
    }
}

/// Answers with a file; the `-next` forms leave the request to the next rule if there is none.
fn serve(falls_through: bool, served: Served) -> Option<Action> {
    let served = Arc::new(served);
    decides(move |visit| {
        let relative = served.relative(|rest| visit.fill(rest));
        if falls_through && !served.is_there(&relative) {
            return Step::Next;
        }
        Step::End(Verdict::File(served.clone(), relative))
    })
}

/// A field's name can be checked now unless it contains variables.
fn add_header(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let (name, _) = argument.split_once(':').unwrap_or(("", argument));
    if name.is_empty() || name.contains([' ', '\t']) {
        compiler.error(format!("`addheader:{argument}` is not a header field"), "write `addheader:Name: value`");
        return None;
    }
    let line = Template::compile(argument, compiler);
    changes(move |visit| visit.overrides.added.push(visit.fill(&line)))
}

fn remove_header(action: &str, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    if argument.eq_ignore_ascii_case("content-length") {
        compiler.warn(format!("`{action}:{argument}` has no effect: the server sets lengths"), "remove the rule");
    }
    let name = Template::compile(argument, compiler);
    changes(move |visit| visit.overrides.removed.push(visit.fill(&name)))
}

fn clear_headers(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let status = Template::compile(argument, compiler);
    changes(move |visit| {
        let text = visit.fill(&status);
        let text = String::from_utf8_lossy(&text);
        match status::split(&text) {
            Some((code, "")) => {
                visit.overrides.cleared = Some((code, status::reason(code).unwrap_or("Unknown").to_owned()));
            }
            Some((code, reason)) => visit.overrides.cleared = Some((code, reason.to_owned())),
            None => visit.log_error(&format!("`clearheaders:{text}` has no status")),
        }
    })
}

fn send(end: &'static [u8], text: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let text = Template::compile(text, compiler);
    changes(move |visit| {
        let text = visit.fill(&text);
        let sent = visit.overrides.sent.get_or_insert_default();
        sent.extend_from_slice(&text[..text.len().min(SENT_BYTES.saturating_sub(sent.len()))]);
        sent.extend_from_slice(end);
    })
}

/// `NAME=VALUE`
fn assignment<'a>(action: &str, argument: &'a str, compiler: &mut Compiler<'_>) -> Option<(&'a str, &'a str)> {
    let found = argument.split_once('=').filter(|(name, _)| !name.is_empty());
    if found.is_none() {
        compiler.error(format!("`{action}:{argument}` does not set a variable"), format!("write `{action}:NAME=VALUE`"));
    }
    found
}

fn set(variable: &str, value: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let (variable, value) = (variable.as_bytes().to_vec(), Template::compile(value, compiler));
    changes(move |visit| visit.overrides.set(&variable, visit.fill(&value)))
}

/// The user is the text before the first colon.
fn set_user(user: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let user = Template::compile(user, compiler);
    changes(move |visit| {
        let mut user = visit.fill(&user);
        user.truncate(user.iter().position(|&byte| byte == b':').unwrap_or(user.len()));
        visit.overrides.set(b"REMOTE_USER", user);
    })
}

/// PATH_INFO without the SCRIPT_NAME that a reverse proxy left in it.
fn fix_path_info(visit: &mut Visit<'_>) {
    let script = visit.value(b"SCRIPT_NAME").unwrap_or_default();
    let path = visit.value(b"PATH_INFO").unwrap_or_default();
    let rest = path.strip_prefix(&*script).filter(|_| !script.is_empty()).map(<[u8]>::to_vec);
    if let Some(rest) = rest {
        visit.overrides.set(b"PATH_INFO", rest);
    }
}

/// `VARIABLE,NUMBER`, or 1.
fn calculate(operator: Operator, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let (variable, operand) = argument.split_once(',').unwrap_or((argument, "1"));
    compiler.reads(variable.as_bytes());
    let (variable, operand) = (variable.as_bytes().to_vec(), Template::compile(operand, compiler));
    changes(move |visit| {
        let right = number(&visit.fill(&operand));
        let left = visit.value(&variable).map_or(0, |text| number(&text));
        visit.overrides.set(&variable, operator.apply(left, right).to_string().into_bytes());
    })
}

/// Sets a variable for the request's log line.
fn set_log_variable(action: &str, argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let (name, value) = assignment(action, argument, compiler)?;
    let (name, value) = (name.as_bytes().to_vec(), Template::compile(value, compiler));
    changes(move |visit| visit.overrides.log_variables.push((name.clone(), visit.fill(&value))))
}

fn limit(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    /// A day: a longer limit means that there is none.
    const MAX_SECONDS: u32 = 86_400;
    let Some(seconds) = argument.trim().parse::<u32>().ok().filter(|seconds| (1..=MAX_SECONDS).contains(seconds)) else {
        compiler.error(format!("`harakiri:{argument}` is not a time limit"), "write seconds, 1 to 86400");
        return None;
    };
    let limit_ms = seconds * 1000;
    compiler.needs.harakiri_ms = Some(compiler.needs.harakiri_ms.map_or(limit_ms, |shortest| shortest.min(limit_ms)));
    changes(move |visit| visit.overrides.harakiri_ms = Some(limit_ms))
}

fn cancel_on_disconnect(argument: &str, compiler: &mut Compiler<'_>) -> Option<Action> {
    let policy = match argument.trim() {
        "" | "on" => CancelOnDisconnect::Reset,
        "fin" => CancelOnDisconnect::Fin,
        "off" => CancelOnDisconnect::Off,
        _ => {
            compiler.error(format!("`cancel-on-disconnect:{argument}` is neither on nor off"), "write `on`, `fin` or `off`");
            return None;
        }
    };
    compiler.needs.cancels_on_disconnect |= policy != CancelOnDisconnect::Off;
    changes(move |visit| visit.overrides.cancel_on_disconnect = Some(policy))
}

#[cfg(test)]
mod tests {
    use super::{ACTIONS, listed};

    #[test]
    fn a_name_has_one_row() {
        let mut names: Vec<&str> = ACTIONS.iter().flat_map(|row| row.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn messages_list_the_actions_that_do_something() {
        let (everywhere, on_responses) = (listed(|_| true), listed(|row| row.is_for_responses));
        assert!(everywhere.starts_with("redirect, redirect-permanent, rewrite, "), "{everywhere}");
        assert!(!everywhere.contains("memcached") && !everywhere.contains("chunked"), "{everywhere}");
        assert!(on_responses.starts_with("continue, last, goto, cachestore, "), "{on_responses}");
    }
}
