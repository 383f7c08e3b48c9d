//! Checks that an instance has something to do: an application, files, work in the background, or at least a socket. It starts
//! nothing. Runs in the process that reads the configuration.
//!
//! uWSGI starts without an application wherever it can: instances that only spool, run cron jobs or mules, or hold a cache have
//! none.

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_configuration::pair::Pair;
use bolide_contract::hooks::HookPhase;
use bolide_contract::settings::Language;
use bolide_contract::signals::Signals;

use crate::catalog::catalog;
use crate::context::Context;
use crate::draft::Draft;
use crate::reader::is_program;
use crate::row::{Milestone, Setting, Status, Theme};
use crate::topics::attendant::AttendantDraft;
use crate::topics::mules::MulesDraft;
use crate::topics::services::caching::CachingDraft;
use crate::topics::spooler::SpoolerDraft;

/// An error that `check` downgrades to a note if the command line will name the application.
pub const NO_APPLICATION: &str = "there is no application to serve";
/// A warning that `check` downgrades in the same way.
pub const WITHOUT_APPLICATION: &str = "no application is named: requests get 404, as for unknown paths";
/// The message if no address is configured; `check` adds how to name one.
pub const NO_SOCKET: &str = "there is no socket to serve on";

/// Options of other chapters that an emperor follows, or that are harmless in it.
const FOLLOWED: &str = "add-gid additional-gid allow-missing auto-procname autoload control-socket daemonize \
    daemonize2 die-on-term env gid master max-fd metrics metrics-host need-app no-initgroups no-orphans pidfile \
    pidfile2 procname procname-append procname-master procname-prefix procname-prefix-spaced safe-pidfile \
    safe-pidfile2 strict uid umask unenv vacuum";

/// How to name an application.
const NAME_ONE: &str = "write `module = package.module:callable`, `asgi = package.module:callable` or `wsgi-file = app.py`, or \
    name one on the command line: `bolide package.module:callable`";
/// The same for a configuration whose applications uWSGI finds in each request.
const NAMED_BY_REVERSE_PROXY: &str = "the variables UWSGI_SCRIPT, UWSGI_MODULE and UWSGI_FILE of a reverse proxy load none here: \
    write `chdir` and `module` as they are there, or for several hosts `mount = HOST|=package.module:callable` for each";
/// Options that name an application, which uWSGI passes over if they have no value.
const NAMING: [&str; 2] = ["module", "wsgi-file"];

/// What answers requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    Served,
    /// There is no application, but static files, routes, or answers from a cache.
    ServedFromFiles,
    /// Nothing: all paths are unknown.
    NotFound,
}

/// What a configuration has to do beside requests.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub has_sockets: bool,
    /// Daemons, cron jobs and spoolers run without a socket, as with uWSGI.
    runs_alone: bool,
    /// Mules, timers and caches need one, as with uWSGI.
    works: bool,
}

impl Found {
    /// The sockets are counted later: some have no option.
    pub fn of(draft: &mut Draft) -> Found {
        let attendant = draft.of::<AttendantDraft>();
        let has_programs = !attendant.daemons.is_empty() || !attendant.jobs.is_empty();
        let runs_alone = has_programs || !draft.of::<SpoolerDraft>().directories.is_empty();
        let caching = draft.of::<CachingDraft>();
        let has_cache = !caching.caches.is_empty() || caching.items.is_some();
        let works = !draft.of::<MulesDraft>().list.is_empty() || !draft.of::<Signals>().timers.is_empty() || has_cache;
        Found { has_sockets: false, runs_alone, works }
    }
}

/// Reports what is missing.
pub fn check(requests: Requests, is_needed: bool, found: Found, context: &mut Context) {
    let end = end_of(context);
    let serves = requests == Requests::Served || requests == Requests::ServedFromFiles && !is_needed;
    if !serves {
        let may_lack_one = (found.has_sockets || found.runs_alone || found.works) && !is_needed && !expects_application(context);
        if may_lack_one {
            context.diagnostics.push(without_application(found, &end, context));
        } else if let Some(error) = application_of_directory(&end, context) {
            // The socket that is missing too has a default beside a named application.
            context.diagnostics.push(error);
            return;
        } else {
            context.diagnostics.push(Diagnostic::error(Some(&end), NO_APPLICATION).advise(match names_hosts(context) {
                true => NAMED_BY_REVERSE_PROXY,
                false => NAME_ONE,
            }));
        }
    }
    if !found.has_sockets && !has_wrong_address(context) {
        context.diagnostics.push(match found.runs_alone {
            true => without_socket(requests, &end),
            false => Diagnostic::error(Some(&end), NO_SOCKET).advise(
                "write `http = 127.0.0.1:8000`, or `socket = /path/to/app.sock` behind a web server that speaks the uwsgi \
                protocol",
            ),
        });
    }
}

/// Reports what an instance with an emperor can't have: its process governs others, and serves nothing.
pub fn check_emperor(requests: Requests, found: Found, emperor: &Location, context: &mut Context) {
    let what = match (requests == Requests::NotFound, found.has_sockets, found.runs_alone || found.works) {
        (false, ..) => "an application or files",
        (_, true, _) => "a socket",
        (.., true) => "mules, spoolers, daemons, cron jobs, timers or caches",
        _ => return warn_of_idle(context),
    };
    let message = format!("an emperor serves nothing itself, and this configuration has {what} too");
    let advice = "move that to a vassal: a configuration of its own in the directory of the emperor";
    context.diagnostics.push(Diagnostic::error(Some(emperor), message).advise(advice));
}

/// Options that Python's adapter and those of plugins read, and CGI does not.
const OF_LOADED_APPLICATIONS: &str = "warmup reload-probe py-autoreload";

/// Options that only Python's adapter reads, beside those of the chapters of asynchronous applications and greenlets.
const OF_PYTHON: &str = "import shared-import spooler-import pythonpath virtualenv pyargv paste-logger log-config \
    optimize no-site py-sys-executable thread-stack-size wsgi-strict wsgi-disable-file-wrapper catch-exceptions \
    reload-on-exception \
    pymodule-alias post-pymodule-alias refork-after mule mules spooler callable factory";

/// Warns of each option that has no effect, because an emperor neither serves nor has workers.
fn warn_of_idle(context: &mut Context) {
    for pair in &context.read.effects {
        let Some(row) = catalog().get(&pair.key) else { continue };
        let is_of_chapter = matches!(row.theme, Theme::Emperor | Theme::Configuration | Theme::Logging | Theme::Program);
        let is_of_start = || HookPhase::OF_START.iter().any(|phase| row.name().ends_with(&format!("-{}", phase.name())));
        let is_followed = is_of_chapter || FOLLOWED.split(' ').any(|name| name == row.name()) || is_of_start();
        if matches!(row.status, Status::Supported(_)) && !is_followed {
            let message = format!("`{}` has no effect in an emperor, which neither serves nor has workers", pair.key);
            let value = pair.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
            let advice = format!("write it into the files of the vassals, or `vassal-set = {}{value}` for all", pair.key);
            context.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise(advice));
        }
    }
}

/// Warns about options that only Python applications use, if the applications are in another language.
pub fn warn_of_python(language: &Language, context: &mut Context) {
    let is_cgi = matches!(language, Language::Cgi(_));
    for pair in &context.read.effects {
        let Some(row) = catalog().get(&pair.key) else { continue };
        let is_of_python = matches!(row.theme, Theme::Asynchronous | Theme::Greenlets)
            || OF_PYTHON.split_ascii_whitespace().any(|name| name == row.name())
            || is_cgi && OF_LOADED_APPLICATIONS.split_ascii_whitespace().any(|name| name == row.name());
        if matches!(row.status, Status::Supported(_)) && is_of_python {
            let message = format!("`{}` has no effect: it is for Python, and the applications are in another language", pair.key);
            context.diagnostics.push(Diagnostic::warning(Some(&pair.location), message));
        }
    }
}

fn end_of(context: &Context) -> Location {
    match context.read.files.last() {
        Some(file) => Location::file(file, 0),
        None => Location::command_line(),
    }
}

/// Whether the configuration promises an application that can't be found here, so that it would serve something else: one
/// in another language, one that the reverse proxy names, one whose option is empty, or that of another server's command line.
fn expects_application(context: &Context) -> bool {
    let read = context.read;
    let is_of_other_language = |pair: &Pair| {
        let row = catalog().get(&pair.key);
        row.is_some_and(|row| matches!(row.status, Status::Planned(Milestone::Languages, _)))
    };
    let is_empty = |pair: &Pair| NAMING.contains(&pair.key.as_str()) && pair.value.as_deref() == Some("");
    read.has_words_of_others
        || read.files.iter().any(|file| is_program(file))
        || names_hosts(context)
        || read.effects.iter().any(|pair| is_of_other_language(pair) || is_empty(pair))
}

fn names_hosts(context: &Context) -> bool {
    context.read.effects.iter().any(|pair| pair.key.starts_with("vhost"))
}

fn application_of_directory(end: &Location, context: &Context) -> Option<Diagnostic> {
    Some(Diagnostic::error(Some(end), NO_APPLICATION).advise(hint_of_directory(context)?))
}

/// How to start the one application of the directory, if there is no configuration on the command line.
fn hint_of_directory(context: &Context) -> Option<String> {
    let is_typed = context.read.files.is_empty();
    let (command, what) = is_typed.then(|| crate::project::directory::only_application(&context.directory)).flatten()?;
    Some(format!("this directory has {what}: write `{command}` before the options"))
}

fn without_application(found: Found, end: &Location, context: &Context) -> Diagnostic {
    let message = match found.has_sockets {
        true => WITHOUT_APPLICATION,
        false => "no application is named",
    };
    let is_meant = found.runs_alone || found.works || context.read.effects.iter().any(|pair| pair.key == "need-app");
    match is_meant {
        true => Diagnostic::note(Some(end), message),
        false => {
            let advice = hint_of_directory(context).unwrap_or_else(|| NAME_ONE.to_owned());
            Diagnostic::warning(Some(end), message).advise(advice)
        }
    }
}

fn without_socket(requests: Requests, end: &Location) -> Diagnostic {
    let message = "there is no socket: no request worker starts, only daemons, cron jobs and spoolers";
    match requests {
        Requests::NotFound => Diagnostic::note(Some(end), message),
        _ => Diagnostic::warning(Some(end), message).advise("write `http = 127.0.0.1:8000` or another address to serve requests"),
    }
}

/// An address with an error of its own is not missing.
fn has_wrong_address(context: &Context) -> bool {
    let has_failed = |pair: &Pair| {
        let is_there = |one: &Diagnostic| one.severity == Severity::Error && one.location.as_ref() == Some(&pair.location);
        let row = catalog().get(&pair.key);
        let is_address = row.is_some_and(|row| matches!(row.status, Status::Supported(Setting::Listen(_))));
        is_address && context.diagnostics.iter().any(is_there)
    };
    context.read.effects.iter().any(has_failed)
}
