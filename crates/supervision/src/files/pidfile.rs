//! Pidfiles: written at startup, or when workers serve for the first time, locked for the life of the master, and removed at
//! the end if the configuration asks for it. The master runs it.

use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::path::Path;

use bolide_contract::control::PidFile;
use bolide_contract::settings::Settings;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;

use crate::error::StartError;
use crate::files::guarded_files::{self, How, OpenedFile, Rights};
use crate::log_sink;
use crate::privileges::Privileges;

/// Mode of a pidfile, whatever `umask` says: a user with write access could make it name another process.
const FILE_MODE: u32 = 0o644;
/// Bytes of a pidfile that are read: more than any pid has.
pub const MAX_BYTES: u64 = 64;

/// Writes the pidfiles that do not wait for workers.
///
/// # Errors
/// One can't be written, or belongs to a running instance.
pub fn write_at_start(settings: &Settings, privileges: Option<&Privileges>) -> Result<(), StartError> {
    if let Some(path) = &settings.lifecycle.pidfile {
        write(path, Rights::root_first(privileges))?;
    }
    for pidfile in settings.control.pidfiles.iter().filter(|pidfile| !pidfile.when_ready) {
        write_as(pidfile, privileges)?;
    }
    Ok(())
}

/// Writes the pidfiles that wait until workers serve. A failure is logged, and the instance goes on.
pub fn write_when_ready(settings: &Settings, privileges: Option<&Privileges>) {
    for pidfile in settings.control.pidfiles.iter().filter(|pidfile| pidfile.when_ready) {
        if let Err(error) = write_as(pidfile, privileges) {
            log_sink::line(&error.to_string());
        }
    }
}

/// Writes the pidfiles of the instance that this master has taken over, whose locks it holds already.
pub fn write_as_successor(settings: &Settings, privileges: Option<&Privileges>) {
    for path in all(settings) {
        if let Err(error) = overwrite(path, rights(settings, path, privileges)) {
            log_sink::line(&format!("the pidfile {} can't be written: {error}", path.display()));
        }
    }
}

/// The FIFO command `P`: rewrites each pidfile that no longer has our pid. The lock stays on the file that startup has written.
pub fn write_again(settings: &Settings, privileges: Option<&Privileges>) {
    for path in all(settings) {
        let rights = rights(settings, path, privileges);
        if is_ours(path, rights) {
            continue;
        }
        // If it is still the file that startup has locked, a second lock would be refused.
        let written = match open_here(path, rights).is_empty() {
            true => write(path, rights),
            false => overwrite(path, rights).map_err(|error| trouble(path, &error)),
        };
        if let Err(error) = written {
            log_sink::line(&error.to_string());
        }
    }
}

fn is_ours(path: &Path, rights: Rights<'_>) -> bool {
    guarded_files::read_text(path, MAX_BYTES, rights).is_ok_and(|text| text.trim() == Pid::this().to_string())
}

/// The pidfiles of `pidfile2` and `safe-pidfile2` are written with the user's rights, the rest with the master's.
fn rights<'a>(settings: &Settings, path: &Path, privileges: Option<&'a Privileges>) -> Rights<'a> {
    let is_users = settings.control.pidfiles.iter().any(|pidfile| pidfile.is_users && pidfile.path == path);
    if is_users { Rights::user(privileges) } else { Rights::root_first(privileges) }
}

/// Overwrites a pidfile with our pid. A reader never sees an empty file.
fn overwrite(path: &Path, rights: Rights<'_>) -> std::io::Result<()> {
    let mut opened = guarded_files::open(path, How::Write { mode: FILE_MODE }, rights)?;
    let text = format!("{}\n", Pid::this());
    opened.file.write_all(text.as_bytes())?;
    opened.cut(text.len() as u64)
}

/// Descriptors by which the pidfiles are locked.
pub fn descriptors(settings: &Settings, privileges: Option<&Privileges>) -> Vec<RawFd> {
    all(settings).flat_map(|path| open_here(path, rights(settings, path, privileges))).collect()
}

/// Descriptors of this process that refer to the file, by whatever path it was opened (`/var/run` is a link to `/run`).
fn open_here(path: &Path, rights: Rights<'_>) -> Vec<RawFd> {
    match guarded_files::look(path, rights) {
        Ok(found) if guarded_files::is_regular(&found) => guarded_files::descriptors_of(&found),
        _ => Vec::new(),
    }
}

/// `vacuum`, and a failed start: removes each pidfile that has our pid in it.
pub fn remove_all(settings: &Settings, privileges: Option<&Privileges>) {
    for path in all(settings) {
        if let Err(error) = remove(path, rights(settings, path, privileges)) {
            log_sink::line(&format!("the pidfile {} can't be removed: {error}", path.display()));
        }
    }
}

fn remove(path: &Path, rights: Rights<'_>) -> std::io::Result<()> {
    // A file that can't be read is not ours.
    let Ok(mut opened) = guarded_files::open(path, How::Read, rights) else { return Ok(()) };
    let mut text = String::new();
    let read = (&mut opened.file).take(MAX_BYTES).read_to_string(&mut text);
    if read.is_err() || text.trim() != Pid::this().to_string() {
        return Ok(());
    }
    opened.known(path, rights)?.remove()
}

/// All pidfiles of an instance.
pub fn all(settings: &Settings) -> impl Iterator<Item = &Path> {
    let further = settings.control.pidfiles.iter().map(|pidfile| pidfile.path.as_path());
    settings.lifecycle.pidfile.as_deref().into_iter().chain(further)
}

fn write_as(pidfile: &PidFile, privileges: Option<&Privileges>) -> Result<(), StartError> {
    let rights = if pidfile.is_users { Rights::user(privileges) } else { Rights::root_first(privileges) };
    write(&pidfile.path, rights)
}

/// Writes a pidfile and keeps it locked for the life of this process: the lock distinguishes a living owner from a stale pid,
/// which may belong to another program by now.
fn write(path: &Path, rights: Rights<'_>) -> Result<(), StartError> {
    let trouble = |error: std::io::Error| trouble(path, &error);
    let mut opened = guarded_files::open(path, How::Write { mode: FILE_MODE }, rights).map_err(trouble)?;
    // /dev/null and similar are shared, and can't be truncated.
    if opened.file.metadata().map_err(trouble)?.is_file() {
        lock(&mut opened, path)?;
        opened.cut(0).map_err(trouble)?;
    }
    writeln!(opened.file, "{}", Pid::this()).map_err(trouble)
}

fn trouble(path: &Path, error: &std::io::Error) -> StartError {
    let shown = path.display();
    StartError::new(format!("the pidfile {shown} can't be written: {error}; create its directory, or choose another file"))
}

fn lock(opened: &mut OpenedFile, path: &Path) -> Result<(), StartError> {
    let Ok(handle) = opened.file.try_clone() else { return Ok(()) };
    match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
        // The lock lasts until the process exits.
        Ok(lock) => std::mem::forget(lock),
        Err((_, Errno::EWOULDBLOCK)) => {
            let mut owner = String::new();
            // The pidfile is still empty if its owner has not written it yet.
            let _ = (&mut opened.file).take(MAX_BYTES).read_to_string(&mut owner);
            return Err(StartError::new(format!(
                "the pidfile {} belongs to a running instance (pid {}); stop it first, or choose another file",
                path.display(),
                owner.trim()
            )));
        }
        // A file system without locks: the pidfile is written all the same.
        Err(_) => {}
    }
    Ok(())
}
