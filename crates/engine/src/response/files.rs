//! The part of [`ResponseWriter`] for bodies that are files: static files, a file that the application passes, and a file whose
//! name it passes (`X-Sendfile`). Files are sent in turns, so that other connections are served in between.
//!
//! Heads of static files are prebuilt. The head of a named file is merged with the application's, whose body is then discarded.
//! It does not know about languages. Worker threads run it.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bolide_files::answer::{Body as FileBody, FileRange, Parts};
use bolide_files::roots::FileVersion;
use bolide_protocol::response::{ResponseEncoder, ResponseHead, Wire};

use super::body::BodyLeft;
use super::writer::{COPY_BYTES, ResponseWriter};
use super::{Progress, Response, Stage};
use crate::response::filters::FirstPart;
use crate::response::named_file::XSendfile;
use crate::sockets::body_file::{BodyFile, Queue, QueuedPart};
use crate::sockets::transport::Transport;

/// Maximum number of bytes of a file that are compressed for a client in one turn: one or two milliseconds of work.
const ENCODED_TURN_BYTES: usize = 64 * 1024;

/// Maximum number of bytes of a file that are sent to a client in one turn.
const FILE_TURN_BYTES: u64 = 2 * 1024 * 1024;

/// Fields of a file's answer that are always the server's.
const OF_THE_FILE: [&[u8]; 5] = [b"content-length", b"content-range", b"etag", b"last-modified", b"accept-ranges"];

impl ResponseWriter<'_> {
    /// Sets a prebuilt head without the fields that the server adds to all answers, in parts of whole lines. `length` is the
    /// value of its Content-Length, if any.
    pub(crate) fn ready_head(&mut self, status: u16, lines: &[&[u8]], fields: u32, length: Option<u64>) {
        self.forget_head();
        self.stage = Stage::Head;
        self.head.set_ready(status, lines, fields, length);
    }

    /// Sends the body of such an answer. Data that the client does not read immediately is sent later.
    pub(crate) fn give_body(&mut self, body: FileBody) {
        // Files are never stored: they can be served without the application anyway.
        self.store = None;
        match body {
            FileBody::Nothing => {}
            FileBody::Text(text) => self.push_ready(&text),
            FileBody::Memory(content, range) => {
                self.push_ready(&content[range]);
                self.body.sent_content = self.body.left != BodyLeft::Discard;
            }
            FileBody::File(FileRange { file, bytes, version }) => self.push_shared_file(file, bytes, version),
            FileBody::Parts(parts) => self.push_parts(parts),
        }
    }

    /// Sends the whole body, which is not much larger than the buffer for a slow client ([`super::OUTPUT_BYTES`]).
    pub(crate) fn push_ready(&mut self, body: &[u8]) {
        if self.filter.is_some() {
            return self.give_whole(body);
        }
        self.store_whole(body);
        self.close_head();
        if self.body.left == BodyLeft::Discard {
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

    /// Sends a part of a file as the whole body.
    pub(crate) fn push_shared_file(&mut self, file: Arc<File>, bytes: Range<u64>, version: FileVersion) {
        self.filter_head(FirstPart::File);
        self.close_head();
        if self.body.left != BodyLeft::Discard {
            self.body.file = Some(Box::new(BodyFile::promised(file, bytes, version)));
            self.body.sent_file = true;
        }
    }

    /// Sends parts of a file, each preceded by lines.
    pub(crate) fn push_parts(&mut self, parts: Parts) {
        // Parts are never compressed, so they are sent unchanged.
        self.filter_head(FirstPart::Nothing);
        self.close_head();
        if self.body.left == BodyLeft::Discard {
            return;
        }
        let mut queue = VecDeque::with_capacity(parts.parts.len() + 1);
        queue.extend(parts.parts.into_iter().map(|(before, FileRange { file, bytes, version })| QueuedPart {
            before,
            file: Some(Box::new(BodyFile::promised(file, bytes, version))),
        }));
        queue.push_back(QueuedPart { before: parts.end, file: None });
        self.body.queue = Some(Box::new(Queue(queue)));
        self.body.sent_file = true;
        self.begin_next_part();
    }

    /// Continues with the next part after the file. Returns false if there is none.
    pub(super) fn begin_next_part(&mut self) -> bool {
        let Some(next) = self.body.queue.as_mut().and_then(|queue| queue.0.pop_front()) else { return false };
        self.write_framed(&next.before);
        self.body.file = next.file;
        true
    }

    /// Sends the named file as the answer, with the application's head.
    pub(super) fn serve_named_file(&mut self, x_sendfile: XSendfile) {
        let status = self.head.status();
        let answer = if self.is_bodiless_status() { None } else { x_sendfile.run(status) };
        let Some(answer) = answer else { return self.close_head() };
        // They would be those of the body that the file replaces.
        self.body.own_chunks = None;
        let own = std::mem::take(&mut self.head);
        if let Some((content_type, bytes, is_compressed)) = answer.unmodified() {
            self.note_unmodified(content_type, bytes, is_compressed);
        }
        self.ready_head(answer.status, &answer.head(), answer.fields(), answer.length);
        // If the result is not the file (an error, for example), the head is the server's own.
        if matches!(answer.status, 200 | 206 | 304) {
            let theirs = std::mem::take(&mut self.head);
            self.head = merged(own, theirs);
        }
        self.give_body(answer.body);
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::Nothing);
            self.close_head();
        }
        self.body.file_replaces_body = true;
    }

    /// Sends `length` bytes of a file from `offset` as the body, or the rest of it, by sendfile.
    pub fn push_file(&mut self, file: File, offset: i64, length: u64) {
        self.declare_length(length);
        self.push_file_part(file, offset, length);
    }

    /// Like [`ResponseWriter::push_file`], for one of several parts. No other part may be pushed before it has been sent
    /// ([`ResponseWriter::is_behind`]).
    pub fn push_file_part(&mut self, file: File, offset: i64, length: u64) {
        self.store = None;
        let announced = self.head.content_length;
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::File);
            self.close_head();
        }
        if self.body.file_replaces_body {
            return;
        }
        let left = match self.body.left {
            BodyLeft::Discard => return,
            BodyLeft::Length(left) => left.min(length),
            // Compression has removed the announced length.
            BodyLeft::Unknown => announced.map_or(length, |announced| announced.min(length)),
        };
        if self.filter.is_none() {
            self.response.encoder.open_frame(left, &mut self.transport.outgoing);
        }
        self.body.file = Some(Box::new(BodyFile { file: Arc::new(file), offset, left, promised: None, has_begun: false }));
        self.body.sent_file = true;
    }

    /// Ends the answer, after its trailer fields if it has any.
    pub fn end_answer(&mut self) {
        match self.wants_trailers() && self.stage() != Stage::Done {
            true => self.finish_trailers(),
            false => self.finish(),
        }
    }

    /// Ends the answer and sends buffered data. With `code_follows`, code of the application runs before the connection is served
    /// again, so the end of the connection is shown to the client now.
    pub fn complete(&mut self, code_follows: bool) -> Progress {
        self.end_answer();
        let progress = self.advance();
        if code_follows && progress == Progress::Done {
            self.show_end();
        }
        progress
    }

    /// Shuts down the sending side if the whole answer has been sent and the connection ends with it. An HTTP/1.1 client that
    /// knows the length does not wait for that; others read to the end even if they know the length, as many reverse proxies do.
    pub(crate) fn show_end(&mut self) {
        let counts_bytes = self.body.left != BodyLeft::Unknown && matches!(self.terms.wire, Wire::Http11);
        if self.encoder.ends_with_connection() && !counts_bytes && !self.keeps_alive() && !self.transport.is_given_away() {
            self.transport.end_sending();
        }
    }

    /// Sends buffered data, then the file, within a turn's limit so that other connections are served. `Blocked` with a transport
    /// that is not full means that more could be sent.
    pub fn advance(&mut self) -> Progress {
        self.transport.is_full = false;
        let mut turn = FILE_TURN_BYTES;
        if self.terms.may_cork && self.stage == Stage::Done && self.body.file.is_none() {
            self.transport.cork();
        } else {
            self.send();
        }
        while !self.transport.is_broken && !self.transport.is_full && self.transport.is_clear_for_file() {
            let Some(part) = &self.body.file else { break };
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
        } else if self.transport.unsent() > 0 || self.body.file.is_some() {
            Progress::Blocked
        } else {
            Progress::Done
        }
    }

    /// Sends a piece of the file, at most `most` bytes, after the buffered data; returns the number of its bytes.
    fn send_piece_of_file(&mut self, most: u64) -> u64 {
        let Response { encoder, body, .. } = &mut *self.response;
        let Some(part) = &mut body.file else { return 0 };
        let sent = send_framed(encoder, self.transport, part, most);
        self.account_file(sent);
        if self.transport.is_stream() {
            // A stream's end is sent with its last bytes.
            self.transport.send(false);
        }
        sent
    }

    fn account_file(&mut self, sent: u64) {
        self.account(usize::try_from(sent).unwrap_or(usize::MAX));
    }

    /// Encodes the next piece of the file.
    fn encode_file(&mut self) {
        let Some(part) = &mut self.response.body.file else { return };
        let wanted = usize::try_from(part.left).unwrap_or(usize::MAX).min(ENCODED_TURN_BYTES);
        let mut piece = vec![0; wanted];
        let is_read = part.file.read_exact_at(&mut piece, part.offset.cast_unsigned()).is_ok();
        part.offset += wanted.cast_signed() as i64;
        part.left -= wanted as u64;
        let is_last = part.left == 0;
        // A file that has been truncated or changed in the meantime must not look like a complete answer.
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
        self.body.file = None;
        if self.begin_next_part() {
            return;
        }
        // The end of the body is only written if nothing follows the file: `finish` leaves it to this function.
        if self.stage == Stage::Done {
            if self.filter.is_some() {
                self.finish_encoding();
            }
            self.end_body();
        }
    }
}

/// Sends a piece of a file within its frame.
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

/// Merges the two heads: validators and lengths are the file's, the other fields are the application's if it has set them.
fn merged(mut own: ResponseHead, mut theirs: ResponseHead) -> ResponseHead {
    let status = if theirs.status() == 200 { own.status() } else { theirs.status() };
    let is_unmodified = theirs.status() == 304;
    // A multipart answer of several ranges has its own content type.
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
