//! `bolide check FILE…`: reads and resolves each file by itself, and reports every diagnostic with its line and a caret. It
//! starts nothing; with `--load` the caller has a child process import the applications.

use std::path::Path;

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity, listed};
use bolide_configuration::host_info::HostInfo;
use bolide_contract::settings::Settings;
use bolide_options::project::{self, directory};
use bolide_options::reader::{EarlyExit, GUNICORN_SETTINGS, is_gunicorn_configuration, is_program};
use bolide_options::resolve::{NO_APPLICATION, NO_SOCKET, PositionalApplication, WITHOUT_APPLICATION};
use bolide_other_servers::reading::KnownServers;

use super::lints;
use crate::check_report::{CheckReport, Form};
use crate::collect::collect;
use crate::manual::paint::Paint;
use crate::reading::Reading;
use crate::subcommand::{FORMATS, Subcommand};

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let mut report = empty_report(host);
    let (mut environment, mut partial) = (false, false);
    let mut rest = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let format = match word.as_str() {
            "--strict" => {
                report.strict = true;
                continue;
            }
            "--no-paths" => {
                report.paths = false;
                continue;
            }
            "--partial" => {
                partial = true;
                continue;
            }
            // With a value it is uWSGI's option.
            "--env" => {
                match words.as_slice().first().filter(|next| is_assignment(next)) {
                    Some(value) => {
                        rest.extend([word.clone(), value.clone()]);
                        words.next();
                    }
                    None => environment = true,
                }
                continue;
            }
            "--load" => {
                report.loads = true;
                continue;
            }
            "--json" => Some("json"),
            "--format" => words.next().map(String::as_str),
            other => match other.strip_prefix("--format=") {
                Some(format) => Some(format),
                None => {
                    rest.push(word.clone());
                    continue;
                }
            },
        };
        report.form = match format.and_then(Form::named) {
            Some(form) => form,
            None => return Reading::usage_error(Subcommand::Check, &format!("the formats are {}", listed(&FORMATS, "and"))),
        };
    }
    if rest.is_empty() && !environment {
        let Some(file) = directory::configuration(&host.directory) else {
            let why = "no file is given, and there is no bolide.ini in this directory; --env checks variables such as \
                UWSGI_MODULE";
            return Reading::usage_error(Subcommand::Check, why);
        };
        report.subject = Some(file);
        rest.push(file.to_owned());
    }
    let mut loads = Vec::new();
    for reading in readings(&rest) {
        let (mut diagnostics, settings) = diagnostics(&reading, host, report.loads);
        if partial {
            excuse(&mut diagnostics);
        }
        report.diagnostics.extend(diagnostics);
        // An emperor has vassals instead of an application.
        loads.extend(settings.filter(|settings| report.loads || settings.emperor.is_some()));
    }
    if loads.is_empty() {
        let (text, status) = report.finish();
        return Reading::Print { text, status };
    }
    Reading::Load { settings: loads, report: Box::new(report) }
}

/// `NAME=VALUE`, as a variable is set.
fn is_assignment(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(is_letter))
}

/// `bolide doctor`: the same with `--load`, and the caller examines the machine. Without arguments and without a configuration in
/// this directory it examines only that.
pub fn doctor(arguments: &[String], host: &HostInfo) -> Reading {
    let (flags, mut rest): (Vec<String>, Vec<String>) = arguments.iter().cloned().partition(|argument| argument == "--json");
    let form = if flags.is_empty() { Form::Text } else { Form::Json };
    let mut report = CheckReport { form, loads: true, facts: Some(Vec::new()), ..empty_report(host) };
    if let Some(file) = directory::configuration(&host.directory).filter(|_| rest.is_empty()) {
        report.subject = Some(file);
        rest.push(file.to_owned());
    }
    let mut loads = Vec::new();
    if !rest.is_empty() {
        for reading in readings(&rest) {
            let (diagnostics, settings) = diagnostics(&reading, host, true);
            report.diagnostics.extend(diagnostics);
            loads.extend(settings);
        }
    }
    Reading::Load { settings: loads, report: Box::new(report) }
}

fn empty_report(host: &HostInfo) -> CheckReport {
    let paint = Paint::of(host);
    CheckReport {
        form: Form::Text,
        strict: false,
        loads: false,
        paths: true,
        paint,
        diagnostics: Vec::new(),
        facts: None,
        subject: None,
    }
}

/// Several configurations are checked one by one, each together with all other arguments.
fn readings(arguments: &[String]) -> Vec<Vec<String>> {
    let is_file = |word: &&String| {
        let name = word.rsplit_once(':').map_or(word.as_str(), |(name, _)| name);
        let is_data = bolide_options::reader::format_of(word).is_some() || bolide_options::reader::format_of(name).is_some();
        !word.starts_with('-') && (is_data || is_gunicorn_configuration(word))
    };
    // The value of an option, such as `--ini base.ini`, stays with the option.
    let follows_option =
        |index: usize| index > 0 && arguments[index - 1].starts_with("--") && !arguments[index - 1].contains('=');
    let files: Vec<usize> = (0..arguments.len()).filter(|&index| is_file(&&arguments[index]) && !follows_option(index)).collect();
    if files.len() < 2 {
        return vec![arguments.to_vec()];
    }
    let with = |file: &usize| {
        (0..arguments.len())
            .filter(|index| index == file || !files.contains(index))
            .map(|index| arguments[index].clone())
            .collect()
    };
    files.iter().map(with).collect()
}

/// Returns all diagnostics of one reading, in the order of the lines, with those without a line at the end; and its settings, if
/// they can be started. `loads`: the application will be loaded.
fn diagnostics(arguments: &[String], host: &HostInfo, loads: bool) -> (Vec<Diagnostic>, Option<Settings>) {
    // Files that were recorded for another configuration do not count here.
    host.trust.take_used();
    let only = |diagnostic: Diagnostic| (vec![diagnostic], None);
    let (configuration, application) = match collect(arguments, host) {
        Ok(read) => read,
        Err(EarlyExit::Failed(diagnostics)) => return (diagnostics, None),
        Err(EarlyExit::SignalInstance { .. } | EarlyExit::AskInstance(_)) => {
            let message = "this controls a running instance and exits; it does not start a server";
            return only(Diagnostic::note(Some(&Location::command_line()), message));
        }
        Err(EarlyExit::Print { .. } | EarlyExit::Help | EarlyExit::Version) => {
            let message = "this prints something and exits; it does not start a server";
            return only(Diagnostic::note(Some(&Location::command_line()), message));
        }
    };
    let (settings, mut diagnostics) = bolide_options::resolve::resolve(&configuration, application.as_ref(), host, &KnownServers);
    let is_program_alone = configuration.files.iter().all(|file| is_program(file)) && !configuration.files.is_empty();
    if is_program_alone {
        // A gunicorn file seldom names the application: the command line does.
        diagnostics.iter_mut().filter(|one| one.message == NO_APPLICATION).for_each(|one| one.severity = Severity::Note);
    }
    diagnostics.extend(application.filter(|_| !loads).map(|application| not_executed(&application, host)));
    if let Some(file) = configuration.files.last() {
        // Images often name the socket in the command that starts the file.
        diagnostics.iter_mut().filter(|one| one.message == NO_SOCKET).for_each(|one| {
            let other = format!("; if it is on the command line at startup: `bolide check --http 127.0.0.1:8000 {file}`");
            one.advice.get_or_insert_default().push_str(&other);
        });
    }
    diagnostics.extend(lints::all(&configuration, settings.as_ref(), host));
    // Diagnostics without a line mostly follow from the others.
    diagnostics.sort_by_key(|diagnostic| {
        diagnostic.location.as_ref().map(|location| (location.file.clone(), location.line.wrapping_sub(1)))
    });
    diagnostics.dedup();
    (diagnostics, settings)
}

/// What an image or the command line of startup adds may be absent from the file.
fn excuse(diagnostics: &mut [Diagnostic]) {
    let absent = [NO_APPLICATION, NO_SOCKET, WITHOUT_APPLICATION];
    let absent = diagnostics.iter_mut().filter(|one| absent.contains(&one.message.as_str()));
    absent.for_each(|one| one.severity = Severity::Note);
}

/// Says of an application, which may be a file, that nothing has looked at it: "nothing to report" would be taken for praise.
fn not_executed(application: &PositionalApplication, host: &HostInfo) -> Diagnostic {
    let text = &application.text;
    let place = Some(Location::command_line());
    let file = host.directory.join(text);
    if text.ends_with(".py") && project::find_in_file(&file).is_none() && is_settings_of_gunicorn(&file) {
        let message =
            format!("`{text}` is taken for an application, and not executed; it seems to be a configuration of gunicorn");
        return Diagnostic::warning(place.as_ref(), message).advise(format!("`bolide check -c {text}` reads it"));
    }
    Diagnostic::note(place.as_ref(), format!("`{text}` is taken for an application, and not executed"))
        .advise(format!("`bolide check --load {text}` imports it"))
}

/// Returns whether a line of the file assigns one of gunicorn's settings that no application has a name for.
fn is_settings_of_gunicorn(file: &Path) -> bool {
    let text = project::text(file).unwrap_or_default();
    let mut names = text.lines().filter_map(|line| Some(line.split_once('=')?.0.trim_end()));
    names.any(|name| GUNICORN_SETTINGS.contains(&name))
}
