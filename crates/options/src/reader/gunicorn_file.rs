//! Reads a `gunicorn.conf.py`, or a TOML file of hypercorn, as a file of the configuration: its settings become pairs with their
//! lines. All other sources take precedence over them, in any order. Placeholders in them are not filled in: `%(h)s` is
//! gunicorn's.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use bolide_configuration::bounded::{line_text, read_bounded};
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::launcher;
use bolide_configuration::pair::Pair;
use bolide_configuration::sources::line_of;

use super::other_servers::GunicornFile;
use super::{EarlyExit, Reader};
use crate::catalog::catalog;
use crate::row::{OptionRow, Value};
use crate::server::Server;

/// The file that gunicorn reads by default.
const GUNICORN_FILE: &str = "gunicorn.conf.py";
/// The Python of a machine, if none is named.
const PYTHON: &str = "python3";
/// The program of `bolide.run`'s server: a call from Python is not a command line of gunicorn.
const OF_A_CALL: &str = "bolide/child_master.py";
/// Subjects that several options share.
const APPLICATION: &str = "the application";
const ADDRESS: &str = "the addresses";

impl Reader<'_> {
    /// Executes the file in a child process, and adds its settings.
    ///
    /// # Errors
    /// The file can't be read or executed, or raises an exception.
    pub(super) fn load_gunicorn(&mut self, asked: &str, location: &Location) -> Result<(), EarlyExit> {
        let file = match asked.strip_prefix("python:") {
            Some(module) => self.file_of_module(module).ok_or_else(|| {
                let file = format!("{}.py", module.replace('.', "/"));
                Diagnostic::error(Some(location), format!("`{asked}`: there is no `{file}` in this directory"))
                    .advise("specify the file of the module, which is not searched for elsewhere")
            })?,
            None => asked.strip_prefix("file:").unwrap_or(asked).to_owned(),
        };
        let name = file.as_str();
        if !is_program(asked) {
            self.made
                .diagnostics
                .push(Diagnostic::note(Some(location), format!("`{name}` is executed as Python, as gunicorn does")));
        }
        let path = self.host.directory.join(name);
        // The directory of startup is the first one from which the program imports.
        for used in [&path, &self.host.directory] {
            self.host.trust.note(used, location)?;
        }
        self.host.trust.note_python(&self.python(), location)?;
        self.note_imports(location)?;
        let text = read_bounded(&path, location)?;
        let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
        let place = |line: u32| Location { text: line_text(&lines, line), ..Location::file(name, line) };
        let variable = |name: &str| self.host.variable(name).filter(|value| !value.is_empty()).map(str::to_owned);
        let file = GunicornFile { path: &path, name, python: &self.python(), directory: &self.host.directory };
        let made = self.others.run_gunicorn(&file, &place, &variable)?;
        self.made.files.push(name.to_owned());
        self.made.servers_of_files.push(Server::Gunicorn);
        self.made.diagnostics.extend(made.diagnostics);
        let hooks = ("gunicorn-hooks".to_owned(), name.to_owned(), 0);
        self.add_foreign(made.options.into_iter().chain([hooks]), place);
        Ok(())
    }

    /// The file of a module in the startup directory.
    fn file_of_module(&self, module: &str) -> Option<String> {
        let path = module.replace('.', "/");
        let names = [format!("{path}.py"), format!("{path}/__init__.py")];
        names.into_iter().find(|name| self.host.directory.join(name).is_file())
    }

    /// Adds the settings of a TOML file of hypercorn. Returns whether it is one.
    pub(super) fn load_hypercorn(&mut self, bytes: &[u8], name: &str) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        let place = |line: u32| Location { text: line_text(&lines, line), ..Location::file(name, line) };
        let Some(made) = self.others.read_hypercorn(text, &place, &|offset| line_of(bytes, offset)) else { return false };
        self.made.servers_of_files.push(Server::Hypercorn);
        self.made.diagnostics.push(Diagnostic::note(None, format!("`{name}` is read as a configuration of hypercorn")));
        self.made.diagnostics.extend(made.diagnostics);
        self.add_foreign(made.options.into_iter(), place);
        true
    }

    /// Adds pairs of a file over which all other sources take precedence.
    fn add_foreign(&mut self, made: impl Iterator<Item = (String, String, u32)>, place: impl Fn(u32) -> Location) {
        for (key, value, line) in made {
            let pair = Pair { key, value: Some(value), location: place(line), acted: true, placeholder: false };
            self.made.pairs.push(pair.clone());
            self.gunicorn_pairs.push(pair);
        }
    }

    /// Reads the `gunicorn.conf.py` beside the command, as gunicorn does unless another configuration is named. Returns a note.
    ///
    /// # Errors
    /// As for any such file.
    pub fn load_gunicorn_beside(&mut self) -> Result<Option<Diagnostic>, EarlyExit> {
        let is_call = self.host.imports.iter().any(|path| path.ends_with(OF_A_CALL));
        if is_call || !self.made.files.is_empty() || !self.host.directory.join(GUNICORN_FILE).is_file() {
            return Ok(None);
        }
        self.load_gunicorn(GUNICORN_FILE, &Location::command_line())?;
        let note = Diagnostic::note(None, format!("`{GUNICORN_FILE}` in this directory is read, as gunicorn reads it"));
        Ok(Some(note.advise("the command line takes precedence; another configuration replaces it")))
    }

    /// Notes the places that the child's Python imports from: those of this process's Python, and `PYTHONPATH`.
    fn note_imports(&self, location: &Location) -> Result<(), EarlyExit> {
        for import in &self.host.imports {
            self.host.trust.note_import(import, true, location)?;
        }
        let named = self.host.variable("PYTHONPATH").unwrap_or_default();
        for import in launcher::of_variable(OsStr::new(named), &self.host.directory) {
            self.host.trust.note_import(&import, self.host.imports.contains(&import), location)?;
        }
        Ok(())
    }

    /// Notes that there is an application on the command line, which takes precedence over the file's.
    pub fn note_application(&mut self) {
        self.has_application = true;
    }

    /// Returns the pairs of the file whose subject (an option, all addresses, or the application) no other source sets.
    pub(super) fn remaining_gunicorn_pairs(&mut self, others: &[Pair]) -> Vec<Pair> {
        let subject = |pair: &Pair| catalog().get(&pair.key).map(subject_of);
        let mut others: HashSet<&str> = others.iter().filter_map(subject).collect();
        if self.has_application {
            others.insert(APPLICATION);
        }
        let mut left = std::mem::take(&mut self.gunicorn_pairs);
        left.retain(|pair| subject(pair).is_none_or(|subject| !others.contains(subject)));
        left
    }

    /// The Python of the virtual environment that was named so far, else the one that runs the console script.
    fn python(&self) -> PathBuf {
        let named = self
            .made
            .pairs
            .iter()
            .rev()
            .find(|pair| catalog().get(&pair.key).is_some_and(|row| row.name() == "virtualenv") && pair.value.is_some());
        match named.and_then(|pair| pair.value.as_deref()) {
            Some(directory) => self.host.directory.join(directory).join("bin/python"),
            None => self.host.python.clone().unwrap_or_else(|| Path::new(PYTHON).to_owned()),
        }
    }
}

/// Whether a name is that of a configuration that is a program, as a value of `config`, which can't name anything else.
pub fn is_program(name: &str) -> bool {
    name.ends_with(".py") || name.contains(".py.") || name.starts_with("python:")
}

/// Whether a file is gunicorn's configuration and not an application, by its name, where it could be either.
pub fn is_gunicorn_configuration(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    name.ends_with(".conf.py") || name.starts_with("gunicorn") && name.ends_with(".py") && name != "gunicorn.py"
}

fn subject_of(row: &OptionRow) -> &'static str {
    match row.name() {
        "module" | "asgi" | "wsgi-file" => APPLICATION,
        _ if row.value == Value::Address => ADDRESS,
        name => name,
    }
}
