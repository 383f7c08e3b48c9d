//! The content of a cache's file: made, or put right after another instance, through a mapping. The file belongs to the
//! application's user, who may cut it at any moment, and a read behind its end is a SIGBUS. So a child of the master does
//! it, as that user. The master runs it and waits for the child.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use bolide_memory::{Identity, Mapping, Wanted};
use bolide_supervision::privileges::Privileges;

use crate::provision::child_of_user;

/// How long the content may take at a start, in milliseconds. After a failure of the system, each item of a large file is read.
pub const AT_START_MS: u64 = 600_000;
/// How long it may take at a reload, in milliseconds. The master does nothing else meanwhile, and the user could make it wait.
pub const AT_RELOAD_MS: u64 = 30_000;

/// Makes the content of a new file, or puts that of an old one right. Returns what an old one has, for the log.
///
/// # Errors
/// The system lacks what the structure needs, or the file was cut meanwhile.
pub fn prepare(
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
