//! Writing a job: to a file in the directory `.new`, which is then renamed. A spooler finds whole jobs only, uWSGI's too.
//!
//! A written job survives the end of every process. It is not synced to the disk, as in uWSGI: a job of the last seconds before a
//! power cut may be lost. Every process of the application runs this.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::directory::{self, Directory, NEW, Place};
use crate::format;
use crate::names::Maker;

/// The mode of a job's file, as in uWSGI.
const JOB_MODE: u32 = 0o600;

/// A job to write.
#[derive(Debug, Clone, Copy)]
pub struct NewJob<'a> {
    /// Its variables, as [`format::push_variable`] appends them.
    pub variables: &'a [u8],
    pub body: &'a [u8],
    /// The directory below the spooler's, one of [`crate::names::is_priority`].
    pub priority: Option<&'a [u8]>,
    /// Not to be worked on before this time, in seconds since 1970.
    pub at: Option<u64>,
}

/// Writes the jobs of a process and of its forks.
#[derive(Debug)]
pub struct Writer {
    host: String,
    maker: Mutex<Option<Maker>>,
}

impl Writer {
    /// `host` is the machine's name, which is part of the names of jobs.
    pub fn new(host: &str) -> Writer {
        Writer { host: host.to_owned(), maker: Mutex::new(None) }
    }

    /// Writes a job. Returns its path.
    ///
    /// # Errors
    /// The error of the file system: nothing of the job is left. `InvalidInput` if the job is too large.
    pub fn write(&self, directory: &Directory, job: &NewJob<'_>) -> io::Result<PathBuf> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the job is too large");
        let head = format::head(job.variables.len()).ok_or_else(too_large)?;
        if job.body.len() as u64 > format::MAX_BODY_BYTES {
            return Err(too_large());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = self.next_name(now)?;
        let hidden = directory.path().join(NEW).join(&name);
        let place = Place { priority: job.priority.map(<[u8]>::to_vec), name: name.into_bytes() };
        let path = directory.path_of(&place);
        let written =
            create(directory, &hidden).and_then(|file| fill(file, &head, job)).and_then(|()| publish(directory, &hidden, &place));
        match written {
            Ok(()) => Ok(path),
            Err(error) => {
                // The first error is the one to report. A file that stays is removed by a spooler (`claiming::tidy`).
                let _ = fs::remove_file(&hidden);
                Err(error)
            }
        }
    }

    /// A name that no other job has, for a job that is kept in another place than a directory.
    ///
    /// # Errors
    /// The system can't provide random bytes.
    pub fn name(&self) -> io::Result<String> {
        self.next_name(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn next_name(&self, now: Duration) -> io::Result<String> {
        let pid = std::process::id();
        let mut maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        // A fork makes names of its own.
        if maker.as_ref().is_none_or(|maker| maker.pid() != pid) {
            *maker = Some(Maker::new(&self.host, pid, getrandom::u32().map_err(io::Error::other)?));
        }
        maker.as_mut().map(|maker| maker.next(now.as_secs(), now.subsec_micros())).ok_or_else(|| io::ErrorKind::Other.into())
    }
}

fn create(directory: &Directory, hidden: &std::path::Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(JOB_MODE).open(hidden);
    match open() {
        // The first job of this directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            directory::make_own(&directory.path().join(NEW))?;
            open()
        }
        result => result,
    }
}

fn fill(mut file: File, head: &[u8], job: &NewJob<'_>) -> io::Result<()> {
    let mut rest = &mut [IoSlice::new(head), IoSlice::new(job.variables), IoSlice::new(job.body)][..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(at) = job.at {
        // uWSGI keeps the time of a job as the time of its file's last change.
        let at = UNIX_EPOCH + Duration::from_secs(at);
        file.set_times(fs::FileTimes::new().set_accessed(at).set_modified(at))?;
    }
    Ok(())
}

fn publish(directory: &Directory, hidden: &std::path::Path, place: &Place) -> io::Result<()> {
    let path = directory.path_of(place);
    match fs::rename(hidden, &path) {
        // The first job of this priority.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(priority) = &place.priority else { return Err(error) };
            directory::make_priority(&directory.path().join(std::ffi::OsStr::from_bytes(priority)))?;
            fs::rename(hidden, &path)
        }
        result => result,
    }
}
