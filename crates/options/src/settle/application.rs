//! Which applications are served, and what each is: `asgi`, `module`, `wsgi-file`, `mount`, and what
//! the command line names. Loads nothing; runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_contract::settings::{Application, ApplicationSource, Interface};

use super::{Draft, PositionalApplication, tidy};
use crate::finding::{Finding, Place};
use crate::reader::Configuration;

/// The options that name the application for all paths without a mount, in the order in which they count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Asgi,
    Module,
    File,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Asgi => "asgi",
            Way::Module => "module",
            Way::File => "wsgi-file",
        }
    }
}

/// An application as it was named.
struct Named {
    mount: String,
    source: ApplicationSource,
    callable: Option<String>,
    /// Where the option itself tells it.
    interface: Option<Interface>,
    place: Place,
}

impl Draft<'_> {
    /// All of them; relative files are against `folder`.
    pub(super) fn applications(
        &mut self,
        folder: &Path,
        positional: Option<&PositionalApplication>,
        read: &Configuration,
    ) -> Vec<Application> {
        let mut named = Vec::new();
        for (text, place) in std::mem::take(&mut self.mounts) {
            match mount(&text, place) {
                Ok(mounted) => named.push(mounted),
                Err(finding) => self.findings.push(finding),
            }
        }
        let main = match positional {
            Some(found) => Some(Named {
                mount: String::new(),
                source: found.source.clone(),
                callable: found.callable.clone(),
                interface: None,
                place: Place::command_line(),
            }),
            None => self.main(read),
        };
        self.check_interface(main.as_ref(), named.is_empty());
        named.extend(main);
        let made: Vec<Application> = named.into_iter().map(|one| self.application(one, folder)).collect();
        self.check_mounts(&made);
        made
    }

    /// The application of `asgi`, `module` or `wsgi-file`; the first of them counts, the others get a warning.
    fn main(&mut self, read: &Configuration) -> Option<Named> {
        // `asgi` is not uWSGI's, so a file of uWSGI may use the name for a placeholder: `module = %(asgi)`.
        let other_given = self.module.is_some() || self.wsgi_file.is_some();
        if other_given && !self.strict && read.used.contains(Way::Asgi.name()) {
            self.asgi = None;
        }
        let asked = [(Way::Asgi, self.asgi.take()), (Way::Module, self.module.take()), (Way::File, self.wsgi_file.take())];
        let mut given = asked.into_iter().filter_map(|(way, what)| what.map(|(text, place)| (way, text, place)));
        let (way, text, place) = given.next()?;
        for (other, _, second) in given {
            let message = format!("`{}` has no effect: `{}` at {place} comes first", other.name(), way.name());
            self.findings.push(Finding::warning(Some(&second), message));
        }
        let (source, callable) = match way {
            Way::Asgi => module_or_file(&text),
            Way::Module => {
                let (module, callable) = module(&text);
                (ApplicationSource::Module(module), callable)
            }
            Way::File => (ApplicationSource::File(PathBuf::from(&text)), None),
        };
        if way == Way::Asgi && source == ApplicationSource::Module(String::new()) {
            self.findings.push(
                Finding::error(Some(&place), format!("`asgi = {text}` names no module"))
                    .advise("write `asgi = package.module:callable` or `asgi = file.py:callable`"),
            );
        }
        let interface = (way == Way::Asgi).then_some(Interface::Asgi);
        Some(Named { mount: String::new(), source, callable, interface, place })
    }

    fn application(&self, named: Named, folder: &Path) -> Application {
        let callable = named.callable.or_else(|| self.callable.clone());
        // `create_app()` already is the call.
        let factory = self.factory && !callable.as_deref().is_some_and(|text| text.ends_with(')'));
        Application {
            mount: named.mount,
            source: match named.source {
                ApplicationSource::File(path) => ApplicationSource::File(tidy(&folder.join(path))),
                module => module,
            },
            callable,
            interface: named.interface.or(self.interface.as_ref().map(|&(interface, _)| interface)).unwrap_or_default(),
            factory,
            origin: named.place.to_string(),
        }
    }

    /// `interface = wsgi` beside `asgi`, and no mount that it could be about.
    fn check_interface(&mut self, main: Option<&Named>, alone: bool) {
        let (Some(main), Some((Interface::Wsgi, place)), true) = (main, &self.interface, alone) else { return };
        if main.interface.is_some() {
            self.findings.push(
                Finding::warning(Some(place), format!("`interface` has no effect: `asgi` at {} tells it already", main.place))
                    .advise("write `module` instead of `asgi` for a WSGI application"),
            );
        }
    }

    fn check_mounts(&mut self, applications: &[Application]) {
        for (index, one) in applications.iter().enumerate() {
            if let Some(earlier) = applications[..index].iter().find(|other| other.mount == one.mount) {
                let shown = if one.mount.is_empty() { "/" } else { &one.mount };
                self.findings.push(Finding::error(
                    None,
                    format!("two applications for `{shown}`: at {} and at {}", earlier.origin, one.origin),
                ));
            }
        }
    }
}

/// A module and its callable, if the text has one.
fn module(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((module, callable)) => (module.to_owned(), Some(callable.to_owned()).filter(|callable| !callable.is_empty())),
        None => (text.to_owned(), None),
    }
}

/// As [`module`], where a name that ends with `.py` or has a slash is that of a file.
fn module_or_file(text: &str) -> (ApplicationSource, Option<String>) {
    let (name, callable) = module(text);
    match name.ends_with(".py") || name.contains('/') {
        true => (ApplicationSource::File(PathBuf::from(name)), callable),
        false => (ApplicationSource::Module(name), callable),
    }
}

/// The file that `asgi` names, if it names one.
pub fn asgi_file(text: &str) -> Option<PathBuf> {
    match module_or_file(text).0 {
        ApplicationSource::File(path) => Some(path),
        ApplicationSource::Module(_) => None,
    }
}

/// What a positional argument or the right side of a mount names: a file, or a module with a callable.
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

/// `/path=module:callable` or `/path=file.py`.
fn mount(text: &str, place: Place) -> Result<Named, Finding> {
    let wrong = |message: String| {
        Finding::error(Some(&place), message).advise("write `mount = /path=module:callable` or `mount = /path=file.py`")
    };
    let (path, what) = text.split_once('=').ok_or_else(|| wrong(format!("`mount = {text}` has no `=`")))?;
    let path = path.trim();
    if path.contains('|') || !path.starts_with('/') && !path.is_empty() {
        return Err(wrong(format!("`{path}`: applications for one host name only are not supported yet")));
    }
    let (source, callable) = source(what.trim()).ok_or_else(|| wrong(format!("`{what}` is no application")))?;
    let mount = path.trim_end_matches('/').to_owned();
    Ok(Named { mount, source, callable, interface: None, place })
}
