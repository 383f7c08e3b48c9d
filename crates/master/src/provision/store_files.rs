//! The files of caches with a `store`: opened, checked and replaced at startup and at a reload, and their content made, or put
//! right after another instance. It does not know what a cache is beyond its head. The master runs it, with the rights of the
//! application's user first, and maps none, since another process may cut the file: a child that has become that user does, for
//! which it waits.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use bolide_contract::services::Store;
use bolide_memory::mapping::{self, whole_bytes};
use bolide_memory::{Identity, Mapping, Mismatch, Wanted};
use bolide_supervision::files::guarded_files::{self, How, OpenedFile, Rights};
use bolide_supervision::privileges::Privileges;
use bolide_supervision::system;

use crate::provision::child_of_user;

/// How long the content may take at startup, in milliseconds. After a failure of the system, each item of a large file is read.
pub const CONTENT_AT_START_MS: u64 = 600_000;
/// How long it may take at a reload, in milliseconds. The master does nothing else in the meantime, and the user could make it
/// wait.
pub const CONTENT_AT_RELOAD_MS: u64 = 30_000;

/// Only the user of the application reads what it stores.
const FILE_MODE: u32 = 0o600;
/// What is put behind the name of a file that is not a cache's.
const SET_ASIDE: &str = ".broken";

/// An open file.
pub struct StoreFile {
    pub file: File,
    /// It has been made, and does not contain a structure yet.
    pub is_new: bool,
    /// What happened to the file that was there, for the log.
    pub said: Option<String>,
}

/// Opens the file of a cache. `is_ours`: this instance works with a file at this path already, for other settings.
///
/// # Errors
/// It can't be opened, or another instance works with it.
pub fn open(store: &Store, identity: &Identity, is_ours: bool, privileges: Option<&Privileges>) -> io::Result<StoreFile> {
    let rights = Rights::user_first(privileges);
    let opened = open_file(&store.path, rights)?;
    let is_empty = opened.is_new || opened.file.metadata()?.len() == 0;
    let is_locked = system::lock_file(&opened.file)?;
    if !is_locked && !is_ours {
        return Err(io::Error::other("another instance uses it: give each instance its own file"));
    }
    if is_empty && is_locked {
        return create(opened, identity, None);
    }
    let why = match mapping::check_file(&opened.file, identity) {
        Ok(()) if is_locked => return Ok(StoreFile { file: opened.file, is_new: false, said: None }),
        Ok(()) => Mismatch::Shape,
        Err(Mismatch::Unmapped(error)) => return Err(error),
        Err(why) => why,
    };
    // A file that this instance has locked, and another process has cut since, is its own too.
    let said = if !is_locked || mapping::has_head(&opened.file) {
        // Old workers may still work with it, so its size does not change under them: another file takes its name.
        opened.known(&store.path, rights)?.remove()?;
        format!("{} is not used, because {why}: the cache starts empty", store.path.display())
    } else if store.deletes_foreign {
        opened.known(&store.path, rights)?.remove()?;
        format!("{} is removed (store_delete), because {why}: the cache starts empty", store.path.display())
    } else {
        let aside = set_aside(&store.path, rights)?;
        format!("{} is renamed to {}, because {why}: the cache starts empty", store.path.display(), aside.display())
    };
    let opened = open_file(&store.path, rights)?;
    if !system::lock_file(&opened.file)? {
        return Err(io::Error::other("another instance uses it: give each instance its own file"));
    }
    create(opened, identity, Some(said))
}

/// Makes the content of a new file, or puts that of an old one right, through a mapping. The user may cut the file at any
/// moment, and a read behind its end is a SIGBUS: so a child of the master does it, as that user. Returns what an old one has,
/// for the log.
///
/// # Errors
/// The system lacks what the structure needs, or the file was cut in the meantime.
pub fn prepare_content(
    wanted: &Wanted,
    identity: &Identity,
    file: &File,
    is_new: bool,
    privileges: Option<&Privileges>,
    most_ms: u64,
) -> io::Result<Option<String>> {
    let work = || {
        let outcome = in_child(wanted, identity, file, is_new).map_err(|error| error.to_string());
        serde_json::to_vec(&outcome).unwrap_or_default()
    };
    let trouble = |error: &dyn std::fmt::Display| io::Error::other(format!("its content can't be prepared: {error}"));
    let answer = child_of_user::run(privileges, &[file.as_raw_fd()], most_ms, work).map_err(|error| trouble(&error))?;
    let outcome: Result<Option<String>, String> = serde_json::from_slice(&answer).map_err(|error| trouble(&error))?;
    outcome.map_err(io::Error::other)
}

fn in_child(wanted: &Wanted, identity: &Identity, file: &File, is_new: bool) -> io::Result<Option<String>> {
    let mapping = Mapping::of(file, identity)?;
    if is_new {
        wanted.begin(&mapping)?;
        mapping.finish(identity);
        return Ok(None);
    }
    wanted.restore(&mapping).map(Some)
}

fn open_file(path: &Path, rights: Rights<'_>) -> io::Result<OpenedFile> {
    let opened = guarded_files::open(path, How::WriteNoLink { mode: FILE_MODE }, rights)?;
    if !opened.file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(opened)
}

fn create(opened: OpenedFile, identity: &Identity, said: Option<String>) -> io::Result<StoreFile> {
    opened.cut(whole_bytes(identity) as u64)?;
    Ok(StoreFile { file: opened.file, is_new: true, said })
}

/// Renames a file that is not a cache's, which may be of value to its owner.
fn set_aside(path: &Path, rights: Rights<'_>) -> io::Result<PathBuf> {
    let mut name = OsString::from(path.as_os_str());
    name.push(SET_ASIDE);
    let aside = PathBuf::from(name);
    if !guarded_files::is_missing(&aside, rights) {
        return Err(io::Error::other(format!(
            "it is not the file of a cache, and can't be renamed, because {} exists: remove one of them",
            aside.display()
        )));
    }
    guarded_files::rename(path, &aside, rights)?;
    Ok(aside)
}
