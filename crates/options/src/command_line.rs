//! Reads the command line and the environment, in uWSGI's order, into one configuration.

use crate::catalogue::{catalogue, nearest};
use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::HostInfo;
use crate::manual::words::listed;
use crate::other_servers::{self, Refusal, Subject, Translation};
use crate::reader::{Configuration, EarlyExit, GUNICORN_FILE, Reader, format_of, is_gunicorn_configuration};
use crate::resolve::PositionalApplication;
use crate::sources::argv::{ArgumentError, Arguments};
use crate::sources::environment;

/// The files of `env-file` may define the port of `--host`.
const ENV_FILE: &str = "env-file";

/// uWSGI's `umask` applies to all files that are created. gunicorn's, beside `--bind`, applies to UNIX sockets only.
const UMASK: &str = "umask";

/// The variable with gunicorn's flags, and the prefix of uvicorn's variables, one for each flag.
const GUNICORN_FLAGS: &str = "GUNICORN_CMD_ARGS";
const UVICORN_FLAGS: &str = "UVICORN_";

/// Reads the environment, then options, then positional arguments: uWSGI's order, in which the last value wins.
pub fn collect(arguments: &[String], host: &HostInfo) -> Result<(Configuration, Option<PositionalApplication>), EarlyExit> {
    let mut reader = Reader::new(host);
    for (variable, value) in &host.environment {
        if let Some((key, value)) = environment::pair(variable, value) {
            reader.add(&key, Some(&value), &Location::environment(variable))?;
        }
    }
    let mut words = Arguments::new(arguments);
    let notes = take_options(&mut reader, &mut words, host)?;
    let mut application = None;
    for text in words.into_positional() {
        take_positional(&text, &mut reader, &mut application)?;
    }
    if application.is_some() {
        reader.note_application();
    }
    let mut configuration = reader.finish()?;
    configuration.diagnostics.extend(notes);
    if application.is_some() {
        configuration.diagnostics.extend(unread_variables(host));
    }
    if application.is_some() && configuration.files.is_empty() && host.folder.join(GUNICORN_FILE).is_file() {
        let message = format!("there is a `{GUNICORN_FILE}` here, which gunicorn would read automatically, but it is not read");
        let advice = format!("`-c {GUNICORN_FILE}` before the application reads it");
        configuration.diagnostics.push(Diagnostic::note(None, message).advise(advice));
    }
    Ok((configuration, application))
}

/// Warns of variables from which other servers read options and Bolide does not.
fn unread_variables(host: &HostInfo) -> Option<Diagnostic> {
    let names = host.environment.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.filter(|name| *name == GUNICORN_FLAGS || name.starts_with(UVICORN_FLAGS)).collect();
    let first = *names.first()?;
    let (is, contents) = if names.len() == 1 { ("is", "its content") } else { ("are", "their contents") };
    let message = format!("{} {is} set but not read", listed(&names, "and"));
    let advice = format!("write {contents} as flags on the command line, or into a configuration (`bolide init --from`)");
    Some(Diagnostic::note(Some(&Location::environment(first)), message).advise(advice))
}

/// Reads the options of the command line, of Bolide and of other servers. Returns diagnostics for the user.
fn take_options(reader: &mut Reader<'_>, words: &mut Arguments<'_>, host: &HostInfo) -> Result<Vec<Diagnostic>, EarlyExit> {
    let location = Location::command_line();
    let error = |message: String, advice: String| Diagnostic::error(Some(&location), message).advise(advice);
    let refused = |refusal: Refusal| error(refusal.message, refusal.advice);
    let mut translation = Translation::new(None);
    let mut files = Vec::new();
    let (mut protocol, mut umask, mut has_socket) = (None, None, false);
    while let Some(given) =
        words.next_option(|name| reader.declared(name)).map_err(|error| argument_diagnostic(error, &location))?
    {
        let value = given.value.as_deref();
        let row = catalogue().get(&given.name);
        has_socket |= row.is_some_and(|row| row.name() == "socket");
        let is_ours = row.is_some() || reader.declared(&given.name).is_some();
        match other_servers::long(None, &given.name).filter(|_| !is_ours) {
            Some(flag) => {
                translation.translate(flag, value.unwrap_or_default()).map_err(refused)?;
                for made in translation.drain() {
                    reader.add(&made.key, Some(&made.value), &location)?;
                    files.extend(Some(made.value).filter(|_| made.key == ENV_FILE));
                }
            }
            None => {
                if let Some((message, advice)) = other_servers::misunderstood(&given.name, value.unwrap_or_default()) {
                    return Err(error(message, advice).into());
                }
                match value.and_then(|value| other_servers::word(&given.name, value)) {
                    Some(pairs) => {
                        for (key, value) in pairs {
                            reader.add(key, Some(value), &location)?;
                        }
                    }
                    // Which server's `umask` it is becomes clear only after all words are read.
                    None if given.name == UMASK && value.is_some() => umask.clone_from(&given.value),
                    None => reader.add(&given.name, value, &location)?,
                }
                match given.name.as_str() {
                    ENV_FILE => files.extend(given.value),
                    "protocol" => protocol = given.value,
                    "threads" => given.value.iter().for_each(|count| translation.keep(Subject::Threads, count)),
                    _ => {}
                }
            }
        }
    }
    // `--protocol` is gunicorn's if there is a `--bind`, and no `--socket` that uWSGI's would apply to.
    protocol.iter().filter(|_| !has_socket).for_each(|protocol| translation.keep(Subject::Protocol, protocol));
    if let Some(mask) = umask {
        match other_servers::long(None, UMASK).filter(|_| translation.has(Subject::Bind) && !has_socket) {
            Some(flag) => translation.translate(flag, &mask).map_err(refused)?,
            None => reader.add(UMASK, Some(&mask), &location)?,
        }
    }
    let port = if translation.needs_port() { crate::resolve::port(host, &files)? } else { None };
    let (options, remarks) = translation.finish(port).map_err(refused)?;
    for made in options {
        reader.add(&made.key, Some(&made.value), &location)?;
    }
    Ok(remarks.into_iter().map(|remark| remark.diagnostic(&location)).collect())
}

/// Converts a mistake on the command line, with its advice.
fn argument_diagnostic(error: ArgumentError, location: &Location) -> Diagnostic {
    let diagnostic = Diagnostic::error(Some(location), error.message);
    if let Some(advice) = error.advice {
        return diagnostic.advise(advice);
    }
    match error.unknown.as_deref().and_then(nearest) {
        Some(nearest) => diagnostic.advise(format!("did you mean `--{nearest}`?")),
        None => diagnostic.advise("`bolide --help` lists the options"),
    }
}

/// Reads a positional argument: a configuration file, or an application.
fn take_positional(
    text: &str,
    reader: &mut Reader<'_>,
    application: &mut Option<PositionalApplication>,
) -> Result<(), EarlyExit> {
    let location = &Location::command_line();
    // uWSGI skips these words, which label a process in `ps`.
    if text.starts_with('[') {
        return Ok(());
    }
    let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
    if format_of(text).is_some() || format_of(name).is_some() || is_gunicorn_configuration(text) {
        return reader.load(text, None, location, false);
    }
    match application {
        Some(_) => {
            Err(Diagnostic::error(Some(location), format!("`{text}`: there is already an application on the command line"))
                .advise("use `mount` for several")
                .into())
        }
        None => {
            *application = Some(PositionalApplication { text: text.to_owned() });
            Ok(())
        }
    }
}
