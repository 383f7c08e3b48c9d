//! The part of [`ResponseWriter`] for bodies that are files: the server's static ones, one that the application hands in, and one that it has
//! named (`X-Sendfile`). They are sent in turns that leave the other connections theirs.
//!
//! Heads of static files come ready-made. The head of a named file and the application's become one; what the application says as a body is
//! not sent then.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bolide_files::answer::{Body as FileBody, FileRange, Parts};
use bolide_files::roots::FileVersion;
use bolide_protocol::response::{ResponseEncoder, ResponseHead, Wire};

use super::writer::{COPY_BYTES, ResponseWriter};
use super::{BodyLeft, Progress, Response, Stage};
use crate::response::filters::FirstPart;
use crate::response::named_file::XSendfile;
use crate::sockets::body_file::{BodyFile, Queue, QueuedPart};
use crate::sockets::transport::Transport;

/// Bytes of a file that are compressed for one client before others have their turn: a millisecond's work or two.
const ENCODED_TURN_BYTES: usize = 64 * 1024;

/// Bytes of a file that are sent to one client before others have their turn.
const FILE_TURN_BYTES: u64 = 2 * 1024 * 1024;

/// Of a file, the server says these itself.
const OF_THE_FILE: [&[u8]; 5] = [b"content-length", b"content-range", b"etag", b"last-modified", b"accept-ranges"];

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

    /// Answers with the file, in the words that the application has chosen.
    pub(super) fn serve_named_file(&mut self, x_sendfile: XSendfile) {
        let status = self.head.status();
        let answer = if self.is_bodiless_status() { None } else { x_sendfile.run(status) };
        let Some(answer) = answer else { return self.close_head() };
        let own = std::mem::take(&mut self.head);
        if let Some((content_type, bytes, is_compressed)) = answer.unmodified() {
            self.note_unmodified(content_type, bytes, is_compressed);
        }
        self.ready_head(answer.status, &answer.head(), answer.fields(), answer.length);
        // What became of the file is said in the server's own words when it is not the file.
        if matches!(answer.status, 200 | 206 | 304) {
            let theirs = std::mem::take(&mut self.head);
            self.head = merged(own, theirs);
        }
        self.give_body(answer.body);
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::Nothing);
            self.close_head();
        }
        self.file_replaces_body = true;
    }

    /// Sends `length` bytes of a file from `offset` as the body, or the rest of it, by sendfile.
    pub fn push_file(&mut self, file: File, offset: i64, length: u64) {
        self.declare_length(length);
        self.push_file_part(file, offset, length);
    }

    /// The same for one part of several. Nothing may be handed in before it has left ([`ResponseWriter::is_behind`]).
    pub fn push_file_part(&mut self, file: File, offset: i64, length: u64) {
        let announced = self.head.content_length;
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::File);
            self.close_head();
        }
        if self.file_replaces_body {
            return;
        }
        let left = match self.left {
            BodyLeft::Discard => return,
            BodyLeft::Length(left) => left.min(length),
            // What is encoded has lost the length that was announced for it.
            BodyLeft::Unknown => announced.map_or(length, |announced| announced.min(length)),
        };
        if self.filter.is_none() {
            self.response.encoder.open_frame(left, &mut self.transport.outgoing);
        }
        self.file = Some(Box::new(BodyFile { file: Arc::new(file), offset, left, promised: None, has_begun: false }));
        self.sent_file = true;
    }

    /// Ends the answer and sends what waits of it. With `code_follows`, code of the application's runs before the connection is seen to again: a
    /// client that waits for the connection's end has it now.
    pub fn complete(&mut self, code_follows: bool) -> Progress {
        self.finish();
        let progress = self.advance();
        if code_follows && progress == Progress::Done {
            self.show_end();
        }
        progress
    }

    /// All of the answer has left: where the connection ends with it, its client is shown that. One of HTTP/1.1 that was told a length does not
    /// wait for it; others read to the end whatever they were told, as many a front server does.
    pub(crate) fn show_end(&mut self) {
        let counts_bytes = self.left != BodyLeft::Unknown && matches!(self.terms.wire, Wire::Http11);
        if self.encoder.ends_with_connection() && !counts_bytes && !self.keeps_alive() && !self.transport.is_given_away() {
            self.transport.end_sending();
        }
    }

    /// Sends what waits: the buffer, then the file, of which it sends so much at a time that others have their turn. `Blocked`
    /// with a transport that is not full says that there would be room for more.
    pub fn advance(&mut self) -> Progress {
        self.transport.is_full = false;
        let mut turn = FILE_TURN_BYTES;
        if self.terms.may_cork && self.stage == Stage::Done && self.file.is_none() {
            self.transport.cork();
        } else {
            self.send();
        }
        while !self.transport.is_broken && !self.transport.is_full && self.transport.is_clear_for_file() {
            let Some(part) = &self.file else { break };
            if part.left == 0 {
                self.end_file();
                self.send();
                continue;
            }
            if turn == 0 {
                break;
            }
            if self.filter.is_some() {
                self.encode_file();
                self.send();
                turn = 0;
                continue;
            }
            let sent = self.send_piece_of_file(turn);
            turn -= sent.min(turn);
        }
        self.transport.count_waiting();
        if self.transport.is_broken {
            Progress::Broken
        } else if self.transport.unsent() > 0 || self.file.is_some() {
            Progress::Blocked
        } else {
            Progress::Done
        }
    }

    /// Sends a piece of the file, `most` bytes at the most, with what stands before it; returns its bytes.
    fn send_piece_of_file(&mut self, most: u64) -> u64 {
        let Response { encoder, file, .. } = &mut *self.response;
        let Some(part) = file else { return 0 };
        let sent = send_framed(encoder, self.transport, part, most);
        self.account_file(sent);
        if self.transport.is_stream() {
            // Its end leaves with its last bytes.
            self.transport.send(false);
        }
        sent
    }

    fn account_file(&mut self, sent: u64) {
        self.account(usize::try_from(sent).unwrap_or(usize::MAX));
    }

    /// Takes the next piece of the file through the encoder.
    fn encode_file(&mut self) {
        let Some(part) = &mut self.response.file else { return };
        let wanted = usize::try_from(part.left).unwrap_or(usize::MAX).min(ENCODED_TURN_BYTES);
        let mut piece = vec![0; wanted];
        let is_read = part.file.read_exact_at(&mut piece, part.offset.cast_unsigned()).is_ok();
        part.offset += wanted.cast_signed() as i64;
        part.left -= wanted as u64;
        let is_last = part.left == 0;
        // What is shorter than it was, or has become something else meanwhile, must not look like a whole answer.
        if !is_read || (is_last && part.has_changed()) {
            self.transport.is_broken = true;
            return;
        }
        part.has_begun = true;
        let mut made = Vec::new();
        let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
        if encoder.is_none_or(|encoder| encoder.write(&piece, &mut made).is_err()) {
            self.encoder_failed();
            return;
        }
        self.write_framed(&made);
    }

    fn end_file(&mut self) {
        self.file = None;
        if self.begin_next_part() {
            return;
        }
        // The end of the body only when nothing follows the file: `finish` leaves it to us.
        if self.stage == Stage::Done {
            if self.filter.is_some() {
                self.finish_encoding();
            }
            self.end_body();
        }
    }
}

/// Sends a piece of a file within the frame that it belongs to.
fn send_framed(encoder: &mut ResponseEncoder, transport: &mut Transport, part: &mut BodyFile, most: u64) -> u64 {
    let frame = encoder.open_frame(part.left, &mut transport.outgoing);
    if transport.unsent() > 0 {
        transport.send(true);
        if !transport.is_clear_for_file() {
            return 0;
        }
    }
    transport.send_file(part, most.min(frame))
}

/// A head with the fields of both: validators and lengths are the file's, the rest is as the application says where it says it.
fn merged(mut own: ResponseHead, mut theirs: ResponseHead) -> ResponseHead {
    let status = if theirs.status() == 200 { own.status() } else { theirs.status() };
    let is_unmodified = theirs.status() == 304;
    // The parts of several ranges have types of their own.
    let is_parts = theirs.value(b"content-type").is_some_and(|text| text.starts_with(b"multipart/"));
    let is_coded = theirs.value(b"content-encoding").is_some();
    let is_kept = |name: &[u8]| match name.to_ascii_lowercase().as_slice() {
        name if OF_THE_FILE.contains(&name) => false,
        b"content-type" => !is_parts && !is_unmodified,
        b"content-encoding" => !is_coded && !is_unmodified,
        _ => true,
    };
    let mut says_itself = |name: &[u8]| is_kept(name) && own.value(name).is_some();
    let is_replaced = [b"content-type".as_slice(), b"cache-control", b"expires"].map(|name| (name, says_itself(name)));
    let mut head = ResponseHead::default();
    let words = if own.status() == 200 { theirs.status_text() } else { own.status_text() };
    head.begin(status, words);
    for (name, value) in theirs.fields() {
        if !is_replaced.iter().any(|(replaced, is_said)| *is_said && name.eq_ignore_ascii_case(replaced)) {
            head.add(name, value);
        }
    }
    for (name, value) in own.fields().filter(|(name, _)| is_kept(name)) {
        head.add(name, value);
    }
    head.content_length = theirs.content_length;
    head.has_date = own.has_date;
    head.has_server = own.has_server;
    head
}
