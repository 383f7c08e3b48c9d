//! The greenlets of a process that wait: the stack of each one, and what it waits for. The one that runs is the stack of its
//! thread. Pure.
//!
//! No list contains all greenlets, but the garbage collector knows each one, so they are found in its lists by their type.
//! greenlet's structures are in no header that is installed everywhere, and differ by version: the frame is the one word of a
//! greenlet that points to a frame, and whatever is read must be one.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::frames::{self, Detail, Frame, Stack};
use crate::memory::{Memory, Read, Unreadable, is_plausible};
use crate::objects::Objects;
use crate::python::Python;

/// Objects of the collector that are looked at, greenlets that are listed, walks through lists that change in the meantime.
const MAX_OBJECTS: u32 = 2_000_000;
const MAX_GREENLETS: usize = 10_000;
pub const MAX_WALKS: u32 = 3;
/// Lists of the collector: those of its three generations. Objects that were frozen before a fork are in another one.
const GENERATIONS: u64 = 3;
/// In front of each object of the collector: two links, with flags in their low bits.
const LINKS_BYTES: u64 = 16;
const LINK_FLAGS: u64 = 0b111;
/// Classes between a greenlet's and the base of all.
const MAX_BASES: u32 = 32;
const BASE_NAME: &str = "greenlet.greenlet";
/// greenlet 2 and 3: the size of the base, whose last field points to the state. Words of the state among which the frame is.
const SMALL_BASE_BYTES: u64 = 40;
const STATE_WORDS: std::ops::Range<u64> = 6..20;
/// greenlet before 2: the base has the state itself. In words.
const MAX_BASE_WORDS: u64 = 40;
/// The stack of a thread's own greenlet has no known end.
const NO_STOP: u64 = u64::MAX;
/// A stack of C code, in bytes.
const MAX_STACK_BYTES: u64 = 1 << 30;
/// Words from the frame back to the fields of the C stack: its innermost address, its outermost one, the copy, and the copy's
/// size.
const STACK_START: u64 = 6 * 8;
const STACK_STOP: u64 = 5 * 8;
const STACK_COPY: u64 = 4 * 8;
const STACK_SAVED: u64 = 3 * 8;

/// A greenlet that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Greenlet {
    /// Its class, without the module: `Greenlet`, `Hub`.
    pub kind: String,
    /// `0x7f…`, as gevent's own lines have it.
    pub address: String,
    /// What gevent waits for: `a socket (recv)`, `a time (sleep)`; empty if it is not known.
    pub waits_for: String,
    #[serde(flatten)]
    pub stack: Stack,
}

/// A C stack of which a part has been copied elsewhere, since another greenlet uses the place.
#[derive(Debug)]
struct Spilled<'a, M> {
    memory: &'a M,
    start: u64,
    saved: u64,
    copy: u64,
}

impl<M: Memory> Memory for Spilled<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Read<()> {
        let end = self.start.saturating_add(self.saved);
        if !(self.start..end).contains(&address) {
            return self.memory.read(address, buffer);
        }
        // A structure may lie half in the copy.
        let copied = usize::try_from(end - address).unwrap_or(usize::MAX).min(buffer.len());
        let (first, rest) = buffer.split_at_mut(copied);
        self.memory.read(self.copy.wrapping_add(address - self.start), first)?;
        if rest.is_empty() { Ok(()) } else { self.memory.read(end, rest) }
    }
}

impl Python {
    /// Whether the lists of this version's collector are known.
    pub fn knows_greenlets(&self) -> bool {
        self.layout.gc_generations != 0
    }

    /// Adds the addresses of greenlets. Returns whether all lists were followed to their ends: they change while the process
    /// runs.
    pub fn find_greenlets(&self, memory: &impl Memory, found: &mut BTreeSet<u64>) -> bool {
        let objects = Finder(self.objects(memory));
        let mut is_whole = true;
        let mut kinds = HashMap::new();
        for interpreter in self.interpreters(memory).unwrap_or_default() {
            let first = interpreter.wrapping_add(self.layout.interpreter_gc + self.layout.gc_generations);
            let heads = [0, 1, 2].map(|number: u64| first.wrapping_add(number * self.layout.gc_generation_bytes));
            debug_assert_eq!(heads.len() as u64, GENERATIONS);
            for head in heads {
                is_whole &= objects.walk(head, &heads, &mut kinds, found).is_ok();
            }
        }
        is_whole
    }

    /// Reads greenlets; and whether some could not be read.
    pub fn greenlets(&self, memory: &impl Memory, addresses: &BTreeSet<u64>, detail: Detail) -> (Vec<Greenlet>, bool) {
        let objects = Finder(self.objects(memory));
        let (mut greenlets, mut is_partial) = (Vec::new(), addresses.len() > MAX_GREENLETS);
        for address in addresses.iter().take(MAX_GREENLETS) {
            match objects.greenlet(*address, detail) {
                Ok(Some(greenlet)) => greenlets.push(greenlet),
                Ok(None) => {}
                Err(_) => is_partial = true,
            }
        }
        (greenlets, is_partial)
    }
}

/// Finds greenlets among the objects of a process.
struct Finder<'a, M>(Objects<'a, M>);

impl<'a, M: Memory> Finder<'a, M> {
    /// Follows one list of the collector. During a collection its objects are in other lists, so it also ends where it began.
    fn walk(&self, head: u64, heads: &[u64], kinds: &mut HashMap<u64, bool>, found: &mut BTreeSet<u64>) -> Read<()> {
        let first = self.0.memory.word(head)? & !LINK_FLAGS;
        let mut place = first;
        for _ in 0..MAX_OBJECTS {
            if heads.contains(&place) {
                return Ok(());
            }
            if !is_plausible(place) {
                return Err(Unreadable::Nothing);
            }
            let words: [u8; 32] = self.0.memory.array(place)?;
            let word = |number: usize| u64::from_ne_bytes(words.as_chunks().0[number]);
            let (next, kind) = (word(0) & !LINK_FLAGS, word(3));
            if *kinds.entry(kind).or_insert_with(|| self.greenlet_base(kind).is_ok()) {
                found.insert(place.wrapping_add(LINKS_BYTES));
            }
            if next == first {
                return Ok(());
            }
            place = next;
        }
        Err(Unreadable::TooMuch)
    }

    /// The class `greenlet.greenlet`, of which this one is derived.
    fn greenlet_base(&self, kind: u64) -> Read<u64> {
        let mut kind = kind;
        for _ in 0..MAX_BASES {
            if !is_plausible(kind) {
                break;
            }
            if self.0.name_of_type(kind)? == BASE_NAME {
                return Ok(kind);
            }
            kind = self.0.memory.word(kind.wrapping_add(self.0.layout.type_base))?;
        }
        Err(Unreadable::Nothing)
    }

    /// Reads a greenlet, `None` if it runs, has not begun or has ended.
    fn greenlet(&self, greenlet: u64, detail: Detail) -> Read<Option<Greenlet>> {
        let kind = self.0.type_of(greenlet)?;
        let base = self.greenlet_base(kind)?;
        let Some((place, frame)) = self.frame_of_greenlet(greenlet, base)? else { return Ok(None) };
        let frame = frames::of_frame_object(&self.0, frame)?;
        let spilled = self.spilled(place);
        let objects = Objects { memory: &spilled, layout: self.0.layout, codes: self.0.codes };
        let stack = objects.stack_from(frame, detail);
        let kind = self.0.name_of_type(kind)?;
        let kind = kind.rsplit('.').next().unwrap_or_default().to_owned();
        let waits_for = stack.frames.first().map(waits_for).unwrap_or_default();
        Ok(Some(Greenlet { kind, address: format!("{greenlet:#x}"), waits_for, stack }))
    }

    /// The place of the field that points to the innermost frame, and the frame.
    fn frame_of_greenlet(&self, greenlet: u64, base: u64) -> Read<Option<(u64, u64)>> {
        let bytes = self.0.memory.word(base.wrapping_add(self.0.layout.type_basic_size))?;
        let is_small = bytes == SMALL_BASE_BYTES;
        let (first, words) = if is_small {
            (self.0.memory.pointer(greenlet.wrapping_add(SMALL_BASE_BYTES - 8))?, STATE_WORDS)
        } else {
            (greenlet, 2..(bytes / 8).min(MAX_BASE_WORDS))
        };
        for place in words.map(|number| first.wrapping_add(number * 8)) {
            // The state may be shorter, and end at the end of what is mapped.
            let Ok(word) = self.0.memory.word(place) else { break };
            if is_plausible(word)
                && (!is_small || self.c_stack(place).is_some())
                && self.0.type_name(word).is_ok_and(|name| name == "frame")
            {
                return Ok(Some((place, word)));
            }
        }
        Ok(None)
    }

    /// The memory as the greenlet would see it. From 3.12 on frames that stand for C code lie on the C stack; without a plausible
    /// copy of it, a stack ends where it leads there.
    fn spilled(&self, place: u64) -> Spilled<'a, M> {
        let (start, copy, saved) = self.c_stack(place).unwrap_or_default();
        Spilled { memory: self.0.memory, start, saved, copy }
    }

    /// The stack of C code of which the fields are in front of this place: its innermost address, the copy of a part, and the
    /// bytes of the part. `None`: there are no such fields, or the greenlet is not on its way.
    fn c_stack(&self, place: u64) -> Option<(u64, u64, u64)> {
        let field = |back: u64| self.0.memory.word(place.wrapping_sub(back)).unwrap_or(0);
        let (start, stop, copy, saved) = (field(STACK_START), field(STACK_STOP), field(STACK_COPY), field(STACK_SAVED));
        let most = if stop == NO_STOP { MAX_STACK_BYTES } else { stop.checked_sub(start)? };
        let is_stack = start != 0 && most <= MAX_STACK_BYTES && saved <= most && (saved == 0 || is_plausible(copy));
        is_stack.then_some((start, copy, saved))
    }
}

/// What the innermost frame says about the wait. Locks, events and queues of gevent are compiled and have no frame.
fn waits_for(frame: &Frame) -> String {
    let Some((_, file)) = frame.file.rsplit_once("/gevent/") else { return String::new() };
    let function = frame.function.rsplit('.').next().unwrap_or_default();
    let what = match file {
        "hub.py" | "time.py" if function == "sleep" => "a time",
        "select.py" | "selectors.py" => "descriptors",
        "subprocess.py" => "a process",
        "threadpool.py" => "a thread",
        "os.py" | "_fileobjectposix.py" | "_fileobjectcommon.py" => "a file",
        _ if file.starts_with("_socket") || file.starts_with("_ssl") => "a socket",
        _ if file.starts_with("resolver") => "a name server",
        _ => return String::new(),
    };
    format!("{what} ({function})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;
    use crate::memory::Pieces;

    const INTERPRETER: u64 = 0x20_0000;
    const PLAIN: u64 = 0x30_0000;
    const BASE: u64 = 0x40_0000;
    const DERIVED: u64 = 0x50_0000;
    const RUNTIME: u64 = 0x10_0000;

    /// An interpreter with three objects in one list: a greenlet, one of a derived class, and something else.
    fn memory(last: impl Fn(u64) -> u64) -> (Python, Pieces) {
        let python = Python::at(layout::of_minor(11).expect("a table"), RUNTIME);
        let layout = python.layout;
        let mut memory = Pieces::default();
        memory.structure(RUNTIME, &[(layout.runtime_interpreters_head, INTERPRETER)]);
        let head =
            |number: u64| INTERPRETER + layout.interpreter_gc + layout.gc_generations + number * layout.gc_generation_bytes;
        let objects = [0x60_0000, 0x70_0000, 0x80_0000];
        let link = |number| (head(number) - INTERPRETER, head(number));
        memory.structure(INTERPRETER, &[(head(0) - INTERPRETER, objects[0]), link(1), link(2)]);
        memory.structure(objects[0], &[(0, objects[1] | 1), (24, BASE)]);
        memory.structure(objects[1], &[(0, objects[2]), (24, PLAIN)]);
        memory.structure(objects[2], &[(0, last(head(0))), (24, DERIVED)]);
        memory.structure(PLAIN, &[(layout.type_name, 0x90_0000)]);
        memory.structure(BASE, &[(layout.type_name, 0x91_0000), (layout.type_basic_size, SMALL_BASE_BYTES)]);
        memory.structure(DERIVED, &[(layout.type_name, 0x92_0000), (layout.type_base, BASE)]);
        for (address, name) in [(0x90_0000, "dict\0"), (0x91_0000, "greenlet.greenlet\0"), (0x92_0000, "gevent.Greenlet\0")] {
            memory.put(address, name.as_bytes());
        }
        (python, memory)
    }

    #[test]
    fn greenlets_and_those_of_derived_classes_are_found() {
        let (python, memory) = memory(|head| head);
        let mut found = BTreeSet::new();
        assert!(python.find_greenlets(&memory, &mut found));
        assert_eq!(found, BTreeSet::from([0x60_0010, 0x80_0010]));
        // They point to no frame: they run, have not begun or have ended, or are not greenlets any more.
        assert_eq!(python.greenlets(&memory, &found, Detail::default()).0, []);
    }

    #[test]
    fn a_list_that_leads_nowhere_is_not_whole_and_one_without_its_head_ends() {
        for (last, is_whole) in [(0x7, false), (0x99_0000, false), (0x60_0000, true)] {
            let (python, memory) = memory(|_| last);
            let mut found = BTreeSet::new();
            assert_eq!(python.find_greenlets(&memory, &mut found), is_whole, "{last:#x}");
            assert_eq!(found.len(), 2);
        }
    }

    #[test]
    fn a_stack_that_was_copied_is_read_from_the_copy() {
        let mut memory = Pieces::default();
        memory.put(0x10000, &[1; 64]);
        memory.put(0x20000, &[2; 16]);
        let spilled = Spilled { memory: &memory, start: 0x10010, saved: 16, copy: 0x20000 };
        assert_eq!(spilled.bytes(0x10018, 16), Ok([[2; 8], [1; 8]].concat()));
        assert_eq!(spilled.bytes(0x10000, 8), Ok(vec![1; 8]));
        assert_eq!(Spilled { copy: 0x30000, ..spilled }.word(0x10010), Err(Unreadable::Nothing));
    }

    #[test]
    fn the_innermost_frame_tells_the_wait() {
        let frame =
            |file: &str, function: &str| Frame { file: file.into(), line: 1, function: function.into(), locals: Vec::new() };
        assert_eq!(waits_for(&frame("/lib/gevent/_socket3.py", "socket.recv")), "a socket (recv)");
        assert_eq!(waits_for(&frame("/lib/gevent/hub.py", "sleep")), "a time (sleep)");
        assert_eq!(waits_for(&frame("/srv/gevent_app/hub.py", "sleep")), "");
    }
}
