//! The pidfile of a daemon that outlives the instance: who it names, and writing one. It sends no signal. The attendant runs it.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Pid, geteuid};

use crate::guarded_files::{self, How, Rights};
use crate::privileges::Privileges;

/// Bytes of a pidfile that are looked at: more than a number has.
const MOST_BYTES: u64 = 32;
/// Mode of one that is made, before `umask`.
const FILE_MODE: u32 = 0o666;

/// The process that a pidfile names, if it lives and is one of the user that the daemon runs as. A file that this user can write must not
/// have a master that is root look after anybody else's process, let alone send it signals.
pub fn process(path: &Path, identity: Option<&Privileges>) -> Option<Pid> {
    let text = guarded_files::read_text(path, MOST_BYTES, Rights::root_first(identity)).ok()?;
    let pid = text.split_whitespace().next()?.parse().ok().filter(|pid| *pid > 1)?;
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let user = identity.map_or(geteuid(), |identity| identity.uid);
    // A daemon that was started by root may have changed its user itself.
    (user.is_root() || owner == user.as_raw()).then_some(Pid::from_raw(pid))
}

/// Writes the pid of a daemon that stays in the foreground, in a file that is its user's.
///
/// # Errors
/// What the file system says; a link is not followed.
pub fn write(path: &Path, pid: Pid, identity: Option<&Privileges>) -> io::Result<()> {
    let mut opened = guarded_files::open(path, How::WriteNoLink { mode: FILE_MODE }, Rights::root_first(identity))?;
    opened.cut(0)?;
    if let Some(identity) = identity {
        opened.give_to(identity)?;
    }
    writeln!(opened.file, "{pid}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn a_pidfile_names_a_process_that_lives_or_none() {
        let folder = Folder::new("pidfile");
        let path = folder.path().join("daemon.pid");
        assert_eq!(process(&path, None), None);
        write(&path, Pid::this(), None).expect("written");
        assert_eq!(process(&path, None), Some(Pid::this()));
        for nonsense in ["", "x", "-1", "0", "1", "99999999999999999999"] {
            std::fs::write(&path, nonsense).expect("written");
            assert_eq!(process(&path, None), None, "{nonsense}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_pidfile_is_not_followed() {
        let folder = Folder::new("pidfile-link");
        let (path, other) = (folder.path().join("daemon.pid"), folder.path().join("other"));
        std::fs::write(&other, "kept").expect("written");
        std::os::unix::fs::symlink(&other, &path).expect("linked");
        assert!(write(&path, Pid::this(), None).is_err());
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "kept");
    }

    #[test]
    fn a_process_of_another_user_is_not_taken_for_the_daemon() {
        if !geteuid().is_root() {
            return;
        }
        let folder = Folder::new("pidfile-user");
        let path = folder.path().join("daemon.pid");
        write(&path, Pid::this(), None).expect("written");
        let nobody =
            Privileges { uid: nix::unistd::Uid::from_raw(65534), gid: nix::unistd::Gid::from_raw(65534), groups: Vec::new() };
        assert_eq!(process(&path, Some(&nobody)), None);
    }
}
