//! What the master's loop asks each part of the instance for before it waits and when a process has exited: descriptors, the next
//! time, processes. A part without them declares it. It knows only the parts of the crate `supervision`, which it answers for.
//! The master runs it.

use std::os::fd::AsFd;

use bolide_contract::settings::Settings;
use bolide_supervision::files::file_watches::Watches;
use bolide_supervision::polling::Source;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::processes::memory_watch::MemoryWatch;
use bolide_supervision::processes::signals::Signals;
use bolide_supervision::sockets::emperor_link::EmperorLink;
use bolide_supervision::sockets::service_manager::Notifier;
use nix::unistd::Pid;

use crate::token::Token;

/// The moment at which the loop is about to wait, as far as an owner depends on the others.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub now_ms: u64,
    pub is_stopping: bool,
    /// No other master has the files of the instance.
    pub owns_files: bool,
    /// A connection at a listening socket may start a worker.
    pub listens: bool,
    pub connection_move: ConnectionMove,
}

/// The way in which the master moves connections at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionMove {
    None,
    /// Out of the queue, as no worker can.
    Take,
    /// Back into the queue, as a worker can take them.
    Give,
}

/// What the loop waits for on behalf of an owner.
#[derive(Debug, Default)]
pub struct Waits<'a> {
    pub sources: Vec<Source<'a, Token>>,
    /// The next time at which the owner has to be looked at even without an event, in monotonic milliseconds.
    pub wake_ms: Option<u64>,
}

impl<'a> Waits<'a> {
    /// Waits for a time alone.
    pub fn until(wake_ms: Option<u64>) -> Waits<'a> {
        Waits { sources: Vec::new(), wake_ms }
    }

    /// Waits for descriptors, and for a time.
    pub fn on(sources: impl IntoIterator<Item = Source<'a, Token>>, wake_ms: Option<u64>) -> Waits<'a> {
        Waits { sources: sources.into_iter().collect(), wake_ms }
    }
}

/// A part of the instance that the loop wakes up for.
pub trait Owner {
    fn waits(&self, turn: &Turn) -> Waits<'_>;
}

/// What an owner of processes may use when one of them has ended, or is to end.
#[derive(Debug, Clone, Copy)]
pub struct OwnerContext<'a> {
    pub settings: &'a Settings,
    pub privileges: Option<&'a Privileges>,
    pub is_stopping: bool,
    /// A master that has replaced this one has the instance.
    pub continues_elsewhere: bool,
    pub now_ms: u64,
}

/// A part of the instance with processes that are of no generation. Nothing of it waits.
pub trait Processes: Owner {
    /// Does what is due: starts the missing ones, and kills the late ones.
    fn due(&mut self, context: OwnerContext<'_>);

    /// Handles the end of a child of the master. `None`: it was none of its processes.
    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath>;

    /// The instance stops immediately.
    fn stop_now(&mut self, now_ms: u64);

    /// The instance exits, and no worker is left: orders its processes to end, once, and returns whether all have ended. An owner
    /// that the others need ends when they have: then `is_last`.
    fn finish(&mut self, is_last: bool, context: OwnerContext<'_>) -> bool;
}

/// What the end of a process means for the rest of the instance.
#[derive(Debug, PartialEq, Eq)]
pub enum Aftermath {
    Nothing,
    /// The master that was to replace us has ended, with the reason.
    UpgradeFailed(String),
}

impl<T: Owner> Owner for Option<T> {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        self.as_ref().map(|owner| owner.waits(turn)).unwrap_or_default()
    }
}

impl Owner for Signals {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::on([Source::readable(Token::Signals, self.as_fd())], None)
    }
}

impl Owner for Watches {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::on(self.source(Token::Watches), self.wake_ms())
    }
}

impl Owner for MemoryWatch {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        Waits::until(Some(self.wake_ms()).filter(|_| !turn.is_stopping))
    }
}

impl Owner for EmperorLink {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::on(self.sources(Token::Emperor), self.wake_ms())
    }
}

impl Owner for Notifier {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        Waits::until(self.wake_ms())
    }
}

#[cfg(test)]
impl Turn {
    /// Returns a turn of an instance that serves.
    pub fn at(now_ms: u64) -> Turn {
        Turn { now_ms, is_stopping: false, owns_files: true, listens: false, connection_move: ConnectionMove::None }
    }
}
