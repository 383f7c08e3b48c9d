//! The stacks of all threads of one process, as they are at one moment. A stack that was read while it changed is read again, and
//! one that never holds still is marked. The command-line process runs it.

use serde::Serialize;

use std::collections::BTreeSet;

use crate::frames::{Detail, Stack};
use crate::greenlets::{self, Greenlet};
use crate::memory::{ProcessMemory, Snapshot, Unreadable};
use crate::process::{self, Task};
use crate::python::{NoPython, Python, ThreadState};
use crate::tasks;

/// Attempts to read a process whose structures change in the meantime.
const MAX_ATTEMPTS: u32 = 5;

/// In the name of greenlet's file, `_greenlet.cpython-311-x86_64-linux-gnu.so`.
const GREENLET_FILE: &str = "/_greenlet.";

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// The kernel's id; 0 if it is not known.
    pub id: u32,
    /// Its name in Python, else in the kernel.
    pub name: String,
    pub holds_gil: bool,
    /// It runs on a processor, or is about to. Otherwise it waits.
    pub is_running: bool,
    /// It has run Python code: otherwise it is known to the kernel alone.
    pub is_python: bool,
    #[serde(flatten)]
    pub stack: Stack,
}

/// A process at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// `3.11`
    pub python: String,
    pub threads: Vec<Thread>,
    /// Tasks of asyncio that have not ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<tasks::AsyncioTask>,
    /// Greenlets that wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub greenlets: Vec<Greenlet>,
    /// What this version of Python keeps in places that are not known: `greenlets`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_listed: Vec<&'static str>,
    /// Threads, tasks or greenlets are missing.
    pub is_partial: bool,
}

/// A thread at one moment of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The kernel's id; 0 if it is not known.
    pub id: u32,
    /// The id that `threading` has for it.
    pub ident: u64,
    pub holds_gil: bool,
    pub is_running: bool,
    pub stack: Stack,
}

/// A process that is read once or often.
#[derive(Debug)]
pub struct Reader {
    pid: i32,
    began: Option<u64>,
    memory: Snapshot<ProcessMemory>,
    python: Python,
}

impl Reader {
    /// Finds the interpreter of a process.
    ///
    /// # Errors
    /// It has none, or it can't be read.
    pub fn open(pid: i32) -> Result<Reader, NoPython> {
        let began = process::began(pid);
        let memory = Snapshot::new(ProcessMemory::of(pid));
        let maps = process::maps(pid).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Unreadable::Forbidden,
            _ => Unreadable::Ended,
        })?;
        let python = Python::find(&memory, &maps)?;
        Ok(Reader { pid, began, memory, python })
    }

    /// Reads all threads. The attempt with the fewest torn stacks counts.
    ///
    /// # Errors
    /// The process has exited, or nothing of it can be read.
    pub fn process(&self, detail: Detail) -> Result<Process, NoPython> {
        let (greenlets, not_listed, lacks) = self.greenlets();
        let mut best: Option<(usize, Process)> = None;
        let mut failure = Unreadable::Nothing;
        for _ in 0..MAX_ATTEMPTS {
            self.memory.refresh();
            match self.attempt(detail, &greenlets) {
                Ok(found) => {
                    let threads = found.threads.iter().map(|thread| &thread.stack);
                    let tasks = found.tasks.iter().map(|task| &task.stack);
                    let stacks = threads.chain(tasks).chain(found.greenlets.iter().map(|greenlet| &greenlet.stack));
                    let torn = stacks.filter(|stack| stack.is_partial).count() + usize::from(found.is_partial);
                    if best.as_ref().is_none_or(|(least, _)| torn < *least) {
                        best = Some((torn, found));
                    }
                    if torn == 0 {
                        break;
                    }
                }
                Err(why) => failure = why,
            }
        }
        // Another process may have the pid by now.
        if process::began(self.pid) != self.began {
            return Err(Unreadable::Ended.into());
        }
        let whole = |(_, found): (usize, Process)| Process { is_partial: found.is_partial || lacks, not_listed, ..found };
        best.map(whole).ok_or(NoPython::Unreadable(failure))
    }

    /// The addresses of greenlets, what can't be listed, and whether greenlets are missing. Without greenlet's module it looks
    /// for none.
    fn greenlets(&self) -> (BTreeSet<u64>, Vec<&'static str>, bool) {
        let mut found = BTreeSet::new();
        let mut not_listed = Vec::new();
        if !self.python.knows_tasks() && self.python.has_module(&self.memory, "asyncio.tasks") {
            not_listed.push("tasks of asyncio");
        }
        if !process::maps(self.pid).is_ok_and(|maps| maps.contains(GREENLET_FILE)) {
            return (found, not_listed, false);
        }
        if !self.python.knows_greenlets() {
            not_listed.push("greenlets");
            return (found, not_listed, false);
        }
        let memory = Snapshot::rolling(ProcessMemory::of(self.pid));
        let is_whole = (0..greenlets::MAX_WALKS).any(|_| {
            memory.refresh();
            self.python.find_greenlets(&memory, &mut found)
        });
        (found, not_listed, !is_whole)
    }

    /// Reads the stacks of the threads that are wanted, once: of a torn one as much as could be read. The request of a stack is
    /// looked for where it is wanted.
    ///
    /// # Errors
    /// The process has exited, or nothing of it can be read.
    pub fn sample(
        &self,
        wanted: impl Fn(&Sample) -> bool,
        wants_request: impl Fn(&Sample) -> bool,
    ) -> Result<Vec<Sample>, NoPython> {
        self.memory.refresh();
        // The ids are known from 3.11 on.
        let needs_ids = self.python.layout.thread_native_id == 0;
        let ids = if needs_ids { process::tasks(self.pid).iter().map(|task| task.id).collect() } else { Vec::new() };
        let (states, _) = self.python.threads(&self.memory, &ids)?;
        let mut samples = Vec::new();
        for state in states {
            let task = process::task(self.pid, state.native);
            let mut sample = Sample {
                id: state.native,
                ident: state.ident,
                holds_gil: state.holds_gil,
                is_running: task.is_some_and(|task| task.state == 'R'),
                stack: Stack::default(),
            };
            if wanted(&sample) {
                sample.stack =
                    self.python.stack(&self.memory, &state, Detail { requests: wants_request(&sample), ..Detail::default() });
                samples.push(sample);
            }
        }
        Ok(samples)
    }

    /// The names of threads by their ident, as `threading` has them.
    pub fn thread_names(&self) -> Vec<(u64, String)> {
        self.memory.refresh();
        self.python.thread_names(&self.memory)
    }

    /// Whether a word in the process' memory belongs to the lock of an interpreter: a thread that waits for it waits for the GIL.
    pub fn is_of_gil(&self, word: u64) -> bool {
        self.python.is_of_gil(&self.memory, word)
    }

    /// A task of asyncio, by its address. `None`: it has ended, or could not be read.
    pub fn one_task(&self, address: u64, detail: Detail) -> Option<tasks::AsyncioTask> {
        self.memory.refresh();
        self.python.task(&self.memory, address, detail)
    }

    /// A greenlet that waits, by its address. `None`: it runs or has ended, or could not be read.
    pub fn one_greenlet(&self, address: u64, detail: Detail) -> Option<Greenlet> {
        self.memory.refresh();
        self.python.greenlets(&self.memory, &BTreeSet::from([address]), detail).0.pop()
    }

    fn attempt(&self, detail: Detail, greenlets: &BTreeSet<u64>) -> Result<Process, Unreadable> {
        let tasks = process::tasks(self.pid);
        let ids: Vec<u32> = tasks.iter().map(|task| task.id).collect();
        let (states, is_partial) = self.python.threads(&self.memory, &ids)?;
        let names = self.python.thread_names(&self.memory);
        let mut threads: Vec<Thread> = states.iter().map(|state| self.thread(state, &tasks, &names, detail)).collect();
        let others = tasks.iter().filter(|task| !states.iter().any(|state| state.native == task.id));
        // If ids are not known, no thread can be said to be without Python.
        if states.iter().all(|state| state.native != 0) {
            threads.extend(others.map(foreign));
        }
        let (tasks, lacks_tasks) = self.python.tasks(&self.memory, detail);
        let python = format!("3.{}", self.python.layout.minor);
        let (greenlets, lacks_greenlets) = self.python.greenlets(&self.memory, greenlets, detail);
        let is_partial = is_partial || lacks_tasks || lacks_greenlets;
        Ok(Process { python, threads, tasks, greenlets, not_listed: Vec::new(), is_partial })
    }

    fn thread(&self, state: &ThreadState, tasks: &[Task], names: &[(u64, String)], detail: Detail) -> Thread {
        let task = tasks.iter().find(|task| task.id == state.native);
        let name = names.iter().find(|(ident, _)| *ident == state.ident).map(|(_, name)| name.clone());
        Thread {
            id: state.native,
            name: name.or_else(|| own_name(state.native, self.pid, task)).unwrap_or_default(),
            holds_gil: state.holds_gil,
            is_running: task.is_some_and(|task| task.state == 'R'),
            is_python: true,
            stack: self.python.stack(&self.memory, state, detail),
        }
    }
}

/// The name of a thread that `threading` does not know by its ident, as with gevent, which has greenlets' there. The kernel's
/// name of the first thread is that of the process.
fn own_name(id: u32, pid: i32, task: Option<&Task>) -> Option<String> {
    if i64::from(id) == i64::from(pid) { Some("MainThread".to_owned()) } else { task.map(|task| task.name.clone()) }
}

fn foreign(task: &Task) -> Thread {
    Thread {
        id: task.id,
        name: task.name.clone(),
        holds_gil: false,
        is_running: task.state == 'R',
        is_python: false,
        stack: Stack::default(),
    }
}
