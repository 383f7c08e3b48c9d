//! Files of UNIX sockets in directories that others may write to: it binds and finds them. It does not listen. The master runs
//! it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::socket::{UnixAddr, bind, connect};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchownat, geteuid};

use super::walk::{Last, PathEntry, Trust, Untrusted, kind, walk};
use super::{KnownFile, Rights, as_user, joined, perform};
use crate::privileges::Privileges;

/// Binds a socket. In a directory that only root may write to it uses our own rights. Elsewhere it uses the rights of the user,
/// and if these do not suffice our own, without following a link.
///
/// # Errors
/// A refusal, or the error of bind(2).
pub fn bind_at(socket: &OwnedFd, path: &Path, user: Option<&Privileges>) -> io::Result<()> {
    let bind = |path: &Path| Ok(bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?);
    at(path, user, bind, |place| bind(&place.address()))
}

/// Connects a socket, with the same rights as [`bind_at`].
///
/// # Errors
/// A refusal, or the error of connect(2).
pub fn connect_at(socket: &OwnedFd, path: &Path, user: Option<&Privileges>) -> io::Result<()> {
    let connect = |path: &Path| Ok(connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?);
    let through_no_link = |place: &PathEntry| {
        let node = node_in(place)?;
        connect(Path::new(&format!("/proc/self/fd/{}", node.descriptor.as_raw_fd())))
    };
    at(path, user, connect, through_no_link)
}

fn at<T>(
    path: &Path,
    user: Option<&Privileges>,
    act: impl Fn(&Path) -> io::Result<T>,
    guarded: impl Fn(&PathEntry) -> io::Result<T>,
) -> io::Result<T> {
    let Rights::RootFirst(user) = Rights::root_first(user) else { return act(path) };
    match walk(path, Last::Itself) {
        Ok(place) if place.trust == Trust::Root => act(path),
        Ok(place) => match as_user(user, || act(path)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => guarded(&place),
            done => done,
        },
        Err(refusal) if Untrusted::is(&refusal) => as_user(user, || act(path)).map_err(|error| joined(&refusal, &error, user)),
        Err(error) => Err(error),
    }
}

/// The file of a socket. The descriptor keeps referring to this file if another one replaces it at the path.
#[derive(Debug)]
pub struct SocketNode {
    descriptor: OwnedFd,
    found: FileStat,
    trust: Trust,
    path: std::path::PathBuf,
}

impl SocketNode {
    /// Finds the file of a socket.
    ///
    /// # Errors
    /// It does not exist, is a file of another kind, or can't be reached.
    pub fn find(path: &Path, user: Option<&Privileges>) -> io::Result<SocketNode> {
        perform(path, Last::Itself, Rights::root_first(user), node_in)
    }

    /// The identity of the bound socket's file, to remove it later with the rights of `user` or root.
    pub fn known(&self, path: &Path, user: Option<&Privileges>) -> KnownFile {
        KnownFile::of(path, Rights::root_first(user), &self.found)
    }

    /// Sets its mode.
    ///
    /// # Errors
    /// The error of chmod(2).
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // fchmod(2) does not work on an `O_PATH` descriptor; chmod(2) on its name in `/proc` does.
        let name = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        std::fs::set_permissions(name, std::fs::Permissions::from_mode(mode))
    }

    /// Changes its owner.
    ///
    /// # Errors
    /// The error of chown(2).
    pub fn set_owner(&self, uid: Option<Uid>, gid: Option<Gid>) -> io::Result<()> {
        Ok(fchownat(&self.descriptor, "", uid, gid, AtFlags::AT_EMPTY_PATH)?)
    }

    /// Whether we may change it. In a directory that others may write to: if it is the file in `known`, if it is the user's
    /// already, or if root has created it there and it has no other name.
    ///
    /// # Errors
    /// A refusal.
    pub fn check(&self, known: Option<&KnownFile>, user: Option<&Privileges>) -> io::Result<()> {
        if known.is_some_and(|known| known.is(&self.found)) {
            return Ok(());
        }
        let Rights::RootFirst(user) = Rights::root_first(user) else { return Ok(()) };
        let owner = self.found.st_uid;
        let is_known = owner == user.uid.as_raw() || self.trust == Trust::Others && owner == geteuid().as_raw();
        if self.trust == Trust::Root || is_known && self.found.st_nlink == 1 {
            return Ok(());
        }
        Err(Untrusted::error(format!(
            "{} is not the socket that was created: another user writes to its directory; choose a directory of your own",
            self.path.display()
        )))
    }
}

fn node_in(place: &PathEntry) -> io::Result<SocketNode> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let descriptor = openat(place.directory(), place.name(), flags, Mode::empty())?;
    let found = fstat(&descriptor)?;
    if kind(&found) != SFlag::S_IFSOCK {
        return Err(Errno::ENOTSOCK.into());
    }
    Ok(SocketNode { descriptor, found, trust: place.trust, path: place.path().to_owned() })
}
