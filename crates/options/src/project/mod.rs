//! Finds the applications of a directory, a package or a file from texts and names of files alone: it does not import modules or
//! run programs. It must not know options or settings: the caller decides what becomes of a finding. Runs in the process that
//! reads a command line.

pub mod directory;
mod finding;
mod hints;
mod names;
mod source;

use std::path::{Path, PathBuf};

pub use finding::Finding;
use finding::finding;
use names::ROOTS;
pub use names::{Kind, entries, is_module_name, is_name};
use source::Source;
pub use source::{Callable, text};

/// Usual names of a virtualenv.
const ENVIRONMENTS: &[&str] = &[".venv", "venv", "env", ".virtualenv"];
/// Usual files of an application, likeliest first.
const SOURCES: &[&str] =
    &["wsgi.py", "asgi.py", "app.py", "application.py", "main.py", "api.py", "server.py", "run.py", "manage.py"];
/// Directories that are searched like packages: many have no `__init__.py`.
const USUAL_PACKAGES: &[&str] = &["app", "api"];
/// Packages without an application.
const NO_APPLICATIONS: &[&str] = &["tests", "test", "docs", "migrations", "scripts", "examples"];
/// Most files and packages of a directory that are read if none has a usual name.
const MAX_OTHERS: usize = 64;
/// Deepest nesting of packages.
const MAX_DEPTH: usize = 32;

/// Returns the applications of a directory, likeliest first. Those whose callable is unknown come last.
pub fn find_in_directory(directory: &Path) -> Vec<Finding> {
    let mut found = hints::named(directory);
    for root in ROOTS {
        found.extend(django(directory, Path::new(root)));
        found.extend(in_root(directory, Path::new(root)));
    }
    if found.is_empty() {
        found = others(directory);
    }
    without_repetition(found)
}

/// Returns the application of one file, named by its module.
pub fn find_in_file(file: &Path) -> Option<Finding> {
    let place = place_of(file)?;
    let source = Source::read(file)?;
    Some(finding(&place.root, &place.module, file, &source)?.relative_to(file.parent()?))
}

/// Returns the applications of a package, likeliest first: that of its own file, and those of its modules with usual names.
pub fn find_in_package(directory: &Path) -> Vec<Finding> {
    let Some(place) = place_of(&directory.join("__init__.py")) else { return Vec::new() };
    without_repetition(in_package(directory, &place.root, &place.module))
}

/// Where a Python file is imported from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The directory above its outermost package, which has to be in `sys.path`.
    pub root: PathBuf,
    /// `shop.wsgi`, or `shop` for the `__init__.py` of a package.
    pub module: String,
}

/// Returns how a file is imported. Its packages are the directories above it that have an `__init__.py`. `None` if no `import`
/// can name the file.
pub fn place_of(file: &Path) -> Option<Place> {
    let stem = file.file_name()?.to_str()?.strip_suffix(".py")?;
    let mut root = file.parent()?.to_owned();
    let mut names: Vec<String> = if stem == "__init__" { Vec::new() } else { vec![stem.to_owned()] };
    while root.join("__init__.py").is_file() && names.len() < MAX_DEPTH {
        names.insert(0, root.file_name()?.to_str()?.to_owned());
        root = root.parent()?.to_owned();
    }
    (!names.is_empty() && names.iter().all(|name| is_name(name))).then(|| Place { root, module: names.join(".") })
}

/// Returns the virtualenv in a directory, by its name there.
pub fn virtualenv(directory: &Path) -> Option<&'static str> {
    ENVIRONMENTS.iter().copied().find(|name| directory.join(name).join("pyvenv.cfg").exists())
}

/// Whether a directory, or a subdirectory of it that usually holds packages, contains a module or a package of this name.
pub fn has_module(directory: &Path, module: &str) -> bool {
    ROOTS
        .iter()
        .map(|root| directory.join(root).join(module.replace('.', "/")))
        .any(|path| path.with_extension("py").is_file() || path.is_dir())
}

/// The applications of the files and packages with usual names below a root.
fn in_root(directory: &Path, root: &Path) -> Vec<Finding> {
    let place = directory.join(root);
    let mut found = Vec::new();
    for name in SOURCES {
        let path = place.join(name);
        let Some(source) = Source::read(&path) else { continue };
        found.extend(finding(&place, name.trim_end_matches(".py"), &path, &source));
    }
    let packages = entries(&place).into_iter().filter(|name| is_name(name) && !NO_APPLICATIONS.contains(&name.as_str()));
    let packages = packages.filter(|name| {
        place.join(name).join("__init__.py").is_file() || USUAL_PACKAGES.contains(&name.as_str()) && place.join(name).is_dir()
    });
    for package in packages.take(MAX_OTHERS) {
        found.extend(in_package(&place.join(&package), &place, &package));
    }
    relative(found, directory, root)
}

/// The applications of a package below `root`.
fn in_package(directory: &Path, root: &Path, name: &str) -> Vec<Finding> {
    let own = ("__init__.py", name.to_owned());
    let others = SOURCES.iter().map(|file| (*file, format!("{name}.{}", file.trim_end_matches(".py"))));
    std::iter::once(own)
        .chain(others)
        .filter_map(|(file, module)| {
            let path = directory.join(file);
            finding(root, &module, &path, &Source::read(&path)?)
        })
        .collect()
}

/// The applications of files without a usual name: only those that a known framework makes.
fn others(directory: &Path) -> Vec<Finding> {
    let files = entries(directory).into_iter().filter(|name| name.strip_suffix(".py").is_some_and(is_name));
    let found = files.take(MAX_OTHERS).filter_map(|name| {
        let path = directory.join(&name);
        finding(directory, name.trim_end_matches(".py"), &path, &Source::read(&path)?)
    });
    relative(found.filter(|found| found.framework.is_some()).collect(), directory, Path::new(""))
}

fn relative(found: Vec<Finding>, directory: &Path, root: &Path) -> Vec<Finding> {
    found.into_iter().map(|found| Finding { root: root.to_owned(), ..found.relative_to(directory) }).collect()
}

/// `manage.py` names the settings, and `wsgi.py` and `asgi.py` are beside them. Every new project has both. ASGI is the intended
/// one if the settings name an ASGI application, as with Channels.
fn django(directory: &Path, root: &Path) -> Option<Finding> {
    let place = directory.join(root);
    let manage = Source::read(&place.join("manage.py"))?;
    let after = manage.text().split("DJANGO_SETTINGS_MODULE").nth(1)?;
    let settings = after.split(['"', '\'']).find(|part| part.contains('.') && is_module_name(part))?;
    // The files are beside the settings, or beside a directory of settings.
    let parents = settings.match_indices('.').map(|(end, _)| settings.get(..end).unwrap_or_default());
    let package = parents.rev().find(|package| {
        let lies = place.join(package.replace('.', "/"));
        lies.join("wsgi.py").exists() || lies.join("asgi.py").exists()
    })?;
    let has = |name: &str| place.join(package.replace('.', "/")).join(name).exists();
    let asgi = Source::read(&place.join(format!("{}.py", settings.replace('.', "/"))))
        .is_some_and(|settings| settings.text().lines().any(|line| line.starts_with("ASGI_APPLICATION")));
    let (kind, module) = match (has("wsgi.py"), has("asgi.py")) {
        (wsgi, true) if asgi || !wsgi => (Kind::Asgi, "asgi"),
        _ => (Kind::Wsgi, "wsgi"),
    };
    Some(Finding {
        framework: Some("Django"),
        kind,
        root: root.to_owned(),
        module: format!("{package}.{module}"),
        file: root.join(package.replace('.', "/")).join(format!("{module}.py")),
        callable: Callable::Named("application".to_owned()),
        project: Some(package.to_owned()),
    })
}

/// Each module once, those whose callable is unknown last. A Django project stands alone: its other files are parts of it.
fn without_repetition(found: Vec<Finding>) -> Vec<Finding> {
    if let Some(project) = found.iter().find(|found| found.project.is_some()) {
        return vec![project.clone()];
    }
    let mut kept: Vec<Finding> = Vec::new();
    for one in found {
        if !kept.iter().any(|other| other.module == one.module) {
            kept.push(one);
        }
    }
    kept.sort_by_key(|found| found.name().is_none());
    kept
}

#[cfg(test)]
mod tests;
