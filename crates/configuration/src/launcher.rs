//! The Python that started Bolide, and the places that it imports from: the next startup executes the code there. It does not
//! read configurations. Runs in the process that reads one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::trust::{WeakPoint, Writer, entries_of_package};

/// Modules that every Python imports at its start, if they exist (site).
const IMPORTED_FIRST: [&str; 2] = ["sitecustomize.py", "usercustomize.py"];

/// The start of Bolide by a Python; empty for the plain program.
#[derive(Debug, Clone, Default)]
pub struct Launcher {
    /// The Python that runs the console script.
    pub python: Option<PathBuf>,
    /// The places that it imports from and the files that it has executed: `sys.path`, the directory of the package, the script.
    /// An empty path is the startup directory.
    pub imports: Vec<PathBuf>,
}

impl Launcher {
    /// Returns the absolute directories and files. The directory of startup keeps the name that startup has for it, which may
    /// be a link.
    pub fn imports_in(&self, directory: &Path) -> Vec<PathBuf> {
        let real = directory.canonicalize().ok();
        let full = |path: &PathBuf| match path.as_os_str().is_empty() || Some(path) == real.as_ref() {
            true => directory.to_owned(),
            false => directory.join(path),
        };
        self.imports.iter().map(full).collect()
    }
}

/// The directories of a `PYTHONPATH`.
pub fn of_variable(text: &OsStr, directory: &Path) -> Vec<PathBuf> {
    std::env::split_paths(text).filter(|path| !path.as_os_str().is_empty()).map(|path| directory.join(path)).collect()
}

impl Writer {
    /// Returns the first place where this user may change code that a Python imports from there at its start. A file that does
    /// not exist yet counts if the user may create it.
    pub fn weak_point_of_imports(&self, imports: &[PathBuf]) -> Option<WeakPoint> {
        let of_one = |path: &PathBuf| {
            let first = IMPORTED_FIRST.iter().map(|name| path.join(name));
            std::iter::once(path.clone()).chain(entries_of_package(path)).chain(first).find_map(|used| self.weak_point(&used))
        };
        imports.iter().find_map(of_one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_imports_are_in_full_and_the_directory_of_the_start_has_the_name_that_the_start_gives_it() {
        let place = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-launcher-XXXXXX")).expect("a temporary directory");
        let place = place.canonicalize().expect("it is there");
        std::fs::create_dir(place.join("release")).expect("made");
        std::os::unix::fs::symlink(place.join("release"), place.join("current")).expect("made");
        let imports = vec![PathBuf::new(), place.join("release"), "/usr/lib/python3".into(), "lib".into()];
        let current = place.join("current");
        let found = Launcher { python: None, imports }.imports_in(&current);
        std::fs::remove_dir_all(&place).expect("removed");
        assert_eq!(found, [current.clone(), current.clone(), "/usr/lib/python3".into(), current.join("lib")]);
    }

    #[test]
    fn test_an_empty_entry_of_the_variable_is_none() {
        assert_eq!(of_variable(OsStr::new(":/a::b"), Path::new("/srv")), [Path::new("/a"), Path::new("/srv/b")]);
    }
}
