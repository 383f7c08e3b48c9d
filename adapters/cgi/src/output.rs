//! A program's standard output on its way to the client: the header block becomes the answer's head, and the rest its body, as
//! far as the client reads. Workers run it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bolide_engine::answer::{Answer, Pushed, ServerFields, Status, Then, When};
use nix::errno::Errno;
use nix::unistd::read;

use crate::head::{Head, HeadFault, HeadReader};

/// Maximum number of bytes of a program's output that wait for the client, and size of the buffer for reading.
pub const OUTPUT_BYTES: usize = 64 * 1024;
/// Maximum number of reads in a row, so that one program does not stop the others.
const MAX_READS: u32 = 4;

/// The read end of a program's standard output.
pub struct Output {
    pipe: Option<OwnedFd>,
    head: HeadStage,
    /// Bytes that the client has not taken, and how many of them it has.
    unsent: Vec<u8>,
    sent: usize,
    /// The pipe has bytes or its end, as far as the poll has said.
    is_readable: bool,
    /// The last writer has closed it: the poll reports nothing more.
    has_hung_up: bool,
}

enum HeadStage {
    Reading(HeadReader),
    /// Its body follows.
    Sent,
    /// What is read is dropped: the answer is complete.
    Dropping,
}

/// What the output waits for.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputState {
    AwaitsProgram,
    AwaitsClient,
    /// It had its turn, and goes on in the next one.
    Again,
    /// The answer is complete with its head.
    HeadAlone,
    /// The program has closed it.
    End,
    /// The answer is complete by its Content-Length, and the program writes more.
    TooLong,
    /// The client has left.
    Gone,
    /// What the program has done wrong, for a message about it.
    Fault(String),
}

impl Output {
    pub fn new(pipe: OwnedFd) -> Output {
        Output {
            pipe: Some(pipe),
            head: HeadStage::Reading(HeadReader::default()),
            unsent: Vec::new(),
            sent: 0,
            is_readable: false,
            has_hung_up: false,
        }
    }

    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// The poll has reported bytes, or the end.
    pub fn note_bytes(&mut self, has_hung_up: bool) {
        self.is_readable = true;
        self.has_hung_up |= has_hung_up;
    }

    pub fn close(&mut self) {
        self.pipe = None;
        self.unsent = Vec::new();
    }

    /// From here on nothing reaches a client: what the program still writes is dropped.
    pub fn drop_rest(&mut self) {
        self.head = HeadStage::Dropping;
        self.unsent = Vec::new();
        self.sent = 0;
    }

    /// The head has been passed on.
    pub fn has_head(&self) -> bool {
        !matches!(self.head, HeadStage::Reading(_))
    }

    /// Why the head is missing, for a message about the program.
    pub fn head_fault(&self) -> String {
        match &self.head {
            HeadStage::Reading(reader) if !reader.is_empty() => {
                format!("ended within its header block, which begins with {}", reader.first_line())
            }
            _ => "ended without output".to_owned(),
        }
    }

    /// Drops what has arrived.
    pub fn discard(&mut self, buffer: &mut [u8]) -> OutputState {
        for _ in 0..MAX_READS {
            match self.read(buffer) {
                Some(0) => return OutputState::End,
                Some(_) => {}
                None => return OutputState::AwaitsProgram,
            }
        }
        OutputState::Again
    }

    /// Passes on what has arrived. The second value says whether the program has written anything.
    pub fn advance(&mut self, buffer: &mut [u8], answer: &mut Answer<'_>) -> (OutputState, bool) {
        if let Some(state) = self.send(answer) {
            return (state, false);
        }
        let mut has_read = false;
        for _ in 0..MAX_READS {
            if self.has_head() && !answer.has_room() {
                return (OutputState::AwaitsClient, has_read);
            }
            let Some(count) = self.read(buffer) else { return (OutputState::AwaitsProgram, has_read) };
            if count == 0 {
                return (OutputState::End, has_read);
            }
            has_read = true;
            let mut body = &buffer[..count];
            if let HeadStage::Reading(reader) = &mut self.head {
                match reader.feed(body) {
                    Err(HeadFault(fault)) => return (OutputState::Fault(fault), has_read),
                    Ok((_, None)) => continue,
                    Ok((used, Some(head))) => {
                        if let Err(fault) = begin(&head, answer) {
                            return (OutputState::Fault(fault), has_read);
                        }
                        self.head = HeadStage::Sent;
                        body = &body[used..];
                    }
                }
                if answer.body().is_dropped {
                    self.drop_rest();
                    return (OutputState::HeadAlone, has_read);
                }
            }
            // The end of the output is known before it is read: the last part and the end of the answer leave together.
            let when = if self.has_hung_up { When::WithTheNext } else { When::Now };
            match answer.push(body, when) {
                Pushed::All => {}
                Pushed::Part(taken) => {
                    (self.unsent, self.sent) = (body[taken..].to_vec(), 0);
                    return (OutputState::AwaitsClient, has_read);
                }
                Pushed::Gone => return (OutputState::Gone, has_read),
            }
            if answer.length_fault().is_some() {
                return (OutputState::TooLong, has_read);
            }
        }
        (OutputState::Again, has_read)
    }

    /// Sends what the client has not taken. `None`: nothing is left.
    fn send(&mut self, answer: &mut Answer<'_>) -> Option<OutputState> {
        if self.unsent.is_empty() {
            return None;
        }
        match answer.push(&self.unsent[self.sent..], When::Now) {
            Pushed::All => {
                (self.unsent, self.sent) = (Vec::new(), 0);
                None
            }
            Pushed::Part(taken) => {
                self.sent += taken;
                Some(OutputState::AwaitsClient)
            }
            Pushed::Gone => Some(OutputState::Gone),
        }
    }

    /// Reads once. 0 is the end; `None`: the poll reports more when it comes.
    fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let Some(pipe) = &self.pipe else { return Some(0) };
        if !self.is_readable {
            return None;
        }
        loop {
            match read(pipe, buffer) {
                Ok(0) => {
                    self.pipe = None;
                    return Some(0);
                }
                Ok(count) => {
                    // An edge-triggered poll reports bytes that arrive after a read that did not fill the buffer. An end that it
                    // has reported already must be read.
                    self.is_readable = count == buffer.len() || self.has_hung_up;
                    return Some(count);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.is_readable = false;
                    return None;
                }
                Err(_) => {
                    self.pipe = None;
                    return Some(0);
                }
            }
        }
    }
}

/// Begins the answer with the program's head. The error says what is wrong with it, for a message about the program.
fn begin(head: &Head, answer: &mut Answer<'_>) -> Result<(), String> {
    let status = head.status();
    let begun = match std::str::from_utf8(status).ok().and_then(|status| status.parse().ok()) {
        Some(code) => answer.begin(Status::Code(code)),
        None => answer.begin(Status::Line(status)),
    };
    if let Err(refusal) = begun {
        return Err(format!("wrote a status that is refused: {} ({refusal})", crate::head::shown(status)));
    }
    for (name, value) in head.fields() {
        if let Err(refusal) = answer.field(name, value, ServerFields::Dropped { frames_chunks: false }) {
            answer.retract();
            return Err(format!("wrote the field {}, and {refusal}", crate::head::shown(name)));
        }
    }
    Ok(())
}

/// Ends an answer whose program has written all of it. `Some`: how the program has violated its own Content-Length, as the rest
/// of a sentence.
pub fn finish(answer: &mut Answer<'_>) -> Option<String> {
    answer.finish(Then::RequestEnds);
    answer.length_fault().map(|fault| format!("has written an answer that {fault}"))
}
