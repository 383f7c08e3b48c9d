//! The program of Python's prototype: the interpreter and its arguments, which a system package manager may have installed beside
//! the plain program. It starts nothing. The master runs it at startup.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bolide_contract::settings::Python;
use bolide_supervision::error::StartError;
use bolide_supervision::processes::confinement;
use nix::unistd::{AccessFlags, access};

use crate::provision::program::{Installed, Program};

/// Executes the prototype's file in a Python that has no directory of packages in `sys.path` (`python -S`): it looks for the file
/// in the packages of the virtualenv, of the interpreter and of the user. An import of `site` has no effect with `-S`, so nothing
/// of the packages is executed. The application does not find the module as imported.
const WITHOUT_SITE: &str = "\
import os, runpy, site, sys
del sys.modules['site']
sys.path[:] = filter(None, sys.path)
home = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
own = os.path.join(home, 'lib', 'python%d.%d' % sys.version_info[:2], 'site-packages')
directories = [own, *site.getsitepackages(), site.getusersitepackages()]
files = [os.path.join(directory, 'bolide', 'prototype.py') for directory in directories]
file = next(filter(os.path.isfile, files), None)
if file is None:
    places = ', '.join(directories)
    sys.exit(f'bolide: {sys.executable} has no package bolide in {places}: {sys.executable} -m pip install bolide')
runpy.run_path(file, run_name='__main__')
";

/// Chooses the interpreter: that of the virtual environment, otherwise the one that runs us, otherwise `python3` from `PATH`.
/// With a `root`, the `directory` of the application is within it.
///
/// # Errors
/// No interpreter was found. The message says what to install.
pub fn program(
    python: &Python,
    root: Option<&Path>,
    directory: Option<&Path>,
    installed: &Installed,
    search: Option<OsString>,
) -> Result<Program, StartError> {
    let package_directory = installed.package_directory.as_deref();
    let executable = match (&python.virtualenv, &installed.interpreter) {
        // The interpreter within a jail is looked up below.
        (Some(directory), _) if root.is_some() => directory.join("bin").join("python"),
        (Some(directory), _) => in_virtualenv(directory)?,
        (None, Some(own)) => own.clone(),
        (None, None) => in_search_path(search)?,
    };
    let (executable, package_directory) = match root {
        Some(root) => confinement::python_within(root, directory, &executable, package_directory)?,
        None => (executable, package_directory.map(Path::to_owned)),
    };
    let flags = (0..python.optimize).map(|_| "-O".into()).chain(python.no_site.then(|| "-S".into()));
    let arguments = flags.chain(match &package_directory {
        Some(directory) => vec![directory.join("bolide").join("prototype.py").into_os_string()],
        None if python.no_site => vec!["-c".into(), WITHOUT_SITE.into()],
        None => vec!["-m".into(), "bolide.prototype".into()],
    });
    let arguments = arguments.collect();
    Ok(Program { executable, arguments, package_directory })
}

/// Returns the Python and the directory of the package that the program at this path is in, if they exist: that of
/// `lib/python3.13/site-packages` is `bin/python3` beside `lib`, as for Debian's `lib/python3/dist-packages`.
///
/// The Python is not looked up in `PATH`, where another version may come first (that of pyenv or a virtual environment): the
/// package's native module is for its own Python. A `virtualenv` takes precedence over both, and loads its own packages first.
pub fn packaged_around(program: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    // `packages/bolide/bin/bolide`
    let Some(packages) = program.ancestors().nth(3).filter(|packages| packages.join("bolide/prototype.py").is_file()) else {
        return (None, None);
    };
    let python = packages.ancestors().nth(3).map(|prefix| prefix.join("bin").join("python3")).filter(|file| file.is_file());
    (python, Some(packages.to_owned()))
}

fn in_virtualenv(directory: &Path) -> Result<PathBuf, StartError> {
    let executable = directory.join("bin").join("python");
    if access(&executable, AccessFlags::X_OK).is_ok() {
        // The prototype is executed in the configuration's directory, so a relative path means the same there.
        return Ok(executable);
    }
    let shown = directory.display();
    let hint = if directory.is_dir() { "that directory is not a virtual environment" } else { "that directory does not exist" };
    Err(StartError::new(format!(
        "virtualenv = {shown}: there is no program {}, {hint}; create it with `python3 -m venv {shown}`",
        executable.display()
    )))
}

fn in_search_path(search: Option<OsString>) -> Result<PathBuf, StartError> {
    let search = search.unwrap_or_default();
    // An empty entry means the current directory, from which no interpreter is to be run by accident.
    let directories = std::env::split_paths(&search).filter(|directory| !directory.as_os_str().is_empty());
    let mut candidates = directories.map(|directory| directory.join("python3"));
    candidates.find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok()).ok_or_else(|| {
        StartError::new(
            "no `python3` is in PATH: install Python 3.9 or later, then `pip install bolide`; or name a virtual environment \
            with virtualenv = DIRECTORY"
                .to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_supervision::testing::Directory;
    use std::os::unix::fs::PermissionsExt;

    fn program_file(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, "#!/bin/sh\n").expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }

    #[test]
    fn the_virtualenv_comes_first_then_our_interpreter_then_the_search_path() {
        let directory = Directory::new("interpreter");
        let virtualenv = directory.path().join("venv");
        program_file(&virtualenv.join("bin/python"));
        program_file(&directory.path().join("path/python3"));
        let search = Some(directory.path().join("path").into_os_string());
        let own = Path::new("/opt/python");
        let mut python = Python { virtualenv: Some(virtualenv.clone()), ..Python::default() };
        let installed =
            Installed { interpreter: Some(own.into()), package_directory: Some("/packages".into()), ..Installed::default() };
        let chosen = program(&python, None, None, &installed, search.clone()).expect("chosen");
        assert_eq!(chosen.executable, virtualenv.join("bin/python"));
        assert_eq!(chosen.arguments, ["/packages/bolide/prototype.py"]);
        python.virtualenv = None;
        let installed = Installed { interpreter: Some(own.into()), ..Installed::default() };
        let chosen = program(&python, None, None, &installed, search.clone()).expect("chosen");
        assert_eq!((chosen.executable.as_path(), chosen.arguments), (own, vec!["-m".into(), "bolide.prototype".into()]));
        let chosen = program(&python, None, None, &Installed::default(), search).expect("chosen");
        assert_eq!(chosen.executable, directory.path().join("path/python3"));
        python.no_site = true;
        python.optimize = 1;
        let search = Some(directory.path().join("path").into_os_string());
        let chosen = program(&python, None, None, &Installed::default(), search).expect("chosen");
        assert_eq!(chosen.arguments[..3], ["-O", "-S", "-c"]);
    }

    #[test]
    fn a_missing_interpreter_is_an_error_that_says_what_to_do() {
        let python = Python { virtualenv: Some("/nonexistent/venv".into()), ..Python::default() };
        let error = program(&python, None, None, &Installed::default(), None).expect_err("refused").to_string();
        assert!(error.contains("virtualenv = /nonexistent/venv") && error.contains("-m venv"), "{error}");
        let (python, installed) = (Python::default(), Installed::default());
        let search = Some("/nonexistent".into());
        let error = program(&python, None, None, &installed, search).expect_err("refused").to_string();
        assert!(error.contains("install Python") && error.contains("pip install bolide"), "{error}");
    }

    fn file(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, "").expect("written");
    }

    #[test]
    fn the_program_of_a_package_knows_its_python_and_its_package() {
        let directory = Directory::new("packaged");
        for packages in ["usr/lib/python3/dist-packages", "venv/lib/python3.13/site-packages"] {
            let packages = directory.path().join(packages);
            let program = packages.join("bolide/bin/bolide");
            assert_eq!(packaged_around(&program), (None, None), "no package");
            file(&packages.join("bolide/prototype.py"));
            assert_eq!(packaged_around(&program), (None, Some(packages.clone())), "the Python of PATH has to do");
            let python = packages.ancestors().nth(3).expect("a prefix").join("bin/python3");
            file(&python);
            assert_eq!(packaged_around(&program), (Some(python), Some(packages)));
        }
        assert_eq!(packaged_around(&directory.path().join("usr/bin/bolide")), (None, None), "installed by Cargo");
    }
}
