//! The files of `queue-store` and of a `sharedarea` with a file: opened and checked before processes map them. The master maps
//! none: another process might shorten the file, which ends a process that reads behind its end. The master runs it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bolide_contract::sharing::{Area, AreaSource, Queue, QueueStore};
use bolide_memory::Wanted;
use bolide_memory::queue::{self, HEADER_BYTES};
use bolide_supervision::files::guarded_files::{self, How, Rights};
use bolide_supervision::privileges::Privileges;
use bolide_supervision::system;

/// Only the user of the application reads what it stores.
const FILE_MODE: u32 = 0o600;
/// The end of the name of a file that is not a queue.
const SET_ASIDE: &str = ".broken";

/// Opens the file that holds the bytes of a memory. `None`: it has no file. `said` gets a line about a file that was there.
///
/// # Errors
/// It can't be used, with its path and the reason.
pub fn open(wanted: &Wanted, privileges: Option<&Privileges>, said: &mut Vec<String>) -> io::Result<Option<OwnedFd>> {
    match wanted {
        Wanted::Queue(settings) => settings.store.as_ref().map(|store| open_queue(settings, store, privileges, said)).transpose(),
        Wanted::Area(_, settings) => open_area(settings, privileges),
        _ => Ok(None),
    }
}

/// Gives the file of a queue its size again, if another process has cut it: without it, no later generation could map the file.
/// `said` gets a line about it.
///
/// # Errors
/// The disk is full, with the reason.
pub fn restore_size(wanted: &Wanted, data: &OwnedFd, said: &mut Vec<String>) -> io::Result<()> {
    let Wanted::Queue(settings) = wanted else { return Ok(()) };
    let bytes = queue::data_bytes(settings.slots, settings.block_bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    if nix::sys::stat::fstat(data)?.st_size < length {
        nix::fcntl::posix_fallocate(data, 0, length)?;
        said.push("queue: its file was truncated, and the items behind its end are lost".to_owned());
    }
    Ok(())
}

fn open_queue(
    settings: &Queue,
    store: &QueueStore,
    privileges: Option<&Privileges>,
    said: &mut Vec<String>,
) -> io::Result<OwnedFd> {
    let rights = Rights::user_first(privileges);
    let located = |error: io::Error| at(&store.path, &error);
    let bytes = queue::data_bytes(settings.slots, settings.block_bytes).ok_or(io::ErrorKind::InvalidInput)? as u64;
    let mut file = open_regular(&store.path, rights).map_err(located)?;
    let found = file.metadata().map_err(located)?.len();
    if found != 0 && found != bytes {
        let Queue { slots, block_bytes, .. } = settings;
        let advice = "set the values that it was created with, or remove it";
        return Err(located(io::Error::other(format!(
            "it has {found} bytes, and a queue of {slots} blocks of {block_bytes} bytes has {bytes}: {advice}"
        ))));
    }
    lock(&file).map_err(located)?;
    if found != 0 {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(located)?;
        if queue::is_header(&header, settings.slots) {
            return Ok(file.into());
        }
        let aside = set_aside(&store.path, rights).map_err(located)?;
        said.push(format!("queue: its file is not a queue, so it is renamed to {}, and the queue starts empty", aside.display()));
        file = open_regular(&store.path, rights).map_err(located)?;
        lock(&file).map_err(located)?;
    }
    // Room that is not there when an item is written would end the process that writes it.
    let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    nix::fcntl::posix_fallocate(&file, 0, length).map_err(|error| located(error.into()))?;
    Ok(file.into())
}

/// Opens a file, or creates it.
fn open_regular(path: &Path, rights: Rights<'_>) -> io::Result<File> {
    let file = guarded_files::open(path, How::Write { mode: FILE_MODE }, rights)?.file;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Locks a file against other instances, as long as a process of this one has it open.
fn lock(file: &File) -> io::Result<()> {
    match system::lock_file(file)? {
        true => Ok(()),
        false => Err(io::Error::other("another instance uses it: give each instance its own file")),
    }
}

/// Renames a file that is not a queue, which may be of value to its owner.
fn set_aside(path: &Path, rights: Rights<'_>) -> io::Result<PathBuf> {
    let mut name = OsString::from(path.as_os_str());
    name.push(SET_ASIDE);
    let aside = PathBuf::from(name);
    if !guarded_files::is_missing(&aside, rights) {
        let words = format!("it is not the file of a queue, and {} already exists: remove one of them", aside.display());
        return Err(io::Error::other(words));
    }
    guarded_files::rename(path, &aside, rights)?;
    Ok(aside)
}

fn open_area(settings: &Area, privileges: Option<&Privileges>) -> io::Result<Option<OwnedFd>> {
    let (file, name) = match &settings.source {
        AreaSource::Memory => return Ok(None),
        AreaSource::File { path, .. } => {
            // It is not created: an area is a part of a file that exists.
            guarded_files::look(path, Rights::user_first(privileges)).map_err(|error| at(path, &error))?;
            let how = How::Write { mode: FILE_MODE };
            let opened = guarded_files::open(path, how, Rights::user_first(privileges)).map_err(|error| at(path, &error))?;
            (opened.file, path.display().to_string())
        }
        AreaSource::Descriptor { number, .. } => {
            let name = format!("descriptor {number}");
            if *number < 0 {
                return Err(io::Error::other(format!("{name}: there is no such descriptor")));
            }
            // SAFETY: the descriptor is only borrowed for this call, which fails if it is not open.
            let file = unsafe { BorrowedFd::borrow_raw(*number) }.try_clone_to_owned();
            (file.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?.into(), name)
        }
    };
    let metadata = file.metadata()?;
    let end = settings.source.offset().saturating_add(settings.bytes);
    if !metadata.is_file() {
        return Err(io::Error::other(format!("{name}: it is not a regular file")));
    }
    if metadata.len() < end {
        return Err(io::Error::other(format!("{name}: it has {} bytes, and {end} are needed", metadata.len())));
    }
    Ok(Some(file.into()))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
