//! An application that was found, with its name. It inspects the text of a file, and must not know where to look for one.

use std::path::{Path, PathBuf};

use super::names::Kind;
use super::source::{Callable, Source};

/// An application, as far as the text reveals it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of its framework, in the spelling of the framework's authors.
    pub framework: Option<&'static str>,
    pub kind: Kind,
    /// The directory that has to be in `sys.path`, relative to the directory that was searched: empty for that directory itself,
    /// or `src`.
    pub root: PathBuf,
    /// Its module, as imported from there: `shop.wsgi`.
    pub module: String,
    /// Its file, relative to the directory that was searched.
    pub file: PathBuf,
    pub callable: Callable,
    /// The name of the Django project.
    pub project: Option<String>,
}

impl Finding {
    /// `module:callable`; `None` if the name of the callable is unknown.
    pub fn name(&self) -> Option<String> {
        match &self.callable {
            Callable::Named(name) => Some(format!("{}:{name}", self.module)),
            Callable::MadeBy(name) => Some(format!("{}:{name}()", self.module)),
            Callable::NeedsArguments(_) | Callable::Unnamed => None,
        }
    }

    /// The same, with its file relative to another directory.
    pub fn relative_to(mut self, directory: &Path) -> Finding {
        self.file = self.file.strip_prefix(directory).unwrap_or(&self.file).to_owned();
        self
    }

    /// A description for people: "a Flask application in app.py".
    pub fn description(&self) -> String {
        if let Some(project) = &self.project {
            return format!("the Django project `{project}`");
        }
        let file = self.file.display();
        let article = |word: &str| if word.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
        match (self.framework, self.kind) {
            (Some(framework), _) => format!("{} {framework} application in {file}", article(framework)),
            (None, Kind::Wsgi) => format!("the WSGI application in {file}"),
            (None, Kind::Asgi) => format!("the ASGI application in {file}"),
            (None, Kind::Unknown) => format!("the application in {file}"),
        }
    }
}

/// Returns the application that the text of a file reveals.
pub fn finding(root: &Path, module: &str, file: &Path, source: &Source) -> Option<Finding> {
    let seen = source.application()?;
    let (framework, kind) = match seen.framework {
        Some(framework) => (Some(framework.name), framework.kind),
        // The application may be made in the module that it is imported from: `from shop import create_app`.
        None => match source.imported(root).and_then(|other| other.framework()).filter(|_| !seen.is_plain) {
            Some(framework) => (Some(framework.name), framework.kind),
            None => (None, seen.kind),
        },
    };
    Some(Finding {
        framework,
        kind,
        root: root.to_owned(),
        module: module.to_owned(),
        file: file.to_owned(),
        callable: seen.callable,
        project: None,
    })
}
