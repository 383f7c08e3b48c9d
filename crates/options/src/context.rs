//! The state that the parts of a draft share when they are completed: the directories of their paths, the configuration, and the
//! diagnostics so far. It must not know options.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_contract::confinement::Confinement;

use crate::reader::Configuration;

pub struct Context<'a> {
    pub host: &'a HostInfo,
    pub read: &'a Configuration,
    pub strict: bool,
    /// There is an application on the command line and no configuration file.
    pub is_bare: bool,
    /// The directory of the application.
    pub directory: PathBuf,
    /// The directory of the master, which stays outside of a root.
    pub entered: PathBuf,
    /// `chdir` names the directory.
    pub has_chdir: bool,
    pub diagnostics: Vec<Diagnostic>,
}

impl Context<'_> {
    /// Enters the directory of `chdir`. With `chroot` it is one within the root, which the master resolves.
    pub fn enter(&mut self, chdir: Option<&(String, Location)>, confinement: &Confinement) {
        if confinement.root.is_some() {
            self.directory = Path::new("/").join(chdir.map_or("", |(chdir, _)| chdir));
            return;
        }
        let Some((chdir, location)) = chdir else { return };
        self.directory = self.host.directory.join(chdir);
        self.entered.clone_from(&self.directory);
        if !self.directory.is_dir() {
            let message = format!("can't change to `{}`: there is no such directory", self.directory.display());
            self.diagnostics.push(Diagnostic::error(Some(location), message).local());
        }
    }

    /// Makes a path absolute, starting at the directory of the application.
    pub fn absolute(&self, path: impl AsRef<Path>) -> PathBuf {
        normalized(&self.directory.join(path))
    }

    /// Makes a path absolute, starting at the directory in which Bolide was started.
    pub fn absolute_at_start(&self, path: impl AsRef<Path>) -> PathBuf {
        normalized(&self.host.directory.join(path))
    }
}

/// Returns the same path without `.` and without doubled or trailing slashes. `..` stays: its meaning depends on links.
pub fn normalized(path: &Path) -> PathBuf {
    path.components().collect()
}
