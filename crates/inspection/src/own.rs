//! Reads a thread of its own process: the Python stack, the system call, and whether the thread holds the GIL or waits for it,
//! and for which thread. It needs neither the thread nor the interpreter, so it works while C code holds the GIL.
//!
//! The kernel lets each process read its own memory, whatever it allows others. Workers with `slow-request` run it.

use crate::frames::{Detail, Stack};
use crate::memory::ProcessMemory;
use crate::python::NoPython;
use crate::trace::{Reader, Sample};
use crate::waits::{self, Wait};

/// Attempts to read a stack that changes in the meantime.
const MAX_ATTEMPTS: u32 = 4;

/// What is read of tasks and greenlets: their thread is in no call for their socket.
const KEPT: Detail = Detail { locals: false, requests: false, sockets: true };

/// A thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnThread {
    pub stack: Stack,
    pub holds_gil: bool,
    pub waits_for_gil: bool,
    /// It runs on a processor, or is about to.
    pub is_running: bool,
    /// The system call that it is in; `None` if it is in none, or the kernel does not tell.
    pub wait: Option<Wait>,
    /// The thread that holds the GIL, if this one waits for it.
    pub holder: Option<Holder>,
}

/// A thread that holds the GIL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub stack: Stack,
    /// The system call in which it keeps the GIL: C code that has not released it.
    pub wait: Option<Wait>,
}

impl Reader {
    /// Opens the calling process.
    ///
    /// # Errors
    /// It has no interpreter that is known here, or a filter of system calls forbids the read.
    pub fn own() -> Result<Reader, NoPython> {
        Reader::open(own_pid())
    }

    /// Looks at a thread of the calling process, by the kernel's id. `None`: it has no Python.
    ///
    /// # Errors
    /// Nothing of it can be read.
    pub fn own_thread(&self, id: u32) -> Result<Option<OwnThread>, NoPython> {
        let memory = ProcessMemory::of(own_pid());
        let mut best: Option<OwnThread> = None;
        for _ in 0..MAX_ATTEMPTS {
            let wait = waits::wait(own_pid(), id, &memory);
            let samples = self.sample(|sample| sample.id == id || sample.holds_gil, |_| false)?;
            let Some(own) = samples.iter().find(|sample| sample.id == id) else { return Ok(None) };
            let futex = wait.as_ref().and_then(|wait| wait.futex);
            let waits_for_gil = !own.holds_gil && futex.is_some_and(|word| self.is_of_gil(word));
            let holder =
                |holder: &Sample| Holder { stack: holder.stack.clone(), wait: waits::wait(own_pid(), holder.id, &memory) };
            let found = OwnThread {
                stack: own.stack.clone(),
                holds_gil: own.holds_gil,
                waits_for_gil,
                is_running: own.is_running,
                wait,
                holder: samples.iter().find(|sample| waits_for_gil && sample.holds_gil && sample.id != id).map(holder),
            };
            let is_whole = !found.stack.is_partial;
            if best.as_ref().is_none_or(|best| best.stack.frames.len() < found.stack.frames.len()) || is_whole {
                best = Some(found);
            }
            if is_whole {
                break;
            }
        }
        Ok(best)
    }

    /// The stack of a task of asyncio, by the address of its object.
    pub fn own_task(&self, task: u64) -> Option<crate::tasks::AsyncioTask> {
        self.one_task(task, KEPT)
    }

    /// The stack of a greenlet that waits, by the address of its object.
    pub fn own_greenlet(&self, greenlet: u64) -> Option<crate::greenlets::Greenlet> {
        self.one_greenlet(greenlet, KEPT)
    }
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
