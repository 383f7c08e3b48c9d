//! Pidfiles: written at the start, or when workers serve for the first time, locked for the life of the master, and removed at the end
//! where that is asked for. The master runs it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use bolide_contract::control::PidFile;
use bolide_contract::settings::Settings;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;

use crate::error::StartError;
use crate::log_sink;
use crate::privileges::{Privileges, with_files_of};

/// Mode of a pidfile, whatever `umask` says: who may write to it could name another process.
const FILE_MODE: u32 = 0o644;

/// Writes those that do not wait for workers.
///
/// # Errors
/// One can't be written, or is that of an instance that runs.
pub fn write_at_start(settings: &Settings, privileges: Option<&Privileges>) -> Result<(), StartError> {
    if let Some(path) = &settings.lifecycle.pidfile {
        write(path)?;
    }
    for pidfile in settings.control.pidfiles.iter().filter(|pidfile| !pidfile.when_ready) {
        write_as(pidfile, privileges)?;
    }
    Ok(())
}

/// Writes those that wait until workers serve. One that can't be written is told, and the instance serves on.
pub fn write_when_ready(settings: &Settings, privileges: Option<&Privileges>) {
    for pidfile in settings.control.pidfiles.iter().filter(|pidfile| pidfile.when_ready) {
        if let Err(error) = write_as(pidfile, privileges) {
            log_sink::line(&error.to_string());
        }
    }
}

/// Writes those of an instance whose place we have taken: their locks are ours already.
pub fn write_as_successor(settings: &Settings, privileges: Option<&Privileges>) {
    let users = |path: &Path| settings.control.pidfiles.iter().any(|pidfile| pidfile.is_users && pidfile.path == path);
    for path in all(settings) {
        let write = || overwrite(path).map_err(|error| StartError::new(error.to_string()));
        if let Err(error) = with_files_of(privileges.filter(|_| users(path)), write) {
            log_sink::line(&format!("the pidfile {} can't be written: {error}", path.display()));
        }
    }
}

/// The letter `P`: writes each anew that has our pid no more. Its lock stays with the file that the start has written.
pub fn write_again(settings: &Settings, privileges: Option<&Privileges>) {
    for path in all(settings) {
        let is_users = settings.control.pidfiles.iter().any(|pidfile| pidfile.is_users && pidfile.path == path);
        let is_ours = std::fs::read_to_string(path).is_ok_and(|text| text.trim() == Pid::this().to_string());
        if is_ours {
            continue;
        }
        // Where it is the file still that the start has locked, another lock of it would be refused.
        let written = with_files_of(privileges.filter(|_| is_users), || match open_here(path).is_empty() {
            true => write(path),
            false => overwrite(path).map_err(|error| trouble(path, &error)),
        });
        if let Err(error) = written {
            log_sink::line(&error.to_string());
        }
    }
}

/// Writes our pid over another; at no moment is the file empty for whoever reads it.
fn overwrite(path: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
    let text = format!("{}\n", Pid::this());
    file.write_all(text.as_bytes())?;
    // /dev/null and its like can't be cut.
    if file.metadata()?.is_file() { file.set_len(text.len() as u64) } else { Ok(()) }
}

/// Descriptors by which the pidfiles are locked.
pub fn descriptors(settings: &Settings) -> Vec<RawFd> {
    all(settings).flat_map(open_here).collect()
}

/// Descriptors of this process that lead to a file, by whatever path it was opened (`/var/run` is a link to `/run`).
fn open_here(path: &Path) -> Vec<RawFd> {
    let identity =
        |path: &Path| std::fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| (found.dev(), found.ino()));
    let (Some(wanted), Ok(open)) = (identity(path), std::fs::read_dir("/proc/self/fd")) else { return Vec::new() };
    let leads_there = open.flatten().filter(|entry| identity(&entry.path()) == Some(wanted));
    leads_there.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// `vacuum`: removes each that has our pid in it.
pub fn remove_all(settings: &Settings) {
    for path in all(settings) {
        let is_ours = std::fs::read_to_string(path).is_ok_and(|text| text.trim() == Pid::this().to_string());
        if is_ours && let Err(error) = std::fs::remove_file(path) {
            log_sink::line(&format!("the pidfile {} can't be removed: {error}", path.display()));
        }
    }
}

/// Every pidfile of an instance.
pub fn all(settings: &Settings) -> impl Iterator<Item = &Path> {
    let further = settings.control.pidfiles.iter().map(|pidfile| pidfile.path.as_path());
    settings.lifecycle.pidfile.as_deref().into_iter().chain(further)
}

fn write_as(pidfile: &PidFile, privileges: Option<&Privileges>) -> Result<(), StartError> {
    with_files_of(privileges.filter(|_| pidfile.is_users), || write(&pidfile.path))
}

/// Writes a pidfile and keeps it locked for the life of this process: a lock tells a living owner from a number that is left over
/// and may be another program's by now.
fn write(path: &Path) -> Result<(), StartError> {
    let trouble = |error: std::io::Error| trouble(path, &error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let mut file = options.open(path).map_err(trouble)?;
    // /dev/null and its like are everybody's, and can't be cut.
    if file.metadata().map_err(trouble)?.is_file() {
        lock(&mut file, path)?;
        file.set_len(0).map_err(trouble)?;
    }
    writeln!(file, "{}", Pid::this()).map_err(trouble)
}

fn trouble(path: &Path, error: &std::io::Error) -> StartError {
    let shown = path.display();
    StartError::new(format!("the pidfile {shown} can't be written: {error}; make its folder, or choose another file"))
}

fn lock(file: &mut File, path: &Path) -> Result<(), StartError> {
    let Ok(handle) = file.try_clone() else { return Ok(()) };
    match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
        // The lock ends with the process.
        Ok(lock) => std::mem::forget(lock),
        Err((_, Errno::EWOULDBLOCK)) => {
            let mut owner = String::new();
            // A pidfile whose owner has not written it yet names nobody.
            let _ = file.read_to_string(&mut owner);
            return Err(StartError::new(format!(
                "the pidfile {} is that of an instance that runs (pid {}); stop it first, or choose another file",
                path.display(),
                owner.trim()
            )));
        }
        // A file system without locks: it is written all the same.
        Err(_) => {}
    }
    Ok(())
}
