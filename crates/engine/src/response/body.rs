//! The body of an answer: how much of it is left, the files in it, and the promises about its length that the application has
//! broken.
//!
//! It does not know about the head, the encoder or sockets. Worker threads run it.

use crate::response::own_chunks::OwnChunks;
use crate::sockets::body_file::{BodyFile, Queue};

/// The rest of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyLeft {
    /// The number of bytes that remain of the announced length.
    Length(u64),
    /// The length of the body is unknown.
    Unknown,
    /// HEAD, 1xx, 204, 304: the body that the application sends is counted and discarded.
    Discard,
}

/// Trailer fields behind the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trailers {
    None,
    /// They follow the end of the body.
    Announced,
    /// The body has ended.
    Begun,
}

pub struct ResponseBody {
    pub(super) left: BodyLeft,
    /// The application has violated its own Content-Length.
    pub(super) overrun: bool,
    pub(super) short: bool,
    /// The decoder of a body that the application has framed itself; `None`, as nearly always: it has not.
    pub(super) own_chunks: Option<Box<OwnChunks>>,
    /// How the application violated its own framing, as the rest of a sentence.
    pub(super) chunk_fault: Option<&'static str>,
    pub(super) trailers: Trailers,
    /// A file that is sent after the buffered data, and the parts that follow it. Boxed, because few answers have them and idle
    /// connections should be small.
    pub(super) file: Option<Box<BodyFile>>,
    pub(super) queue: Option<Box<Queue>>,
    /// The body is a file that the application has named: the application's own body is discarded.
    pub(super) file_replaces_body: bool,
    /// For the log: bytes of the body.
    pub bytes: u64,
    pub sent_file: bool,
    /// Like `sent_file`, for a small file whose content is in memory.
    pub sent_content: bool,
}

impl ResponseBody {
    pub(super) fn new() -> ResponseBody {
        ResponseBody {
            left: BodyLeft::Unknown,
            overrun: false,
            short: false,
            own_chunks: None,
            chunk_fault: None,
            trailers: Trailers::None,
            file: None,
            queue: None,
            file_replaces_body: false,
            bytes: 0,
            sent_file: false,
            sent_content: false,
        }
    }

    /// Begins the next body. A decoder of chunks goes with the head that has asked for it.
    pub(super) fn begin(&mut self) {
        self.drop_files();
        self.left = BodyLeft::Unknown;
        self.overrun = false;
        self.short = false;
        self.chunk_fault = None;
        self.trailers = Trailers::None;
        self.file_replaces_body = false;
        self.bytes = 0;
        self.sent_file = false;
        self.sent_content = false;
    }

    /// Drops the files that have not been sent.
    pub(super) fn drop_files(&mut self) {
        self.file = None;
        self.queue = None;
    }

    /// The number of bytes in files and queued parts, which follow the buffered data.
    pub(super) fn to_come(&self) -> u64 {
        let of_file = |part: &Option<Box<BodyFile>>| part.as_ref().map_or(0, |part| part.left);
        let queued = self.queue.iter().flat_map(|queue| queue.0.iter());
        of_file(&self.file) + queued.map(|later| later.before.len() as u64 + of_file(&later.file)).sum::<u64>()
    }

    /// How the application violated its own Content-Length or chunks, as the rest of a sentence.
    pub(super) fn broken_promise(&self) -> Option<&'static str> {
        if self.chunk_fault.is_some() {
            self.chunk_fault
        } else if self.overrun {
            Some("is longer than its Content-Length; the rest was cut")
        } else if self.short {
            Some("is shorter than its Content-Length; closing the connection")
        } else {
            None
        }
    }
}
