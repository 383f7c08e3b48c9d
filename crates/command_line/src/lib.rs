//! The command line of `bolide`: from its words, the environment and the files that they name to
//! [`bolide_contract::settings::Settings`], or to a command, a text or an error.
//!
//! `collect` reads words and environment into one configuration, in uWSGI's order and in the words of other servers. `commands`
//! are the words as the first argument, and `manual` is help, man page and completions. Runs in the process that is started; it
//! opens configuration files and nothing else.

mod argv;
mod check_report;
mod collect;
mod command_flags;
mod commands;
mod manual;
mod observing_commands;
mod plugin_request;
mod reading;
mod subcommand;
mod typed_words;

use std::ffi::OsString;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::known_files::KnownFiles;
use bolide_configuration::launcher::Launcher;
use bolide_configuration::pair::as_uwsgi;
use bolide_configuration::trust::{WeakPoint, Writer};
use bolide_contract::settings::Settings;
use bolide_options::reader::EarlyExit;
use bolide_options::{development, resolve};
use bolide_other_servers::reading::KnownServers;

use collect::collect;

pub use check_report::CheckReport;
pub use commands::rights::may_not_listen;
pub use manual::man::SIGNALS_PLACE;
pub use observing_commands::{ObservingCommand, ObservingRequest};
pub use plugin_request::PluginRequest;
pub use reading::{Failure, PrivilegedOption, Reading, Sources};

/// Reads the command line (without the program's name), the environment, and the files that they name. `launcher` is the Python
/// that started this process.
///
/// # Errors
/// Every fault, each with its location and what to do about it.
pub fn read(arguments: &[OsString], environment: &[(OsString, OsString)], launcher: &Launcher) -> Result<Reading, Failure> {
    read_in(arguments, &HostInfo::gather(environment).launched_by(launcher))
}

/// Reads the configuration again, for an instance that runs with these settings and whose working directory is where it was
/// started.
///
/// A file that the user `distrusted` may change is not read: the caller has that user read it.
///
/// # Errors
/// Those of [`read`]; the configuration is no longer that of a server; or the user `distrusted` may change it.
pub fn read_again(
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    launcher: &Launcher,
    in_force: &Settings,
    distrusted: Option<&Writer>,
) -> Result<ReadAgain, ReadAgainError> {
    let mut host = HostInfo::gather(environment).launched_by(launcher);
    host.known = KnownFiles::of(in_force);
    host.trust.distrusted = distrusted.cloned();
    let reading = read_in(arguments, &host);
    if let Some(found) = host.trust.refused() {
        return Err(ReadAgainError::Distrusted(found));
    }
    match reading.map_err(ReadAgainError::Failed)? {
        Reading::Run { settings, diagnostics, sources } => {
            Ok(ReadAgain { settings: *settings, diagnostics, privileged: sources.privileged })
        }
        _ => {
            let message = "the configuration no longer asks for a server".to_owned();
            Err(ReadAgainError::Failed(Failure { diagnostics: vec![Diagnostic::error(None, message)] }))
        }
    }
}

/// The result of reading for a running instance.
#[derive(Debug)]
pub struct ReadAgain {
    pub settings: Settings,
    pub diagnostics: Vec<Diagnostic>,
    /// As in [`Sources`].
    pub privileged: Vec<PrivilegedOption>,
}

/// Why nothing was read for a running instance.
#[derive(Debug)]
pub enum ReadAgainError {
    Failed(Failure),
    /// The distrusted user may change this.
    Distrusted(WeakPoint),
}

fn read_in(arguments: &[OsString], host: &HostInfo) -> Result<Reading, Failure> {
    let arguments = texts(arguments)?;
    if let Some(reading) = commands::run(&arguments, host) {
        return Ok(reading);
    }
    let (configuration, application) = match collect(&arguments, host) {
        Ok(read) => read,
        Err(EarlyExit::Print { text, status }) => return Ok(Reading::Print { text, status }),
        Err(EarlyExit::Help) => return Ok(Reading::help(host)),
        Err(EarlyExit::Version) => return Ok(Reading::version()),
        Err(EarlyExit::AskInstance(request)) => return Ok(Reading::AskInstance(request)),
        Err(EarlyExit::SignalInstance { command, pidfile }) => return Ok(Reading::SignalInstance { command, pidfile }),
        Err(EarlyExit::Failed(diagnostics)) => return Err(Failure { diagnostics }),
    };
    // `show-config` prints and startup continues, as in uWSGI: only `no-server` ends it there.
    if configuration.show_config.is_some() && configuration.effects.iter().any(|pair| pair.key == "no-server") {
        return Ok(Reading::Print { text: as_uwsgi(&configuration.pairs), status: 0 });
    }
    let (settings, mut diagnostics) = resolve::resolve(&configuration, application.as_ref(), host, &KnownServers);
    let sources = Sources::of(&configuration, host);
    diagnostics.extend(configuration.printed.iter().map(|text| Diagnostic::note(None, text.clone())));
    if configuration.show_config.is_some() {
        diagnostics.push(Diagnostic::note(None, as_uwsgi(&configuration.pairs)));
    }
    match settings.map(|settings| with_development_certificate(settings, host, &mut diagnostics)).transpose()? {
        Some(settings) => Ok(Reading::Run { settings: Box::new(settings), diagnostics, sources }),
        None => Err(Failure { diagnostics }),
    }
}

/// Only an instance that serves creates one; `check` does not.
fn with_development_certificate(
    mut settings: Settings,
    host: &HostInfo,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Settings, Failure> {
    match development::complete(&mut settings, &host.host_name, &host.known) {
        Ok(note) => {
            diagnostics.extend(note);
            Ok(settings)
        }
        Err(diagnostic) => Err(Failure { diagnostics: vec![diagnostic] }),
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

#[cfg(test)]
#[path = "tests/asynchronous_tests.rs"]
mod asynchronous_tests;
#[cfg(test)]
#[path = "tests/caching_tests.rs"]
mod caching_tests;
#[cfg(test)]
#[path = "tests/corpus.rs"]
mod corpus;
#[cfg(test)]
#[path = "tests/gevent_tests.rs"]
mod gevent_tests;
#[cfg(test)]
#[path = "tests/hostile.rs"]
mod hostile;
#[cfg(test)]
#[path = "tests/language_tests.rs"]
mod language_tests;
#[cfg(test)]
#[path = "tests/other_servers_tests.rs"]
mod other_servers_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "tests/tls_tests.rs"]
mod tls_tests;
#[cfg(test)]
#[path = "tests/verdict_tests.rs"]
mod verdict_tests;
