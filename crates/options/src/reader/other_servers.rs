//! What the reading of a configuration asks of those who know other servers: their files, and their words. It must not know any
//! server. Runs in the process that reads the configuration.

use std::fmt::Debug;
use std::path::Path;

use bolide_configuration::diagnostic::{Diagnostic, Location};

/// Finds the place of a line, counted from one; 0 is the file as a whole.
pub type PlaceOf<'a> = &'a dyn Fn(u32) -> Location;

/// A `gunicorn.conf.py` to execute.
#[derive(Debug)]
pub struct GunicornFile<'a> {
    pub path: &'a Path,
    /// As the user named it.
    pub name: &'a str,
    pub python: &'a Path,
    /// The directory of startup.
    pub directory: &'a Path,
}

/// What a file of another server says in options.
#[derive(Debug, Default)]
pub struct ForeignFile {
    /// Option, value and line.
    pub options: Vec<(String, String, u32)>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Knows the files and words of other servers.
pub trait OtherServers: Debug {
    /// Executes the file in a child process. `variable` returns a variable of the environment.
    ///
    /// # Errors
    /// The file can't be executed, or raises an exception.
    fn run_gunicorn(
        &self,
        file: &GunicornFile<'_>,
        place: PlaceOf<'_>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ForeignFile, Diagnostic>;

    /// Reads a TOML file of hypercorn; `None` for any other. `line_at` returns the line of an offset.
    fn read_hypercorn(&self, text: &str, place: PlaceOf<'_>, line_at: &dyn Fn(usize) -> u32) -> Option<ForeignFile>;

    /// Returns what to write instead of a word of another program.
    fn advice(&self, word: &str) -> Option<String>;

    /// Returns the option that replaces a word of another program.
    fn option_for(&self, word: &str) -> Option<&'static str>;
}

/// Knows none: for the uses that read files of options alone.
#[derive(Debug)]
pub struct NoOtherServers;

impl OtherServers for NoOtherServers {
    fn run_gunicorn(
        &self,
        file: &GunicornFile<'_>,
        place: PlaceOf<'_>,
        _: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ForeignFile, Diagnostic> {
        Err(Diagnostic::error(Some(&place(0)), format!("`{}` is not a file of options", file.name)))
    }

    fn read_hypercorn(&self, _: &str, _: PlaceOf<'_>, _: &dyn Fn(usize) -> u32) -> Option<ForeignFile> {
        None
    }

    fn advice(&self, _: &str) -> Option<String> {
        None
    }

    fn option_for(&self, _: &str) -> Option<&'static str> {
        None
    }
}
