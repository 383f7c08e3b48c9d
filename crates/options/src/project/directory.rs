//! What a directory has to serve: its configuration, and the commands that serve its applications. It reads names and texts of
//! files, and starts nothing. Runs in the process that reads a command line.

use std::path::Path;

use crate::project::{self, Callable, Finding};

/// Configuration files, in the order of precedence.
pub const USUAL_FILES: &[&str] = &["bolide.ini", "bolide.toml", "bolide.yaml", "bolide.yml", "bolide.json", "uwsgi.ini"];

/// Returns the configuration of a directory.
pub fn configuration(directory: &Path) -> Option<&'static str> {
    USUAL_FILES.iter().copied().find(|name| directory.join(name).is_file())
}

/// The command for an application, without characters that a shell would interpret.
pub fn command(found: &Finding) -> Option<String> {
    let name = match &found.callable {
        // A function without arguments is called without an option.
        Callable::MadeBy(name) => format!("{}:{name}", found.module),
        _ => found.name()?,
    };
    with_root(found, &name)
}

/// Returns the command for the only application of a directory, and its description.
pub fn only_application(directory: &Path) -> Option<(String, String)> {
    let found = project::find_in_directory(directory);
    let first = found.first()?;
    // A Django project has a module for WSGI and one for ASGI.
    let is_same = |other: &Finding| other.project.is_some() && other.project == first.project;
    let others = found.iter().skip(1).any(|other| !is_same(other));
    Some((command(first)?, first.description())).filter(|_| !others)
}

/// Returns the command that serves the Django project of a directory.
pub fn django(directory: &Path) -> Option<String> {
    let found = project::find_in_directory(directory).into_iter().find(|found| found.project.is_some())?;
    with_root(&found, &found.module)
}

fn with_root(found: &Finding, name: &str) -> Option<String> {
    Some(match found.root.to_str()? {
        "" => format!("bolide {name}"),
        root => format!("bolide --pythonpath {root} {name}"),
    })
}
