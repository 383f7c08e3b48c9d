//! How an option names an application: a module, a file, or a text of a framework, perhaps at a mount. It loads nothing. Runs in
//! the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_contract::settings::{ApplicationSource, Interface, Substitute};

use crate::context::normalized;
use crate::topics::application::positional::{module, source};

/// The options that name the application for all paths without a mount, in order of precedence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ApplicationOption {
    Asgi,
    Module,
    File,
    Named(NamedBy),
}

impl ApplicationOption {
    pub const ALL: [ApplicationOption; 6] = [
        ApplicationOption::Asgi,
        ApplicationOption::Module,
        ApplicationOption::File,
        ApplicationOption::Named(NamedBy::Paste),
        ApplicationOption::Named(NamedBy::Pecan),
        ApplicationOption::Named(NamedBy::Text),
    ];

    pub fn name(self) -> &'static str {
        match self {
            ApplicationOption::Asgi => "asgi",
            ApplicationOption::Module => "module",
            ApplicationOption::File => "wsgi-file",
            ApplicationOption::Named(NamedBy::Paste) => "paste",
            ApplicationOption::Named(NamedBy::Pecan) => "pecan",
            ApplicationOption::Named(NamedBy::Text) => "eval",
        }
    }
}

/// An application as it was named.
pub struct NamedApplication {
    pub mount: String,
    pub source: ApplicationSource,
    pub callable: Option<String>,
    /// Set if the option itself determines it.
    pub interface: Option<Interface>,
    pub location: Location,
}

impl NamedApplication {
    /// Converts it to a substitute for an application that can't be loaded.
    pub fn substitute(self, directory: &Path, reason: String) -> Substitute {
        let module_name = module_name(&self.source);
        let source = absolute(self.source, directory);
        Substitute { source, module_name, callable: self.callable, origin: self.location.to_string(), reason, is_guess: false }
    }
}

/// A relative file starts at the directory of `chdir`.
pub fn absolute(source: ApplicationSource, directory: &Path) -> ApplicationSource {
    match source {
        ApplicationSource::File(path) => ApplicationSource::File(normalized(&directory.join(path))),
        ApplicationSource::Pecan(path) => ApplicationSource::Pecan(normalized(&directory.join(path))),
        ApplicationSource::Paste(name) => ApplicationSource::Paste(paste_name(&name, directory)),
        other => other,
    }
}

/// Returns the name of an application in PasteDeploy's form, with an absolute path.
fn paste_name(name: &str, directory: &Path) -> String {
    let (scheme, path) = match name.split_once(':') {
        Some(("egg" | "call", _)) => return name.to_owned(),
        Some((scheme, path)) => (scheme, path),
        None => ("config", name),
    };
    format!("{scheme}:{}", normalized(&directory.join(path)).display())
}

/// Returns uWSGI's module name for a file: the path as written, without a final `.py`, with underscores for dots and slashes.
pub fn module_name(source: &ApplicationSource) -> Option<String> {
    let ApplicationSource::File(path) = source else { return None };
    let name = path.to_string_lossy().replace(['.', '/'], "_");
    Some(format!("uwsgi_file_{}", name.strip_suffix("_py").unwrap_or(&name)))
}

/// Like [`module`], but a name that ends with `.py` or contains a slash is that of a file.
pub fn module_or_file(text: &str) -> (ApplicationSource, Option<String>) {
    let (name, callable) = module(text);
    match name.ends_with(".py") || name.contains('/') {
        true => (ApplicationSource::File(PathBuf::from(name)), callable),
        false => (ApplicationSource::Module(name), callable),
    }
}

/// Returns the file that `asgi` contains, if it contains one.
pub fn asgi_file(text: &str) -> Option<PathBuf> {
    match module_or_file(text).0 {
        ApplicationSource::File(path) => Some(path),
        _ => None,
    }
}

/// `/path=module:callable` or `/path=file.py`.
pub fn mount(text: &str, location: Location) -> Result<NamedApplication, Diagnostic> {
    let wrong = |message: String| {
        Diagnostic::error(Some(&location), message).advise("write `mount = /path=module:callable` or `mount = /path=file.py`")
    };
    let (path, what) = text.split_once('=').ok_or_else(|| wrong(format!("`mount = {text}` has no `=`")))?;
    let path = path.trim();
    let (host, below) = path.split_once('|').map_or((None, path), |(host, below)| (Some(host), below));
    if host.is_some_and(str::is_empty) || !below.starts_with('/') && !below.is_empty() {
        let message = format!("`{path}` is neither a path nor `HOST|` or `HOST|/path`");
        let advice = format!("for requests of a host write `mount = {path}|={}` and `vhost = true`", what.trim());
        return Err(Diagnostic::error(Some(&location), message).advise(advice));
    }
    // uWSGI does not find an application either, reports nothing, and continues.
    let (source, callable) = source(what.trim()).ok_or_else(|| Diagnostic {
        severity: Severity::Warning,
        ..wrong(format!("`{what}` is not an application: the mount has no effect"))
    })?;
    Ok(NamedApplication { mount: path.to_owned(), source, callable, interface: None, location })
}

/// The ways to name the application other than by a module or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    Paste,
    Pecan,
    Text,
}
