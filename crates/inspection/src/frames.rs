//! The frames of a thread, a generator or a greenlet: from the innermost one outwards. Each walk is bounded, and a frame that
//! can't be read ends it and marks the stack as incomplete. Pure.

use std::rc::Rc;

use serde::Serialize;

use crate::codes::Code;
use crate::layout::Layout;
use crate::lines::line_of;
use crate::memory::{Memory, Read, Unreadable, is_plausible};
use crate::objects::Objects;
use crate::requests::Requests;
use crate::sockets::Sockets;

/// Frames of a stack that are read; Python's default limit of recursion is 1000.
pub const MAX_FRAMES: usize = 2_000;
/// Local variables of a frame that are described, and characters of each value.
const MAX_LOCALS: u64 = 64;
pub const MAX_VALUE_CHARACTERS: usize = 120;
/// Functions, from the innermost one, that may have the socket for which it waits.
pub const MAX_SOCKET_FRAMES: usize = 5;
/// A table of lines, in bytes.
const MAX_LINES_BYTES: u64 = 60_000;
/// Tags in the low bits of a reference (3.14); objects are aligned to at least 8 bytes.
const TAGS: u64 = 0b111;
/// `owner` of frames that stand for C code (`FRAME_OWNED_BY_CSTACK`, since 3.14 `FRAME_OWNED_BY_INTERPRETER`).
const OWNED_BY_C: u8 = 3;

/// One function on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    pub file: String,
    /// 0: the instruction has no line.
    pub line: i64,
    pub function: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locals: Vec<(String, String)>,
}

/// Frames from the innermost one outwards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Stack {
    pub frames: Vec<Frame>,
    /// The request that it serves, if that was asked for and a function has it: `GET /orders/17`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The descriptor of the socket that it is about, if that was asked for.
    #[serde(skip)]
    pub descriptor: Option<i32>,
    /// The walk ended early: the stack changed while it was read, or is longer than the bound.
    pub is_partial: bool,
}

/// What is read of each frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Detail {
    pub locals: bool,
    /// The request, where functions have it among their variables.
    pub requests: bool,
    /// The socket, where one of the innermost functions has it among its variables.
    pub sockets: bool,
}

impl<M: Memory> Objects<'_, M> {
    /// The frames of a thread's state.
    pub fn stack_of_thread(&self, thread: u64, detail: Detail) -> Stack {
        let first = self.memory.word(thread.wrapping_add(self.layout.thread_frame)).and_then(|frame| {
            if self.layout.has_cframe != 0 && frame != 0 {
                return self.memory.word(frame.wrapping_add(self.layout.cframe_current));
            }
            Ok(frame)
        });
        match first {
            Ok(frame) => self.stack_from(frame, detail),
            Err(_) => Stack { is_partial: true, ..Stack::default() },
        }
    }

    /// The frames from this one outwards.
    pub fn stack_from(&self, frame: u64, detail: Detail) -> Stack {
        let mut stack = Stack::default();
        let mut next = frame;
        let mut outermost = 0;
        while next != 0 {
            if stack.frames.len() >= MAX_FRAMES || !is_plausible(next) {
                stack.is_partial = true;
                break;
            }
            match self.frame_with_code(next, detail).and_then(|found| Ok((found, self.outer(next)?))) {
                Ok((found, outer)) => {
                    if let Some((found, code)) = found {
                        if detail.sockets && stack.frames.len() < MAX_SOCKET_FRAMES {
                            stack.descriptor = stack.descriptor.or_else(|| Sockets(self).descriptor_of(next));
                        }
                        stack.frames.push(found);
                        outermost = next;
                        if detail.requests {
                            // The outermost one counts: inner ones may have made up others, as tests and proxies do.
                            stack.request = Requests(self).of_frame(next, &code).or(stack.request);
                        }
                    }
                    next = if outer == next { 0 } else { outer };
                }
                Err(_) => {
                    stack.is_partial = true;
                    break;
                }
            }
        }
        if detail.requests && stack.request.is_none() && outermost != 0 {
            stack.request = Requests(self).of_arguments(outermost);
        }
        stack
    }

    fn outer(&self, frame: u64) -> Read<u64> {
        self.memory.word(frame.wrapping_add(self.layout.frame_previous))
    }

    /// The function of a frame, `None` for a frame that stands for C code.
    pub fn frame_with_code(&self, frame: u64, detail: Detail) -> Read<Option<(Frame, Rc<Code>)>> {
        let layout = self.layout;
        if layout.frame_owner != 0 && self.memory.byte(frame.wrapping_add(layout.frame_owner))? >= OWNED_BY_C {
            return Ok(None);
        }
        let address = self.memory.word(frame.wrapping_add(layout.frame_code))? & !TAGS;
        if !is_plausible(address) {
            return Err(Unreadable::Nothing);
        }
        let code = self.code(address)?;
        let line = line_of(layout.minor, &code.lines, code.first_line, self.offset(frame, address)?).unwrap_or(0);
        let locals = if detail.locals { self.locals(frame, address) } else { Vec::new() };
        let found = Frame { file: code.file.clone(), line, function: code.function.clone(), locals };
        Ok(Some((found, code)))
    }

    fn code(&self, address: u64) -> Read<Rc<Code>> {
        let layout = self.layout;
        let part = |offset: u64| self.memory.pointer(address.wrapping_add(offset));
        let (file, name, lines) = (part(layout.code_filename)?, part(layout.code_name)?, part(layout.code_lines)?);
        self.codes.of([address, file, name, lines], || {
            if self.type_name(address)? != "code" {
                return Err(Unreadable::Nothing);
            }
            Ok(Code {
                file: self.text(file)?,
                function: self.text(name)?,
                lines: self.bytes(lines, MAX_LINES_BYTES)?,
                request_places: Requests(self).places(address),
                first_line: i64::from(self.memory.number(address.wrapping_add(layout.code_first_line))? as i32),
            })
        })
    }

    /// The place of the instruction that a frame is at, in bytes from the start of its code.
    fn offset(&self, frame: u64, code: u64) -> Read<u64> {
        let place = frame.wrapping_add(self.layout.frame_instruction);
        Ok(match self.layout.minor {
            minor @ ..=10 => {
                let last = self.memory.number(place)? as i32;
                // -1: the frame has not begun.
                let last = u64::try_from(last).unwrap_or(0);
                if minor == 10 { last * 2 } else { last }
            }
            _ => self.memory.word(place)?.saturating_sub(code.wrapping_add(self.layout.code_bytes)),
        })
    }

    /// The local variables that have a value. Some may be missing, as they change while they are read.
    fn locals(&self, frame: u64, code: u64) -> Vec<(String, String)> {
        let names = self.memory.pointer(code.wrapping_add(self.layout.code_local_names));
        let names = names.and_then(|names| self.tuple(names, MAX_LOCALS)).unwrap_or_default();
        let first = frame.wrapping_add(self.layout.frame_locals);
        let mut locals = Vec::new();
        for (place, name) in (0u64..).zip(names) {
            let Ok(value) = self.memory.word(first.wrapping_add(place * 8)) else { break };
            let value = value & !TAGS;
            if value != 0
                && let Ok(name) = self.text(name)
            {
                locals.push((name, self.describe(value, MAX_VALUE_CHARACTERS)));
            }
        }
        locals
    }
}

/// Returns the address of the frame of a frame object: in 3.9 and 3.10 they are one.
pub fn of_frame_object<M: Memory>(objects: &Objects<'_, M>, object: u64) -> Read<u64> {
    let Layout { minor, frame_object_frame, .. } = *objects.layout;
    if minor <= 10 { Ok(object) } else { objects.memory.pointer(object.wrapping_add(frame_object_frame)) }
}
