//! The limit on the size of files (`ulimit -f`, RLIMIT_FSIZE), which counts for memory that processes share too, since that is a file without a
//! name. The application keeps the limit as it is. The master runs it, at the start.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes something that needs a file of so many bytes, with a limit that allows it where we may raise that.
///
/// # Errors
/// What the making says; `None` where the limit is below and may not be raised.
pub fn allow<T>(bytes: u64, make: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
    let before = getrlimit(Resource::Fsize);
    if before.current.is_none_or(|limit| limit >= bytes) {
        return make().map(Some);
    }
    let raised = Rlimit { current: Some(bytes), maximum: before.maximum.map(|most| most.max(bytes)) };
    // Beyond the hard limit only root may go.
    if setrlimit(Resource::Fsize, raised).is_err() {
        return Ok(None);
    }
    let made = make();
    setrlimit(Resource::Fsize, before)?;
    made.map(Some)
}

/// What is to be said where it could not be raised.
pub fn too_small(bytes: u64) -> io::Error {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    io::Error::other(format!(
        "files may have {} KiB (ulimit -f, RLIMIT_FSIZE, LimitFSIZE), and {} KiB are needed: raise the limit",
        limit / 1024,
        bytes.div_ceil(1024)
    ))
}
