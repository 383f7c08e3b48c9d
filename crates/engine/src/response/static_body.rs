//! Answers that the server makes by itself, of static files: their heads come ready-made, and their bodies lie in memory or in
//! files that others send from, too.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bolide_files::answer::{Body as FileBody, FileRange, Parts};
use bolide_files::roots::FileVersion;

use super::writer::{COPY_BYTES, ResponseWriter};
use super::{BodyLeft, Stage};
use crate::response::filters::FirstPart;
use crate::sockets::body_file::{BodyFile, Queue, QueuedPart};

impl ResponseWriter<'_> {
    /// Takes a head without the fields that are ours to set, in parts of whole lines. `length` is what its Content-Length says, if it has
    /// one.
    pub(crate) fn ready_head(&mut self, status: u16, lines: &[&[u8]], fields: u32, length: Option<u64>) {
        self.forget_head();
        self.stage = Stage::Head;
        self.head.set_ready(status, lines, fields, length);
    }

    /// The body of such an answer. What the client does not take at once is sent when it does.
    pub(crate) fn give_body(&mut self, body: FileBody) {
        match body {
            FileBody::Nothing => {}
            FileBody::Text(text) => self.push_ready(&text),
            FileBody::Memory(content, range) => {
                self.push_ready(&content[range]);
                self.sent_content = self.left != BodyLeft::Discard;
            }
            FileBody::File(FileRange { file, bytes, version }) => self.push_shared_file(file, bytes, version),
            FileBody::Parts(parts) => self.push_parts(parts),
        }
    }

    /// The whole body. It is no larger than what a slow client may keep waiting here ([`super::OUTPUT_BYTES`]), or little more.
    pub(crate) fn push_ready(&mut self, body: &[u8]) {
        if self.filter.is_some() {
            return self.give_whole(body);
        }
        self.close_head();
        if self.left == BodyLeft::Discard {
            return;
        }
        let mut rest = body;
        while !rest.is_empty() {
            let frame = self.response.encoder.open_frame(rest.len() as u64, &mut self.transport.outgoing) as usize;
            let (now, later) = rest.split_at(frame.min(rest.len()));
            let taken = if now.len() > COPY_BYTES { self.transport.send_through(now, later.is_empty()) } else { 0 };
            if self.transport.is_broken {
                return;
            }
            self.transport.outgoing.bytes.extend_from_slice(&now[taken..]);
            self.account(now.len());
            rest = later;
        }
    }

    /// A part of a file as the whole body.
    pub(crate) fn push_shared_file(&mut self, file: Arc<File>, bytes: Range<u64>, version: FileVersion) {
        self.filter_head(FirstPart::File);
        self.close_head();
        if self.left != BodyLeft::Discard {
            self.file = Some(Box::new(BodyFile::promised(file, bytes, version)));
            self.sent_file = true;
        }
    }

    /// Parts of a file with lines before each of them.
    pub(crate) fn push_parts(&mut self, parts: Parts) {
        // Parts of something are never compressed, so these go out as they are.
        self.filter_head(FirstPart::Nothing);
        self.close_head();
        if self.left == BodyLeft::Discard {
            return;
        }
        let mut queue = VecDeque::with_capacity(parts.parts.len() + 1);
        queue.extend(parts.parts.into_iter().map(|(before, FileRange { file, bytes, version })| QueuedPart {
            before,
            file: Some(Box::new(BodyFile::promised(file, bytes, version))),
        }));
        queue.push_back(QueuedPart { before: parts.end, file: None });
        self.queue = Some(Box::new(Queue(queue)));
        self.sent_file = true;
        self.begin_next_part();
    }

    /// Goes on to what comes after the file. False: nothing does.
    pub(super) fn begin_next_part(&mut self) -> bool {
        let Some(next) = self.queue.as_mut().and_then(|queue| queue.0.pop_front()) else { return false };
        self.write_framed(&next.before);
        self.file = next.file;
        true
    }
}
