//! What the parts of a draft have in common when they are completed: where their paths begin, what was read, and what is wrong so far. It
//! knows no option.

use std::path::{Path, PathBuf};

use bolide_contract::confinement::Confinement;

use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::HostInfo;
use crate::reader::Configuration;

pub struct Context<'a> {
    pub host: &'a HostInfo,
    pub read: &'a Configuration,
    pub strict: bool,
    /// There is an application on the command line and no configuration file.
    pub is_bare: bool,
    /// The folder of the application.
    pub folder: PathBuf,
    /// The folder that the master is in: it stays outside of a root.
    pub entered: PathBuf,
    pub diagnostics: Vec<Diagnostic>,
}

impl Context<'_> {
    /// Enters the folder of `chdir`. With `chroot` it is one within the root, which the master looks for.
    pub fn enter(&mut self, chdir: Option<&(String, Location)>, confinement: &Confinement) {
        if confinement.root.is_some() {
            self.folder = Path::new("/").join(chdir.map_or("", |(chdir, _)| chdir));
            return;
        }
        let Some((chdir, location)) = chdir else { return };
        self.folder = self.host.folder.join(chdir);
        self.entered.clone_from(&self.folder);
        if !self.folder.is_dir() {
            let message = format!("can't change to `{}`: there is no such folder", self.folder.display());
            self.diagnostics.push(Diagnostic::error(Some(location), message).local());
        }
    }

    /// A path against the folder of the application.
    pub fn absolute(&self, path: impl AsRef<Path>) -> PathBuf {
        normalized(&self.folder.join(path))
    }

    /// A path against the folder in which Bolide was started.
    pub fn absolute_at_start(&self, path: impl AsRef<Path>) -> PathBuf {
        normalized(&self.host.folder.join(path))
    }
}

/// The same path without `.` and doubled or trailing slashes. `..` stays: what it means depends on links.
pub fn normalized(path: &Path) -> PathBuf {
    path.components().collect()
}
