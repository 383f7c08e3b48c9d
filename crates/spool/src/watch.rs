//! Notices that jobs arrive, with inotify(7), so that a spooler need not wait for its next scan.
//!
//! Jobs are renamed into their directory, so a rename means a whole job. Other programs create files there and write them, which
//! takes a moment. It does not read jobs. Spoolers run it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::directory::Directory;
use crate::names;

/// Most directories of priorities that are watched. Jobs of others are found by the next scan.
pub const MAX_PRIORITIES: usize = 256;
/// Most reads of one call, each of up to 4096 bytes. A scan finds the jobs of the events that stay.
const MAX_READS: usize = 64;

/// The directories of a spooler under watch.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    top: WatchDescriptor,
    directory: Directory,
    priorities: usize,
}

/// What has happened in the directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// A job has arrived.
    pub has_job: bool,
    /// Another program creates a file, which will be a job soon.
    pub has_beginning: bool,
    /// The directory was removed or renamed: a new watch is needed.
    pub is_lost: bool,
}

impl Watch {
    /// # Errors
    /// The directory can't be watched, or the user has too many watches (inotify(7)).
    pub fn new(directory: &Directory) -> io::Result<Watch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let top = inotify.add_watch(directory.path(), flags() | AddWatchFlags::IN_MOVE_SELF)?;
        let mut watch = Watch { inotify, top, directory: directory.clone(), priorities: 0 };
        for entry in std::fs::read_dir(directory.path())? {
            let entry = entry?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                watch.add_priority(&entry.file_name())?;
            }
        }
        Ok(watch)
    }

    /// Readable when there is news.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Reads what has happened. Never waits.
    ///
    /// # Errors
    /// The error of read(2).
    pub fn arrivals(&mut self) -> io::Result<Arrivals> {
        let mut arrivals = Arrivals::default();
        for _ in 0..MAX_READS {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(arrivals),
                Err(errno) => return Err(errno.into()),
            };
            for event in events {
                let gone = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
                arrivals.is_lost |= event.wd == self.top && event.mask.intersects(gone);
                // A queue that was too long: anything may have happened.
                arrivals.has_job |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                let Some(name) = event.name else { continue };
                if event.mask.contains(AddWatchFlags::IN_ISDIR) {
                    let is_new = event.wd == self.top && names::is_priority(name.as_bytes());
                    arrivals.has_job |= is_new;
                    if is_new {
                        self.add_priority(&name)?;
                    }
                } else if names::is_job(name.as_bytes(), true) {
                    arrivals.has_job |= event.mask.contains(AddWatchFlags::IN_MOVED_TO);
                    arrivals.has_beginning |= event.mask.contains(AddWatchFlags::IN_CREATE);
                }
            }
        }
        arrivals.has_job = true;
        Ok(arrivals)
    }

    fn add_priority(&mut self, name: &OsString) -> io::Result<()> {
        if self.priorities == MAX_PRIORITIES || !names::is_priority(name.as_bytes()) {
            return Ok(());
        }
        self.priorities += 1;
        let path: &Path = name.as_ref();
        match self.inotify.add_watch(&self.directory.path().join(path), flags()) {
            // It was removed in the meantime.
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn flags() -> AddWatchFlags {
    AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR | AddWatchFlags::IN_DONT_FOLLOW
}
