//! Resolves a positional argument of the command line to an application, in the forms that people use: `app`, `app.py`,
//! `shop.wsgi`, `shop/`, `.`, `app:app`. It becomes a module or a file, and loading it determines the rest. Reads only names and
//! texts of files.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::settings::ApplicationSource;

use crate::context::normalized;
use crate::project::{self, Finding};

/// A positional argument that is not a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionalApplication {
    pub text: String,
    /// The command that was probably meant.
    pub command: Option<&'static str>,
}

/// The module or file in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    pub source: ApplicationSource,
    pub callable: Option<String>,
    /// The directory that its module is imported from, if a file or a directory was named.
    pub directory: Option<PathBuf>,
    /// Modules that may contain the application if this one does not, likeliest first.
    pub others: Vec<String>,
    /// The directory has no such module; it may be installed.
    pub is_missing: bool,
}

impl Named {
    fn module(name: &str, callable: Option<&str>) -> Named {
        let callable = callable.map(str::to_owned);
        Named {
            source: ApplicationSource::Module(name.to_owned()),
            callable,
            directory: None,
            others: Vec::new(),
            is_missing: false,
        }
    }

    fn file(path: &str, callable: Option<&str>) -> Named {
        Named { source: ApplicationSource::File(PathBuf::from(path)), ..Named::module("", callable) }
    }
}

impl PositionalApplication {
    /// Resolves the argument. Files are relative to `directory`; modules are in that directory, in a directory of `search`, or
    /// installed.
    ///
    /// # Errors
    /// It can't be an application.
    pub fn read(&self, directory: &Path, search: &[String]) -> Result<Named, Diagnostic> {
        let text = self.text.as_str();
        let (left, callable) = match text.split_once(':') {
            Some((left, callable)) => (left, Some(callable).filter(|callable| !callable.is_empty())),
            None => (text, None),
        };
        let path = normalized(&directory.join(left));
        let is_module = project::is_module_name(left);
        if left.is_empty() {
            return Err(wrong(format!("`{text}` does not contain a module")).advise("write `bolide package.module:callable`"));
        }
        if path.is_file() {
            return file(left, &path, callable);
        }
        if path.is_dir() && !(is_module && path.with_extension("py").is_file()) {
            return directory_named(left, &path, directory, callable);
        }
        if !is_module || left.ends_with(".py") {
            // The file may appear later, or may be visible only to the application's user.
            return match source(text) {
                Some((source, callable)) => Ok(Named { source, ..Named::module("", callable.as_deref()) }),
                None => Err(self.unknown()),
            };
        }
        let is_plain = callable.is_none() && !text.contains(':') && !left.contains('.');
        let places = || std::iter::once(directory.to_owned()).chain(search.iter().map(|place| directory.join(place)));
        let is_there = || places().any(|place| project::has_module(&place, left));
        if is_plain && self.command.is_some() && !is_there() {
            return Err(self.unknown());
        }
        let mut named = Named { is_missing: !is_there(), ..Named::module(left, callable) };
        if callable.is_none() {
            let places = std::iter::once(directory.to_owned()).chain(search.iter().map(|place| directory.join(place)));
            let package =
                places.map(|place| place.join(left.replace('.', "/"))).find(|place| place.join("__init__.py").is_file());
            named.others = package.map(|package| others(&package, left)).unwrap_or_default();
        }
        Ok(named)
    }

    fn unknown(&self) -> Diagnostic {
        let text = self.text.as_str();
        let diagnostic = wrong(format!("`{text}` is neither a configuration nor an application"));
        if matches!(text, "log" | "logs") {
            let advice = "the log is what the command prints, or the file of `logto` (`bolide config FILE` shows it), and under \
                systemd `journalctl -u UNIT`; `bolide top` shows the requests";
            return diagnostic.advise(advice);
        }
        match self.command {
            Some(command) => diagnostic
                .advise(format!("did you mean `bolide {command}`? An installed application is `bolide {text}:CALLABLE`")),
            None => diagnostic.advise("a configuration ends with .ini, an application is package.module:callable or file.py"),
        }
    }
}

/// Resolves an existing file: a module of the package that contains it, or a file by itself.
fn file(left: &str, path: &Path, callable: Option<&str>) -> Result<Named, Diagnostic> {
    if let Some(place) = project::place_of(path) {
        return Ok(Named { directory: Some(place.root), ..Named::module(&place.module, callable) });
    }
    if left.ends_with(".py") || left.ends_with(".wsgi") {
        return Ok(Named::file(left, callable));
    }
    let wrong = wrong(format!("`{left}` is neither a configuration nor a Python file"));
    Err(match path.file_name().and_then(|name| name.to_str()) {
        Some("Procfile") => wrong.advise("write the command that it contains, or see `bolide init --help`"),
        _ => wrong.advise("a configuration ends with .ini, .toml, .yaml, .json or .xml, an application with .py"),
    })
}

/// Resolves an existing directory: a package, or a project with an application in it.
fn directory_named(left: &str, path: &Path, start: &Path, callable: Option<&str>) -> Result<Named, Diagnostic> {
    if let Some(place) = project::place_of(&path.join("__init__.py")) {
        if place.root == start && callable.is_some() {
            return Ok(Named::module(&place.module, callable));
        }
        let others = if callable.is_none() { others(path, &place.module) } else { Vec::new() };
        return Ok(Named { directory: Some(place.root), others, ..Named::module(&place.module, callable) });
    }
    if callable.is_some() {
        return Ok(Named::module(left.trim_end_matches('/'), callable));
    }
    let found = project::find_in_directory(path);
    let Some(first) = found.first() else {
        let advice = "specify one: `bolide package.module:callable`, or `bolide file.py`";
        return Err(wrong(format!("no known application was found in the directory `{left}`")).advise(advice));
    };
    Ok(of_finding(first, path))
}

/// Converts an application that was found in a directory. Loading it determines what its text does not reveal.
fn of_finding(found: &Finding, directory: &Path) -> Named {
    let name = found.name();
    let callable = name.as_deref().and_then(|name| name.split_once(':')).map(|(_, callable)| callable);
    Named { directory: Some(normalized(&directory.join(&found.root))), ..Named::module(&found.module, callable) }
}

/// Modules of a package that seem to contain an application.
fn others(package: &Path, name: &str) -> Vec<String> {
    let prefix = project::place_of(&package.join("__init__.py")).map(|place| place.module).unwrap_or_default();
    let found = project::find_in_package(package).into_iter();
    // The full name of the package may be longer than the name in the argument.
    found
        .filter(|found| found.module != prefix)
        .map(|found| format!("{name}{}", found.module.get(prefix.len()..).unwrap_or_default()))
        .collect()
}

fn wrong(message: String) -> Diagnostic {
    Diagnostic::error(Some(&Location::command_line()), message)
}

/// Returns the file, or the module with a callable, that the right side of a mount names, or a positional argument whose file is
/// missing.
pub fn source(text: &str) -> Option<(ApplicationSource, Option<String>)> {
    if text.ends_with(".py") || text.ends_with(".wsgi") {
        return Some((ApplicationSource::File(PathBuf::from(text)), None));
    }
    let (left, callable) = text.rsplit_once(':').filter(|(left, callable)| !left.is_empty() && !callable.is_empty())?;
    // `shop.wsgi:application` is the usual name of Django's module, not a file.
    match left.ends_with(".py") || (left.ends_with(".wsgi") && left.contains('/')) {
        true => Some((ApplicationSource::File(PathBuf::from(left)), Some(callable.to_owned()))),
        false => module(text).1.map(|callable| (ApplicationSource::Module(module(text).0), Some(callable))),
    }
}

/// Splits a text into a module and its callable, if it has one.
pub fn module(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((module, callable)) => (module.to_owned(), Some(callable.to_owned()).filter(|callable| !callable.is_empty())),
        None => (text.to_owned(), None),
    }
}
