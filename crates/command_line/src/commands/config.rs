//! `bolide config FILE…`: prints what startup would do, and the values in effect by theme, each with the location that set it.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::pair::{Pair, without_secret};
use bolide_contract::settings::{Address, ApplicationSource, Listener, Settings};
use bolide_options::catalog::catalog;
use bolide_options::reader::{Configuration, EarlyExit};
use bolide_options::resolve::WEB_CONCURRENCY;
use bolide_options::row::{OptionRow, Setting, Status, Theme, Value};
use bolide_other_servers::reading::KnownServers;
use serde_json::{Value as Json, json};

use super::plan::{self, PlanStep};
use crate::collect::collect;
use crate::reading::Reading;
use crate::subcommand::{FAILED, Subcommand};

/// Column at which the locations begin.
const COLUMN: usize = 59;

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let (flags, rest): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| ["--json", "--all"].contains(&argument.as_str()));
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    if rest.is_empty() {
        return Reading::usage_error(Subcommand::Config, "neither a file nor an application is given");
    }
    let (mut configuration, application) = match collect(&rest, host) {
        Ok(read) => read,
        Err(EarlyExit::Failed(diagnostics)) => {
            let text = diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect();
            return Reading::Print { text, status: FAILED };
        }
        Err(EarlyExit::SignalInstance { .. } | EarlyExit::AskInstance(_)) => {
            return Reading::usage_error(
                Subcommand::Config,
                "this controls a running instance and exits, so no options are in effect",
            );
        }
        Err(EarlyExit::Help) => return Reading::help(host),
        Err(EarlyExit::Version) => return Reading::version(),
        Err(EarlyExit::Print { text, status }) => return Reading::Print { text, status },
    };
    let (settings, diagnostics) = bolide_options::resolve::resolve(&configuration, application.as_ref(), host, &KnownServers);
    if let Some(settings) = &settings {
        let implied = implied(&configuration, settings, &diagnostics);
        configuration.effects.extend(implied);
    }
    let mut steps = settings.as_ref().map(|settings| plan::of(settings, &configuration)).unwrap_or_default();
    if let Some(settings) = &settings {
        let named = named(&configuration, settings, &host.directory);
        // The default address would otherwise get the location of the application's line.
        for pair in named.iter().filter(|pair| pair.key == "http") {
            let addresses = steps.iter_mut().filter(|step| step.what == "address");
            addresses.for_each(|step| step.from = pair.location.to_string());
        }
        configuration.effects.extend(named);
    }
    let status = if settings.is_some() { 0 } else { FAILED };
    let text = match has("--json") {
        false => text(&steps, &configuration, &diagnostics, has("--all")),
        true => format!("{:#}\n", object(&steps, &configuration, &diagnostics)),
    };
    Reading::Print { text, status }
}

/// Formats the plan, the values that are set by theme, and the diagnostics. Except for the plan, the text is a configuration
/// again. With `has_defaults` it has the other values in effect too.
fn text(steps: &[PlanStep], configuration: &Configuration, diagnostics: &[Diagnostic], has_defaults: bool) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    if !steps.is_empty() {
        let _ = writeln!(text, "# What startup does");
    }
    for step in steps {
        let _ = writeln!(text, "{:COLUMN$} # {}", format!("#   {:12} {}", step.what, step.value), step.from);
    }
    if !steps.is_empty() {
        text.push('\n');
    }
    for theme in Theme::ALL {
        let rows = catalog().rows().iter().filter(|row| row.theme == theme);
        let values = rows.flat_map(|row| values_of(row, &configuration.effects));
        let lines: Vec<String> =
            values.filter(|value| has_defaults || value.location.is_some()).map(|value| value.line()).collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "# {}\n{}\n", theme.title(), lines.join("\n"));
        }
    }
    for diagnostic in diagnostics {
        let _ = writeln!(text, "# {diagnostic}");
    }
    if !has_defaults {
        let _ = writeln!(text, "# `bolide config --all` shows the defaults of the other options, too.");
    }
    text
}

/// The same as JSON.
fn object(steps: &[PlanStep], configuration: &Configuration, diagnostics: &[Diagnostic]) -> Json {
    let steps: Vec<Json> =
        steps.iter().map(|step| json!({ "what": step.what, "value": step.value, "from": step.from })).collect();
    let values = catalog().rows().iter().flat_map(|row| values_of(row, &configuration.effects));
    let options: Vec<Json> = values
        .map(|value| {
            let location = value.location.filter(|location| location.line > 0);
            json!({
                "name": value.row.name(),
                "value": value.text,
                "from": value.from(),
                "file": location.map(|location| &*location.file),
                "line": location.map(|location| location.line),
                "status": value.row.status.word(),
            })
        })
        .collect();
    let diagnostics: Vec<Json> = diagnostics.iter().map(crate::check_report::object).collect();
    json!({ "start": steps, "options": options, "diagnostics": diagnostics })
}

/// Lines for the workers that the environment asks for, and for loading in each of them, which the words of other servers mean.
fn implied(read: &Configuration, settings: &Settings, diagnostics: &[Diagnostic]) -> Vec<Pair> {
    let place = |names: &[&str]| {
        let is_one = |pair: &&Pair| catalog().get(&pair.key).is_some_and(|row| names.contains(&row.name()));
        read.effects.iter().rev().find(is_one).map(|pair| &pair.location)
    };
    let (workers, mut made) = (&settings.workers, Vec::new());
    let processes = place(&["processes"]);
    let variable = Location::environment(WEB_CONCURRENCY);
    // A note reports that the variable was read. Without one, another option implies the number, as `develop` does.
    let is_read = diagnostics.iter().any(|found| found.location.as_ref() == Some(&variable));
    if is_read && processes.is_none() {
        made.push(pair("processes", workers.processes.to_string(), variable.clone()));
    }
    if settings.application.lazy && workers.processes > 1 && place(&["lazy-apps", "lazy"]).is_none() {
        let location = processes.unwrap_or(&variable);
        let is_typed = *location == Location::command_line();
        made.push(pair("lazy-apps", "true".to_owned(), if is_typed { Location::file(plan::FLAG, 0) } else { location.clone() }));
    }
    made
}

fn pair(key: &str, value: String, location: Location) -> Pair {
    Pair { key: key.to_owned(), value: Some(value), location, acted: false, placeholder: false }
}

/// Lines for what the command line sets without an option: the application, and the default address if no other is set.
fn named(read: &Configuration, settings: &Settings, directory: &Path) -> Vec<Pair> {
    let Some(application) = settings.applications.first().filter(|first| first.is_positional) else { return Vec::new() };
    let callable = application.callable.as_deref();
    let location = Location::command_line();
    let mut made = match &application.source {
        ApplicationSource::Module(module) => {
            let callable = callable.map(|callable| format!(":{callable}")).unwrap_or_default();
            vec![pair("module", format!("{module}{callable}"), location)]
        }
        ApplicationSource::File(path) => {
            let file = pair("wsgi-file", path.strip_prefix(directory).unwrap_or(path).display().to_string(), location.clone());
            std::iter::once(file).chain(callable.map(|callable| pair("callable", callable.to_owned(), location))).collect()
        }
        // The command line only contains modules and files.
        ApplicationSource::Paste(_) | ApplicationSource::Pecan(_) | ApplicationSource::Text(_) => Vec::new(),
    };
    if let Some(other) = application.directory.as_ref().filter(|other| *other != directory) {
        made.push(pair("pythonpath", other.display().to_string(), Location::command_line()));
    }
    let is_socket = |pair: &Pair| catalog().get(&pair.key).is_some_and(|row| row.value == Value::Address);
    if let ([Listener { address: Address::Tcp { host, port }, origin, .. }], false) =
        (settings.listeners.as_slice(), read.effects.iter().any(is_socket))
    {
        let place = if *origin == Location::command_line().to_string() { "default without a configuration" } else { origin };
        made.push(pair("http", format!("{host}:{port}"), Location::file(place, 0)));
    }
    made
}

/// A value that is in effect; without a location it is the default.
struct InEffect<'a> {
    row: &'a OptionRow,
    text: Cow<'a, str>,
    location: Option<&'a Location>,
}

impl InEffect<'_> {
    fn from(&self) -> String {
        self.location.map_or_else(|| "default".to_owned(), ToString::to_string)
    }

    fn line(&self) -> String {
        let verdict = match self.row.status {
            _ if self.location.is_none() => String::new(),
            Status::Supported(_) => String::new(),
            other => format!(", {}", other.word()),
        };
        let comment = if self.location.is_none() { "; " } else { "" };
        format!("{:COLUMN$} # {}{verdict}", format!("{comment}{} = {}", self.row.name(), self.text), self.from())
    }
}

/// Options with defaults that set the same field: a value of one replaces a value of the other.
const SAME_SETTING: [&[&str]; 6] = [
    &["disable-write-exception", "ignore-write-errors"],
    &["lazy", "lazy-apps"],
    &["websocket-ping-freq", "websocket-ping-interval"],
    &["websocket-ping-timeout", "websocket-pong-tolerance"],
    &["websocket-max-message-size", "websocket-max-size"],
    &["envdir", "early-envdir"],
];

/// An option without an effect here shows what is written.
fn shows_all(row: &OptionRow) -> bool {
    row.is_several || !matches!(row.status, Status::Supported(_))
}

/// The values of one option that are in effect: all values of a list, the last value of a single one, else the default.
fn values_of<'a>(row: &'a OptionRow, effects: &'a [Pair]) -> Vec<InEffect<'a>> {
    let all: Vec<&Pair> = effects.iter().filter(|pair| row.names.contains(&pair.key.as_str())).collect();
    let shown = if shows_all(row) { all.as_slice() } else { &all[all.len().saturating_sub(1)..] };
    if shown.is_empty() && !row.default.is_empty() && has_default_in_effect(row, effects) {
        return vec![InEffect { row, text: row.default.into(), location: None }];
    }
    let value = |pair: &&'a Pair| {
        let text = pair.value.as_deref().unwrap_or("true");
        let text = without_secret(&pair.key, text).map_or(Cow::Borrowed(text), Cow::Owned);
        InEffect { row, text, location: Some(&pair.location) }
    };
    shown.iter().map(value).collect()
}

/// Keywords of the language have no default in effect, and neither has an option that another one has replaced.
fn has_default_in_effect(row: &OptionRow, effects: &[Pair]) -> bool {
    let replaces = |other: &OptionRow| {
        other.name() == row.name() || SAME_SETTING.iter().any(|names| [row, other].iter().all(|row| names.contains(&row.name())))
    };
    let replaced = |pair: &Pair| catalog().get(&pair.key).is_some_and(replaces);
    match row.status {
        Status::Supported(Setting::Language(_)) => false,
        Status::Supported(_) => !effects.iter().any(replaced),
        _ => true,
    }
}
