//! The pidfile of a daemon that outlives the instance: finding the process whose pid is in it, and writing it. It does not send
//! signals. The attendant runs it.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bolide_supervision::files::guarded_files::{self, How, Rights};
use bolide_supervision::privileges::Privileges;
use nix::unistd::{Pid, geteuid};

/// Bytes read from a pidfile: more than a number needs.
const MAX_BYTES: u64 = 32;
/// Mode of a new pidfile, before `umask`.
const FILE_MODE: u32 = 0o666;

/// Write bits of group and others.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// The identities of a daemon and of the application. Root supervises no process on behalf of the application's user that this
/// user could not supervise itself.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    pub daemon: Option<Privileges>,
    pub application: Option<Privileges>,
}

impl Identities {
    /// Returns the rights for access to the pidfile: the user that may control its directory, from which root protects itself.
    fn rights(&self) -> Rights<'_> {
        let daemon = self.daemon.as_ref().filter(|daemon| !daemon.uid.is_root());
        Rights::root_first(daemon.or(self.application.as_ref()))
    }

    /// Returns whether a pidfile may be trusted. If the daemon has a user of its own, the application's user must not have been
    /// able to write the file.
    fn is_trusted(&self, found: &std::fs::Metadata) -> bool {
        let number = |identity: &Option<Privileges>| identity.as_ref().map_or(geteuid(), |identity| identity.uid).as_raw();
        let (daemon, application) = (number(&self.daemon), number(&self.application));
        let is_daemons = [0, geteuid().as_raw(), daemon].contains(&found.uid()) && found.mode() & OTHERS_MAY_WRITE == 0;
        daemon == application || is_daemons
    }
}

/// Returns the process that a pidfile names, if it is alive and belongs to the user that the daemon runs as. A file that this
/// user can write must not make a root master supervise another user's process, let alone send signals to it.
pub fn process(path: &Path, identities: &Identities) -> Option<Pid> {
    let opened = guarded_files::open(path, How::Read, identities.rights()).ok()?.file;
    if !identities.is_trusted(&opened.metadata().ok()?) {
        return None;
    }
    let mut text = String::new();
    opened.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let identity = identities.daemon.as_ref();
    let pid = text.split_whitespace().next()?.parse().ok().filter(|pid| *pid > 1)?;
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let user = identity.map_or(geteuid(), |identity| identity.uid);
    // A daemon that root started may have changed its user itself.
    (user.is_root() || owner == user.as_raw()).then_some(Pid::from_raw(pid))
}

/// Writes the pid of a daemon that stays in the foreground, to a file that its user owns.
///
/// # Errors
/// Errors of the file system; symbolic links are not followed.
pub fn write(path: &Path, pid: Pid, identities: &Identities) -> io::Result<()> {
    let mode = FILE_MODE & !OTHERS_MAY_WRITE;
    let mut opened = guarded_files::open(path, How::WriteNoLink { mode }, identities.rights())?;
    opened.cut(0)?;
    if let Some(identity) = &identities.daemon {
        opened.give_to(identity)?;
    }
    writeln!(opened.file, "{pid}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_supervision::testing::Directory;

    #[test]
    fn a_pidfile_names_a_process_that_lives_or_none() {
        let directory = Directory::new("pidfile");
        let path = directory.path().join("daemon.pid");
        assert_eq!(process(&path, &Identities::default()), None);
        write(&path, Pid::this(), &Identities::default()).expect("written");
        assert_eq!(process(&path, &Identities::default()), Some(Pid::this()));
        for nonsense in ["", "x", "-1", "0", "1", "99999999999999999999"] {
            std::fs::write(&path, nonsense).expect("written");
            assert_eq!(process(&path, &Identities::default()), None, "{nonsense}");
        }
    }

    #[test]
    fn a_link_instead_of_a_pidfile_is_not_followed() {
        let directory = Directory::new("pidfile-link");
        let (path, other) = (directory.path().join("daemon.pid"), directory.path().join("other"));
        std::fs::write(&other, "kept").expect("written");
        std::os::unix::fs::symlink(&other, &path).expect("linked");
        assert!(write(&path, Pid::this(), &Identities::default()).is_err());
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "kept");
    }

    #[test]
    fn a_process_of_another_user_is_not_taken_for_the_daemon() {
        if !geteuid().is_root() {
            return;
        }
        let directory = Directory::new("pidfile-user");
        let path = directory.path().join("daemon.pid");
        write(&path, Pid::this(), &Identities::default()).expect("written");
        let nobody =
            Privileges { uid: nix::unistd::Uid::from_raw(65534), gid: nix::unistd::Gid::from_raw(65534), groups: Vec::new() };
        let identities = Identities { daemon: Some(nobody.clone()), application: Some(nobody) };
        assert_eq!(process(&path, &identities), None);
    }
}
