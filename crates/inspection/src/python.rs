//! The Python in a process: its version, its layout, the states of its threads, and the thread that holds the GIL. Pure, over the
//! text of `/proc/PID/maps` and the memory.

use crate::codes::Codes;
use crate::frames::{Detail, Stack};
use crate::layout::{self, Layout, debug_offsets};
use crate::maps::{self, MappedFile};
use crate::memory::{Memory, Read, Unreadable, is_plausible};
use crate::objects::Objects;
use crate::symbols::Symbols;

/// Interpreters of a process, and threads of an interpreter, that are read.
const MAX_INTERPRETERS: usize = 64;
const MAX_THREADS: usize = 4_096;
/// Bytes of the structure of a GIL: its fields, and two conditions and two mutexes of the C library.
const GIL_BYTES: u64 = 256;
/// Bytes of a C library's structure of a thread in which its id is looked for.
const PTHREAD_BYTES: u64 = 2_048;

/// Why a process' Python can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPython {
    Unreadable(Unreadable),
    /// None of its files has the interpreter's state.
    NotFound,
    /// A version that is not known here, or a build that differs from the usual one.
    Unsupported(String),
}

impl From<Unreadable> for NoPython {
    fn from(why: Unreadable) -> NoPython {
        NoPython::Unreadable(why)
    }
}

/// Where a process has its interpreter.
#[derive(Debug)]
pub struct Python {
    pub layout: Layout,
    runtime: u64,
    codes: Codes,
}

/// A thread that has run Python code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadState {
    pub address: u64,
    /// The id of the C library (`threading.get_ident()`).
    pub ident: u64,
    /// The kernel's id; 0: it is not known.
    pub native: u32,
    pub holds_gil: bool,
}

impl Python {
    /// Finds the interpreter of a process.
    ///
    /// # Errors
    /// There is none, or it can't be read.
    pub fn find(memory: &impl Memory, maps: &str) -> Result<Python, NoPython> {
        let files = maps::files(maps);
        let (file, runtime) = runtime_of(memory, &files)?;
        let header = memory.bytes(runtime, debug_offsets::BYTES as u64)?;
        if let Some((major, minor)) = debug_offsets::version_of(&header) {
            let unsupported = || NoPython::Unsupported(format!("it runs Python {major}.{minor}"));
            let table = layout::of_minor(minor).filter(|_| major == 3).ok_or_else(unsupported)?;
            if debug_offsets::is_free_threaded(&header) {
                return Err(NoPython::Unsupported("it runs a free-threaded Python".to_owned()));
            }
            let differs = |field| NoPython::Unsupported(format!("its Python {major}.{minor} describes `{field}` in another way"));
            return debug_offsets::complete(table, &header)
                .map(|layout| Python { layout, runtime, codes: Codes::default() })
                .map_err(differs);
        }
        let stated = Symbols::of_file(memory, file.start)?.find(memory, "Py_Version")?;
        let minor = match stated {
            Some(address) => Some(memory.number(address)? >> 16 & 0xff),
            None => maps::minor_version(&files),
        };
        let minor = minor.ok_or_else(|| NoPython::Unsupported("the version of its Python can't be determined".to_owned()))?;
        let layout = layout::of_minor(minor).filter(|layout| layout.minor < 13);
        layout
            .map(|layout| Python { layout, runtime, codes: Codes::default() })
            .ok_or_else(|| NoPython::Unsupported(format!("it runs Python 3.{minor}")))
    }

    /// An interpreter of made-up memory.
    #[cfg(test)]
    pub fn at(layout: Layout, runtime: u64) -> Python {
        Python { layout, runtime, codes: Codes::default() }
    }

    pub fn objects<'a, M: Memory>(&'a self, memory: &'a M) -> Objects<'a, M> {
        Objects { memory, layout: &self.layout, codes: &self.codes }
    }

    /// The interpreters, the newest first.
    pub fn interpreters(&self, memory: &impl Memory) -> Read<Vec<u64>> {
        let first = memory.word(self.runtime.wrapping_add(self.layout.runtime_interpreters_head))?;
        list(memory, first, self.layout.interpreter_next, MAX_INTERPRETERS).map(|(interpreters, _)| interpreters)
    }

    /// The threads of all interpreters, the oldest first; and whether some of them could not be read. `tasks` are the kernel's
    /// ids of the process' threads.
    ///
    /// # Errors
    /// None of them can be read.
    pub fn threads(&self, memory: &impl Memory, tasks: &[u32]) -> Read<(Vec<ThreadState>, bool)> {
        let layout = &self.layout;
        let (mut threads, mut is_partial) = (Vec::new(), false);
        for interpreter in self.interpreters(memory)? {
            let holder = self.holder(memory, interpreter).unwrap_or(None);
            let first = memory.word(interpreter.wrapping_add(layout.interpreter_threads_head))?;
            let (states, is_whole) = list(memory, first, layout.thread_next, MAX_THREADS)?;
            is_partial |= !is_whole;
            for address in states {
                let native = match layout.thread_native_id {
                    0 => Ok(0),
                    offset => memory.number(address.wrapping_add(offset)),
                };
                let (Ok(ident), Ok(native)) = (memory.word(address.wrapping_add(layout.thread_id)), native) else {
                    is_partial = true;
                    continue;
                };
                threads.push(ThreadState { address, ident, native, holds_gil: holder == Some(address) });
            }
        }
        if layout.thread_native_id == 0 {
            find_native_ids(memory, &mut threads, tasks);
        }
        threads.reverse();
        Ok((threads, is_partial))
    }

    /// The address of the structure of an interpreter's GIL.
    fn gil(&self, memory: &impl Memory, interpreter: u64) -> Read<u64> {
        match self.layout.interpreter_gil {
            0 => Ok(self.runtime.wrapping_add(self.layout.gil_in_runtime)),
            offset => memory.pointer(interpreter.wrapping_add(offset)),
        }
    }

    /// Whether a word lies in the structure of a GIL, which has the condition for which threads wait.
    pub fn is_of_gil(&self, memory: &impl Memory, word: u64) -> bool {
        let has_it = |interpreter: u64| {
            self.gil(memory, interpreter).is_ok_and(|gil| (gil..gil.saturating_add(GIL_BYTES)).contains(&word))
        };
        self.interpreters(memory).unwrap_or_default().into_iter().any(has_it)
    }

    /// The thread state that holds the GIL of an interpreter.
    fn holder(&self, memory: &impl Memory, interpreter: u64) -> Read<Option<u64>> {
        let gil = self.gil(memory, interpreter)?;
        // 0 is free, -1 not in use yet.
        let is_locked = memory.number(gil.wrapping_add(self.layout.gil_locked))? == 1;
        let holder = memory.word(gil.wrapping_add(self.layout.gil_holder))?;
        Ok((is_locked && is_plausible(holder)).then_some(holder))
    }

    /// The stack of a thread.
    pub fn stack(&self, memory: &impl Memory, thread: &ThreadState, detail: Detail) -> Stack {
        self.objects(memory).stack_of_thread(thread.address, detail)
    }

    /// The names that `threading` has for its threads, by their ident.
    pub fn thread_names(&self, memory: &impl Memory) -> Vec<(u64, String)> {
        let objects = self.objects(memory);
        let active = self.module_item(memory, "threading", "_active");
        let entries = active.and_then(|active| objects.entries(active)).unwrap_or_default();
        let named = |(ident, thread): (u64, u64)| {
            let name = objects.text(objects.attribute(thread, "_name").ok()?).ok()?;
            Some((objects.integer(ident).ok()? as u64, name))
        };
        entries.into_iter().take(MAX_THREADS).filter_map(named).collect()
    }

    /// Whether a module is imported, in any interpreter.
    pub fn has_module(&self, memory: &impl Memory, module: &str) -> bool {
        self.module_item(memory, module, "__name__").is_ok()
    }

    /// The value of a name in a module that is imported, in any interpreter.
    pub fn module_item(&self, memory: &impl Memory, module: &str, name: &str) -> Read<u64> {
        let objects = self.objects(memory);
        let find = |interpreter: u64| {
            let modules = memory.pointer(interpreter.wrapping_add(self.layout.interpreter_modules))?;
            let module = objects.item(modules, module)?;
            // A module's dictionary follows its head.
            objects.item(memory.pointer(module.wrapping_add(16))?, name)
        };
        self.interpreters(memory)?.into_iter().find_map(|interpreter| find(interpreter).ok()).ok_or(Unreadable::Nothing)
    }
}

/// Follows a list of structures. Returns whether it was followed to its end.
fn list(memory: &impl Memory, first: u64, next: u64, most: usize) -> Read<(Vec<u64>, bool)> {
    let (mut found, mut place) = (Vec::new(), first);
    while place != 0 {
        if found.len() >= most || !is_plausible(place) {
            return Ok((found, false));
        }
        found.push(place);
        match memory.word(place.wrapping_add(next)) {
            Ok(following) => place = following,
            Err(_) => return Ok((found, false)),
        }
    }
    Ok((found, true))
}

/// Finds the file that has the interpreter's state: a shared library, or the program itself.
fn runtime_of<'a>(memory: &impl Memory, files: &'a [MappedFile]) -> Result<(&'a MappedFile, u64), NoPython> {
    let rank = |file: &MappedFile| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        (!name.starts_with("libpython"), !name.contains("python"), name.contains(".so"))
    };
    let mut ordered: Vec<&MappedFile> = files.iter().collect();
    ordered.sort_by_key(|file| rank(file));
    for file in ordered {
        match Symbols::of_file(memory, file.start).and_then(|symbols| symbols.find(memory, "_PyRuntime")) {
            Ok(Some(address)) => return Ok((file, address)),
            Ok(None) | Err(Unreadable::Nothing) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(NoPython::NotFound)
}

/// 3.9 and 3.10 don't keep the kernel's id of a thread, but the address of the C library's structure, which has it somewhere. It
/// is the place where each thread has another one of the process' ids.
fn find_native_ids(memory: &impl Memory, threads: &mut [ThreadState], tasks: &[u32]) {
    let at = |thread: &ThreadState, offset: u64| {
        memory.number(thread.ident.wrapping_add(offset)).ok().filter(|number| tasks.contains(number))
    };
    let ids = |offset: u64| {
        let found: Option<Vec<u32>> = threads.iter().map(|thread| at(thread, offset)).collect();
        let mut distinct = found.clone()?;
        distinct.sort_unstable();
        distinct.dedup();
        found.filter(|found| found.len() == distinct.len())
    };
    let found = (0..PTHREAD_BYTES / 4).find_map(|place| ids(place * 4));
    for (thread, id) in threads.iter_mut().zip(found.unwrap_or_default()) {
        thread.native = id;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pieces;

    const RUNTIME: u64 = 0x10_0000;
    const INTERPRETER: u64 = 0x20_0000;
    const FIRST: u64 = 0x30_0000;
    const SECOND: u64 = 0x40_0000;

    fn python() -> Python {
        Python::at(layout::of_minor(11).expect("a table"), RUNTIME)
    }

    /// An interpreter with two threads, of which the second holds the GIL.
    fn memory() -> Pieces {
        let layout = python().layout;
        let mut memory = Pieces::default();
        let gil = layout.gil_in_runtime;
        memory.structure(
            RUNTIME,
            &[(layout.runtime_interpreters_head, INTERPRETER), (gil + layout.gil_holder, SECOND), (gil + layout.gil_locked, 1)],
        );
        memory.structure(INTERPRETER, &[(layout.interpreter_threads_head, SECOND)]);
        let thread = |next, ident| [(layout.thread_next, next), (layout.thread_id, ident), (layout.thread_native_id, ident)];
        memory.structure(SECOND, &thread(FIRST, 2));
        memory.structure(FIRST, &thread(0, 1));
        memory
    }

    #[test]
    fn the_threads_are_listed_and_the_one_with_the_gil_is_marked() {
        let (threads, is_partial) = python().threads(&memory(), &[]).expect("threads");
        let seen: Vec<_> = threads.iter().map(|thread| (thread.address, thread.native, thread.holds_gil)).collect();
        assert_eq!(seen, [(FIRST, 1, false), (SECOND, 2, true)]);
        assert!(!is_partial);
    }

    #[test]
    fn a_list_that_ends_nowhere_or_never_is_partial() {
        let layout = python().layout;
        let mut broken = memory();
        broken.structure(FIRST, &[(layout.thread_next, 0x7)]);
        assert!(python().threads(&broken, &[]).is_ok_and(|(threads, is_partial)| threads.len() == 2 && is_partial));
        let mut endless = memory();
        endless.structure(FIRST, &[(layout.thread_next, FIRST)]);
        let (threads, is_partial) = python().threads(&endless, &[]).expect("threads");
        assert!(threads.len() <= MAX_THREADS && is_partial);
    }

    #[test]
    fn a_stack_that_leads_back_to_itself_or_to_no_code_is_partial() {
        let layout = python().layout;
        let (frame, cframe) = (0x50_0000, 0x60_0000);
        let mut memory = memory();
        memory.structure(FIRST, &[(layout.thread_frame, cframe)]);
        memory.structure(cframe, &[(layout.cframe_current, frame)]);
        memory.structure(frame, &[(layout.frame_previous, frame), (layout.frame_code, 0x70_0000)]);
        memory.structure(0x70_0000, &[(layout.object_type, 0x80_0000)]);
        memory.structure(0x80_0000, &[(layout.type_name, 0x90_0000)]);
        memory.put(0x90_0000, b"list\0");
        let thread = ThreadState { address: FIRST, ..ThreadState::default() };
        let stack = python().stack(&memory, &thread, Detail::default());
        assert!(stack.is_partial && stack.frames.is_empty());
    }

    #[test]
    fn ids_of_the_kernel_are_found_in_the_structures_of_the_c_library() {
        let mut memory = Pieces::default();
        memory.structure(FIRST, &[(0, 4001), (720, 4001)]);
        memory.structure(SECOND, &[(0, 4001), (720, 4002)]);
        let of = |ident| ThreadState { ident, ..ThreadState::default() };
        let mut threads = [of(FIRST), of(SECOND)];
        find_native_ids(&memory, &mut threads, &[4001, 4002]);
        assert_eq!(threads.map(|thread| thread.native), [4001, 4002]);
    }
}
