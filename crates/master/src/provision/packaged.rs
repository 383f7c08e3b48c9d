//! What a system's package manager has put beside the plain program: the Python package, and the system's Python that it is for.
//! It knows the places of Debian's packages and nothing of settings. The master runs it, at its start.

use std::path::{Path, PathBuf};

/// Where Debian has Python packages, seen from the folder above the program's.
const PACKAGES: &str = "lib/python3/dist-packages";

/// The Python and the folder of packages that belong to the program of this path, where they are there.
///
/// The Python is not looked for in `PATH`, where another version may come first (pyenv's, a virtual environment's): the native
/// module that was installed is for the system's. That of `virtualenv` goes before both, and loads what is installed in it first.
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
