//! Files that a system package manager has installed beside the plain program: the Python package, and the system Python that it
//! is for. It knows the paths of Debian packages and no settings. The master runs it, at its start.

use std::path::{Path, PathBuf};

/// Debian's folder of Python packages, relative to the parent of the program's folder.
const PACKAGES: &str = "lib/python3/dist-packages";

/// Returns the Python and the package folder that belong to the program at this path, if they exist.
///
/// The Python is not looked up in `PATH`, where another version may come first (that of pyenv or a virtual environment): the
/// installed native module is for the system Python. A `virtualenv` takes precedence over both, and loads its own packages first.
pub fn beside(program: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let Some(programs) = program.parent() else { return (None, None) };
    let Some(packages) = programs.parent().map(|prefix| prefix.join(PACKAGES)) else { return (None, None) };
    if !packages.join("bolide").join("prototype.py").is_file() {
        return (None, None);
    }
    let python = programs.join("python3");
    (python.is_file().then_some(python), Some(packages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_supervision::testing::Folder;

    fn file(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "").expect("written");
    }

    #[test]
    fn a_program_of_a_package_knows_its_python_and_its_package() {
        let folder = Folder::new("packaged");
        let program = folder.path().join("usr/bin/bolide");
        assert_eq!(beside(&program), (None, None), "installed by Cargo");
        file(&folder.path().join("usr/bin/python3"));
        assert_eq!(beside(&program), (None, None), "beside a Python without Bolide");
        let packages = folder.path().join("usr/lib/python3/dist-packages");
        file(&packages.join("bolide/prototype.py"));
        assert_eq!(beside(&program), (Some(folder.path().join("usr/bin/python3")), Some(packages.clone())));
        std::fs::remove_file(folder.path().join("usr/bin/python3")).expect("removed");
        assert_eq!(beside(&program), (None, Some(packages)), "the Python of PATH has to do");
    }
}
