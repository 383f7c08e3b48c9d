//! The command line and the environment, read in uWSGI's order into one configuration.

use std::path::Path;

use crate::command_table::Command;
use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::HostInfo;
use crate::other_servers;
use crate::reader::{Configuration, EarlyExit, GUNICORN_FILE, Reader, format_of, is_gunicorn_configuration};
use crate::resolve::{PositionalApplication, positional};
use crate::sources::{self, argv::Arguments};
use crate::suggest;

/// Environment, then options, then positional arguments: uWSGI's order, in which what is read later wins.
pub fn collect(arguments: &[String], host: &HostInfo) -> Result<(Configuration, Option<PositionalApplication>), EarlyExit> {
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
    if application.is_some() {
        reader.note_application();
    }
    let mut read = reader.finish()?;
    if application.is_some() && read.files.is_empty() && host.folder.join(GUNICORN_FILE).is_file() {
        let message = format!("`{GUNICORN_FILE}` lies here, which gunicorn would read by itself, and it is not read");
        read.diagnostics
            .push(Diagnostic::note(None, message).advise(format!("`-c {GUNICORN_FILE}` before the application has it read")));
    }
    Ok((read, application))
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
    if format_of(text).is_some() || format_of(name).is_some() || is_gunicorn_configuration(text) {
        return reader.load(text, None, location, false);
    }
    let Some(found) = positional(text, folder) else {
        let diagnostic = Diagnostic::error(Some(location), format!("`{text}` is neither a configuration nor an application"));
        let commands: Vec<&'static str> = Command::ALL.iter().map(|command| command.name()).collect();
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
