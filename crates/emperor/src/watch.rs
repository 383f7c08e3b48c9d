//! Changes of the directories in which vassals are, as the kernel reports them (inotify(7)). It does not know vassals: everything
//! is looked at again after a change. Network file systems report nothing, so looks also come by time. The emperor runs it.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bolide_supervision::log_sink;
use bolide_supervision::polling::Source;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// Time for which a change settles: an editor writes a file in several steps. In milliseconds.
const SETTLE_MS: u64 = 30;
/// The longest time for which changes that go on put off the look, in milliseconds.
const MAX_SETTLE_MS: u64 = 150;
/// Directories that are watched, at most.
const MAX_DIRECTORIES: usize = 10_000;

/// The watched directories, and the change that settles.
#[derive(Debug)]
pub struct Watch {
    /// `None` if the kernel gives none.
    inotify: Option<Inotify>,
    watched: BTreeMap<PathBuf, WatchDescriptor>,
    /// When the first change has come that no look has followed yet, and the last.
    changed_ms: Option<(u64, u64)>,
    has_warned: bool,
}

impl Watch {
    pub fn new() -> Watch {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        if let Err(error) = &inotify {
            log_sink::line(&format!("the kernel does not report changes of vassals ({error}): they act within emperor-freq"));
        }
        Watch { inotify: inotify.ok(), watched: BTreeMap::new(), changed_ms: None, has_warned: false }
    }

    /// Watches these directories from now on, and no others.
    pub fn renew(&mut self, directories: &[PathBuf]) {
        let Some(inotify) = &self.inotify else { return };
        // They are in order.
        let is_gone = |path: &PathBuf| directories.binary_search(path).is_err();
        let gone: Vec<PathBuf> = self.watched.keys().filter(|path| is_gone(path)).cloned().collect();
        for path in gone {
            if let Some(watch) = self.watched.remove(&path) {
                // It fails if the directory is gone, and the watch with it.
                let _ = inotify.rm_watch(watch);
            }
        }
        let mut failure = None;
        for path in directories.iter().take(MAX_DIRECTORIES) {
            // A directory that took the place of another is watched by this call too; for the same one it does nothing.
            match inotify.add_watch(path, events()) {
                Ok(watch) => drop(self.watched.insert(path.clone(), watch)),
                Err(error) => failure = Some((path, error)),
            }
        }
        if let Some((path, error)) = failure {
            self.warn(path, error);
        }
    }

    fn warn(&mut self, path: &Path, error: Errno) {
        if error != Errno::ENOENT && !std::mem::replace(&mut self.has_warned, true) {
            let path = path.display();
            log_sink::line(&format!("{path} can't be watched ({error}): its changes act within emperor-freq"));
        }
    }

    /// The descriptor that is readable when something has changed.
    pub fn source<T>(&self, token: T) -> Option<Source<'_, T>> {
        self.inotify.as_ref().map(|inotify| Source::readable(token, inotify.as_fd()))
    }

    /// Reads what has changed.
    pub fn note(&mut self, now_ms: u64) {
        let Some(inotify) = &self.inotify else { return };
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {
            let (first, _) = self.changed_ms.unwrap_or((now_ms, now_ms));
            self.changed_ms = Some((first, now_ms));
        }
    }

    /// When the change has settled; `None` if there is none.
    pub fn due_ms(&self) -> Option<u64> {
        self.changed_ms.map(|(first, last)| (last + SETTLE_MS).min(first + MAX_SETTLE_MS))
    }

    /// A look follows.
    pub fn take(&mut self) {
        self.changed_ms = None;
    }
}

fn events() -> AddWatchFlags {
    AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR
}
