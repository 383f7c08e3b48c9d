//! uWSGI's configuration language: from a command line and an environment to [`Settings`].
//!
//! A source (command line, environment, a file) yields pairs of key and value, each with the location
//! where it was written; `reader` puts them in uWSGI's order, lets those act that act at once, and
//! fills in placeholders; `resolve` makes typed settings of them, by the rows of the `catalogue`.
//! Runs in the process that is started; it opens configuration files and nothing else.

pub mod catalogue;
mod commands;
pub mod compatibility;
mod conditionals;
mod diagnostic;
pub mod expand;
mod host_info;
mod manual;
mod other_servers;
mod reader;
mod resolve;
pub mod sources;
mod suggest;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bolide_contract::settings::Settings;

pub use catalogue::setting::InstanceOrder;
pub use diagnostic::{Diagnostic, Location, Severity};

use host_info::HostInfo;
use reader::{Configuration, EarlyExit, Reader};
use resolve::PositionalApplication;
use sources::argv::Arguments;

/// What the command line asked for.
#[derive(Debug)]
pub enum Reading {
    /// Start a server. The diagnostics are warnings and notes, to be printed first.
    Run { settings: Box<Settings>, diagnostics: Vec<Diagnostic> },
    /// Print this on standard output and exit with this status.
    Print { text: String, status: i32 },
    /// Tell the instance whose pid is in a file to do something, and exit.
    SignalInstance { order: InstanceOrder, pidfile: PathBuf },
}

/// Bolide can't start: the errors, with the warnings that came before them. Exit status 1.
#[derive(Debug)]
pub struct Failure {
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the command line (without the program's name), the environment, and the files that they name.
///
/// # Errors
/// Everything that is wrong, each with its location and what to do about it.
pub fn read(arguments: &[OsString], environment: &[(OsString, OsString)]) -> Result<Reading, Failure> {
    read_in(arguments, &HostInfo::gather(environment))
}

fn read_in(arguments: &[OsString], host: &HostInfo) -> Result<Reading, Failure> {
    let arguments = texts(arguments)?;
    if let Some(reading) = commands::run(&arguments, host) {
        return Ok(reading);
    }
    let (configuration, application) = match collect(&arguments, host) {
        Ok(read) => read,
        Err(EarlyExit::Print { text, status }) => return Ok(Reading::Print { text, status }),
        Err(EarlyExit::SignalInstance { order, pidfile }) => return Ok(Reading::SignalInstance { order, pidfile }),
        Err(EarlyExit::Failed(diagnostic)) => return Err(Failure { diagnostics: vec![*diagnostic] }),
    };
    // In a file, `show-config` prints and goes on, as in uWSGI; asked for on the command line, it is all that is wanted.
    if configuration.show_config.as_ref().is_some_and(|location| location.line == 0) {
        return Ok(Reading::Print { text: manual::show::as_uwsgi(&configuration.pairs), status: 0 });
    }
    let (settings, mut diagnostics) = resolve::resolve(&configuration, application.as_ref(), host);
    diagnostics.extend(configuration.printed.iter().map(|text| Diagnostic::note(None, text.clone())));
    if configuration.show_config.is_some() {
        diagnostics.push(Diagnostic::note(None, manual::show::as_uwsgi(&configuration.pairs)));
    }
    match settings {
        Some(settings) => Ok(Reading::Run { settings: Box::new(settings), diagnostics }),
        None => Err(Failure { diagnostics }),
    }
}

/// Arguments as text.
fn texts(arguments: &[OsString]) -> Result<Vec<String>, Failure> {
    arguments
        .iter()
        .map(|argument| {
            argument.to_str().map(str::to_owned).ok_or_else(|| Failure {
                diagnostics: vec![Diagnostic::error(
                    Some(&Location::command_line()),
                    format!("`{}` is not UTF-8 text", argument.to_string_lossy()),
                )],
            })
        })
        .collect()
}

/// Environment, then options, then positional arguments: uWSGI's order, in which what is read later wins.
fn collect(arguments: &[String], host: &HostInfo) -> Result<(Configuration, Option<PositionalApplication>), EarlyExit> {
    let mut reader = Reader::new(host);
    for (variable, value) in &host.environment {
        if let Some((key, value)) = sources::environment::pair(variable, value) {
            reader.add(&key, Some(&value), &Location::environment(variable))?;
        }
    }
    let location = Location::command_line();
    let mut words = Arguments::new(arguments);
    loop {
        let word = words.next_option(|name| reader.declared(name)).map_err(|mistake| {
            let diagnostic = Diagnostic::error(Some(&location), mistake.message);
            let unknown = mistake.unknown.as_deref();
            if let Some(instead) = unknown.and_then(other_servers::instead) {
                return diagnostic.advise(instead);
            }
            match unknown.and_then(suggest::nearest) {
                Some(nearest) => diagnostic.advise(format!("did you mean `--{nearest}`?")),
                None => diagnostic.advise("`bolide --help` lists the options"),
            }
        })?;
        match word {
            Some(given) => {
                if let Some((message, advice)) =
                    other_servers::misunderstood(&given.name, given.value.as_deref().unwrap_or_default())
                {
                    return Err(Diagnostic::error(Some(&location), message).advise(advice).into());
                }
                reader.add(&given.name, given.value.as_deref(), &location)?;
            }
            None => break,
        }
    }
    let mut application = None;
    for text in words.into_positional() {
        take_positional(&text, &mut reader, &mut application, &host.folder)?;
    }
    Ok((reader.finish()?, application))
}

/// A configuration file, an application, or a mistake.
fn take_positional(
    text: &str,
    reader: &mut Reader<'_>,
    application: &mut Option<PositionalApplication>,
    folder: &Path,
) -> Result<(), EarlyExit> {
    let location = &Location::command_line();
    // uWSGI passes over these: a process can so be given a label in `ps`.
    if text.starts_with('[') {
        return Ok(());
    }
    let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
    if reader::format_of(text).is_some() || reader::format_of(name).is_some() {
        return reader.load(text, None, location, false);
    }
    let Some(found) = resolve::positional(text, folder) else {
        let diagnostic = Diagnostic::error(Some(location), format!("`{text}` is neither a configuration nor an application"));
        let commands: Vec<&'static str> = commands::COMMANDS.iter().map(|command| command.name).collect();
        return Err(match suggest::nearest_of(text, &commands) {
            Some(command) => diagnostic.advise(format!("did you mean `bolide {command}`?")),
            None => diagnostic.advise("a configuration ends with .ini, an application is package.module:callable or file.py"),
        }
        .into());
    };
    match application {
        Some(_) => {
            Err(Diagnostic::error(Some(location), format!("`{text}`: there is already an application on the command line"))
                .advise("use `mount` for several")
                .into())
        }
        None => {
            *application = Some(found);
            Ok(())
        }
    }
}

#[cfg(test)]
mod asynchronous_tests;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod tests;
