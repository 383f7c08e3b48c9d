//! Resolves the applications to serve, and the interface of each: `asgi`, `module`, `wsgi-file`, `mount`, and positional
//! arguments. It loads nothing. Runs in the process that reads the configuration.

pub mod positional;

use crate::resolve::interpreter::PythonDraft;
use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_contract::settings::{Application, ApplicationSettings, ApplicationSource, Interface, Substitute};
use positional::{Named, PositionalApplication, module, source};

use crate::context::{Context, normalized};

use crate::server::Server;

/// A folder that does not exist.
const MISSING_FOLDER: &str = "/nonexistent";

/// The options that name the application for all paths without a mount, in order of precedence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApplicationOption {
    Asgi,
    Module,
    File,
    Named(NamedBy),
}

impl ApplicationOption {
    fn name(self) -> &'static str {
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
struct NamedApplication {
    mount: String,
    source: ApplicationSource,
    callable: Option<String>,
    /// Set if the option itself determines it.
    interface: Option<Interface>,
    location: Location,
}

impl NamedApplication {
    /// Converts it to a substitute for an application that can't be loaded.
    fn substitute(self, folder: &Path, reason: String) -> Substitute {
        let module_name = module_name(&self.source);
        let source = absolute(self.source, folder);
        Substitute { source, module_name, callable: self.callable, origin: self.location.to_string(), reason, is_guess: false }
    }
}

/// A relative file starts at the folder of `chdir`.
fn absolute(source: ApplicationSource, folder: &Path) -> ApplicationSource {
    match source {
        ApplicationSource::File(path) => ApplicationSource::File(normalized(&folder.join(path))),
        ApplicationSource::Pecan(path) => ApplicationSource::Pecan(normalized(&folder.join(path))),
        ApplicationSource::Paste(name) => ApplicationSource::Paste(paste_name(&name, folder)),
        other => other,
    }
}

/// Returns the name of an application in PasteDeploy's form, with an absolute path.
fn paste_name(name: &str, folder: &Path) -> String {
    let (scheme, path) = match name.split_once(':') {
        Some(("egg" | "call", _)) => return name.to_owned(),
        Some((scheme, path)) => (scheme, path),
        None => ("config", name),
    };
    format!("{scheme}:{}", normalized(&folder.join(path)).display())
}

/// Returns uWSGI's module name for a file: the path as written, without a final `.py`, with underscores for dots and slashes.
fn module_name(source: &ApplicationSource) -> Option<String> {
    let ApplicationSource::File(path) = source else { return None };
    let name = path.to_string_lossy().replace(['.', '/'], "_");
    Some(format!("uwsgi_file_{}", name.strip_suffix("_py").unwrap_or(&name)))
}

impl ApplicationDraft {
    /// Returns all applications in the order in which uWSGI loads them; the first is the default one. Relative files start at
    /// `folder`.
    pub fn complete(
        mut self,
        positional: Option<&PositionalApplication>,
        python: &PythonDraft,
        is_jailed: bool,
        context: &mut Context,
    ) -> Vec<Application> {
        let folder = &context.folder.clone();
        let (main, second) = if positional.is_some() { (None, None) } else { self.main(context) };
        let mounts = std::mem::take(&mut self.mounts);
        self.check_interface(main.as_ref(), mounts.is_empty(), context);
        let mut made: Vec<Application> = main.map(|named| self.application(named, folder)).into_iter().collect();
        made.extend(positional.and_then(|positional| self.positional(positional, python, is_jailed, context)));
        if let (Some(first), Some(second)) = (made.first_mut(), second) {
            let reason = format!("{}: warning: `{}` is loaded instead", second.location, ApplicationOption::File.name());
            let second = NamedApplication { callable: self.callable.clone(), ..second };
            first.substitutes.push(second.substitute(folder, reason));
        }
        for (text, location) in mounts {
            match mount(&text, location) {
                Ok(named) => match made.iter().find(|earlier| earlier.mount == named.mount) {
                    // As in uWSGI: "mountpoint already configured. skip."
                    Some(earlier) => context.diagnostics.push(Diagnostic::warning(
                        Some(&named.location),
                        format!("`mount = {text}` has no effect: {} has its application from {}", named.mount, earlier.origin),
                    )),
                    None => made.push(self.application(named, folder)),
                },
                Err(diagnostic) => context.diagnostics.push(diagnostic),
            }
        }
        self.take_colon(&mut made);
        made
    }

    /// Returns the application of `asgi`, `module` or `wsgi-file`: the first of them takes precedence. The second result is a
    /// `wsgi-file` that is loaded if the `module` can't be. Any further one gets a warning.
    fn main(&mut self, context: &mut Context) -> (Option<NamedApplication>, Option<NamedApplication>) {
        // `asgi` is not an option of uWSGI, so a file for uWSGI may use the name for a placeholder: `module = %(asgi)`.
        let other_given = self.module.is_some() || self.wsgi_file.is_some();
        if other_given && !context.strict && context.read.used.contains(ApplicationOption::Asgi.name()) {
            self.asgi = None;
        }
        let asked = [
            (ApplicationOption::Asgi, self.asgi.take()),
            (ApplicationOption::Module, self.module.take()),
            (ApplicationOption::File, self.wsgi_file.take()),
        ];
        let named_by = self.named_by.take().map(|(by, text, location)| (ApplicationOption::Named(by), text, location));
        let given = asked.into_iter().filter_map(|(way, what)| what.map(|(text, location)| (way, text, location)));
        let mut given = given.chain(named_by);
        let Some((way, text, location)) = given.next() else { return (None, None) };
        let mut second = None;
        for (other, text, second_place) in given {
            let first = format!("`{}` at {location}", way.name());
            if way == ApplicationOption::Module && other == ApplicationOption::File {
                let message = format!("`{}` is loaded only if {first} can't be", other.name());
                context.diagnostics.push(Diagnostic::note(Some(&second_place), message));
                second = Some(Self::named(other, &text, second_place));
            } else {
                let message = format!("`{}` has no effect: {first} comes first", other.name());
                context.diagnostics.push(Diagnostic::warning(Some(&second_place), message));
            }
        }
        let named = Self::named(way, &text, location);
        if way == ApplicationOption::Asgi && named.source == ApplicationSource::Module(String::new()) {
            context.diagnostics.push(
                Diagnostic::error(Some(&named.location), format!("`asgi = {text}` names no module"))
                    .advise("write `asgi = package.module:callable` or `asgi = file.py:callable`"),
            );
        }
        (Some(named), second)
    }

    fn named(way: ApplicationOption, text: &str, location: Location) -> NamedApplication {
        let (source, callable) = match way {
            ApplicationOption::Asgi => module_or_file(text),
            ApplicationOption::Module => {
                let (module, callable) = module(text);
                (ApplicationSource::Module(module), callable)
            }
            ApplicationOption::File => (ApplicationSource::File(PathBuf::from(text)), None),
            ApplicationOption::Named(NamedBy::Paste) => (ApplicationSource::Paste(text.to_owned()), None),
            ApplicationOption::Named(NamedBy::Pecan) => (ApplicationSource::Pecan(PathBuf::from(text)), None),
            ApplicationOption::Named(NamedBy::Text) => (ApplicationSource::Text(text.to_owned()), None),
        };
        let interface = (way == ApplicationOption::Asgi).then_some(Interface::Asgi);
        NamedApplication { mount: String::new(), source, callable, interface, location }
    }

    fn application(&self, named: NamedApplication, folder: &Path) -> Application {
        let callable = named.callable.or_else(|| self.callable.clone());
        // `create_app()` is already a call.
        let factory = self.is_factory && !callable.as_deref().is_some_and(|text| text.ends_with(')'));
        Application {
            mount: named.mount,
            module_name: module_name(&named.source),
            source: absolute(named.source, folder),
            callable,
            interface: named.interface.or(self.interface.as_ref().map(|&(interface, _)| interface)).unwrap_or_default(),
            factory,
            origin: named.location.to_string(),
            is_positional: false,
            alternative: None,
            folder: None,
            substitutes: Vec::new(),
        }
    }

    /// Returns the application that the command line names. With a `chroot` it can't be looked up from here.
    fn positional(
        &self,
        positional: &PositionalApplication,
        python: &PythonDraft,
        is_jailed: bool,
        context: &mut Context,
    ) -> Option<Application> {
        let folder = &context.folder.clone();
        let looked_at = if is_jailed { Path::new(MISSING_FOLDER) } else { folder };
        let named = match positional.read(looked_at, &python.path) {
            Ok(named) => named,
            Err(diagnostic) => {
                context.diagnostics.push(diagnostic);
                return None;
            }
        };
        let Named { source, callable, folder: imported_from, others, is_missing } = named;
        let alternative =
            is_missing.then(|| crate::project::folder::only_application(looked_at)).flatten().map(|(command, _)| command);
        let location = Location::command_line();
        let named = NamedApplication { mount: String::new(), source, callable, interface: None, location };
        let mut made = Application { is_positional: true, alternative, folder: imported_from, ..self.application(named, folder) };
        made.substitutes = others
            .into_iter()
            .map(|module| Substitute {
                source: ApplicationSource::Module(module),
                module_name: None,
                callable: made.callable.clone(),
                origin: made.origin.clone(),
                reason: String::new(),
                is_guess: true,
            })
            .collect();
        Some(made)
    }

    /// A line `callable: app` is not an option. An application without a callable is tried with it if nothing else could be
    /// served.
    fn take_colon(&mut self, applications: &mut [Application]) {
        let Some((callable, location)) = self.colon_callable.take().filter(|_| self.callable.is_none()) else { return };
        for application in applications.iter_mut().filter(|application| application.callable.is_none()) {
            let same = Substitute {
                source: application.source.clone(),
                module_name: application.module_name.clone(),
                callable: Some(callable.clone()),
                origin: location.to_string(),
                reason: format!("{location}: warning: `callable: {callable}` is read as `callable = {callable}`"),
                is_guess: false,
            };
            let others: Vec<Substitute> = application
                .substitutes
                .iter()
                .filter(|other| other.callable.is_none())
                .map(|other| Substitute { callable: same.callable.clone(), reason: same.reason.clone(), ..other.clone() })
                .collect();
            application.substitutes.push(same);
            application.substitutes.extend(others);
        }
    }

    /// Reports `interface = wsgi` beside `asgi`, without a mount that it could apply to.
    fn check_interface(&self, main: Option<&NamedApplication>, alone: bool, context: &mut Context) {
        let (Some(main), Some((Interface::Wsgi, location)), true) = (main, &self.interface, alone) else { return };
        if main.interface.is_some() {
            context.diagnostics.push(
                Diagnostic::warning(
                    Some(location),
                    format!("`interface` has no effect: `asgi` at {} already says it", main.location),
                )
                .advise("write `module` instead of `asgi` for a WSGI application"),
            );
        }
    }
}

/// Like [`module`], but a name that ends with `.py` or contains a slash is that of a file.
fn module_or_file(text: &str) -> (ApplicationSource, Option<String>) {
    let (name, callable) = module(text);
    match name.ends_with(".py") || name.contains('/') {
        true => (ApplicationSource::File(PathBuf::from(name)), callable),
        false => (ApplicationSource::Module(name), callable),
    }
}

/// Returns the file that `asgi` names, if it names one.
pub fn asgi_file(text: &str) -> Option<PathBuf> {
    match module_or_file(text).0 {
        ApplicationSource::File(path) => Some(path),
        _ => None,
    }
}

/// `/path=module:callable` or `/path=file.py`.
fn mount(text: &str, location: Location) -> Result<NamedApplication, Diagnostic> {
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

/// gunicorn's way to serve below a prefix that the front server leaves in the path: the variable `SCRIPT_NAME`, in the environment or
/// as `env`. Here it is the mount point of the application.
pub fn below_script_name(
    mut applications: Vec<Application>,
    settings: &mut ApplicationSettings,
    context: &mut Context,
) -> Vec<Application> {
    const SCRIPT_NAME: &str = "SCRIPT_NAME";
    if !context.read.words.may_be(Server::Gunicorn) || settings.removed_variables.iter().any(|name| name == SCRIPT_NAME) {
        return applications;
    }
    let set = settings.environment.iter().rfind(|(name, _)| name == SCRIPT_NAME).map(|(_, value)| value.as_str());
    let prefix = set.or_else(|| context.host.variable(SCRIPT_NAME)).unwrap_or_default().trim_end_matches('/').to_owned();
    if prefix.is_empty() {
        return applications;
    }
    match applications.as_mut_slice() {
        [only] if only.mount.is_empty() && prefix.starts_with('/') => {
            let message = format!("SCRIPT_NAME is {prefix}: the application is mounted there, as under gunicorn");
            only.mount = prefix;
            settings.manage_script_name = true;
            context.diagnostics.push(Diagnostic::note(None, message));
        }
        _ => {
            let message = format!("SCRIPT_NAME is {prefix}, and has no effect here");
            let advice = "it is a path that begins with a slash, for a single application without a mount point; write `mount = /PREFIX=MODULE:CALLABLE` with `manage-script-name = true`";
            context.diagnostics.push(Diagnostic::warning(None, message).advise(advice));
        }
    }
    applications
}

/// Settings of the applications to serve.
#[derive(Default)]
pub struct ApplicationDraft {
    pub asgi: Option<(String, Location)>,
    pub module: Option<(String, Location)>,
    pub wsgi_file: Option<(String, Location)>,
    /// `paste`, `pecan` or `eval`.
    pub named_by: Option<(NamedBy, String, Location)>,
    pub mounts: Vec<(String, Location)>,
    pub callable: Option<String>,
    /// From a line `callable: NAME`, which is not an option.
    pub colon_callable: Option<(String, Location)>,
    pub interface: Option<(Interface, Location)>,
    pub is_factory: bool,
    pub is_needed: bool,
    pub chdir: Option<(String, Location)>,
}

/// The ways to name the application other than by a module or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    Paste,
    Pecan,
    Text,
}
