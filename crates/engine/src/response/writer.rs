//! An answer with its transport: the application's data goes into the [`Response`], is encoded by the session's encoder, and goes
//! to the [`Transport`] of the connection.
//!
//! The transport sets the budget: data that it does not accept is not accepted here either, and must be pushed again. It does not
//! know about languages. Worker threads run it.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bolide_protocol::response::{BodyLength, HeadTerms};

use super::body::BodyLeft;
use super::{OUTPUT_BYTES, Progress, Pushed, Response, Stage, Terms, When};
use crate::response::buffers::ResponseBuffers;
use crate::response::filters::{FilteredHead, FirstPart};
use crate::response::storing::AnswerStore;
use crate::sockets::transport::{RoomWait, Transport};

/// Parts of a body up to this size are copied behind the head; larger ones are sent without a copy.
pub(super) const COPY_BYTES: usize = 16 * 1024;

/// Bytes of a body that are encoded between two checks of the buffered data.
const SLICE_BYTES: usize = 16 * 1024;

/// Borrowed for a short time by the code that writes; the connection owns both halves.
pub struct ResponseWriter<'a> {
    pub(crate) response: &'a mut Response,
    pub(crate) transport: &'a mut Transport,
}

impl Deref for ResponseWriter<'_> {
    type Target = Response;

    fn deref(&self) -> &Response {
        self.response
    }
}

impl DerefMut for ResponseWriter<'_> {
    fn deref_mut(&mut self) -> &mut Response {
        self.response
    }
}

impl ResponseWriter<'_> {
    /// Begins the next answer, with buffers of the thread.
    #[inline]
    pub(crate) fn begin(&mut self, terms: Terms, buffers: ResponseBuffers) {
        self.transport.lend(buffers.output);
        self.response.begin(terms, buffers.head);
    }

    /// Returns another writer of the same answer, for a caller that can't use this one where it is.
    pub fn reborrow(&mut self) -> ResponseWriter<'_> {
        ResponseWriter { response: self.response, transport: self.transport }
    }

    /// Returns the buffers after everything has been sent.
    #[inline]
    pub(crate) fn end(&mut self) -> ResponseBuffers {
        let output = if self.transport.is_broken { Vec::new() } else { self.transport.take_buffer() };
        ResponseBuffers { head: self.response.take_buffer(), output }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.transport.socket()
    }

    /// Accepts a part of the body. An empty part has no effect, and does not send the head.
    pub fn push(&mut self, part: &[u8], when: When) -> Pushed {
        if self.transport.is_broken {
            return Pushed::Gone;
        }
        if part.is_empty() {
            return Pushed::All;
        }
        if self.body.own_chunks.is_some()
            && let Some(own) = self.body.own_chunks.take()
        {
            return self.push_chunks(own, part, when);
        }
        if self.stage == Stage::Head {
            if let Some(whole) = self.filter_head(FirstPart::Bytes(part)) {
                self.store_whole(part);
                self.push_whole(&whole);
                return if when == When::Now { self.pushed(part.len(), part.len()) } else { Pushed::All };
            }
            self.close_head();
        }
        match self.store.take() {
            Some(store) => self.push_stored(store, part, when),
            None => self.push_body(part, when),
        }
    }

    /// As `push_body`, for an answer that is stored.
    #[cold]
    fn push_stored(&mut self, store: Box<AnswerStore>, part: &[u8], when: When) -> Pushed {
        let left = if let BodyLeft::Length(left) = self.body.left { Some(left) } else { None };
        let wanted = Some(store).filter(|_| self.body.left != BodyLeft::Discard);
        let store = wanted.and_then(|store| store.before(part, left, self.head.status()));
        let pushed = self.push_body(part, when);
        let taken = match pushed {
            Pushed::All => part.len(),
            Pushed::Part(taken) => taken,
            Pushed::Gone => return pushed,
        };
        self.store = store;
        if let Some(store) = &mut self.store {
            store.note(&part[..taken]);
        }
        pushed
    }

    /// Stores an answer whose body was complete from the beginning.
    pub(super) fn store_whole(&mut self, body: &[u8]) {
        if let Some(store) = self.store.take().filter(|_| !self.has_no_body()) {
            store.keep_whole(body, self.head.status());
        }
    }

    /// Accepts a part after the head.
    #[inline]
    fn push_body(&mut self, part: &[u8], when: When) -> Pushed {
        if self.body.file_replaces_body {
            return if when == When::Now { self.pushed(part.len(), part.len()) } else { Pushed::All };
        }
        if self.filter.is_some() {
            return self.push_encoded(part, when);
        }
        let allowed = match self.body.left {
            BodyLeft::Discard => {
                return if when == When::Now { self.discarded(part.len()) } else { Pushed::All };
            }
            BodyLeft::Length(left) => left.min(part.len() as u64) as usize,
            BodyLeft::Unknown => part.len(),
        };
        self.body.overrun |= allowed < part.len();
        let taken = self.take(&part[..allowed], when);
        if self.transport.is_broken {
            return Pushed::Gone;
        }
        if taken < allowed { Pushed::Part(taken) } else { Pushed::All }
    }

    /// Whether data waits for the client: `write()`, which can't be suspended, then waits for the socket itself
    /// ([`ResponseWriter::room_wait`]) and continues with [`ResponseWriter::room_came`].
    pub fn wants_room(&self) -> bool {
        self.transport.wants_room()
    }

    /// Whether a call that has sent data must wait until all of it has been sent. Otherwise a stream's buffered data would be
    /// sent in the stream's own turn, and its client may wait for that while all threads are in such calls.
    pub fn holds_call(&self) -> bool {
        self.transport.is_stream() && self.transport.wants_room()
    }

    /// Whether the end of an answer must wait in the same way ([`ResponseWriter::finish_in_call`]), checked after the
    /// application's call: parts of the answer were sent during the call, on a stream.
    pub fn was_sent_in_call(&self) -> bool {
        self.transport.is_stream() && self.head_has_left()
    }

    /// Returns the wait for room.
    pub fn room_wait(&mut self) -> RoomWait {
        self.notes.note_sending(true);
        self.transport.room_wait()
    }

    /// Continues after a wait for room.
    pub fn room_came(&mut self, has_room: bool) {
        self.notes.note_sending(false);
        self.transport.room_came(has_room);
    }

    /// Begins the client's next turn.
    pub fn begin_turn(&mut self) {
        self.transport.begin_turn();
    }

    /// The client's turn is over: producers of more data stop until other connections have had their turn.
    pub fn turn_is_over(&self) -> bool {
        self.transport.turn_is_over()
    }

    /// Whether the client is slow: no more data should be pushed before it has read the buffered data.
    pub fn is_behind(&self) -> bool {
        self.body.file.is_some() || !self.transport.has_room(OUTPUT_BYTES / 2, OUTPUT_BYTES)
    }

    /// Whether data waits for the client: bytes, a file, or a part that the application still holds because the socket accepted
    /// only some of it.
    pub fn has_unsent(&self) -> bool {
        self.body.file.is_some() || self.transport.has_unsent()
    }

    /// The answer is complete and has been sent.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.stage == Stage::Done && !self.has_unsent() && !self.transport.is_broken
    }

    /// Bytes of the body minus buffered bytes of head and body: the number grows when the client reads, and is constant when it
    /// does not.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.body.bytes.wrapping_sub(self.transport.unsent() as u64)
    }

    /// The last write found no room: the poll will report when there is room.
    pub(crate) fn is_full(&self) -> bool {
        self.transport.is_full
    }

    pub fn client_is_gone(&self) -> bool {
        self.transport.is_broken
    }

    /// Treats the client as disconnected: buffered data is not sent.
    pub(crate) fn give_client_up(&mut self) {
        self.transport.is_broken = true;
    }

    /// The application has taken over the connection.
    pub fn is_given_away(&self) -> bool {
        self.transport.is_given_away()
    }

    /// Sends the head now, before the body: the client of a stream learns that it has begun.
    pub fn send_head(&mut self) {
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::Bytes(b""));
            self.close_head();
            self.send();
        }
    }

    /// Ends the answer: writes the rest of the framing.
    pub fn finish(&mut self) {
        if self.stage == Stage::Head {
            if self.head.content_length.is_none() {
                self.declare_length(0);
            }
            self.filter_head(FirstPart::Nothing);
            self.close_head();
        }
        if self.stage == Stage::Body && self.lacks_last_chunk() {
            return self.end_in_chunks();
        }
        if self.stage == Stage::Body {
            let is_complete = matches!(self.body.left, BodyLeft::Unknown | BodyLeft::Length(0)) && self.body.file.is_none();
            if let Some(store) = self.store.take().filter(|_| is_complete) {
                store.keep_whole(b"", self.head.status());
            }
            if self.filter.is_some() && self.body.file.is_none() {
                self.finish_encoding();
            }
            match self.body.left {
                BodyLeft::Length(left) if left > self.body.to_come() => {
                    self.body.short = true;
                    self.terms.keep_alive = false;
                }
                // The data after a file is written when the file has been sent.
                _ if self.body.file.is_none() => self.end_body(),
                _ => {}
            }
        }
        self.stage = Stage::Done;
    }

    /// Ends an answer of which parts were sent during the application's call, and waits until it has been sent, up to `timeout`
    /// for each wait for room. A file after them is sent in turns, like any other.
    pub fn finish_in_call(&mut self, timeout: Duration) {
        self.finish();
        while !self.has_file() {
            self.begin_turn();
            if self.advance() != Progress::Blocked {
                break;
            }
            let has_room = self.room_wait().wait(timeout);
            self.room_came(has_room);
        }
    }

    /// Sends the server's own answer, instead of any head that the application has begun. Only allowed while nothing has been
    /// sent.
    pub fn answer(&mut self, status: u16, reason: &str, text: &str) {
        self.answer_with(status, reason, text, &[]);
    }

    /// Like [`ResponseWriter::answer`], with additional fields.
    pub(crate) fn answer_with(&mut self, status: u16, reason: &str, text: &str, fields: &[(&str, &str)]) {
        self.transport.clear();
        self.forget_head();
        self.body.drop_files();
        self.store = None;
        self.stage = Stage::Head;
        self.head.begin_with(status, reason);
        self.head.add_own(b"Content-Type", b"text/plain; charset=utf-8");
        for (name, value) in fields {
            self.head.add_own(name.as_bytes(), value.as_bytes());
        }
        self.declare_length(text.len() as u64);
        self.push(text.as_bytes(), When::WithTheNext);
        self.finish();
    }

    /// Aborts an answer whose head has been sent: the end of the connection shows the client that it is incomplete.
    pub fn cut_off(&mut self) {
        self.filter = None;
        self.store = None;
        self.transport.ends_short = self.body.left == BodyLeft::Unknown && self.encoder.ends_with_connection();
        self.terms.keep_alive = false;
        self.body.drop_files();
        self.stage = Stage::Done;
    }

    /// The connection also carries other requests.
    pub fn shares_connection(&self) -> bool {
        self.transport.is_stream()
    }

    /// Ends the answer in its current state, and the connection with it; later data is discarded.
    pub fn disconnect(&mut self) {
        if self.has_head() {
            self.finish();
            self.begin_turn();
            // Data that the client does not read immediately is lost, as in uWSGI.
            self.advance();
        }
        self.terms.keep_alive = false;
        self.body.drop_files();
        self.stage = Stage::Done;
        self.transport.disconnect();
    }

    pub(crate) fn keeps_alive(&self) -> bool {
        let ends_with_it =
            self.body.left == BodyLeft::Unknown && self.encoder.ends_with_connection() && self.stage == Stage::Done;
        self.terms.keep_alive && !self.transport.is_broken && !ends_with_it
    }

    pub(crate) fn status_code(&self) -> u16 {
        // The answer of an application that has taken over the connection is discarded: the log shows the switch.
        if self.transport.is_given_away() { 101 } else { self.head.status() }
    }

    /// How the application violated its own Content-Length, as the rest of a sentence. An application that stops because its
    /// client has left does not violate it.
    pub fn length_fault(&self) -> Option<&'static str> {
        let may_stop = self.transport.is_given_away() || self.client_is_gone();
        self.broken_promise().filter(|_| self.body.overrun || !may_stop)
    }

    /// Determines the length of the body (RFC 9112 section 6.3), and has the encoder write the head.
    pub(super) fn close_head(&mut self) {
        if let Some(x_sendfile) = self.x_sendfile.take().filter(|x_sendfile| x_sendfile.named.is_some()) {
            return self.serve_named_file(*x_sendfile);
        }
        let (left, length) = match self.head.content_length {
            _ if self.is_bodiless_status() || self.terms.head_only => (BodyLeft::Discard, BodyLength::NoBody),
            Some(length) => (BodyLeft::Length(length), BodyLength::Known),
            None => (BodyLeft::Unknown, BodyLength::Unknown),
        };
        let Response { encoder, head, terms, .. } = &mut *self.response;
        let before = self.transport.outgoing.bytes.len();
        let how = HeadTerms { length, keep_alive: terms.keep_alive, date_line: &terms.date_line };
        terms.keep_alive = encoder.head(head, how, &mut self.transport.outgoing);
        let head_bytes = self.transport.outgoing.bytes.len() - before;
        self.begin_body(left, head_bytes as u64);
    }

    /// Writes the end of the body and of the answer.
    pub(super) fn end_body(&mut self) {
        self.response.encoder.end(&mut self.transport.outgoing);
    }

    /// Sends buffered data. A head is sent in one packet with the start of the file that follows.
    pub(super) fn send(&mut self) {
        let file_follows = self.body.file.as_ref().is_some_and(|part| part.left > 0);
        self.transport.send(file_follows);
    }

    /// Copies or sends as much of a part as there is room for; returns the number of bytes.
    fn take(&mut self, part: &[u8], when: When) -> usize {
        let mut taken = 0;
        while taken < part.len() {
            let rest = &part[taken..];
            let frame = self.response.encoder.open_frame(rest.len() as u64, &mut self.transport.outgoing);
            let piece = &rest[..(frame as usize).min(rest.len())];
            let count = self.take_piece(piece, when, piece.len() == rest.len());
            taken += count;
            if count < piece.len() {
                break;
            }
        }
        taken
    }

    /// Like `take`, for a piece within one frame. `is_last`: it ends the part.
    fn take_piece(&mut self, piece: &[u8], when: When, is_last: bool) -> usize {
        if piece.len() > COPY_BYTES || !self.transport.has_room(piece.len(), OUTPUT_BYTES) {
            let is_last = self.body.left == BodyLeft::Length(piece.len() as u64);
            let taken = self.transport.send_through(piece, is_last);
            self.account(taken);
            return taken;
        }
        self.transport.outgoing.bytes.extend_from_slice(piece);
        self.account(piece.len());
        if self.transport.is_full {
            self.transport.count_waiting();
        } else if when == When::Now && is_last {
            // The last part may wait briefly in the kernel for the answers of other requests; earlier parts must not.
            if self.terms.may_cork && self.body.left == BodyLeft::Length(0) {
                self.transport.cork();
            } else {
                self.transport.send(false);
            }
        }
        piece.len()
    }

    /// Counts bytes of the body that have been sent or buffered.
    pub(super) fn account(&mut self, taken: usize) {
        let Response { encoder, body, .. } = &mut *self.response;
        body.bytes += taken as u64;
        if let BodyLeft::Length(left) = &mut body.left {
            *left -= (taken as u64).min(*left);
        }
        encoder.wrote(taken as u64, &mut self.transport.outgoing);
    }

    /// Handles a part of an answer without a body. No write would fail, so a disconnect is checked for after the head has been
    /// sent: otherwise an application with an endless body would run for a client that has gone. The end of a socket's input says
    /// only that the client sends no more: the answer, which is complete with its head, ends here, and requests that the client
    /// sent behind this one are served.
    fn discarded(&mut self, length: usize) -> Pushed {
        if self.transport.unsent() == 0 && self.transport.peer_has_ended() {
            if !self.transport.is_stream() {
                return Pushed::Gone;
            }
            self.transport.is_broken = true;
        }
        self.pushed(length, length)
    }

    /// Handles a part that is not sent: the head must still be sent now. The part counts towards the turn as if it were sent,
    /// because a long answer takes the application as much time for HEAD as for GET.
    pub(super) fn pushed(&mut self, taken: usize, offered: usize) -> Pushed {
        self.send();
        self.transport.note_sent(taken);
        match (self.transport.is_broken, taken < offered) {
            (true, _) => Pushed::Gone,
            (false, true) => Pushed::Part(taken),
            (false, false) => Pushed::All,
        }
    }

    /// Sends the last bytes of the connection, as far as the socket accepts them, regardless of the turn.
    pub(crate) fn send_last(&mut self) -> Progress {
        self.begin_turn();
        self.advance()
    }

    /// Filters the complete head. Returns the body that replaces `part`, if it was compressed as a whole.
    pub(super) fn filter_head(&mut self, part: FirstPart<'_>) -> Option<Vec<u8>> {
        if self.names_file() {
            return None; // This head will be replaced: it is filtered when it has become the file's.
        }
        self.add_own_fields();
        if let Some(session) = self.notes.session.take() {
            session.apply(&mut self.response.head);
        }
        let mut filter = self.filter.take()?;
        let response = &mut *self.response;
        let (mut log_variables, mut stores) = (Vec::new(), Vec::new());
        let mut head = FilteredHead {
            head: &mut response.head,
            is_unlogged: &mut response.notes.is_unlogged,
            log_variables: &mut log_variables,
            stores: &mut stores,
            head_only: response.terms.head_only,
        };
        let made = filter.head(&mut head, part);
        for (name, value) in &log_variables {
            self.notes.set_log_variable(name, value);
        }
        if !stores.is_empty() {
            self.store(stores, filter.caches());
        }
        // The rest of the body only needs the encoder.
        self.filter = filter.encoder().is_some().then_some(filter);
        made
    }

    /// Sends a complete body of the server's own: data that the client does not read immediately is buffered, regardless of its
    /// size.
    pub(super) fn push_whole(&mut self, body: &[u8]) {
        self.close_head();
        if self.body.left != BodyLeft::Discard {
            self.write_framed(body);
        }
    }

    /// Sends a complete body, after its head.
    pub(crate) fn give_whole(&mut self, body: &[u8]) {
        self.declare_length(body.len() as u64);
        let made = self.filter_head(FirstPart::Bytes(body));
        self.store_whole(body);
        match made {
            Some(whole) => self.push_whole(&whole),
            // Large bodies are normally compressed part by part in `push_encoded`; this one is already complete.
            None => match self.filter.take() {
                Some(mut filter) => {
                    let mut made = Vec::new();
                    self.close_head();
                    let ended = filter.take_encoder().is_some_and(|mut encoder| {
                        encoder.write(body, &mut made).and_then(|()| encoder.finish(&mut made)).is_ok()
                    });
                    if ended { self.write_framed(&made) } else { _ = self.encoder_failed() }
                }
                None => self.push_whole(body),
            },
        }
    }

    /// Sends the server's own answer with a page as its body, instead of any head that was begun.
    pub(crate) fn answer_page(&mut self, status: u16, content_type: &str, body: &[u8]) {
        self.store = None;
        self.give_page(status, content_type, body);
        self.finish();
    }

    /// Like [`ResponseWriter::answer_page`], but the caller finishes the answer.
    pub(crate) fn give_page(&mut self, status: u16, content_type: &str, body: &[u8]) {
        // Statuses and content types of the server's own are always valid.
        let _ = self.status_code_only(status);
        let _ = self.field(b"Content-Type", content_type.as_bytes());
        self.give_whole(body);
    }

    /// Encodes a part of the body.
    pub(super) fn push_encoded(&mut self, part: &[u8], when: When) -> Pushed {
        let mut taken = 0;
        for slice in part.chunks(SLICE_BYTES) {
            if !self.transport.has_room(1, OUTPUT_BYTES) {
                self.transport.send(false);
                if self.transport.is_broken {
                    return Pushed::Gone;
                }
                if !self.transport.has_room(1, OUTPUT_BYTES) {
                    self.transport.count_waiting();
                    return Pushed::Part(taken);
                }
            }
            let mut made = Vec::new();
            let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
            if encoder.is_none_or(|encoder| encoder.write(slice, &mut made).is_err()) {
                return self.encoder_failed();
            }
            self.write_framed(&made);
            taken += slice.len();
        }
        if when == When::Now {
            let mut made = Vec::new();
            let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
            if encoder.is_none_or(|encoder| encoder.flush(&mut made).is_err()) {
                return self.encoder_failed();
            }
            self.write_framed(&made);
            self.transport.send(false);
        }
        if self.transport.is_broken { Pushed::Gone } else { Pushed::All }
    }

    /// Ends an encoded body.
    pub(super) fn finish_encoding(&mut self) {
        let encoder = self.filter.take().and_then(|mut filter| filter.take_encoder());
        let mut made = Vec::new();
        match encoder.map(|encoder| encoder.finish(&mut made)) {
            Some(Ok(())) => self.write_framed(&made),
            Some(Err(_)) => {
                self.encoder_failed();
            }
            None => {}
        }
    }

    /// Writes a piece of the body to the buffer, framed as the protocol requires.
    pub(super) fn write_framed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let frame = self.response.encoder.open_frame(piece.len() as u64, &mut self.transport.outgoing) as usize;
            let (now, later) = piece.split_at(frame.min(piece.len()));
            self.transport.outgoing.bytes.extend_from_slice(now);
            self.account(now.len());
            piece = later;
        }
    }

    /// An encoder that writes to memory only fails without memory. The body can't be completed, and the end of the connection
    /// shows that.
    pub(super) fn encoder_failed(&mut self) -> Pushed {
        self.filter = None;
        self.transport.is_broken = true;
        Pushed::Gone
    }
}
