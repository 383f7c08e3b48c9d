//! A worker that is to be the base of its siblings (`refork-after`): the order, and what the server itself has opened in this
//! process. When the worker has drained, its process is forked into another prototype, which must keep nothing of that: it would
//! hold the worker's sockets open, and every process that it forks would too.
//!
//! Only workers of an instance with the option have one. It does not know about prototypes or the application.

use std::collections::BTreeSet;
use std::fs::{File, read_dir, read_link};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a worker needs to become another prototype.
#[derive(Default)]
pub struct Succession {
    belongings: Mutex<Belongings>,
}

#[derive(Default)]
struct Belongings {
    /// The prototype's end of its socket, once the master has ordered it.
    control: Option<OwnedFd>,
    /// What the server has opened in this process.
    own: BTreeSet<Opened>,
}

/// A descriptor, and what the kernel says it is: its number alone may belong to something else later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Opened {
    descriptor: RawFd,
    identity: PathBuf,
}

impl Succession {
    fn lock(&self) -> MutexGuard<'_, Belongings> {
        self.belongings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The master has ordered it.
    pub(crate) fn order(&self, control: OwnedFd) {
        self.lock().control = Some(control);
    }

    /// The master has ordered it, and the worker drains.
    pub fn is_ordered(&self) -> bool {
        self.lock().control.is_some()
    }

    /// Takes the prototype's end of its socket, if the master has ordered it.
    pub fn take(&self) -> Option<OwnedFd> {
        self.lock().control.take()
    }

    /// Runs a part of the worker's start. What it opens is the server's. No code of the application runs in it.
    pub fn note_opened<R>(&self, part: impl FnOnce() -> R) -> R {
        let before = open_descriptors();
        let result = part();
        let opened: Vec<Opened> = open_descriptors().difference(&before).cloned().collect();
        self.lock().own.extend(opened);
        result
    }

    /// The server has opened this descriptor, or was given it.
    pub fn note(&self, descriptor: &OwnedFd) {
        self.lock().own.extend(described(descriptor.as_raw_fd()));
    }

    /// The numbers of what the server has opened and what is still open.
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        let belongings = self.lock();
        let is_open = |opened: &&Opened| described(opened.descriptor).as_ref() == Some(opened);
        let own = belongings.own.iter().filter(is_open).map(|opened| opened.descriptor);
        own.chain(belongings.control.iter().map(AsRawFd::as_raw_fd)).collect()
    }

    /// Closes what the server has opened in the worker and what is still open, in a fork of it: nothing there belongs to this
    /// process. The numbers stay in use, because objects of the worker that are never dropped have them.
    ///
    /// # Errors
    /// `/dev/null` can't be opened.
    pub fn close_own(&self) -> io::Result<()> {
        let nothing = File::open("/dev/null")?;
        for opened in std::mem::take(&mut self.lock().own) {
            if described(opened.descriptor).as_ref() == Some(&opened) {
                // SAFETY: the descriptor is open, as the kernel has just said. Its owner is an object of the worker's, and from
                // here on that owns a copy of `/dev/null` under this number, which is never dropped here.
                let mut place = unsafe { OwnedFd::from_raw_fd(opened.descriptor) };
                let replaced = nix::unistd::dup3(&nothing, &mut place, nix::fcntl::OFlag::O_CLOEXEC);
                let _stays_open = place.into_raw_fd();
                replaced?;
            }
        }
        Ok(())
    }
}

/// Runs a part of the worker's start, with or without a succession.
pub fn opened_for_worker<R>(succession: Option<&Succession>, part: impl FnOnce() -> R) -> R {
    match succession {
        Some(succession) => succession.note_opened(part),
        None => part(),
    }
}

/// All descriptors of this process. Without /proc there are none, and then the application is not asked what it has opened
/// either.
fn open_descriptors() -> BTreeSet<Opened> {
    let entries = read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter_map(described).collect()
}

fn described(descriptor: RawFd) -> Option<Opened> {
    let identity = read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(Opened { descriptor, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_opened_is_closed_and_its_number_stays_in_use() {
        let succession = Succession::default();
        let (mine, _) = nix::unistd::pipe().expect("a pipe");
        let (read, write) = succession.note_opened(nix::unistd::pipe).expect("a pipe");
        let (given, _other) = nix::unistd::pipe().expect("a pipe");
        succession.note(&given);
        succession.close_own().expect("closed");
        for closed in [&read, &write, &given] {
            assert_eq!(described(closed.as_raw_fd()).expect("open").identity, PathBuf::from("/dev/null"));
        }
        assert_ne!(described(mine.as_raw_fd()).expect("open").identity, PathBuf::from("/dev/null"));
    }

    #[test]
    fn a_number_that_belongs_to_something_else_now_is_left_alone() {
        let succession = Succession::default();
        let (read, write) = succession.note_opened(nix::unistd::pipe).expect("a pipe");
        let number = read.as_raw_fd();
        drop((read, write));
        let file = File::open("/proc/self/status").expect("opened");
        // The lowest free number is used first, unless another test was faster.
        let stays = described(file.as_raw_fd());
        succession.close_own().expect("closed");
        assert_eq!(described(file.as_raw_fd()), stays, "{number}");
    }
}
