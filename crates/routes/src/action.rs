//! Actions of rules: the table of their names and how their arguments are parsed. Workers run it, and the process that reads the
//! configuration.
//!
//! Actions of uWSGI that Bolide lacks are in [`MISSING`].

use std::borrow::Cow;
use std::sync::Arc;

use crate::access::BasicAuth;
use crate::cache_access::Operator;
use crate::caching::{self, CacheAction};
use crate::diagnostics::{CompileContext, Mistakes, Stage};
use crate::served::Served;
use crate::service_action::{self, ServiceAction};
use crate::status;
use crate::template::{Groups, Template};

#[derive(Debug)]
pub enum Action {
    /// `continue`, `last`: the request goes to the application.
    Continue,
    /// `break`: an answer with this status, or without one the end of the connection.
    Break(Option<(u16, String)>),
    /// `return`, `break-with-status`: an answer with the status as its text.
    /// The status, and its reason.
    Return(u16, Cow<'static, str>),
    Redirect {
        permanent: bool,
        to: Template,
    },
    Rewrite {
        to: Template,
        is_last: bool,
    },
    /// `addvar` and all `set…`.
    Set {
        variable: Vec<u8>,
        value: Template,
        /// `setuser`: up to the first colon.
        is_user: bool,
    },
    FixPathInfo,
    Calculate {
        variable: Vec<u8>,
        operator: Operator,
        value: Template,
    },
    AddHeader(Template),
    RemoveHeader(Template),
    ClearHeaders(Template),
    Send {
        text: Template,
        line: bool,
    },
    Log(Template),
    /// `logvar`: a variable for the request's log line.
    LogVariable {
        name: Vec<u8>,
        value: Template,
    },
    DoNotLog,
    Goto(Target),
    BasicAuth(Box<BasicAuth>),
    /// `static`, `file`: answers with a file.
    Serve(Arc<Served>),
    /// Milliseconds.
    Harakiri(u32),
    /// `cache`, `cachestore`, `cachevar`, `cacheset`, `cacheinc` and the related actions.
    Cache(Box<CacheAction>),
    /// `signal`, `alarm`, `metricinc` and the related actions.
    Service(Box<ServiceAction>),
    /// `gzip`: the answer is compressed, whatever its type and size.
    Gzip,
    /// No effect: the action always happens anyway, or has no effect and caused a warning.
    Nothing,
}

/// The destination of `goto`.
#[derive(Debug)]
pub enum Target {
    Position(usize),
    /// A label with variables: resolved when the rule runs.
    Label(Template),
}

/// Actions of uWSGI that Bolide lacks. With `Some`, a rule without effect would admit requests that it should stop, or answer
/// with the wrong content, so the start fails; with `None` it is a warning.
const MISSING: &[(&[&str], Option<&str>)] = &[
    (
        &["http", "httpdumb", "httpconnect", "proxyhttp", "proxyhttpconnect", "uwsgi", "proxyuwsgi"],
        Some("forward requests with a front server"),
    ),
    (&["cache-continue"], Some("use `cache`: the application can't answer a second time")),
    (&["memcached", "memcached-continue", "memcachedstore", "memcached-store"], Some("")),
    (&["redis", "redis-continue", "redisstore", "redis-store", "gridfs"], Some("")),
    (
        &["ldapauth", "ldapauth-next", "radius", "radius-next", "spnego", "spnego-next", "access"],
        Some("use `basicauth`, or authenticate in a front server"),
    ),
    (&["rpc", "call", "rpcnext", "rpcret", "rpcblob", "rpcvar", "rpcraw", "symcall", "symcall-next", "lua"], Some("")),
    (&["ssi", "cgi", "cgihelper", "xslt", "toxslt", "xmldir", "template", "toupper"], Some("")),
    (&["setapp", "setfile", "sethome"], Some("mount the applications with `mount`")),
    (&["chdir"], Some("all requests of a worker share one folder; use `chdir`")),
    (&["setmodifier1", "setmodifier2"], Some("there are no modifiers: a path chooses an application with `mount`")),
    (&["sse", "websocket", "offload", "spool", "hash", "geoip", "expires", "tofile", "to-file", "disableheaders"], Some("")),
    (&["setprocname", "flush", "fixcl", "forcecl"], None),
];

/// Compiles an action. `None`: the mistake was reported.
pub fn compile(text: &str, groups: Groups, context: CompileContext<'_>, mistakes: &mut Mistakes<'_>) -> Option<Action> {
    let Some((name, argument)) = text.split_once(':') else {
        mistakes.error(format!("the action `{text}` has no colon"), format!("write `{text}:`"));
        return None;
    };
    if context.stage == Stage::Response && !is_for_responses(name) {
        unknown(name, context.stage, mistakes)
    } else {
        named(name, argument, groups, context, mistakes)
    }
}

fn named(name: &str, argument: &str, groups: Groups, context: CompileContext<'_>, mistakes: &mut Mistakes<'_>) -> Option<Action> {
    let template = |mistakes: &mut Mistakes<'_>| Template::compile(argument, groups, mistakes);
    let set = |variable: &str, mistakes: &mut Mistakes<'_>| Action::Set {
        variable: variable.as_bytes().to_vec(),
        value: template(mistakes),
        is_user: variable == "REMOTE_USER",
    };
    Some(match name {
        "continue" | "last" => Action::Continue,
        "break" => Action::Break(break_status(argument, mistakes)?),
        "return" | "break-with-status" => {
            let (code, reason) = return_status(name, argument, mistakes)?;
            Action::Return(code, reason)
        }
        "redirect" | "redirect-302" => Action::Redirect { permanent: false, to: template(mistakes) },
        "redirect-permanent" | "redirect-301" => Action::Redirect { permanent: true, to: template(mistakes) },
        "rewrite" | "rewrite-last" => Action::Rewrite { to: template(mistakes), is_last: name == "rewrite-last" },
        "setmethod" => set("REQUEST_METHOD", mistakes),
        "seturi" => set("REQUEST_URI", mistakes),
        "setpathinfo" => set("PATH_INFO", mistakes),
        "setscriptname" => set("SCRIPT_NAME", mistakes),
        "setremoteaddr" => set("REMOTE_ADDR", mistakes),
        "setdocroot" => set("DOCUMENT_ROOT", mistakes),
        "setscheme" => set("UWSGI_SCHEME", mistakes),
        "setuser" => set("REMOTE_USER", mistakes),
        "fixpathinfo" => Action::FixPathInfo,
        "addvar" => {
            let (variable, value) = assignment(name, argument, mistakes)?;
            Action::Set { variable, value: Template::compile(value, groups, mistakes), is_user: false }
        }
        "+" | "-" | "*" | "/" => {
            let operator = match name {
                "+" => Operator::Plus,
                "-" => Operator::Minus,
                "*" => Operator::Times,
                _ => Operator::Divide,
            };
            let (variable, value) = argument.split_once(',').unwrap_or((argument, "1"));
            Action::Calculate {
                variable: variable.as_bytes().to_vec(),
                operator,
                value: Template::compile(value, groups, mistakes),
            }
        }
        "addheader" => Action::AddHeader(header(argument, groups, mistakes)?),
        "delheader" | "remheader" => {
            if argument.eq_ignore_ascii_case("content-length") {
                mistakes.warn(format!("`{name}:{argument}` has no effect: the server sets lengths"), "remove the rule");
            }
            Action::RemoveHeader(template(mistakes))
        }
        "clearheaders" | "resetheaders" => Action::ClearHeaders(template(mistakes)),
        "send" | "send-crnl" => Action::Send { text: template(mistakes), line: name == "send-crnl" },
        "log" => Action::Log(template(mistakes)),
        "logvar" => {
            let (variable, value) = assignment(name, argument, mistakes)?;
            Action::LogVariable { name: variable, value: Template::compile(value, groups, mistakes) }
        }
        "donotlog" => Action::DoNotLog,
        "goto" => Action::Goto(target(argument, groups, context, mistakes)?),
        "basicauth" => Action::BasicAuth(Box::new(BasicAuth::compile(argument, false, context.folder, mistakes)?)),
        "basicauth-next" => Action::BasicAuth(Box::new(BasicAuth::compile(argument, true, context.folder, mistakes)?)),
        "static" | "static-next" => {
            Action::Serve(Arc::new(Served::compile_static(argument, name == "static-next", groups, context, mistakes)?))
        }
        "file" | "sendfile" | "fastfile" => {
            Action::Serve(Arc::new(Served::compile_page(argument, false, groups, context, mistakes)?))
        }
        "file-next" | "sendfile-next" | "fastfile-next" => {
            Action::Serve(Arc::new(Served::compile_page(argument, true, groups, context, mistakes)?))
        }
        "harakiri" => Action::Harakiri(seconds(argument, mistakes)?),
        "gzip" => Action::Gzip,
        _ if caching::has_action(name) => Action::Cache(Box::new(CacheAction::compile(name, argument, groups, mistakes)?)),
        _ if service_action::has_action(name) => {
            Action::Service(Box::new(ServiceAction::compile(name, argument, groups, mistakes)?))
        }
        // Answers without a length are always chunked, and files never block a thread.
        "chunked" | "donotoffload" => Action::Nothing,
        _ => return unknown(name, context.stage, mistakes),
    })
}

/// Whether the action is useful when an answer's head is complete.
fn is_for_responses(name: &str) -> bool {
    matches!(
        name,
        "continue"
            | "last"
            | "addheader"
            | "delheader"
            | "remheader"
            | "clearheaders"
            | "resetheaders"
            | "addvar"
            | "+"
            | "-"
            | "*"
            | "/"
            | "log"
            | "logvar"
            | "donotlog"
            | "goto"
            | "gzip"
            | "chunked"
    ) || (name != "cache" && caching::has_action(name))
        || service_action::has_action(name)
}

fn unknown(name: &str, stage: Stage, mistakes: &mut Mistakes<'_>) -> Option<Action> {
    let missing = MISSING.iter().find(|(names, _)| names.contains(&name));
    match missing {
        Some((_, Some(advice))) => mistakes.error(format!("the action `{name}` is known, but not supported yet"), *advice),
        Some((_, None)) => {
            mistakes.warn(format!("the action `{name}` is known, but not supported yet: it has no effect"), "");
            return Some(Action::Nothing);
        }
        None if stage == Stage::Response && !is_for_responses(name) => mistakes.error(
            format!("the action `{name}` can't be used in a response-route: the application has already answered"),
            match name {
                // uWSGI's recipe for X-Sendfile.
                "static" | "file" => "for files that the application names in X-Sendfile, write `x-sendfile = FOLDER` instead",
                _ => {
                    "the actions on responses are addheader, delheader, clearheaders, addvar, gzip, cachestore, cacheinc, \
                    metricinc, signal, alarm, log, donotlog, goto, continue and last"
                }
            },
        ),
        None => mistakes.error(
            format!("there is no action `{name}`"),
            "the actions are redirect, redirect-permanent, rewrite, return, break, continue, last, goto, static, file, cache, \
            cachestore, metricinc, signal, alarm, basicauth, addheader, delheader, addvar, setpathinfo and similar, log, \
            donotlog, harakiri, gzip",
        ),
    }
    None
}

fn break_status(argument: &str, mistakes: &mut Mistakes<'_>) -> Option<Option<(u16, String)>> {
    if argument.is_empty() {
        return Some(None);
    }
    let Some((code, text)) = status::split(argument) else {
        mistakes.error(
            format!("`break:{argument}` has no status"),
            "write `break:403 Forbidden`, or `break:` to close the connection",
        );
        return None;
    };
    let text = match text {
        "" => status::reason(code).unwrap_or("Unknown"),
        text => text,
    };
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        mistakes.error("a status can't contain control characters", "");
        return None;
    }
    Some(Some((code, text.to_owned())))
}

/// The status and its reason: the words behind it, which uWSGI sends in front of the standard's, or that of the standard.
fn return_status(name: &str, argument: &str, mistakes: &mut Mistakes<'_>) -> Option<(u16, Cow<'static, str>)> {
    let found = status::split(argument.trim()).and_then(|(code, words)| Some((code, words.trim(), status::reason(code)?)));
    let Some((code, words, reason)) = found else {
        mistakes.error(
            format!("`{name}:{argument}` has no status that a standard names"),
            "write `return:404`, or `break:499 Own Words`",
        );
        return None;
    };
    if words.is_empty() {
        return Some((code, Cow::Borrowed(reason)));
    }
    if words.bytes().any(|byte| byte.is_ascii_control()) {
        mistakes.error("a status can't contain control characters", "");
        return None;
    }
    mistakes.warn(
        format!("`{name}:{argument}` answers `{code} {words}` with the body `{reason}`"),
        format!("write `{name}:{code}` for `{code} {reason}`, or `break:{code} {words}` for an answer without a body"),
    );
    Some((code, Cow::Owned(words.to_owned())))
}

fn assignment<'a>(action: &str, argument: &'a str, mistakes: &mut Mistakes<'_>) -> Option<(Vec<u8>, &'a str)> {
    match argument.split_once('=') {
        Some((name, value)) if !name.is_empty() => Some((name.as_bytes().to_vec(), value)),
        _ => {
            mistakes.error(format!("`{action}:{argument}` sets no variable"), format!("write `{action}:NAME=VALUE`"));
            None
        }
    }
}

/// A field's name can be checked now unless it contains variables.
fn header(argument: &str, groups: Groups, mistakes: &mut Mistakes<'_>) -> Option<Template> {
    let (name, _) = argument.split_once(':').unwrap_or(("", argument));
    if name.is_empty() || name.contains([' ', '\t']) {
        mistakes.error(format!("`addheader:{argument}` is not a header field"), "write `addheader:Name: value`");
        return None;
    }
    Some(Template::compile(argument, groups, mistakes))
}

/// Resolves labels without variables: one that is missing, or leads backwards, is an error of the configuration rather than of a
/// request.
fn target(argument: &str, groups: Groups, context: CompileContext<'_>, mistakes: &mut Mistakes<'_>) -> Option<Target> {
    let label = Template::compile(argument, groups, mistakes);
    let Some(text) = label.constant() else { return Some(Target::Label(label)) };
    let found = context.labels.iter().find(|(name, _)| name.as_bytes() == text).map(|(_, position)| *position);
    match found.or_else(|| argument.parse().ok()) {
        Some(position) if position > context.position => Some(Target::Position(position)),
        Some(_) => {
            mistakes.error(format!("`goto:{argument}` leads backwards"), "a label must follow the rules that go to it");
            None
        }
        None => {
            mistakes.error(
                format!("there is no label `{argument}`"),
                format!("write `route-label = {argument}` where it should continue"),
            );
            None
        }
    }
}

fn seconds(argument: &str, mistakes: &mut Mistakes<'_>) -> Option<u32> {
    /// A day: a longer limit means no limit.
    const MAX_SECONDS: u32 = 86_400;
    match argument.trim().parse::<u32>() {
        Ok(seconds) if (1..=MAX_SECONDS).contains(&seconds) => Some(seconds * 1000),
        _ => {
            mistakes.error(format!("`harakiri:{argument}` is not a time limit"), "write seconds, 1 to 86400");
            None
        }
    }
}

impl Action {
    /// Calls `see` with each text that is filled in for a request. Everything that a rule needs of requests follows from it, so a
    /// new action has its arm here.
    fn templates(&self, see: &mut dyn FnMut(&Template)) {
        match self {
            Action::Redirect { to: text, .. }
            | Action::Rewrite { to: text, .. }
            | Action::Set { value: text, .. }
            | Action::LogVariable { value: text, .. }
            | Action::Calculate { value: text, .. }
            | Action::AddHeader(text)
            | Action::RemoveHeader(text)
            | Action::ClearHeaders(text)
            | Action::Send { text, .. }
            | Action::Log(text)
            | Action::Goto(Target::Label(text)) => see(text),
            Action::Serve(served) => see(&served.rest),
            Action::Cache(action) => action.templates(see),
            Action::Service(action) => action.templates(see),
            Action::Continue
            | Action::Break(_)
            | Action::Return(..)
            | Action::FixPathInfo
            | Action::DoNotLog
            | Action::Goto(Target::Position(_))
            | Action::BasicAuth(_)
            | Action::Harakiri(_)
            | Action::Gzip
            | Action::Nothing => {}
        }
    }

    /// Calls `see` with the name of each variable that it reads.
    pub fn variables(&self, see: &mut dyn FnMut(&[u8])) {
        if let Action::Calculate { variable, .. } = self {
            see(variable);
        }
        self.templates(&mut |text| text.variables(see));
    }

    /// Whether it inserts groups of a regular expression's match.
    pub fn needs_groups(&self) -> bool {
        let mut needs_groups = false;
        self.templates(&mut |text| needs_groups |= text.needs_groups());
        needs_groups
    }
}
