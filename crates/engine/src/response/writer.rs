//! An answer with its way out: what an application says goes into its [`Response`], and from there, as the session's encoder writes it, to
//! the [`Transport`] of its connection.
//!
//! The budget is the transport's: what it does not take is not taken here either, and offered again. A worker's threads run it.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bolide_protocol::response::{BodyLength, HeadTerms};

use super::{BodyLeft, OUTPUT_BYTES, Progress, Pushed, Response, Stage, Terms, When};
use crate::response::buffers::ResponseBuffers;
use crate::response::filters::{FilteredHead, FirstPart};
use crate::sockets::transport::RoomWait;
use crate::sockets::transport::Transport;

/// Parts of a body up to this many bytes are copied behind the head; larger ones go out from where they are.
pub(super) const COPY_BYTES: usize = 16 * 1024;

/// Bytes of a body that go through the encoder between two looks at how much waits for the client.
const SLICE_BYTES: usize = 16 * 1024;

/// Lent for moments to whoever has something to say; the connection owns both halves.
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
    /// Begins the next answer, with buffers of the thread's.
    #[inline]
    pub(crate) fn begin(&mut self, terms: Terms, buffers: ResponseBuffers) {
        self.transport.lend(buffers.output);
        self.response.begin(terms, buffers.head);
    }

    /// Gives the buffers back when everything has left.
    #[inline]
    pub(crate) fn end(&mut self) -> ResponseBuffers {
        let output = if self.transport.is_broken { Vec::new() } else { self.transport.take_buffer() };
        ResponseBuffers { head: self.response.take_buffer(), output }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.transport.socket()
    }

    /// Takes a part of the body. An empty one changes nothing, and does not send the head.
    pub fn push(&mut self, part: &[u8], when: When) -> Pushed {
        if self.transport.is_broken {
            return Pushed::Gone;
        }
        if part.is_empty() {
            return Pushed::All;
        }
        if self.stage == Stage::Head {
            if let Some(whole) = self.filter_head(FirstPart::Bytes(part)) {
                self.push_whole(&whole);
                return if when == When::Now { self.pushed(part.len(), part.len()) } else { Pushed::All };
            }
            self.close_head();
        }
        if self.file_replaces_body {
            return if when == When::Now { self.pushed(part.len(), part.len()) } else { Pushed::All };
        }
        if self.filter.is_some() {
            return self.push_encoded(part, when);
        }
        let allowed = match self.left {
            BodyLeft::Discard => {
                return if when == When::Now { self.discarded(part.len()) } else { Pushed::All };
            }
            BodyLeft::Length(left) => left.min(part.len() as u64) as usize,
            BodyLeft::Unknown => part.len(),
        };
        self.overrun |= allowed < part.len();
        let taken = self.take(&part[..allowed], when);
        if self.transport.is_broken {
            return Pushed::Gone;
        }
        if taken < allowed { Pushed::Part(taken) } else { Pushed::All }
    }

    /// Whether something waits for the client: `write()`, which can't be suspended, then waits for the socket by itself
    /// ([`ResponseWriter::room_wait`]) and goes on with [`ResponseWriter::room_came`].
    pub fn wants_room(&self) -> bool {
        self.transport.wants_room()
    }

    /// Whether a call that has sent something is to wait until all of it has left. What a stream keeps would leave in the stream's own turn, and
    /// its client may wait for that while all threads are in such calls.
    pub fn holds_call(&self) -> bool {
        self.transport.is_stream() && self.transport.wants_room()
    }

    /// Whether the end of an answer is to wait likewise ([`ResponseWriter::finish_in_call`]), asked when the application's call has returned: parts
    /// of the answer were sent within the call, on a stream.
    pub fn was_sent_in_call(&self) -> bool {
        self.transport.is_stream() && self.head_has_left()
    }

    /// Such a wait.
    pub fn room_wait(&self) -> RoomWait {
        self.transport.room_wait()
    }

    /// Goes on after such a wait.
    pub fn room_came(&mut self, has_room: bool) {
        self.transport.room_came(has_room);
    }

    /// The client may be sent another turn's bytes.
    pub fn begin_turn(&mut self) {
        self.transport.begin_turn();
    }

    /// The client has been sent a turn's bytes: what produces more stops until the others have had their turn.
    pub fn turn_is_over(&self) -> bool {
        self.transport.turn_is_over()
    }

    /// Whether the client is slow: nothing more should be handed in before it has taken what waits.
    pub fn is_behind(&self) -> bool {
        self.file.is_some() || !self.transport.has_room(OUTPUT_BYTES / 2, OUTPUT_BYTES)
    }

    /// Whether something waits for the client: bytes, a file, or what the application has in its hands still, because the
    /// socket took a part of it only.
    pub fn has_unsent(&self) -> bool {
        self.file.is_some() || self.transport.has_unsent()
    }

    /// All of the answer was given, and has left.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.stage == Stage::Done && !self.has_unsent() && !self.transport.is_broken
    }

    /// Bytes of the body, less what of head and body waits for the client: a figure that grows when the client takes something
    /// and stands still when it takes nothing.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.body_bytes.wrapping_sub(self.transport.unsent() as u64)
    }

    /// The last write found no room: the poll will tell when there is some.
    pub(crate) fn is_full(&self) -> bool {
        self.transport.is_full
    }

    pub fn client_is_gone(&self) -> bool {
        self.transport.is_broken
    }

    /// The client is taken for one that has gone: what waits for it is not sent any more.
    pub(crate) fn give_client_up(&mut self) {
        self.transport.is_broken = true;
    }

    /// The application has taken the connection.
    pub fn is_given_away(&self) -> bool {
        self.transport.is_given_away()
    }

    /// Sends the head now, before anything of the body: the client of a stream learns that it has begun.
    pub fn send_head(&mut self) {
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::Bytes(b""));
            self.close_head();
            self.send();
        }
    }

    /// Ends the answer: what is left of the framing is written.
    pub fn finish(&mut self) {
        if self.stage == Stage::Head {
            if self.head.content_length.is_none() {
                self.declare_length(0);
            }
            self.filter_head(FirstPart::Nothing);
            self.close_head();
        }
        if self.stage == Stage::Body {
            if self.filter.is_some() && self.file.is_none() {
                self.finish_encoding();
            }
            match self.left {
                BodyLeft::Length(left) if left > self.to_come() => {
                    self.short = true;
                    self.terms.keep_alive = false;
                }
                // What follows a file is written when that has left.
                _ if self.file.is_none() => self.end_body(),
                _ => {}
            }
        }
        self.stage = Stage::Done;
    }

    /// Ends an answer of which parts were sent within the application's call, and waits until it has left: `timeout` each time for room. A file that
    /// follows them has turns, as any other.
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

    /// Answers in the engine's own words, in place of whatever head the application has begun. Only while nothing has left.
    pub fn answer(&mut self, status: u16, reason: &str, text: &str) {
        self.answer_with(status, reason, text, &[]);
    }

    /// The same with further fields.
    pub(super) fn answer_with(&mut self, status: u16, reason: &str, text: &str, fields: &[(&str, &str)]) {
        self.transport.clear();
        self.forget_head();
        self.drop_files();
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

    /// Sends a few bytes of the protocol's own, between the frames of whatever answer is on its way. A client that is so far behind that there
    /// is no room for them is given up: they must arrive whole.
    pub(crate) fn say_aside(&mut self, bytes: &[u8]) {
        if self.response.encoder.is_within_frame() {
            self.transport.is_broken = true;
        } else if self.transport.unsent() == 0 {
            self.transport.send_whole(bytes);
        } else if self.transport.has_room(bytes.len(), OUTPUT_BYTES) {
            self.transport.outgoing.bytes.extend_from_slice(bytes);
        } else {
            self.transport.is_broken = true;
        }
    }

    /// Gives up an answer whose head has left: the connection's end tells the client that it is not whole.
    pub fn cut_off(&mut self) {
        self.filter = None;
        self.transport.ends_short = self.left == BodyLeft::Unknown && self.encoder.ends_with_connection();
        self.terms.keep_alive = false;
        self.drop_files();
        self.stage = Stage::Done;
    }

    /// The connection has other requests too.
    pub fn shares_connection(&self) -> bool {
        self.transport.is_stream()
    }

    /// Ends the answer with what was said of it so far, and the connection with it; what is still handed in goes to nobody.
    pub fn disconnect(&mut self) {
        if self.has_head() {
            self.finish();
            self.begin_turn();
            // What the client does not take at once is lost, as in uWSGI.
            self.advance();
        }
        self.terms.keep_alive = false;
        self.drop_files();
        self.stage = Stage::Done;
        self.transport.disconnect();
    }

    pub(crate) fn keeps_alive(&self) -> bool {
        let ends_with_it = self.left == BodyLeft::Unknown && self.encoder.ends_with_connection() && self.stage == Stage::Done;
        self.terms.keep_alive && !self.transport.is_broken && !ends_with_it
    }

    pub(crate) fn status_code(&self) -> u16 {
        // What an application says that has taken the connection goes to nobody: the log has what the connection was taken for.
        if self.transport.is_given_away() { 101 } else { self.head.status() }
    }

    /// What the application did against its own Content-Length, as the rest of a sentence.
    pub fn length_fault(&self) -> Option<&'static str> {
        self.broken_promise().filter(|_| self.overrun || !self.transport.is_given_away())
    }

    /// Decides how long the body is (RFC 9112 section 6.3), and has the encoder write the head.
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
        self.left = left;
        self.head_bytes = (self.transport.outgoing.bytes.len() - before) as u64;
        self.stage = Stage::Body;
    }

    /// Writes the end of the body and of the answer.
    pub(super) fn end_body(&mut self) {
        self.response.encoder.end(&mut self.transport.outgoing);
    }

    /// Sends what waits. A head leaves in one packet with the start of the file that follows.
    pub(super) fn send(&mut self) {
        let file_follows = self.file.as_ref().is_some_and(|part| part.left > 0);
        self.transport.send(file_follows);
    }

    /// Copies or sends as much of a part as there is room for; returns the bytes taken.
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

    /// The same for a part that has no frame's end in it. `is_last`: it ends the part.
    fn take_piece(&mut self, piece: &[u8], when: When, is_last: bool) -> usize {
        if piece.len() > COPY_BYTES || !self.transport.has_room(piece.len(), OUTPUT_BYTES) {
            let is_last = self.left == BodyLeft::Length(piece.len() as u64);
            let taken = self.transport.send_through(piece, is_last);
            self.account(taken);
            return taken;
        }
        self.transport.outgoing.bytes.extend_from_slice(piece);
        self.account(piece.len());
        if self.transport.is_full {
            self.transport.count_waiting();
        } else if when == When::Now && is_last {
            // The last part may wait a moment in the kernel for the answers of other requests; the others may not.
            if self.terms.may_cork && self.left == BodyLeft::Length(0) {
                self.transport.cork();
            } else {
                self.transport.send(false);
            }
        }
        piece.len()
    }

    /// So many bytes of the body are on their way.
    pub(super) fn account(&mut self, taken: usize) {
        let Response { encoder, left, body_bytes, .. } = &mut *self.response;
        *body_bytes += taken as u64;
        if let BodyLeft::Length(left) = left {
            *left -= (taken as u64).min(*left);
        }
        encoder.wrote(taken as u64, &mut self.transport.outgoing);
    }

    /// For a part of an answer that has no body. Nothing is written that would fail, so a client that has gone is looked for when it has
    /// its head: an application that gives parts without end would do so for nobody.
    fn discarded(&mut self, length: usize) -> Pushed {
        if self.transport.unsent() == 0 && self.transport.peer_has_ended() {
            self.transport.is_broken = true;
        }
        self.pushed(length, length)
    }

    /// For a part that is not sent: the head still must leave now. It counts in the turn's bytes as if it were: an application that goes on
    /// for long takes as much time for a HEAD as for a GET.
    pub(super) fn pushed(&mut self, taken: usize, offered: usize) -> Pushed {
        self.send();
        self.transport.note_sent(taken);
        match (self.transport.is_broken, taken < offered) {
            (true, _) => Pushed::Gone,
            (false, true) => Pushed::Part(taken),
            (false, false) => Pushed::All,
        }
    }

    /// Sends the last few bytes of all, whatever was sent before them, as far as the socket takes them.
    pub(crate) fn send_last(&mut self) -> Progress {
        self.begin_turn();
        self.advance()
    }

    /// Changes the head, which is complete. Returns the body in place of `part`, if it was compressed whole.
    pub(super) fn filter_head(&mut self, part: FirstPart<'_>) -> Option<Vec<u8>> {
        if self.names_file() {
            // The head is not this one: it is changed when it has become the file's.
            return None;
        }
        let mut filter = self.filter.take()?;
        let response = &mut *self.response;
        let mut log_variables = Vec::new();
        let mut head = FilteredHead {
            head: &mut response.head,
            is_unlogged: &mut response.is_unlogged,
            log_variables: &mut log_variables,
            head_only: response.terms.head_only,
        };
        let made = filter.head(&mut head, part);
        for (name, value) in &log_variables {
            self.set_log_variable(name, value);
        }
        // An encoder is all that the body still needs.
        self.filter = filter.encoder().is_some().then_some(filter);
        made
    }

    /// Sends a body that is complete and of our own making: what the client does not take at once waits here, whatever its size.
    pub(super) fn push_whole(&mut self, body: &[u8]) {
        self.close_head();
        if self.left != BodyLeft::Discard {
            self.write_framed(body);
        }
    }

    /// Gives a body that is complete, after its head.
    pub(crate) fn give_whole(&mut self, body: &[u8]) {
        self.declare_length(body.len() as u64);
        match self.filter_head(FirstPart::Bytes(body)) {
            Some(whole) => self.push_whole(&whole),
            // A body of any size that is worth an encoder of its own goes through it in `push_encoded`; this one is here already.
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

    /// An answer of the server's own with a page for its body, in place of whatever head was begun.
    pub(crate) fn answer_page(&mut self, status: u16, content_type: &str, body: &[u8]) {
        self.give_page(status, content_type, body);
        self.finish();
    }

    /// The same, and its end is somebody else's to say.
    pub(crate) fn give_page(&mut self, status: u16, content_type: &str, body: &[u8]) {
        // Digits and words of our own can't be refused.
        let _ = self.status_code_only(status);
        let _ = self.field(b"Content-Type", content_type.as_bytes());
        self.give_whole(body);
    }

    /// Takes a part of the body through the encoder.
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

    /// Ends a body that goes through an encoder.
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

    /// Writes a piece of the body behind what waits, in the frames that the protocol wants.
    pub(super) fn write_framed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let frame = self.response.encoder.open_frame(piece.len() as u64, &mut self.transport.outgoing) as usize;
            let (now, later) = piece.split_at(frame.min(piece.len()));
            self.transport.outgoing.bytes.extend_from_slice(now);
            self.account(now.len());
            piece = later;
        }
    }

    /// An encoder that writes into memory has no error but the end of memory. The body can't be ended, and the connection's end says so.
    pub(super) fn encoder_failed(&mut self) -> Pushed {
        self.filter = None;
        self.transport.is_broken = true;
        Pushed::Gone
    }
}
