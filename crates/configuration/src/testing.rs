//! Helpers for tests of this crate and of those that use it: a temporary directory, and a machine that is the same everywhere.

use std::path::{Path, PathBuf};

use crate::host_info::HostInfo;
use crate::trust::Trust;

/// A directory for one test, which is removed when the test ends.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes the directory.
    pub fn new(name: &str) -> Directory {
        let template = std::env::temp_dir().join(format!("bolide-{name}-XXXXXX"));
        let path = nix::unistd::mkdtemp(&template).expect("the temporary directory can be made");
        Directory(path.canonicalize().expect("it is there"))
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Directory {
        std::fs::write(self.0.join(name), text).expect("a file of the test can be written");
        self
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A machine that is the same everywhere.
pub fn host(directory: &Path, environment: &[(&str, &str)]) -> HostInfo {
    HostInfo {
        environment: environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        directory: directory.to_owned(),
        host_name: "box".to_owned(),
        program: "/bin/bolide".to_owned(),
        passed_sockets: 0,
        cpus_online: 4,
        cpus: 3,
        seconds: 1,
        microseconds: 1_000_000,
        user: (0, "root".to_owned()),
        group: (0, "root".to_owned()),
        known: Default::default(),
        python: None,
        imports: Vec::new(),
        trust: Trust::default(),
        is_container: false,
        has_syslog: true,
    }
}
