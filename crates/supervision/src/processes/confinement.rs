//! The privileges that the master itself gives up at its start, for good, and the checks of a jail (`chroot`). The master runs
//! it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bolide_contract::confinement::{Confinement, Namespace};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

use crate::error::StartError;
use crate::privileges;
use crate::processes::child_setup::RawIdentity;

/// `immediate-uid`, `immediate-gid`: assumes that identity. Returns false if no other one is asked for, or it is ours already.
///
/// # Errors
/// An unknown name, root, or a change that only root may make.
pub fn take_immediate_identity(confinement: &Confinement) -> Result<bool, StartError> {
    let Some(privileges) = privileges::resolve_immediate(confinement)? else { return Ok(false) };
    let taken = RawIdentity::of(&privileges).take();
    taken.map_err(|error| StartError::new(format!("the user of immediate-uid and immediate-gid can't be looked up: {error}")))?;
    Ok(true)
}

/// Checks that the process can give up what the settings ask for, and that the jail exists.
///
/// # Errors
/// The process is not root, or the directory of `chroot` does not exist.
pub fn check(confinement: &Confinement) -> Result<(), StartError> {
    let asked = [
        ("chroot", confinement.root.is_some()),
        ("cap", confinement.capabilities.is_some()),
        ("unshare", !confinement.namespaces.is_empty()),
    ];
    if let Some((option, _)) = asked.iter().find(|(_, is_asked)| *is_asked && !geteuid().is_root()) {
        return Err(StartError::new(format!("{option} needs root: start Bolide as root, or leave {option} out")));
    }
    confinement.root.as_deref().map_or(Ok(()), |root| open_root(root).map(drop))
}

/// Leaves the namespaces of the system. Sockets stay where they were bound.
///
/// # Errors
/// The error of unshare(2) or mount(2).
pub fn leave_namespaces(confinement: &Confinement) -> Result<(), StartError> {
    let flags = confinement.namespaces.iter().fold(CloneFlags::empty(), |flags, namespace| flags | flag(*namespace));
    if flags.is_empty() {
        return Ok(());
    }
    let trouble = |error: nix::Error| StartError::new(format!("unshare: the namespaces can't be created: {error}"));
    unshare(flags).map_err(trouble)?;
    if flags.contains(CloneFlags::CLONE_NEWNS) {
        // Mounts made inside stay inside, even if the system shares its mounts.
        let nothing: Option<&Path> = None;
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing).map_err(trouble)?;
    }
    Ok(())
}

fn flag(namespace: Namespace) -> CloneFlags {
    match namespace {
        Namespace::Mounts => CloneFlags::CLONE_NEWNS,
        Namespace::Ipc => CloneFlags::CLONE_NEWIPC,
        Namespace::HostName => CloneFlags::CLONE_NEWUTS,
        Namespace::Network => CloneFlags::CLONE_NEWNET,
    }
}

/// The paths of a Python and of the directory of its package within a jail: as they are, or without the jail's own path before
/// them. A package elsewhere is left for the jail's Python to find.
///
/// # Errors
/// The jail does not contain the Python, or the directory of `chdir`.
pub fn python_within(
    root: &Path,
    chdir: Option<&Path>,
    executable: &Path,
    package_directory: Option<&Path>,
) -> Result<(PathBuf, Option<PathBuf>), StartError> {
    let shown = root.display();
    let directory = open_root(root)?;
    check_chdir(root, &directory, chdir)?;
    let executable = stripped(root, executable);
    if !is_there(&directory, &executable) {
        return Err(StartError::new(format!(
            "chroot = {shown} does not contain a Python: {} does not exist; install Python with Bolide there, or set \
                virtualenv to an existing one",
            executable.display()
        )));
    }
    let package_directory =
        package_directory.map(|package| stripped(root, package)).filter(|package| is_there(&directory, package));
    Ok((executable, package_directory))
}

/// The path of a program, or of a library, within a jail: as it is, or without the jail's own path before it.
///
/// # Errors
/// The jail does not contain the file, or the directory of `chdir`.
pub fn program_within(root: &Path, chdir: Option<&Path>, file: &Path) -> Result<PathBuf, StartError> {
    let directory = open_root(root)?;
    check_chdir(root, &directory, chdir)?;
    let file = stripped(root, file);
    if !is_there(&directory, &file) {
        return Err(StartError::new(format!(
            "chroot = {} does not contain {}: copy it there, with the libraries that it needs",
            root.display(),
            file.display()
        )));
    }
    Ok(file)
}

fn check_chdir(root: &Path, directory: &File, chdir: Option<&Path>) -> Result<(), StartError> {
    match chdir.filter(|chdir| !is_there(directory, chdir)) {
        None => Ok(()),
        Some(chdir) => Err(StartError::new(format!(
            "chroot = {} does not contain the directory {}: create it, or correct chdir",
            root.display(),
            chdir.display()
        ))),
    }
}

/// A path of the system relative to a root. A path outside of the root is returned as it is.
fn stripped(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest))
}

fn open_root(root: &Path) -> Result<File, StartError> {
    let opened = File::options().read(true).custom_flags((OFlag::O_PATH | OFlag::O_DIRECTORY).bits()).open(root);
    opened.map_err(|error| {
        StartError::new(format!("chroot = {}: {error}; make that directory, or correct the option", root.display()))
    })
}

/// Whether a file exists at this path within the root, with links resolved inside it.
fn is_there(root: &File, path: &Path) -> bool {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    openat2(root, path, how).is_ok()
}
