//! Reads the command line and the environment, in uWSGI's order, into one configuration.

use crate::catalogue::{catalogue, nearest};
use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::HostInfo;
use crate::manual::words::listed;
use crate::other_servers::{self, Refusal, ServerSetting, Subject, Translation};
use crate::reader::{Configuration, EarlyExit, Reader, format_of, is_gunicorn_configuration};
use crate::resolve::PositionalApplication;
use crate::sources::argv::{ArgumentError, Arguments, ParsedOption};
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
    let beside = match application {
        Some(_) => {
            reader.note_application();
            reader.load_gunicorn_beside()?
        }
        None => None,
    };
    let mut configuration = reader.finish()?;
    configuration.diagnostics.extend(notes);
    configuration.diagnostics.extend(beside);
    if application.is_some() {
        configuration.diagnostics.extend(unread_variables(host));
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
    let mut typed = TypedOptions::default();
    loop {
        match words.next_option(|name| reader.declared(name)) {
            Ok(Some(given)) => typed.take(given, reader)?,
            Ok(None) => break,
            Err(mistake) => {
                // Whether the next word is its value is not known, so nothing after it can be read.
                typed.errors.push(argument_diagnostic(mistake, &Location::command_line()));
                break;
            }
        }
    }
    if !typed.errors.is_empty() {
        return Err(EarlyExit::Failed(typed.errors));
    }
    typed.finish(reader, host)
}

/// What options of a command line leave behind until all of them are read.
struct TypedOptions {
    translation: Translation,
    /// The files of `env-file`.
    files: Vec<String>,
    protocol: Option<String>,
    umask: Option<String>,
    has_socket: bool,
    notes: Vec<Diagnostic>,
    /// All errors are in one report: a command line of another server may have several.
    errors: Vec<Diagnostic>,
}

impl Default for TypedOptions {
    fn default() -> TypedOptions {
        TypedOptions {
            translation: Translation::new(None),
            files: Vec::new(),
            protocol: None,
            umask: None,
            has_socket: false,
            notes: Vec::new(),
            errors: Vec::new(),
        }
    }
}

impl TypedOptions {
    fn take(&mut self, given: ParsedOption, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        let location = Location::command_line();
        let ParsedOption { name, value, note } = given;
        if let Some((message, advice)) = note {
            self.notes.push(Diagnostic::note(Some(&location), message).advise(advice));
        }
        let row = catalogue().get(&name);
        self.has_socket |= row.is_some_and(|row| row.name() == "socket");
        let is_ours = row.is_some() || reader.declared(&name).is_some();
        match other_servers::long(None, &name).filter(|_| !is_ours) {
            Some(setting) => self.translate(setting, value.as_deref().unwrap_or_default(), reader),
            None => self.take_own(&name, value, reader),
        }
    }

    /// Takes an option of another server.
    fn translate(&mut self, setting: &ServerSetting, value: &str, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        if let Err(refusal) = self.translation.translate(setting, value) {
            self.errors.push(refused(refusal));
        }
        for made in self.translation.drain() {
            reader.add(&made.key, Some(&made.value), &Location::command_line())?;
            self.files.extend(Some(made.value).filter(|_| made.key == ENV_FILE));
        }
        Ok(())
    }

    /// Takes an option of Bolide, and so of uWSGI, unless its value shows that another server's is meant.
    fn take_own(&mut self, name: &str, value: Option<String>, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        let location = Location::command_line();
        if let Some((message, advice)) = other_servers::misunderstood(name, value.as_deref().unwrap_or_default()) {
            self.errors.push(Diagnostic::error(Some(&location), message).advise(advice));
            return Ok(());
        }
        match value.as_deref().and_then(|value| other_servers::word(name, value)) {
            Some(pairs) => {
                for (key, value) in pairs {
                    reader.add(key, Some(value), &location)?;
                }
            }
            // Which server's `umask` it is becomes clear only after all words are read.
            None if name == UMASK && value.is_some() => self.umask.clone_from(&value),
            None => reader.add(name, value.as_deref(), &location)?,
        }
        match name {
            ENV_FILE => self.files.extend(value),
            "protocol" => self.protocol = value,
            "threads" => value.iter().for_each(|count| self.translation.keep(Subject::Threads, count)),
            _ => {}
        }
        Ok(())
    }

    /// Adds what several options mean together.
    fn finish(mut self, reader: &mut Reader<'_>, host: &HostInfo) -> Result<Vec<Diagnostic>, EarlyExit> {
        let location = Location::command_line();
        // `--protocol` is gunicorn's if there is a `--bind`, and no `--socket` that uWSGI's would apply to.
        self.protocol.iter().filter(|_| !self.has_socket).for_each(|protocol| self.translation.keep(Subject::Protocol, protocol));
        if let Some(mask) = self.umask {
            match other_servers::long(None, UMASK).filter(|_| self.translation.has(Subject::Bind) && !self.has_socket) {
                Some(flag) => self.translation.translate(flag, &mask).map_err(refused)?,
                None => reader.add(UMASK, Some(&mask), &location)?,
            }
        }
        let port = if self.translation.needs_port() { crate::resolve::port(host, &self.files)? } else { None };
        let (options, remarks) = self.translation.finish(port).map_err(refused)?;
        for made in options {
            reader.add(&made.key, Some(&made.value), &location)?;
        }
        self.notes.extend(remarks.into_iter().map(|remark| remark.diagnostic(&location)));
        Ok(self.notes)
    }
}

fn refused(refusal: Refusal) -> Diagnostic {
    Diagnostic::error(Some(&Location::command_line()), refusal.message).advise(refusal.advice)
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
