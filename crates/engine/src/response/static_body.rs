//! Answers that the server makes by itself, of static files: their heads come ready-made, and their bodies lie in memory or in
//! files that others send from, too.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bolide_files::answer::{Body as FileBody, FileRange, Parts};
use bolide_files::roots::FileVersion;

use super::{COPY_BYTES, Framing, Response, Stage};
use crate::outbox::{FilePart, Later};
use crate::response_filters::Body;

impl Response {
    /// Takes a head without the fields that are ours to set. `length` is what its Content-Length says, if it has one.
    pub(crate) fn ready_head(&mut self, status: u16, lines: &[&[u8]], fields: u32, length: Option<u64>) {
        self.out.bytes.clear();
        self.forget_head();
        self.status = status;
        self.stage = Stage::Head;
        self.content_length = length;
        self.header_count = fields;
        for part in lines {
            self.out.bytes.extend_from_slice(part);
        }
    }

    /// The body of such an answer. What the client does not take at once is sent when it does.
    pub(crate) fn give_body(&mut self, body: FileBody) {
        match body {
            FileBody::Nothing => {}
            FileBody::Text(text) => self.push_ready(&text),
            FileBody::Memory(content, range) => self.push_ready(&content[range]),
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
        if self.framing == Framing::Discard {
            return;
        }
        let taken = if body.len() > COPY_BYTES { self.out.send_through(body) } else { 0 };
        if !self.out.is_broken {
            self.out.bytes.extend_from_slice(&body[taken..]);
        }
        self.account(body.len());
    }

    /// A part of a file as the whole body.
    pub(crate) fn push_shared_file(&mut self, file: Arc<File>, bytes: Range<u64>, version: FileVersion) {
        self.filter_head(Body::File);
        self.close_head();
        if self.framing != Framing::Discard {
            self.out.file = Some(FilePart::promised(file, bytes, version));
            self.sent_file = true;
        }
    }

    /// Parts of a file with lines before each of them.
    pub(crate) fn push_parts(&mut self, parts: Parts) {
        // Parts of something are never compressed, so these go out as they are.
        self.filter_head(Body::Nothing);
        self.close_head();
        if self.framing == Framing::Discard {
            return;
        }
        self.out.later.extend(parts.parts.into_iter().map(|(before, FileRange { file, bytes, version })| Later {
            before,
            file: Some(FilePart::promised(file, bytes, version)),
        }));
        self.out.later.push_back(Later { before: parts.end, file: None });
        self.sent_file = true;
        self.begin_next_part();
    }

    /// Goes on to what comes after the file. False: nothing does.
    pub(super) fn begin_next_part(&mut self) -> bool {
        let Some(next) = self.out.later.pop_front() else { return false };
        self.account(next.before.len());
        self.out.bytes.extend_from_slice(&next.before);
        self.out.file = next.file;
        true
    }
}
