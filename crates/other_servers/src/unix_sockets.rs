//! The files of UNIX sockets and of logs, as the server makes and leaves them whose line it is: their mode and owner, and whether
//! they are removed at shutdown. An option of Bolide's own on the line counts more. It looks at the mode of a file, and does
//! not open it. Runs in the process that reads the configuration.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use bolide_options::server::Server;

use super::translation::{SettingPlace, Translation, UnixOption};

/// gunicorn makes its sockets with an empty mask, and uvicorn and Twisted set a mode.
const OPEN_TO_ALL: u32 = 0o777;
const WRITABLE_BY_ALL: u32 = 0o666;
/// The default of waitress.
const ITS_OWN: u32 = 0o600;
/// The mode of a new log file, which the process' mask reduces.
const NEW_FILE: &str = "new:666";
/// Mode bits of a file (inode(7)).
const MODE_BITS: u32 = 0o777;

impl Translation {
    /// Adds the mode of UNIX sockets, and their removal at shutdown. `has_no_bind`: the mask is that of sockets of other options.
    pub(super) fn finish_unix_sockets(&mut self, has_no_bind: bool) {
        let sockets: Vec<_> = self.unix_sockets.drain(..).filter(|(_, _, path)| !is_abstract(path)).collect();
        let is_bound = sockets.iter().any(|(option, ..)| *option == UnixOption::Bind);
        if self.finish_mask(is_bound || has_no_bind) {
            self.own.has_mode = true;
        }
        let Some((option, place, path)) = sockets.first() else { return };
        let (mode, is_removed) = self.ways(*option, path);
        self.place = SettingPlace { name: place.name.clone(), line: place.line };
        if let Some(mode) = mode.filter(|_| !self.own.has_mode) {
            self.add("chmod-socket", &format!("{mode:o}"));
        }
        if is_removed && !self.own.has_vacuum {
            self.add("vacuum", "true");
        }
    }

    /// Returns the mode that the server sets, and whether it removes the file at shutdown.
    fn ways(&self, option: UnixOption, path: &str) -> (Option<u32>, bool) {
        match (option, self.server()) {
            (UnixOption::Bind, None | Some(Server::Gunicorn)) => (Some(OPEN_TO_ALL), true),
            (UnixOption::Uds, Some(Server::Granian)) => (None, true),
            // uvicorn keeps the mode of a socket that exists.
            (UnixOption::Uds, _) => (Some(mode_of_socket(path).unwrap_or(WRITABLE_BY_ALL)), true),
            (UnixOption::Socket, Some(Server::Daphne)) => (Some(WRITABLE_BY_ALL), true),
            (UnixOption::Socket, Some(Server::Waitress)) => (Some(ITS_OWN), false),
            (UnixOption::Bind | UnixOption::Socket, _) => (None, false),
        }
    }

    /// Log files of Python's `logging` are readable as the mask says, and gunicorn gives them to its user.
    pub(super) fn open_log_files(&mut self) {
        if self.own.has_log_mode || self.made.iter().any(|made| made.key == "logfile-chmod") {
            return;
        }
        self.add("logfile-chmod", NEW_FILE);
        if matches!(self.server(), None | Some(Server::Gunicorn)) {
            self.add("logfile-chown", "true");
        }
    }
}

fn is_abstract(path: &str) -> bool {
    path.starts_with(['@', '\0'])
}

fn mode_of_socket(path: &str) -> Option<u32> {
    let found = Path::new(path).symlink_metadata().ok()?;
    found.file_type().is_socket().then(|| found.permissions().mode() & MODE_BITS)
}
