//! Whether the application of a command line is where Python usually imports from. It reads names of files, and must not open
//! one. The process that becomes the master runs it, once at startup.

use std::path::PathBuf;

use bolide_contract::settings::{ApplicationSource, Settings};

use crate::project::has_module;

/// Whether the module or the file of an application on the command line exists: in the working directory, in `pythonpath`, in
/// the virtualenv, or in one of `imports`, the import path of the Python that starts. Also true without such an application.
pub fn finds_application(settings: &Settings, imports: &[PathBuf]) -> bool {
    let Some(application) = settings.applications.first().filter(|first| first.is_positional) else { return true };
    let here = settings.application.chdir.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let module = match &application.source {
        ApplicationSource::Module(module) => module,
        ApplicationSource::File(path) => return here.join(path).exists(),
        ApplicationSource::Paste(_) | ApplicationSource::Pecan(_) | ApplicationSource::Text(_) => return true,
    };
    let Some(python) = settings.language.python() else { return true };
    let packages = python.virtualenv.iter().flat_map(|virtualenv| {
        let versions = std::fs::read_dir(virtualenv.join("lib")).into_iter().flatten().flatten();
        versions.map(|version| version.path().join("site-packages"))
    });
    let own = [&here].into_iter().chain(&application.directory).chain(&python.path).chain(imports);
    own.cloned().chain(packages).any(|place| has_module(&here.join(place), module))
}
