//! Two masters at an upgrade, as each sees the other: who is to take our place, and whose place is ours. Sockets come from there, and what belongs to an instance
//! alone (pidfiles, files of sockets) is its own when its workers serve. The master runs it, at the start.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use bolide_contract::settings::Address;
use bolide_contract::succession::{Succession, VARIABLE};
use nix::unistd::Pid;

use crate::system;
use crate::waiting::{Source, Token};

/// The master that is to take our place.
#[derive(Debug)]
pub struct Successor {
    pub pid: Pid,
    /// A byte comes when its workers serve; the end comes when it has ended.
    pub news: OwnedFd,
}

impl Successor {
    pub fn source(&self) -> Source<'_> {
        Source::readable(Token::Successor, self.news.as_fd())
    }
}

/// The place of the master before us.
#[derive(Debug)]
pub struct Place {
    ready: File,
    /// Locks of pidfiles, which are ours as long as they are open.
    _locks: Vec<OwnedFd>,
}

impl Place {
    /// What was handed to this process, if it takes another one's place.
    pub fn inherited() -> Option<(Place, Vec<(Address, OwnedFd)>)> {
        let text = std::env::var(VARIABLE).ok()?;
        let handed: Succession = serde_json::from_str(&text).ok()?;
        if handed.master_pid != nix::unistd::getppid().as_raw().cast_unsigned() {
            return None;
        }
        let ready = take(handed.ready)?;
        let locks = handed.locks.iter().filter_map(|lock| take(*lock)).collect();
        let sockets = handed.sockets.into_iter().filter_map(|socket| Some((socket.address, take(socket.descriptor)?))).collect();
        Some((Place { ready: ready.into(), _locks: locks }, sockets))
    }

    /// Our workers serve: the master before us ends.
    pub fn take(&mut self) {
        // One that has ended meanwhile has nothing to hear.
        let _ = self.ready.write_all(b"r");
    }
}

/// Takes over an inherited descriptor; from here on no exec hands it further.
fn take(descriptor: i32) -> Option<OwnedFd> {
    system::adopt(descriptor).ok()
}
