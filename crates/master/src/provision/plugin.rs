//! Finds the library of a language's adapter, and what the package has for building one. It loads nothing. The master runs it at
//! startup, so that a missing library is an error of startup, and so does the process of `bolide plugin build`.

use std::path::{Path, PathBuf};

use bolide_contract::settings::Plugin;
use bolide_supervision::error::StartError;

use crate::provision::program::Installed;

/// Where packages of the system put their libraries.
const SYSTEM_DIRECTORY: &str = "/usr/lib/bolide";

/// The header of the interface.
pub const HEADER: &str = "bolide_app.h";

/// The directory of the header, in a directory of Python packages.
pub fn header_directory(packages: &Path) -> PathBuf {
    packages.join("bolide").join("include")
}

/// The directory of the plugins' sources and libraries, in a directory of Python packages.
pub fn directory_of(packages: &Path) -> PathBuf {
    packages.join("bolide").join("plugins")
}

/// The name of a plugin's library.
pub fn file_of(name: &str) -> String {
    format!("bolide_{name}.so")
}

/// The plugins whose sources the package has.
pub struct Shipped {
    directory: Option<PathBuf>,
}

impl Shipped {
    pub fn of(installed: &Installed) -> Shipped {
        Shipped { directory: installed.package_directory.as_deref().map(directory_of) }
    }

    /// Returns the C file of a plugin.
    pub fn source_of(&self, name: &str) -> Option<PathBuf> {
        // A path is not a name.
        let directory = self.directory.as_ref().filter(|_| !name.contains('/'))?;
        Some(directory.join(format!("bolide_{name}.c"))).filter(|source| source.is_file())
    }

    /// The names of the plugins, sorted.
    pub fn names(&self) -> Vec<String> {
        let files = self.directory.as_deref().and_then(|directory| std::fs::read_dir(directory).ok());
        let name_of = |file: std::fs::DirEntry| {
            let file = file.file_name().into_string().ok()?;
            Some(file.strip_prefix("bolide_")?.strip_suffix(".c")?.to_owned())
        };
        let mut names: Vec<String> = files.into_iter().flatten().flatten().filter_map(name_of).collect();
        names.sort();
        names
    }
}

/// Returns the library of a plugin: in `plugins-dir`, in the package, in the system's directory.
///
/// # Errors
/// It is in none of them. The message says where it was looked for, and how to build it.
pub fn library(plugin: &Plugin, installed: &Installed) -> Result<PathBuf, StartError> {
    let Plugin { name, origin, .. } = plugin;
    if let Some(library) = &plugin.library {
        return match library.is_file() {
            true => Ok(library.clone()),
            false => Err(StartError::new(format!(
                "plugin = {} at {origin}: there is no such file; correct the path, or build it with `bolide plugin build`",
                library.display()
            ))),
        };
    }
    let file = file_of(name);
    let own = installed.package_directory.as_deref().map(directory_of);
    let directories: Vec<PathBuf> = plugin.directories.iter().cloned().chain(own).chain([SYSTEM_DIRECTORY.into()]).collect();
    let found = directories.iter().map(|directory| directory.join(&file)).find(|library| library.is_file());
    found.ok_or_else(|| {
        let shown: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
        let advice = match Shipped::of(installed).source_of(name) {
            Some(_) => format!("`bolide plugin build {name}` builds it"),
            None => {
                format!("install the package that has it, or build it from its C file with `bolide plugin build {name}.c`")
            }
        };
        StartError::new(format!("plugin = {name} at {origin}: there is no {file} in {}; {advice}", shown.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_supervision::testing::Directory;

    #[test]
    fn a_library_is_found_in_plugins_dir_first_and_then_in_the_package() {
        let directory = Directory::new("plugins");
        let own = directory.path().join("packages");
        let installed = Installed { package_directory: Some(own.clone()), ..Installed::default() };
        let configured = directory.path().join("configured");
        let mut plugin =
            Plugin { name: "lua".into(), directories: vec![configured.clone()], origin: "app.ini:2".into(), ..Plugin::default() };
        std::fs::create_dir_all(own.join("bolide/plugins")).expect("made");
        std::fs::write(own.join("bolide/plugins/bolide_lua.c"), "").expect("written");
        assert_eq!(Shipped::of(&installed).names(), ["lua"]);
        let error = library(&plugin, &installed).expect_err("none").to_string();
        for part in ["plugin = lua at app.ini:2", "no bolide_lua.so in", "configured, ", "bolide plugin build lua"] {
            assert!(error.contains(part), "{error}");
        }
        for place in [own.join("bolide/plugins"), configured] {
            std::fs::create_dir_all(&place).expect("made");
            std::fs::write(place.join("bolide_lua.so"), "").expect("written");
            assert_eq!(library(&plugin, &installed).expect("found"), place.join("bolide_lua.so"));
        }
        plugin.name = "mine".to_owned();
        let error = library(&plugin, &installed).expect_err("none").to_string();
        assert!(error.contains("`bolide plugin build mine.c`"), "{error}");
        plugin.library = Some(directory.path().join("other.so"));
        let error = library(&plugin, &installed).expect_err("none").to_string();
        assert!(error.contains("other.so at app.ini:2: there is no such file"), "{error}");
    }
}
