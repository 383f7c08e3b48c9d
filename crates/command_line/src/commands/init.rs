//! `bolide init [APPLICATION]`: writes a short `bolide.ini` that runs this application, or else the one that it finds in the
//! current directory, and with `--systemd` a unit. It never prompts and never overwrites a file.

use std::path::PathBuf;

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::host_info::HostInfo;
use bolide_contract::settings::ApplicationSource;
use bolide_options::project::{self, Callable, Finding, Kind};

use super::init_unit::{self, Unit};
use crate::collect::positional;
use crate::reading::Reading;
use crate::subcommand::Subcommand;

const FILE: &str = "bolide.ini";
/// The flag for a unit, and the one for its user.
const SYSTEMD: &str = "--systemd";
const USER: &str = "--user";

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let (with_unit, user, words) = match flags(arguments) {
        Ok(flags) => flags,
        Err(why) => return Reading::usage_error(Subcommand::Init, &why),
    };
    if !with_unit {
        return write_configuration(&words, host);
    }
    let file = format!("{}.service", init_unit::name_of(host));
    let path = host.directory.join(&file);
    if path.exists() {
        return failed(format!("{file} already exists"), "remove it first, or move it aside");
    }
    // An existing configuration is what the unit starts.
    let written = match words.is_empty() && host.directory.join(FILE).exists() {
        true => Reading::Print { text: String::new(), status: 0 },
        false => write_configuration(&words, host),
    };
    let Reading::Print { text: before, status: 0 } = written else { return written };
    let unit = Unit::of(FILE, user.as_deref(), host);
    match std::fs::write(&path, &unit.text) {
        Ok(()) => {
            let before = if before.is_empty() { before } else { format!("{before}\n") };
            let text = format!("{before}{file} is written, a unit of systemd. {}\n\n{}", unit.steps(), unit.text);
            Reading::Print { text, status: 0 }
        }
        Err(error) => failed(format!("can't write {}: {error}", path.display()), "is the directory writable?"),
    }
}

/// Returns whether a unit is wanted, its user, and the other words.
fn flags(arguments: &[String]) -> Result<(bool, Option<String>, Vec<String>), String> {
    let (user, mut rest) = user_of(arguments)?;
    let with_unit = rest.iter().any(|word| word == SYSTEMD);
    rest.retain(|word| word != SYSTEMD);
    match user {
        Some(_) if !with_unit => Err(format!("`{USER}` is the user of a unit: it needs `{SYSTEMD}`")),
        user => Ok((with_unit, user, rest)),
    }
}

/// Returns the user that is asked for, and the other words.
///
/// # Errors
/// It is root, or not the name of a user.
pub fn user_of(arguments: &[String]) -> Result<(Option<String>, Vec<String>), String> {
    let (mut user, mut rest) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            USER => user = words.next().cloned().or(Some(String::new())),
            text => match text.strip_prefix("--user=") {
                Some(name) => user = Some(name.to_owned()),
                None => rest.push(word.clone()),
            },
        }
    }
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match user.as_deref() {
        Some("root" | "0") => Err("an application does not need root's rights: choose another user".to_owned()),
        Some(name) if !is_name(name) || name.starts_with('-') => Err(format!("`{USER}` needs the name of a user")),
        _ => Ok((user, rest)),
    }
}

/// A command that has failed.
pub fn failed(message: String, advice: &str) -> Reading {
    Reading::Print { text: format!("{}\n", Diagnostic::error(None, message).advise(advice)), status: 1 }
}

fn write_configuration(arguments: &[String], host: &HostInfo) -> Reading {
    let asked = match arguments {
        [] => None,
        [text] if !text.starts_with('-') => Some(text.as_str()),
        [first, ..] if first.starts_with('-') => {
            return Reading::usage_error(Subcommand::Init, &format!("`{first}` is not expected here"));
        }
        [_, extra, ..] => return Reading::usage_error(Subcommand::Init, &format!("`{extra}`: there is already an application")),
        [_] => None,
    };
    let directory = &host.directory;
    let target = directory.join(FILE);
    if target.exists() {
        return failed(format!("{FILE} already exists"), "remove it first, or look at it with `bolide check bolide.ini`");
    }
    let all = project::find_in_directory(directory);
    let all = match asked.map_or(Ok(all.clone()), |text| named(text, &all, host)) {
        Ok(all) => all,
        Err(diagnostic) => return Reading::Print { text: format!("{diagnostic}\n"), status: 1 },
    };
    let Some(found) = all.first() else {
        return failed(
            "no known application was found in this directory".to_owned(),
            "specify one: `bolide package.module:callable`",
        );
    };
    let Some(name) = found.name() else {
        let (message, advice) = unnamed(found);
        return failed(message, &advice);
    };
    let text = configuration(found, &name, project::virtualenv(directory));
    match std::fs::write(&target, &text) {
        Ok(()) => {
            let others: Vec<String> =
                all.iter().skip(1).filter_map(|other| Some(format!("`{}` ({})", other.name()?, other.description()))).collect();
            let others = match others.is_empty() {
                true => String::new(),
                false => format!("There is also {}.\n", others.join(", ")),
            };
            let what = found.description();
            Reading::Print {
                text: format!(
                    "{FILE} is written for {what}. Start it with: bolide {FILE}\n\
                    {others}`bolide init --systemd` writes a unit for it.\n\n{text}"
                ),
                status: 0,
            }
        }
        Err(error) => failed(format!("can't write {}: {error}", target.display()), "is the directory writable?"),
    }
}

/// The application on the command line. What its file reveals, such as its framework, comes from the findings.
fn named(text: &str, all: &[Finding], host: &HostInfo) -> Result<Vec<Finding>, Diagnostic> {
    let named = positional(text.to_owned()).read(&host.directory, &[])?;
    let ApplicationSource::Module(module) = named.source else {
        return Err(Diagnostic::error(None, format!("`{text}` is not a module that can be imported"))
            .advise("write `wsgi-file = FILE` into your own bolide.ini"));
    };
    let root = named.directory.as_deref().and_then(|root| root.strip_prefix(&host.directory).ok());
    let file = host.directory.join(root.unwrap_or(&PathBuf::new())).join(module.replace('.', "/")).with_extension("py");
    let known = all.iter().find(|found| found.module == module).cloned();
    let known = known.or_else(|| Some(project::find_in_file(&file)?.relative_to(&host.directory)));
    let mut found = known.unwrap_or_else(|| Finding {
        framework: None,
        kind: Kind::Unknown,
        root: PathBuf::new(),
        module: module.clone(),
        file: file.strip_prefix(&host.directory).unwrap_or(&file).to_owned(),
        callable: Callable::Unnamed,
        project: None,
    });
    found.module = module;
    found.root = root.map_or_else(PathBuf::new, PathBuf::from);
    found.callable = named.callable.map_or(found.callable, Callable::Named);
    Ok(vec![found])
}

/// The message and the advice for an application whose callable only its author can name.
fn unnamed(found: &Finding) -> (String, String) {
    let (file, module) = (found.file.display(), &found.module);
    let framework = found.framework.map_or("an".to_owned(), |framework| format!("a {framework}"));
    match &found.callable {
        Callable::NeedsArguments(name) => (
            format!("{file} creates {framework} application with `{name}`, which requires arguments that are not known"),
            format!("specify them: `bolide \"{module}:{name}('…')\"`"),
        ),
        _ => (
            format!("{file} creates {framework} application, but its name can't be determined"),
            format!("specify it: `bolide {module}:NAME`, or `bolide '{module}:FUNCTION()'` for a function that returns it"),
        ),
    }
}

fn configuration(found: &Finding, name: &str, environment: Option<&str>) -> String {
    let option = if found.kind == Kind::Asgi { "asgi" } else { "module" };
    let mut application = format!("{option} = {name}\n");
    if !found.root.as_os_str().is_empty() {
        application = format!("pythonpath = %d{}\n{application}", found.root.display());
    }
    let workers = match found.kind {
        Kind::Asgi => {
            "; One worker per CPU. Each has an event loop, and handles any number of requests at the same time.\n\
             processes = auto\n"
        }
        Kind::Wsgi => {
            "; One worker per CPU. Threads share a worker; the application must be thread-safe for them.\nprocesses = \
                auto\nthreads = 1\n\n; A longer request, in seconds, is logged with its stack and killed.\nharakiri = 60\n"
        }
        Kind::Unknown => "; One worker per CPU.\nprocesses = auto\n",
    };
    let environment = environment
        .map(|name| format!("\n; The interpreter and the packages of this virtualenv.\nvirtualenv = %d{name}\n"))
        .unwrap_or_default();
    format!(
        "; Written by `bolide init` for {}. `bolide explain OPTION` describes each option.\n[uwsgi]\n; %d is the directory of \
            this file.\nchdir = %d\n{application}{environment}\n; Where to listen. Behind nginx: socket = /run/app.sock, and \
            `uwsgi_pass unix:/run/app.sock;` there.\nhttp = 127.0.0.1:8000\n\n{workers}\n; Unknown options are errors.\nstrict = \
            true\n",
        found.description()
    )
}
