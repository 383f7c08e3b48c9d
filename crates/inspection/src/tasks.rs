//! The tasks of asyncio, also those of uvloop: what each one awaits, from its coroutine down to the object that it waits for.
//! Pure.
//!
//! Tasks are found in the set that `asyncio.all_tasks()` reads. 3.14 keeps them elsewhere, so its tasks are not listed.

use serde::Serialize;

use crate::frames::{Detail, Frame, MAX_SOCKET_FRAMES, Stack};
use crate::memory::{Memory, Read, Unreadable};
use crate::objects::Objects;
use crate::python::Python;
use crate::requests::Requests;
use crate::sockets::Sockets;

/// Tasks of a process, and coroutines of a task, that are read.
const MAX_TASKS: usize = 10_000;
const MAX_COROUTINES: usize = 200;
/// The first field after the head of an object, such as the future of a `FutureIter`.
const FIRST_FIELD: u64 = 16;
/// Words on the stack of a function, to check a depth.
const MAX_DEPTH: u64 = 100_000;
/// 3.9: `f_stacktop`; 3.10: `f_valuestack` and `f_stackdepth`.
const OLD_STACK_TOP: u64 = 72;
const OLD_STACK: u64 = 64;
const OLD_STACK_DEPTH: u64 = 80;
/// `gi_frame_state` of a coroutine that runs; larger ones are of those that have ended.
const EXECUTING: i8 = 0;

/// A task that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AsyncioTask {
    pub name: String,
    /// The object that it waits for: `task worker-3`, `Future`; empty if it runs or is about to.
    pub awaits: String,
    /// It runs now, in the thread of its loop.
    pub is_running: bool,
    /// Its coroutines, the innermost first.
    #[serde(flatten)]
    pub stack: Stack,
}

/// The place of `task_fut_waiter` in a task; `task_coro` and `task_name` follow it. The structure is in no header: the places are
/// those where tasks of these versions have a known future, coroutine and name.
fn waiter_place(minor: u32) -> Option<u64> {
    match minor {
        9 => Some(144),
        10 => Some(152),
        11 | 12 => Some(128),
        13 => Some(112),
        _ => None,
    }
}

/// A frame, with the request and the socket that its function has among its variables.
type Served = (Frame, Option<String>, Option<i32>);

impl Python {
    /// Whether the tasks of this version can be listed.
    pub fn knows_tasks(&self) -> bool {
        waiter_place(self.layout.minor).is_some()
    }

    /// The tasks of all loops of a process; and whether some could not be read. None if it has not imported asyncio.
    pub fn tasks(&self, memory: &impl Memory, detail: Detail) -> (Vec<AsyncioTask>, bool) {
        let Some(waiter) = waiter_place(self.layout.minor) else { return (Vec::new(), false) };
        let objects = self.objects(memory);
        let (mut tasks, mut is_partial) = (Vec::new(), false);
        for address in self.task_addresses(memory).into_iter().take(MAX_TASKS) {
            match objects.task(address, waiter, detail) {
                Ok(Some(task)) => tasks.push(task),
                Ok(None) => {}
                Err(_) => is_partial = true,
            }
        }
        tasks.sort_by(|one, other| one.name.len().cmp(&other.name.len()).then_with(|| one.name.cmp(&other.name)));
        (tasks, is_partial)
    }

    /// The task at this address.
    pub fn task(&self, memory: &impl Memory, address: u64, detail: Detail) -> Option<AsyncioTask> {
        self.objects(memory).task(address, waiter_place(self.layout.minor)?, detail).ok()?
    }

    fn task_addresses(&self, memory: &impl Memory) -> Vec<u64> {
        let objects = self.objects(memory);
        let weak = if self.layout.minor >= 12 { "_scheduled_tasks" } else { "_all_tasks" };
        let members = |set: u64| objects.members(objects.attribute(set, "data")?);
        let references = self.module_item(memory, "asyncio.tasks", weak).and_then(members).unwrap_or_default();
        let task = |reference: u64| memory.pointer(reference.wrapping_add(self.layout.weakref_object)).ok();
        let mut tasks: Vec<u64> = references.into_iter().filter_map(task).collect();
        if self.layout.minor >= 12 {
            let eager = self.module_item(memory, "asyncio.tasks", "_eager_tasks");
            tasks.extend(eager.and_then(|set| objects.members(set)).unwrap_or_default());
        }
        tasks
    }
}

impl<M: Memory> Objects<'_, M> {
    /// Reads a task, `None` if it has ended.
    fn task(&self, task: u64, waiter: u64, detail: Detail) -> Read<Option<AsyncioTask>> {
        let coroutine = self.memory.pointer(task.wrapping_add(waiter + 8))?;
        let name = self.memory.pointer(task.wrapping_add(waiter + 16))?;
        // A name that was not set is a number until it is asked for.
        let name = self.text(name).or_else(|_| self.integer(name).map(|number| format!("Task-{number}")))?;
        let Some(is_running) = self.is_executing(coroutine)? else { return Ok(None) };
        let stack = self.coroutines(coroutine, detail);
        let awaited = self.memory.word(task.wrapping_add(waiter))?;
        let awaits = if awaited == 0 { String::new() } else { self.awaited(awaited, waiter)? };
        Ok(Some(AsyncioTask { name, awaits, is_running, stack }))
    }

    /// What a task waits for: a task by its name, anything else by its type.
    fn awaited(&self, future: u64, waiter: u64) -> Read<String> {
        let kind = self.type_name(future)?;
        let short = kind.rsplit('.').next().unwrap_or_default().to_owned();
        let name = self.memory.pointer(future.wrapping_add(waiter + 16)).and_then(|name| self.text(name));
        Ok(match name {
            Ok(name) if short == "Task" => format!("task {name}"),
            _ => short,
        })
    }

    /// Whether a coroutine runs; `None` if it has ended.
    fn is_executing(&self, coroutine: u64) -> Read<Option<bool>> {
        if !is_generator(&self.type_name(coroutine)?) {
            return Err(Unreadable::Nothing);
        }
        if self.layout.generator_state == 0 {
            let frame = self.memory.word(coroutine.wrapping_add(self.layout.generator_frame))?;
            return Ok((frame != 0).then_some(false));
        }
        let state = self.memory.byte(coroutine.wrapping_add(self.layout.generator_state))?.cast_signed();
        Ok((state <= EXECUTING).then_some(state == EXECUTING))
    }

    /// The coroutine and those that it awaits, the innermost first.
    fn coroutines(&self, coroutine: u64, detail: Detail) -> Stack {
        let mut stack = Stack::default();
        let mut sockets = Vec::new();
        let mut next = Some(coroutine);
        while let Some(object) = next {
            if stack.frames.len() >= MAX_COROUTINES {
                stack.is_partial = true;
                break;
            }
            match self.coroutine(object, detail) {
                Ok((frame, inner)) => {
                    if let Some((frame, request, socket)) = frame {
                        sockets.push(socket);
                        stack.frames.push(frame);
                        // The outermost one counts.
                        stack.request = stack.request.or(request);
                    }
                    next = inner;
                }
                Err(_) => {
                    stack.is_partial = true;
                    break;
                }
            }
        }
        stack.frames.reverse();
        stack.descriptor = sockets.into_iter().rev().take(MAX_SOCKET_FRAMES).flatten().next();
        stack
    }

    /// The frame of an awaited object with its request, and the object that it awaits.
    fn coroutine(&self, object: u64, detail: Detail) -> Read<(Option<Served>, Option<u64>)> {
        match self.type_name(object)?.as_str() {
            kind if is_generator(kind) => {}
            // They stand for the object in their first field.
            "coroutine_wrapper" | "async_generator_asend" | "async_generator_athrow" => {
                return Ok((None, Some(self.memory.pointer(object.wrapping_add(FIRST_FIELD))?)));
            }
            _ => return Ok((None, None)),
        }
        let place = object.wrapping_add(self.layout.generator_frame);
        let frame = if self.layout.minor >= 11 { place } else { self.memory.pointer(place)? };
        let is_suspended = self.is_executing(object)? == Some(false);
        let found = self.frame_with_code(frame, detail)?.map(|(found, code)| {
            let request = || Requests(self).of_frame(frame, &code).or_else(|| Requests(self).of_arguments(frame));
            let socket = if detail.sockets { Sockets(self).descriptor_of(frame) } else { None };
            (found, if detail.requests { request() } else { None }, socket)
        });
        Ok((found, if is_suspended { self.top_of_stack(frame)? } else { None }))
    }

    /// The value on top of the stack of a suspended frame: the awaited object. `None`: the stack is empty.
    fn top_of_stack(&self, frame: u64) -> Read<Option<u64>> {
        let layout = self.layout;
        let end = match layout.minor {
            9 => self.memory.word(frame.wrapping_add(OLD_STACK_TOP))?,
            10 => {
                let depth = u64::from(self.memory.number(frame.wrapping_add(OLD_STACK_DEPTH))?);
                self.memory.word(frame.wrapping_add(OLD_STACK))?.wrapping_add(depth.min(MAX_DEPTH) * 8)
            }
            _ => {
                // `stacktop` is the number before the small fields in front of the locals.
                let depth = u64::from(self.memory.number(frame.wrapping_add(layout.frame_locals - 8))?);
                frame.wrapping_add(layout.frame_locals).wrapping_add(depth.min(MAX_DEPTH) * 8)
            }
        };
        self.memory.word(end.wrapping_sub(8)).map(|value| (value != 0).then_some(value))
    }
}

fn is_generator(kind: &str) -> bool {
    matches!(kind, "coroutine" | "generator" | "async_generator")
}
