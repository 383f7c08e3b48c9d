//! `bolide init --from FILE`: writes a configuration that starts an application as another server's file or command line does. It
//! writes a new file and never overwrites one. Settings that it could not translate are listed in the file as comments, and on
//! standard error.

use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, plain_error};
use bolide_configuration::host_info::HostInfo;
use bolide_options::reader::is_gunicorn_configuration;
use bolide_options::row::Argument;
use bolide_options::server::Server;
use bolide_other_servers::gunicorn::{self, RawSetting};
use bolide_other_servers::import_config::files::{FileKind, kind_of, starts};
use bolide_other_servers::import_config::programs::{Program, found};
use bolide_other_servers::import_config::{Plan, PlanEntry, Start, servers};
use bolide_other_servers::{Meaning, ServerSetting};

use crate::argv::Arguments;
use crate::reading::Reading;
use crate::subcommand::Subcommand;

/// Largest source file that is read, in bytes.
const SOURCE_BYTES: u64 = 1024 * 1024;
/// Longest original line that is shown, in characters.
const MAX_SHOWN: usize = 160;
const PYTHON: &str = "python3";

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    Ini,
    Toml,
}

impl OutputFormat {
    fn file(self) -> &'static str {
        match self {
            OutputFormat::Ini => "bolide.ini",
            OutputFormat::Toml => "bolide.toml",
        }
    }

    fn comment(self) -> &'static str {
        match self {
            OutputFormat::Ini => ";",
            OutputFormat::Toml => "#",
        }
    }
}

/// Returns whether these arguments ask for this form of `init`.
pub fn is_asked(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "--from" || argument.starts_with("--from="))
}

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let (mut source, mut form) = (None, OutputFormat::Ini);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (name, given) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value.to_owned())));
        match (name, given.or_else(|| words.next().cloned())) {
            ("--from", Some(value)) => source = Some(value),
            ("--to", Some(value)) if value == "ini" => form = OutputFormat::Ini,
            ("--to", Some(value)) if value == "toml" => form = OutputFormat::Toml,
            ("--to", _) => return Reading::usage_error(Subcommand::Init, "the formats are `--to ini` and `--to toml`"),
            _ => return Reading::usage_error(Subcommand::Init, &format!("`{word}`: it takes `--from FILE` and `--to toml`")),
        }
    }
    let Some(source) = source else { return Reading::usage_error(Subcommand::Init, "no file is given") };
    match create(&source, form, host) {
        Ok(text) => Reading::Print { text, status: 0 },
        Err(diagnostic) => Reading::Print { text: format!("{diagnostic}\n"), status: 1 },
    }
}

/// Writes the configuration, and returns the text for standard output.
fn create(source: &str, form: OutputFormat, host: &HostInfo) -> Result<String, Diagnostic> {
    let target = host.directory.join(form.file());
    if target.exists() {
        return Err(
            Diagnostic::error(None, format!("{} already exists", form.file())).advise("remove it first, or move it aside")
        );
    }
    let (original, plan) = plan(source, host)?;
    let text = configuration(source, &original, &plan, form);
    std::fs::write(&target, &text).map_err(|error| {
        Diagnostic::error(None, format!("can't write {}: {}", target.display(), plain_error(&error)))
            .advise("is the directory writable?")
    })?;
    let mut errors = std::io::stderr().lock();
    for (what, why) in missing(&plan) {
        // The file contains the same lines, so a failed write loses nothing.
        let _ = writeln!(errors, "bolide: not carried over from {source}: {what}: {why}");
    }
    let next = format!("Review it, check it with: bolide check {0}\nStart it with:           bolide {0}", form.file());
    let is_procfile = kind_of(source) == FileKind::Procfile;
    let what = if is_procfile { format!("the web server of {source}") } else { source.to_owned() };
    Ok(format!("{} is written, equivalent to {what}.\n{next}\n\n{text}", form.file()))
}

/// Returns the command line of the file, unchanged, and the options that are equivalent to it.
fn plan(source: &str, host: &HostInfo) -> Result<(String, Plan), Diagnostic> {
    let path = host.directory.join(source);
    let mut plan = Plan::default();
    if is_gunicorn_configuration(source) || source.ends_with(".py") {
        gunicorn_settings(Some(source), Vec::new(), host, &mut plan)?;
        return Ok((source.to_owned(), plan));
    }
    let text = source_text(&path, source)?;
    let starts = starts(kind_of(source), &text);
    let chosen = starts.iter().find_map(|start| Some((start, found(start, &mut plan)?)));
    let Some((start, (program, arguments))) = chosen else {
        return Err(Diagnostic::error(None, format!("{source} does not start a known server")).advise(
            "the known servers are gunicorn, uvicorn, hypercorn, granian, waitress, daphne, flask run, fastapi run and \
                uwsgi; a shell script can also be given directly",
        ));
    };
    around(start, host, &mut plan);
    let others = starts.iter().filter(|other| other.line == start.line && other.words != start.words && other.text == start.text);
    for other in others {
        plan.missing(
            other.words.join(" "),
            "it does not belong to the server: run it before, or as `exec-pre-app`, `attach-daemon` or `cron`",
        );
    }
    if kind_of(source) == FileKind::Procfile {
        other_processes(&text, start, &mut plan);
    }
    match program {
        Program::Gunicorn => gunicorn_line(&arguments, host, &mut plan)?,
        Program::Uwsgi => uwsgi_line(&arguments, &mut plan),
        other => servers::import(other, &arguments, &mut plan),
    }
    Ok((start.text.clone(), plan))
}

/// The other lines of a Procfile are processes of their own.
fn other_processes(text: &str, start: &Start, plan: &mut Plan) {
    for (number, line) in (1..).zip(text.lines()) {
        let Some((name, command)) = line.split_once(':').filter(|(name, _)| !name.trim_start().starts_with('#')) else {
            continue;
        };
        let (name, command) = (name.trim(), command.trim());
        if number == start.line || name.is_empty() || command.is_empty() {
            continue;
        }
        let why = match name {
            "release" => "it runs before startup: run it in the deployment, or as `hook-asap = exec:COMMAND`".to_owned(),
            _ => format!("it is another process: use `attach-daemon2 = cmd={command}`, or its own unit"),
        };
        plan.missing(format!("{name}: {command}"), why);
    }
}

fn source_text(path: &Path, source: &str) -> Result<String, Diagnostic> {
    let failed = |why: String| Diagnostic::error(None, format!("can't read `{source}`: {why}"));
    let size = std::fs::metadata(path).map_err(|error| failed(plain_error(&error)))?.len();
    if size > SOURCE_BYTES {
        return Err(failed(format!("it is larger than {} KiB", SOURCE_BYTES / 1024)));
    }
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| failed(plain_error(&error)))
}

/// The directory and the startup user.
fn around(start: &Start, host: &HostInfo, plan: &mut Plan) {
    if let Some(directory) = &start.directory {
        match host.directory.join(directory).is_dir() {
            true => plan.option("chdir", directory.clone()),
            // The directory of a container image, for example. The new file lies where the application does.
            false => plan.missing(
                directory.clone(),
                "there is no such directory here: this file belongs in the directory of the application",
            ),
        }
    }
    for (key, value) in [("uid", &start.user), ("gid", &start.group)] {
        if let Some(value) = value {
            plan.option(key, value.clone());
        }
    }
}

/// Translates a command line of gunicorn. Its configuration file comes first; the command line takes precedence.
fn gunicorn_line(arguments: &[String], host: &HostInfo, plan: &mut Plan) -> Result<(), Diagnostic> {
    let mut asked: Vec<RawSetting> = Vec::new();
    let mut file = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            asked.push(RawSetting::text("wsgi_app", word));
            continue;
        }
        let Some((row, given)) = gunicorn_flag(word) else {
            plan.missing(word.clone(), "gunicorn has no such flag");
            continue;
        };
        // Flags that are another name of a setting have its row.
        let row = if row.setting.is_empty() { same_as(row) } else { row };
        let name = row.setting;
        let value = match (row.argument, given) {
            (Argument::Required, None) => words.next().cloned().unwrap_or_default(),
            (Argument::Required, Some(value)) => value.to_owned(),
            _ => (!row.is_negated).to_string(),
        };
        match (name, asked.iter_mut().find(|known| known.name == name)) {
            ("", _) => plan.missing(format!("{word} {value}"), reason(row)),
            ("config", _) => file = Some(value),
            // These may occur several times.
            ("bind" | "raw_env" | "reload_extra_files", Some(known)) => known.add(&value),
            _ => asked.push(RawSetting::text(name, &value)),
        }
    }
    let default = host.directory.join("gunicorn.conf.py").is_file().then(|| "gunicorn.conf.py".to_owned());
    gunicorn_settings(file.or(default).as_deref(), asked, host, plan)
}

/// The row of a word, which may be the beginning of a flag, as argparse allows, and the value in it.
fn gunicorn_flag(word: &str) -> Option<(&'static ServerSetting, Option<&str>)> {
    let begun = || {
        let (name, value) =
            word.strip_prefix("--")?.split_once('=').map_or((&word[2..], None), |(name, value)| (name, Some(value)));
        bolide_other_servers::beginning_with(name).map(|row| (row, value))
    };
    bolide_other_servers::of_word(Server::Gunicorn, word).or_else(begun)
}

/// The row of the same meaning that has a setting: `--log-file` is `--error-logfile`.
fn same_as(row: &'static ServerSetting) -> &'static ServerSetting {
    let subject = |row: &ServerSetting| match row.meaning {
        Meaning::Kept(subject, ..) => Some(subject),
        _ => None,
    };
    let is_same = |other: &&ServerSetting| !other.setting.is_empty() && subject(row).is_some() && subject(other) == subject(row);
    bolide_other_servers::flags().find(is_same).unwrap_or(row)
}

/// Why a flag of gunicorn is not carried over.
fn reason(row: &ServerSetting) -> String {
    match row.meaning {
        Meaning::Nothing(why) | Meaning::Done(why) => format!("nothing to do: {why}"),
        Meaning::Refused(advice) => advice.to_owned(),
        _ => format!("write the option yourself: see `bolide explain --{}`", row.flag),
    }
}

/// Translates the settings of a file and of a command line to options.
fn gunicorn_settings(file: Option<&str>, line: Vec<RawSetting>, host: &HostInfo, plan: &mut Plan) -> Result<(), Diagnostic> {
    let mut asked = Vec::new();
    let mut name = "the command line";
    if let Some(file) = file {
        name = file.strip_prefix("file:").unwrap_or(file);
        let path = host.directory.join(name);
        source_text(&path, name)?;
        let python = host.python.clone().unwrap_or_else(|| PathBuf::from(PYTHON));
        asked = gunicorn::run(&path, name, &python, &host.directory)?;
        asked.retain(|known| !line.iter().any(|other| other.name == known.name));
    }
    asked.extend(line);
    // Settings from the environment are left to startup.
    let translated = gunicorn::translated(&asked, |_| None);
    let has = |name: &str| asked.iter().any(|one| one.name == name);
    let (has_bind, has_workers) = (has("bind"), has("workers"));
    for made in translated.options {
        match made.key.as_str() {
            // gunicorn takes its default address and number of workers from the environment.
            "http" if !has_bind => plan.option("http", format!("0.0.0.0:$(PORT:={})", made.value)),
            _ => plan.option(&made.key, made.value),
        }
    }
    if !has_workers {
        plan.option("processes", "$(WEB_CONCURRENCY:=1)");
    }
    if translated.has_hooks {
        plan.option("gunicorn-hooks", if name.starts_with('/') { name.to_owned() } else { format!("%d{name}") });
    } else if file.is_some() {
        plan.missing(
            name,
            "its other effects (environment variables, for example) are not carried over; \
            `gunicorn-hooks = FILE` executes it",
        );
    }
    for remark in translated.remarks {
        let place = if remark.line > 0 { format!("{name}:{}: {}", remark.line, remark.name) } else { remark.name };
        plan.missing(place, remark.message);
    }
    if !plan.has("module") {
        plan.missing("the application", "the file does not contain one: write `module = package.module:callable`");
    }
    Ok(())
}

/// Options of uWSGI stay unchanged.
fn uwsgi_line(arguments: &[String], plan: &mut Plan) {
    let mut words = Arguments::new(arguments);
    loop {
        match words.next_option(|_| None) {
            Ok(Some(option)) => plan.option(&option.name, option.value.unwrap_or_else(|| "true".to_owned())),
            Ok(None) => break,
            Err(mistake) => {
                plan.missing(mistake.message, "uWSGI has no such option");
                break;
            }
        }
    }
    for file in words.into_positional() {
        let key = if bolide_options::reader::format_of(&file).is_some() { "include" } else { "module" };
        plan.option(key, file);
    }
}

/// Settings that are not translated, including options whose value only a shell can compute.
fn missing(plan: &Plan) -> Vec<(String, String)> {
    plan.entries
        .iter()
        .filter_map(|entry| match entry {
            PlanEntry::Missing(what, why) => Some((what.clone(), why.clone())),
            PlanEntry::Option(key, value) if value.contains('`') && !is_cpus(key, value) => Some((
                format!("{key} = {value}"),
                "the output of a command is not known before startup: write it yourself".to_owned(),
            )),
            PlanEntry::Option(..) => None,
        })
        .collect()
}

fn is_cpus(key: &str, value: &str) -> bool {
    matches!(key, "processes" | "threads") && value == "`nproc`"
}

/// The text of the file.
fn configuration(source: &str, original: &str, plan: &Plan, form: OutputFormat) -> String {
    let mark = form.comment();
    let shown: String = original.chars().take(MAX_SHOWN).collect();
    let mut text = format!(
        "{mark} Written by `bolide init --from {source}`, for: {shown}\n{mark} `bolide explain OPTION` describes each \
            option.\n[uwsgi]\n"
    );
    // Writing to a String can't fail.
    if !plan.has("chdir") {
        let _ = writeln!(text, "{mark} %d is the directory of this file.");
        options(&mut text, "chdir", &["%d".to_owned()], form);
    }
    let mut keys: Vec<&str> = Vec::new();
    for entry in &plan.entries {
        match entry {
            PlanEntry::Option(key, _) if !keys.contains(&key.as_str()) => keys.push(key),
            _ => {}
        }
    }
    for key in keys {
        let values = plan.entries.iter().filter_map(|entry| match entry {
            PlanEntry::Option(known, value) if known == key => Some(value),
            _ => None,
        });
        let known: Vec<String> = values
            .filter(|value| !value.contains('`') || is_cpus(key, value))
            .map(|value| if is_cpus(key, value) { "auto".to_owned() } else { value.clone() })
            .collect();
        if !known.is_empty() {
            options(&mut text, key, &known, form);
        }
    }
    let missing = missing(plan);
    if !missing.is_empty() {
        let _ = writeln!(text, "\n{mark} Not carried over:");
        for (what, why) in missing {
            let _ = writeln!(text, "{mark} {}: {why}", what.replace('\n', " "));
        }
    }
    text
}

/// The lines of one option. `$(NAME:-VALUE)` is a variable with a default, which the ini language expresses with conditions.
fn options(text: &mut String, key: &str, values: &[String], form: OutputFormat) {
    if form == OutputFormat::Toml {
        let quoted: Vec<String> = values.iter().map(|value| toml_text(&with_default(value))).collect();
        let _ = match quoted.as_slice() {
            [one] => writeln!(text, "{key} = {one}"),
            several => writeln!(text, "{key} = [{}]", several.join(", ")),
        };
        return;
    }
    for value in values {
        if let Some((before, name, whole)) = alternative_of(value) {
            let _ =
                writeln!(text, "if-env = {name}\n{key} = {before}%(_)\nendif =\nif-not-env = {name}\n{key} = {whole}\nendif =");
            continue;
        }
        let _ = match default_of(value) {
            Some((before, name, default, after)) => writeln!(
                text,
                "if-env = {name}\n{key} = {before}%(_){after}\nendif =\nif-not-env = {name}\n{key} = {before}{default}{after}\n\
                endif ="
            ),
            None => writeln!(text, "{key} = {value}"),
        };
    }
}

/// The parts of `before$(NAME:-default)after`.
fn default_of(value: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, rest) = value.split_once("$(")?;
    let (inside, after) = rest.split_once(')')?;
    let (name, default) = inside.split_once(":-")?;
    Some((before, name, default, after))
}

/// The parts of `before$(NAME:=value)`, whose value is the whole one without the variable.
fn alternative_of(value: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = value.split_once("$(")?;
    let (name, whole) = rest.strip_suffix(')')?.split_once(":=")?;
    Some((before, name, whole))
}

/// TOML has no conditions, so the default is written.
fn with_default(value: &str) -> String {
    if let Some((_, _, whole)) = alternative_of(value) {
        return whole.to_owned();
    }
    default_of(value).map_or_else(|| value.to_owned(), |(before, _, default, after)| format!("{before}{default}{after}"))
}

fn toml_text(value: &str) -> String {
    if matches!(value, "true" | "false") || value.parse::<u32>().is_ok() && !value.starts_with('0') {
        return value.to_owned();
    }
    // A JSON string is also a TOML basic string.
    serde_json::Value::from(value).to_string()
}
