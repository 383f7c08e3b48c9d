//! `bolide` without arguments: prints the command that would serve the contents of this directory, or the usage. It starts and
//! writes nothing.

use std::fmt::Write;
use std::path::Path;

use bolide_configuration::host_info::HostInfo;
use bolide_configuration::sources;
use bolide_options::catalog::catalog;
use bolide_options::project;
use bolide_options::project::directory;

use crate::reading::Reading;
use crate::subcommand::{FAILED, Subcommand};

/// Most entries of one kind that are listed.
const MAX_WAYS: usize = 4;
/// Column at which the descriptions begin.
const COLUMN: usize = 34;

/// A command that serves something, and a description of that.
type Way = (String, String);

/// Returns `None` if environment variables configure an instance.
pub fn run(host: &HostInfo) -> Option<Reading> {
    let mut options = host.environment.iter().filter_map(|(variable, value)| sources::environment::pair(variable, value));
    let is_configured = options.any(|(option, _)| catalog().get(&option).is_some());
    if is_configured {
        return None;
    }
    let ways = ways(&host.directory);
    let text = if ways.is_empty() { usage() } else { offer(&ways) };
    Some(Reading::Print { text, status: FAILED })
}

/// The ways to serve the contents of the directory; configurations come first.
fn ways(place: &Path) -> Vec<Way> {
    let mut ways = configurations(place);
    ways.extend(started_elsewhere(place));
    for found in project::find_in_directory(place).iter().take(MAX_WAYS) {
        let Some(command) = directory::command(found) else { continue };
        if !ways.iter().any(|(known, _)| *known == command) {
            ways.push((command, found.description()));
        }
    }
    ways
}

/// Files with a section for uWSGI or Bolide.
fn configurations(place: &Path) -> Vec<Way> {
    let usual = directory::USUAL_FILES.iter().map(|name| (*name).to_owned());
    let mut names: Vec<String> = usual.filter(|name| place.join(name).is_file()).collect();
    for name in project::entries(place) {
        let is_ours = || project::text(&place.join(&name)).is_some_and(|text| text.lines().any(|line| line.trim() == "[uwsgi]"));
        if name.ends_with(".ini") && !names.contains(&name) && is_ours() {
            names.push(name);
        }
    }
    names.into_iter().take(MAX_WAYS).map(|name| (format!("bolide {name}"), "a configuration".to_owned())).collect()
}

/// The application that the `web` line of a Procfile starts with another server.
fn started_elsewhere(directory: &Path) -> Option<Way> {
    let text = project::text(&directory.join("Procfile"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("web:"))?.trim();
    let program = line.split_whitespace().next()?;
    let is_application = |word: &&str| {
        word.split_once(':').is_some_and(|(module, callable)| project::is_module_name(module) && project::is_name(callable))
    };
    let application = line.split_whitespace().find(is_application)?;
    Some((format!("bolide {application}"), format!("what the Procfile starts with {program}")))
}

fn offer(ways: &[Way]) -> String {
    let mut text = "This directory can be served:\n".to_owned();
    // Writing to a String can't fail.
    for (command, what) in ways {
        let _ = writeln!(text, "  {command:COLUMN$}  {what}");
    }
    if !ways.iter().any(|(_, what)| what == "a configuration") {
        let _ = writeln!(text, "or write a configuration for it:");
        let _ = writeln!(text, "  {:COLUMN$}  {}", "bolide init", Subcommand::Init.help());
    }
    let _ = writeln!(text, "`bolide --help` lists all commands and options.");
    text
}

fn usage() -> String {
    let mut text =
        "usage: bolide APPLICATION [OPTION…]\n       bolide CONFIGURATION [OPTION…]\n       bolide COMMAND …\n\n".to_owned();
    let serves: [(&str, &str); 3] = [
        ("bolide app.py", "serve the application in a file, a package or a directory"),
        ("bolide app:app", "serve an application by its module and its name there"),
        ("bolide uwsgi.ini", "serve with a configuration (.ini, .toml, .yaml, .json, .xml)"),
    ];
    let commands = [Subcommand::Init, Subcommand::Check, Subcommand::Explain]
        .map(|command| (format!("bolide {}", command.name()), command.help()));
    let serves = serves.map(|(line, what)| (line.to_owned(), what));
    // Writing to a String can't fail.
    for (line, what) in serves.into_iter().chain(commands) {
        let _ = writeln!(text, "  {line:18}  {what}");
    }
    let _ = writeln!(text, "\nNo known application was found in this directory. `bolide --help` lists all commands and options.");
    text
}
