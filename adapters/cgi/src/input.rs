//! A request's body on its way to the program's standard input. A body with a length is written as it arrives, and as the
//! program reads. Without a length it is collected first, because CONTENT_LENGTH comes before it (RFC 3875 section 4.1.2).
//! Workers run it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bolide_engine::answer::{Answer, Interim, Stage};
use bolide_engine::request::body::{Body, BodyLimits, Collector, Refusal, Share};
use bolide_engine::request_stream::BodyStream;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, write};

/// Maximum number of bytes of a body without a length that are kept in memory. Beyond it they are in an unlinked file.
pub const SPOOLED_BYTES: usize = 64 * 1024;
/// Maximum number of parts that are written in a row, so that one body does not stop the others.
const MAX_PARTS: u32 = 4;

/// Where the body is.
pub enum Input {
    /// The client has not sent its length, so it is collected before the program starts.
    Collected(Box<Collector>),
    /// What is here of it, and the program has not started.
    Whole(Whole),
    /// The program may read.
    Open(Writer),
    /// All of it was written, or the program has stopped reading.
    Closed,
}

/// A body that is here before its program starts, or the first part of it.
pub struct Whole {
    pub body: Body,
    /// Its part of the worker's storage, until the program has it.
    _share: Option<Share>,
}

/// The write end of a program's standard input.
pub struct Writer {
    pipe: OwnedFd,
    /// A part that does not fit into the pipe, and how much of it was written.
    part: Vec<u8>,
    written: usize,
    is_last: bool,
    /// The pipe takes bytes, as far as the poll has said.
    pub has_room: bool,
}

/// What the body waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    /// The client must send.
    AwaitsClient,
    /// The program must read.
    AwaitsProgram,
    /// It had its turn, and goes on in the next one.
    Again,
    Complete,
}

impl Input {
    /// A body that is there already.
    pub fn whole(body: Body) -> Input {
        Input::Whole(Whole { body, _share: None })
    }

    /// Collects a body without a length. `None`: it is complete, and its length is in [`Input::Whole`].
    ///
    /// # Errors
    /// It is too long, or the disk can't store it.
    pub fn collect(&mut self, stream: &mut BodyStream, answer: &mut Answer<'_>) -> Result<InputState, Refusal> {
        let Input::Collected(collector) = self else { return Ok(InputState::Complete) };
        loop {
            let Some(part) = take(stream, answer) else {
                collector.wait()?;
                return Ok(InputState::AwaitsClient);
            };
            collector.keep(&part.bytes)?;
            if !part.more {
                let Input::Collected(collector) = std::mem::replace(self, Input::Closed) else {
                    return Ok(InputState::Complete);
                };
                let (body, share) = collector.finish()?;
                *self = Input::Whole(Whole { body, _share: Some(share) });
                return Ok(InputState::Complete);
            }
        }
    }

    /// Takes the part of a body that is here before its program starts.
    pub fn take_first_part(&mut self, stream: &mut BodyStream) {
        if let Input::Whole(Whole { body: body @ Body::Empty, .. }) = self
            && let Some(part) = stream.take()
            && !part.bytes.is_empty()
        {
            *body = Body::Memory(part.bytes);
        }
    }

    /// Begins to collect a body without a length.
    pub fn collecting(limits: BodyLimits) -> Input {
        Input::Collected(Box::new(Collector::of_unknown_length(limits)))
    }

    /// The length of what is here before the program starts.
    pub fn length(&self) -> Option<u64> {
        match self {
            Input::Whole(whole) => Some(whole.body.length()),
            _ => None,
        }
    }

    /// Opens the descriptor that the program reads. `is_more`: parts of the body come later.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open(&mut self, is_more: bool) -> io::Result<Option<OwnedFd>> {
        let whole = match std::mem::replace(self, Input::Closed) {
            Input::Whole(whole) => whole,
            other => {
                *self = other;
                return Ok(None);
            }
        };
        match whole.body {
            Body::Empty if !is_more => Ok(None),
            Body::File { file, .. } => Ok(Some(File::into(file))),
            body => {
                let (read_end, write_end) = pipe2(OFlag::O_CLOEXEC)?;
                fcntl(&write_end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
                let part = match body {
                    Body::Memory(bytes) => bytes,
                    _ => Vec::new(),
                };
                let mut writer = Writer { pipe: write_end, part, written: 0, is_last: !is_more, has_room: true };
                let is_done = writer.write() && writer.is_last;
                *self = if is_done { Input::Closed } else { Input::Open(writer) };
                Ok(Some(read_end))
            }
        }
    }

    /// The pipe to watch.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Input::Open(writer) => Some(writer.pipe.as_fd()),
            _ => None,
        }
    }

    /// The poll has reported that the program has read.
    pub fn note_room(&mut self) {
        if let Input::Open(writer) = self {
            writer.has_room = true;
        }
    }

    /// Writes what has arrived, as far as the program reads. The second value says whether anything was written.
    pub fn advance(&mut self, stream: Option<&mut BodyStream>, answer: &mut Answer<'_>) -> (InputState, bool) {
        let Input::Open(writer) = self else { return (InputState::Complete, false) };
        let Some(stream) = stream else {
            *self = Input::Closed;
            return (InputState::Complete, false);
        };
        let mut has_written = false;
        for _ in 0..MAX_PARTS {
            if !writer.has_room {
                return (InputState::AwaitsProgram, has_written);
            }
            if writer.is_written() {
                if writer.is_last {
                    *self = Input::Closed;
                    return (InputState::Complete, has_written);
                }
                let Some(part) = take(stream, answer) else { return (InputState::AwaitsClient, has_written) };
                (writer.part, writer.written, writer.is_last) = (part.bytes, 0, !part.more);
            }
            has_written = true;
            if !writer.write() && writer.has_room {
                // The program has closed its standard input: the rest of the body is the engine's.
                *self = Input::Closed;
                return (InputState::Complete, has_written);
            }
        }
        (InputState::Again, has_written)
    }
}

impl Writer {
    fn is_written(&self) -> bool {
        self.written == self.part.len()
    }

    /// Writes the part. Returns false if some of it is left, because the pipe is full or the program has stopped reading.
    fn write(&mut self) -> bool {
        while !self.is_written() {
            match write(&self.pipe, &self.part[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.has_room = false;
                    return false;
                }
                Err(_) => return false,
            }
        }
        self.part = Vec::new();
        self.written = 0;
        true
    }
}

/// Takes the part of the body that has arrived, or asks the client for more.
fn take(stream: &mut BodyStream, answer: &mut Answer<'_>) -> Option<bolide_engine::request_stream::Part> {
    stream.is_wanted = false;
    if let Some(part) = stream.take() {
        return Some(part);
    }
    stream.is_wanted = true;
    if stream.owes_continue && answer.stage() < Stage::Body {
        stream.owes_continue = false;
        let _always_may = answer.inform(Interim::Continue);
    }
    None
}
