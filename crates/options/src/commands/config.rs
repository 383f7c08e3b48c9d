//! `bolide config FILE…`: what is in effect, by theme, each value with the location that set it.

use std::fmt::Write;
use std::path::Path;

use bolide_contract::settings::{Address, ApplicationSource, Listener, Settings};

use crate::catalogue::catalogue;
use crate::catalogue::row::{Row, Status, Theme, Value};
use crate::catalogue::setting::Setting;
use crate::command_line::collect;
use crate::command_table::{Command, FAILED};
use crate::diagnostic::Location;
use crate::host_info::HostInfo;
use crate::reader::{Configuration, EarlyExit, Pair};
use crate::reading::Reading;

/// Column at which the locations begin.
const COLUMN: usize = 60;

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    if arguments.is_empty() {
        return Command::Config.misused("neither a file nor an application is named");
    }
    let (mut configuration, application) = match collect(arguments, host) {
        Ok(read) => read,
        Err(EarlyExit::Failed(diagnostic)) => return Reading::Print { text: format!("{diagnostic}\n"), status: FAILED },
        Err(EarlyExit::SignalInstance { .. } | EarlyExit::AskInstance(_)) => {
            return Command::Config.misused("this tells a running instance something and ends: there is nothing in effect");
        }
        Err(EarlyExit::Print { text, status }) => return Reading::Print { text, status },
    };
    let (settings, diagnostics) = crate::resolve::resolve(&configuration, application.as_ref(), host);
    if let Some(settings) = &settings {
        configuration.effects.extend(named(&configuration, settings, &host.folder));
    }
    let mut text = String::new();
    // Writing to a String can't fail.
    for theme in Theme::ALL {
        let lines: Vec<String> = catalogue()
            .rows()
            .iter()
            .filter(|row| row.theme == theme)
            .flat_map(|row| lines_of(row, &configuration.effects))
            .collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "# {}\n{}\n", theme.title(), lines.join("\n"));
        }
    }
    for diagnostic in &diagnostics {
        let _ = writeln!(text, "# {diagnostic}");
    }
    Reading::Print { text, status: if settings.is_some() { 0 } else { FAILED } }
}

/// Lines for what the command line says without an option: the application, and its address if no other was asked for.
fn named(read: &Configuration, settings: &Settings, folder: &Path) -> Vec<Pair> {
    let Some(application) = settings.applications.first().filter(|first| first.is_positional) else { return Vec::new() };
    let pair = |key: &str, value: String, location: Location| Pair {
        key: key.to_owned(),
        value: Some(value),
        location,
        acted: false,
        placeholder: false,
    };
    let callable = application.callable.as_deref();
    let location = Location::command_line();
    let mut made = match &application.source {
        ApplicationSource::Module(module) => {
            let callable = callable.map(|callable| format!(":{callable}")).unwrap_or_default();
            vec![pair("module", format!("{module}{callable}"), location)]
        }
        ApplicationSource::File(path) => {
            let file = pair("wsgi-file", path.strip_prefix(folder).unwrap_or(path).display().to_string(), location.clone());
            std::iter::once(file).chain(callable.map(|callable| pair("callable", callable.to_owned(), location))).collect()
        }
        // The command line names modules and files alone.
        ApplicationSource::Paste(_) | ApplicationSource::Pecan(_) | ApplicationSource::Text(_) => Vec::new(),
    };
    if let Some(other) = application.folder.as_ref().filter(|other| *other != folder) {
        made.push(pair("pythonpath", other.display().to_string(), Location::command_line()));
    }
    let is_socket = |pair: &Pair| catalogue().get(&pair.key).is_some_and(|row| row.value == Value::Address);
    if let ([Listener { address: Address::Tcp { host, port }, origin, .. }], false) =
        (settings.listeners.as_slice(), read.effects.iter().any(is_socket))
    {
        let place = if *origin == Location::command_line().to_string() { "default without a configuration" } else { origin };
        made.push(pair("http", format!("{host}:{port}"), Location::file(place, 0)));
    }
    made
}

/// The values of one option that are in effect: all of a list, the last of a single one, else its default.
fn lines_of(row: &Row, effects: &[Pair]) -> Vec<String> {
    let all: Vec<&Pair> = effects.iter().filter(|pair| row.names.contains(&pair.key.as_str())).collect();
    let is_list = matches!(row.value, Value::List | Value::Address) || !matches!(row.status, Status::Supported(_));
    let shown = if is_list { all.as_slice() } else { &all[all.len().saturating_sub(1)..] };
    if shown.is_empty() && !row.default.is_empty() && has_default_in_effect(row, effects) {
        return vec![format!("{:COLUMN$}# default", format!("; {} = {}", row.name(), row.default))];
    }
    let verdict = match row.status {
        Status::Supported(_) => String::new(),
        other => format!(", {}", other.word()),
    };
    shown
        .iter()
        .map(|pair| {
            format!(
                "{:COLUMN$}# {}{verdict}",
                format!("{} = {}", row.name(), pair.value.as_deref().unwrap_or("true")),
                pair.location
            )
        })
        .collect()
}

/// The words of the language have none, and what another option has set is none either.
fn has_default_in_effect(row: &Row, effects: &[Pair]) -> bool {
    let Status::Supported(setting) = row.status else { return true };
    let replaced = |pair: &Pair| match catalogue().get(&pair.key).map(|row| row.status) {
        Some(Status::Supported(other)) => other.replaces(setting),
        _ => false,
    };
    !matches!(setting, Setting::Language(_)) && !effects.iter().any(replaced)
}
