//! The tools that the requests of a worker share: the poll, the spawner, a buffer, the log and the counters of the engine. It
//! does not know requests. The thread of a worker runs it.

use std::cell::Cell;
use std::fs::File;

use bolide_engine::EmbeddedWorker;
use bolide_engine::answer::Answer;
use bolide_engine::app::Language;
use nix::sys::epoll::{Epoll, EpollFlags};

use crate::spawn::Spawner;

thread_local! {
    /// The engine of this thread's worker.
    static ENGINE: Cell<Option<&'static dyn EngineFace>> = const { Cell::new(None) };
}

/// What the state tells the engine, whatever its language.
trait EngineFace {
    fn set_full(&self, is_full: bool);
    fn note_service(&self, since_us: u64);
    fn count_broken_off(&self, answer: &Answer<'_>);
}

impl<L: Language> EngineFace for EmbeddedWorker<L> {
    fn set_full(&self, is_full: bool) {
        EmbeddedWorker::set_full(self, is_full);
    }

    fn note_service(&self, since_us: u64) {
        EmbeddedWorker::note_service(self, since_us);
    }

    fn count_broken_off(&self, answer: &Answer<'_>) {
        EmbeddedWorker::count_broken_off(self, answer);
    }
}

/// Makes an engine that of this thread's worker.
pub fn set_engine<L: Language>(engine: &'static EmbeddedWorker<L>) {
    ENGINE.set(Some(engine));
}

/// Whether as many programs run as may run.
pub fn set_full(is_full: bool) {
    if let Some(engine) = ENGINE.get() {
        engine.set_full(is_full);
    }
}

/// A program has worked on a request since this time, in microseconds.
pub fn note_service(since_us: u64) {
    if let Some(engine) = ENGINE.get() {
        engine.note_service(since_us);
    }
}

/// What all runs share.
pub struct Tools {
    pub poll: Epoll,
    pub spawner: Spawner,
    /// For reading a program's output.
    pub buffer: Box<[u8]>,
    /// Standard input without a body.
    pub null: File,
    pub timeout_ms: u64,
    pub outlives_client: bool,
    pub worker: u32,
}

/// What the poll watches of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Input,
    Output,
    Errors,
    Exit,
}

const EVENTS: [Event; 4] = [Event::Input, Event::Output, Event::Errors, Event::Exit];

impl Event {
    /// Edge-triggered, so that a run that can't go on is left alone.
    pub fn flags(self) -> EpollFlags {
        let flags = if self == Event::Input { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        flags | EpollFlags::EPOLLET
    }

    /// The data of the poll's event.
    pub fn key(self, number: u64) -> u64 {
        number * EVENTS.len() as u64 + self as u64
    }

    /// The run and the event of such data.
    pub fn of_key(key: u64) -> (u64, Event) {
        let kinds = EVENTS.len() as u64;
        (key / kinds, EVENTS[(key % kinds) as usize])
    }
}

impl Tools {
    /// Logs a line about a program.
    pub fn complain(&self, text: &str) {
        bolide_log::line(&format!("worker {}: {text}", self.worker));
    }

    pub fn count_broken_off(&self, answer: &Answer<'_>) {
        if let Some(engine) = ENGINE.get() {
            engine.count_broken_off(answer);
        }
    }
}
