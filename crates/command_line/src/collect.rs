//! Reads the command line and the environment, in uWSGI's order, into one configuration.

use std::io::IsTerminal;

use bolide_configuration::diagnostic::{Diagnostic, Location, listed};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::sources::environment;
use bolide_options::catalog::{catalog, nearest};
use bolide_options::project;
use bolide_options::reader::{Configuration, EarlyExit, Reader, format_of, is_gunicorn_configuration};
use bolide_options::resolve::PositionalApplication;
use bolide_options::server::Server;
use bolide_options::start_words::TypedWords;
use bolide_other_servers::line_owner::{self, FLASK_APP, LineOwner};
use bolide_other_servers::reading::KnownServers;
use bolide_other_servers::{CERTIFICATE, Refusal, ServerSetting, Subject, Translation, other_words};

use crate::argv::{ArgumentError, Arguments, ParsedOption};
use crate::subcommand::command_meant;
use crate::typed_words;

/// The files of `env-file` may define the port of `--host`.
const ENV_FILE: &str = "env-file";

/// uWSGI's `umask` applies to all files that are created. gunicorn's, beside `--bind`, applies to UNIX sockets only.
const UMASK: &str = "umask";

/// uWSGI's option of the letter `p`, and daphne's and flask's. A smaller number beside a host is one of processes.
const PROCESSES: &str = "processes";
const MIN_PORT: u32 = 80;

/// uWSGI's option of the letter `t`, and gunicorn's.
const HARAKIRI: &str = "harakiri";
const TIMEOUT: &str = "timeout";

/// flask's option for the application, and that of `fastapi run` for the callable in its file.
const APP: &str = "app";

/// A flag without a value of uvicorn and granian, and one with a value of daphne.
const ACCESS_LOG: &str = "access-log";

/// The variable with gunicorn's flags, and the prefixes of the variables of uvicorn and granian, one for each flag.
const GUNICORN_FLAGS: &str = "GUNICORN_CMD_ARGS";
const PREFIXES: [&str; 2] = ["UVICORN_", "GRANIAN_"];
const FLASK_DEBUG: &str = "FLASK_DEBUG";

/// Reads the environment, then options, then positional arguments: uWSGI's order, in which the last value wins.
pub fn collect(arguments: &[String], host: &HostInfo) -> Result<(Configuration, Option<PositionalApplication>), EarlyExit> {
    let mut reader = Reader::new(host, &KnownServers);
    for (variable, value) in &host.environment {
        if let Some((key, value)) = environment::pair(variable, value) {
            reader.add(&key, Some(&value), &Location::environment(variable))?;
        }
    }
    let mut words = Arguments::new(arguments);
    let mut typed = take_options(&mut reader, &mut words, host)?;
    let mut words = words.into_positional();
    if typed.has_access_log {
        take_access_log(&mut words, &mut reader)?;
    }
    let application = take_positional(words, typed.application, &mut reader, &mut typed.notes, host)?;
    let beside = match application {
        Some(_) => {
            reader.note_application();
            reader.load_gunicorn_beside()?
        }
        None => None,
    };
    let mut configuration = reader.finish()?;
    configuration.server = typed.server;
    configuration.log_level = typed.log_level;
    let has_own_file = configuration.files.len() > configuration.servers_of_files.len();
    let servers = configuration.servers_of_files.clone();
    configuration.words = typed.words.complete(servers, has_own_file, application.is_some());
    configuration.has_words_of_others = typed.has_words_of_others;
    configuration.diagnostics.extend(typed.notes);
    configuration.diagnostics.extend(beside);
    if application.is_some() {
        configuration.diagnostics.extend(unread_variables(host));
        let develops = configuration.effects.iter().any(|pair| pair.key == "develop");
        configuration.diagnostics.extend(flask_debug(host).filter(|_| !develops));
    }
    Ok((configuration, application))
}

/// Warns of variables from which other servers read options and Bolide does not.
fn unread_variables(host: &HostInfo) -> Option<Diagnostic> {
    let names = host.environment.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> =
        names.filter(|name| *name == GUNICORN_FLAGS || PREFIXES.iter().any(|prefix| name.starts_with(prefix))).collect();
    let first = *names.first()?;
    let (is, contents) = if names.len() == 1 { ("is", "its content") } else { ("are", "their contents") };
    let message = format!("{} {is} set but not read", listed(&names, "and"));
    let advice = format!("write {contents} as flags on the command line, or into a configuration (`bolide init --from`)");
    Some(Diagnostic::note(Some(&Location::environment(first)), message).advise(advice))
}

/// A note about the variable with which `flask run` reloads, and which Flask itself reads, too.
fn flask_debug(host: &HostInfo) -> Option<Diagnostic> {
    let (name, value) = host.environment.iter().find(|(name, _)| name == FLASK_DEBUG)?;
    if matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false" | "no") {
        return None;
    }
    let message = format!("{name} turns on Flask's debug mode, and nothing is reloaded");
    let advice = "write `--reload` for development, and remove the variable in production";
    Some(Diagnostic::note(Some(&Location::environment(name)), message).advise(advice))
}

/// What the options of a command line leave for the rest of it.
struct Typed {
    notes: Vec<Diagnostic>,
    /// The value of `--app`: flask's application, or the callable in the file of `fastapi run`.
    application: Option<String>,
    /// `--access-log` is there. daphne's has a value, which is among the positional arguments then.
    has_access_log: bool,
    /// The server whose line it is, if it can be only one's.
    server: Option<Server>,
    words: TypedWords,
    log_level: Option<String>,
    /// Options are there that uWSGI does not have, or not with this meaning.
    has_words_of_others: bool,
}

/// Reads the options of the command line, of Bolide and of other servers.
fn take_options(reader: &mut Reader<'_>, words: &mut Arguments<'_>, host: &HostInfo) -> Result<Typed, EarlyExit> {
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
    let server = typed.recognize(words.positional(), host);
    let (application, has_access_log) = (typed.application.take(), typed.has_access_log);
    let words = std::mem::take(&mut typed.words);
    let log_level = typed.translation.log_level.take();
    let has_words_of_others = typed.has_words_of_others;
    let notes = typed.finish(reader, host)?;
    Ok(Typed { notes, application, has_access_log, server, words, log_level, has_words_of_others })
}

/// What options of a command line leave behind until all of them are read.
#[derive(Default)]
struct TypedOptions {
    translation: Translation,
    /// The files of `env-file`.
    files: Vec<String>,
    protocol: Option<String>,
    umask: Option<String>,
    has_socket: bool,
    application: Option<String>,
    has_access_log: bool,
    /// The value of `-t`: uWSGI's `harakiri`, or gunicorn's `timeout` beside a worker class or `--timeout`.
    seconds: Option<String>,
    /// The value of `-p`: uWSGI's `processes`, or the port of a host.
    count: Option<String>,
    owner: LineOwner,
    words: TypedWords,
    has_words_of_others: bool,
    notes: Vec<Diagnostic>,
    /// All errors are in one report: a command line of another server may have several.
    errors: Vec<Diagnostic>,
}

impl TypedOptions {
    fn take(&mut self, given: ParsedOption, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        let location = Location::command_line();
        let ParsedOption { name, value, is_letter, note } = given;
        if let Some((message, advice)) = note {
            self.notes.push(Diagnostic::note(Some(&location), message).advise(advice));
        }
        let row = catalog().get(&name);
        self.has_socket |= row.is_some_and(|row| row.name() == "socket");
        let is_ours = row.is_some() || reader.declared(&name).is_some();
        if name == APP && !is_ours {
            self.application = value;
            self.owner.keep(|server| matches!(server, Server::Flask | Server::FastApi));
            self.words.note_servers(&[Server::Flask, Server::FastApi]);
            return Ok(());
        }
        if !is_ours {
            self.owner.note(&name);
        }
        self.translation.has_certificate |= row.is_some_and(|row| row.name() == CERTIFICATE);
        self.translation.own.note(row.map_or("", |row| row.name()));
        self.has_access_log |= name == ACCESS_LOG;
        if name == HARAKIRI && is_letter {
            self.seconds = value;
            return Ok(());
        }
        if row.is_some_and(|row| row.name() == PROCESSES) {
            // Only a possible port waits for the host: elsewhere the place of an option among the others counts.
            let may_be_port = |text: &String| text.parse::<u32>().is_ok_and(|count| count >= MIN_PORT);
            self.count = value.clone().filter(|text| is_letter && may_be_port(text));
            if self.count.is_some() {
                return Ok(());
            }
        }
        match bolide_other_servers::long(None, &name).filter(|_| !is_ours) {
            Some(setting) => self.translate(setting, value.as_deref().unwrap_or_default(), reader),
            None => self.take_own(&name, value, reader),
        }
    }

    /// Takes an option of another server.
    fn translate(&mut self, setting: &ServerSetting, value: &str, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        self.has_words_of_others = true;
        // One flag may have a row for each of its meanings.
        let named = bolide_other_servers::servers_of(setting.flag);
        self.words.note_servers(if named.is_empty() { setting.servers } else { &named });
        if setting.flag == TIMEOUT {
            // The last one counts.
            self.seconds = None;
        }
        if let Err(refusal) = self.translation.translate(setting, value) {
            self.errors.push(refused(refusal));
        }
        for made in self.translation.drain() {
            self.translation.own.note(&made.key);
            reader.add(&made.key, Some(&made.value), &Location::command_line())?;
            self.files.extend(Some(made.value).filter(|_| made.key == ENV_FILE));
        }
        Ok(())
    }

    /// Takes an option of Bolide, and so of uWSGI, unless its value shows that another server's is meant.
    fn take_own(&mut self, name: &str, value: Option<String>, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        let location = Location::command_line();
        let text = value.as_deref().unwrap_or_default();
        if let Some(setting) = bolide_other_servers::meant_option(name, text) {
            self.owner.keep(|server| setting.servers.contains(&server));
            return self.translate(setting, text, reader);
        }
        if let Some(row) = catalog().get(name) {
            self.words.note_own(&bolide_other_servers::servers_of(name), row.home != "bolide");
        }
        if let Some(pairs) = value.as_deref().and_then(|value| bolide_other_servers::word(name, value)) {
            if pairs.is_empty() {
                let message = format!("`--{name} {text}`: nothing to do, because it is an option of another server");
                self.notes.push(Diagnostic::note(Some(&location), message));
            }
            return pairs.iter().try_for_each(|(key, value)| reader.add(key, Some(value), &location));
        }
        if let Some((message, advice)) = bolide_other_servers::misunderstood(name, text) {
            self.errors.push(Diagnostic::error(Some(&location), message).advise(advice));
            return Ok(());
        }
        // Which server's `umask` it is becomes clear only after all words are read.
        match name == UMASK && value.is_some() {
            true => self.umask.clone_from(&value),
            false => reader.add(name, value.as_deref(), &location)?,
        }
        match name {
            ENV_FILE => self.files.extend(value),
            "protocol" => self.protocol = value,
            "threads" => value.iter().for_each(|count| self.translation.keep(Subject::Threads, count)),
            _ => {}
        }
        Ok(())
    }

    /// Returns the server whose line it is, if it can be only one's, and applies its defaults.
    fn recognize(&mut self, words: &[String], host: &HostInfo) -> Option<Server> {
        let server = self.owner.server(words, self.application.is_some(), host)?;
        self.translation.is_of(server);
        if server == Server::Flask && words.first().is_some_and(|first| first == "run") {
            line_owner::add_flask_address(&mut self.translation, host);
        }
        Some(server)
    }

    /// Reads `-p`: beside a host without a port it is that port.
    fn finish_count(&mut self, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
        let Some(count) = self.count.take() else { return Ok(()) };
        let is_port = self.translation.has_host_alone();
        match bolide_other_servers::meant_port().filter(|_| is_port) {
            Some(setting) => {
                let (message, advice) = bolide_other_servers::reading_of('p', &count, setting, Some(PROCESSES));
                self.notes.push(Diagnostic::note(Some(&Location::command_line()), message).advise(advice));
                self.translation.translate(setting, &count).map_err(refused)?;
                Ok(())
            }
            None => reader.add(PROCESSES, Some(&count), &Location::command_line()),
        }
    }

    /// Adds what several options mean together.
    fn finish(mut self, reader: &mut Reader<'_>, host: &HostInfo) -> Result<Vec<Diagnostic>, EarlyExit> {
        let location = Location::command_line();
        self.finish_count(reader)?;
        // `--protocol` is gunicorn's if there is a `--bind`, and no `--socket` that uWSGI's would apply to.
        self.protocol.iter().filter(|_| !self.has_socket).for_each(|protocol| self.translation.keep(Subject::Protocol, protocol));
        if let Some(seconds) = self.seconds {
            let is_gunicorns = self.translation.has(Subject::WorkerClass) || self.translation.has(Subject::Timeout);
            match bolide_other_servers::long(None, TIMEOUT).filter(|_| is_gunicorns) {
                Some(flag) => self.translation.translate(flag, &seconds).map_err(refused)?,
                None => reader.add(HARAKIRI, Some(&seconds), &location)?,
            }
        }
        if let Some(mask) = self.umask {
            match bolide_other_servers::long(None, UMASK).filter(|_| self.translation.has(Subject::Bind) && !self.has_socket) {
                Some(flag) => self.translation.translate(flag, &mask).map_err(refused)?,
                None => reader.add(UMASK, Some(&mask), &location)?,
            }
        }
        self.translation.requests_on_stdout = self.owner.logs_to_stdout() && !std::io::stdout().is_terminal();
        let port = if self.translation.needs_port() { bolide_options::resolve::port(host, &self.files)? } else { None };
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
    let unknown = error.unknown.as_deref();
    match (unknown.and_then(other_words::advice), unknown.and_then(nearest)) {
        (Some(advice), _) => diagnostic.advise(advice),
        (None, Some(nearest)) => diagnostic.advise(format!("did you mean `--{nearest}`?")),
        (None, None) => diagnostic.advise("`bolide --help` lists the options"),
    }
}

/// Reads the positional arguments: configuration files, and an application. `chosen` is the value of `--app`.
fn take_positional(
    mut words: Vec<String>,
    chosen: Option<String>,
    reader: &mut Reader<'_>,
    notes: &mut Vec<Diagnostic>,
    host: &HostInfo,
) -> Result<Option<PositionalApplication>, EarlyExit> {
    let location = &Location::command_line();
    // uWSGI skips these words, which label a process in `ps`.
    words.retain(|word| !word.starts_with('['));
    if let Some(mistake) = typed_words::mistake(&words, host) {
        return Err(mistake.into());
    }
    if let Some((file, note)) = typed_words::started(&words, host).filter(|_| chosen.is_none()) {
        notes.push(note);
        reader.load(file, None, location, false)?;
        return Ok(None);
    }
    let serves = words.first().is_some_and(|first| typed_words::is_serving(first, words.len() > 1 || chosen.is_some(), host));
    let develops = serves && words[0] == "dev";
    let mut application: Option<PositionalApplication> = None;
    let mut has_file = false;
    for text in words.iter().skip(usize::from(serves)) {
        let name = text.rsplit_once(':').map_or(text.as_str(), |(name, _)| name);
        if format_of(text).is_some() || format_of(name).is_some() || is_gunicorn_configuration(text) {
            if let Some(missing) = typed_words::missing_file(text, name, host) {
                return Err(missing.into());
            }
            reader.load(text, None, location, false)?;
            has_file = true;
            continue;
        }
        if let Some(first) = &application {
            return Err(second_application(&first.text, text).into());
        }
        if let Some(misspelled) = typed_words::misspelled_file(text, host) {
            return Err(misspelled.into());
        }
        application = Some(positional(as_file(text, host)));
    }
    if develops {
        reader.add("develop", Some("true"), location)?;
    }
    match (&application, chosen) {
        (Some(_), Some(callable)) => reader.add("callable", Some(&callable), location)?,
        (None, Some(chosen)) => application = Some(positional(as_file(&chosen, host))),
        (None, None) if serves && !has_file => {
            let named = host.environment.iter().find(|(name, _)| name == FLASK_APP).map(|(_, value)| as_file(value, host));
            application = Some(positional(named.unwrap_or_else(|| ".".to_owned())));
        }
        _ => {}
    }
    if application.as_ref().is_some_and(|named| named.text == ".") && !has_file {
        notes.extend(typed_words::unused(host));
    }
    Ok(application)
}

/// The application that a text names.
pub fn positional(text: String) -> PositionalApplication {
    PositionalApplication { command: command_meant(&text), text }
}

/// Takes the value of daphne's `--access-log` out of the words: a file of this extension, or a dash for the terminal.
fn take_access_log(words: &mut Vec<String>, reader: &mut Reader<'_>) -> Result<(), EarlyExit> {
    let Some(place) = words.iter().position(|word| word == "-" || word.ends_with(".log")) else { return Ok(()) };
    let log = words.remove(place);
    if log == "-" {
        return Ok(());
    }
    reader.add("req-logger", Some(&format!("file:{log}")), &Location::command_line())
}

/// hypercorn and granian name a file without its extension: `src/app:app`. waitress finds an object after a dot, too:
/// `app.create_app`.
fn as_file(text: &str, host: &HostInfo) -> String {
    if let Some((module, object)) = text.rsplit_once('.').filter(|(_, object)| project::is_module_name(text) && *object != "py") {
        let is_there = |name: &str| project::has_module(&host.directory, name);
        if !is_there(text)
            && !host.directory.join(text).exists()
            && host.directory.join(format!("{}.py", module.replace('.', "/"))).is_file()
        {
            return format!("{module}:{object}");
        }
    }
    let (name, callable) = text.split_once(':').map_or((text, None), |(name, callable)| (name, Some(callable)));
    let is_path = name.contains('/') && !name.ends_with(".py") && !host.directory.join(name).exists();
    match (is_path && host.directory.join(format!("{name}.py")).is_file(), callable) {
        (false, _) => text.to_owned(),
        (true, Some(callable)) => format!("{name}.py:{callable}"),
        (true, None) => format!("{name}.py"),
    }
}

fn second_application(first: &str, second: &str) -> Diagnostic {
    let location = &Location::command_line();
    match command_meant(first) {
        Some(command) => Diagnostic::error(Some(location), format!("`{first}` is neither a command nor an application"))
            .advise(format!("did you mean `bolide {command} {second}`?")),
        None => {
            let message = format!("`{second}`: there is already an application on the command line");
            Diagnostic::error(Some(location), message).advise("use `mount` for several")
        }
    }
}
