//! One answer on its way out: the head, how the body is framed, what the client has not taken yet.
//!
//! The head waits until the first part of the body (PEP 3333, "The start_response() Callable"), so that both
//! leave in one write. A body that the client is slow to take stays here up to [`OUTPUT_BYTES`]; beyond that
//! the application's iterator is suspended. It knows no language and no log; a worker's threads run it.

mod filtered;
mod informational;
mod sending;
mod static_body;
mod x_sendfile;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::fields::{Known, decimal, is_field_value, is_token, known_field};
use crate::outbox::Outbox;
use crate::response_filters::{Body, ResponseFilter};
use crate::socket;
pub use crate::socket::wait_for_room;
use crate::x_sendfile::XSendfile;
pub(crate) use informational::reason_phrase;

/// What a response holds back for a slow client, in bytes, before its iterator is suspended.
pub const OUTPUT_BYTES: usize = 64 * 1024;

/// Parts of a body up to this many bytes are copied behind the head; larger ones go out from where they are.
const COPY_BYTES: usize = 16 * 1024;

/// Bytes of a status line and of a field that an application may set.
const FIELD_BYTES: usize = 64 * 1024;

/// What the connection and the request say about how to answer.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub style: Style,
    /// The client speaks HTTP/1.1: it understands chunks.
    pub chunks: bool,
    pub head_only: bool,
    pub keep_alive: bool,
    /// Others wait to be served: a small answer may leave together with theirs.
    pub may_cork: bool,
    pub date_line: [u8; 37],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// We are the origin server: Date, Server and the connection are ours to manage.
    Http { version_1_0: bool },
    /// Behind a front server that does all that; the end of the connection ends the body.
    Uwsgi,
}

/// How far the answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fresh,
    Head,
    Body,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Bytes that the announced length still wants.
    Length(u64),
    Chunked,
    UntilClose,
    /// HEAD, 1xx, 204, 304: whatever the application says is counted and not sent.
    Discard,
}

/// What became of a part of the body.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    All,
    /// The client is slow, or has had its turn; only this many bytes were taken. Offer the rest after a resume.
    Part(usize),
    /// The client has gone.
    Gone,
}

/// When a part of the body must leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before the application goes on (PEP 3333: no block may be delayed).
    Now,
    /// More follows at once, without the application having its turn.
    WithTheNext,
}

/// How far sending has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    Blocked,
    Broken,
}

/// Why a header field or status of an application is refused: one sentence for its log.
pub type HeadRefusal = &'static str;

pub struct Response {
    out: Outbox,
    stage: Stage,
    framing: Framing,
    /// Bytes of the present chunk that are still to come, its frame being open.
    frame_left: usize,
    terms: Terms,
    status: u16,
    content_length: Option<u64>,
    /// The length is told by the server: the application did not say it.
    is_length_declared: bool,
    has_date: bool,
    has_server: bool,
    overrun: bool,
    short: bool,
    /// The body's end is not the answer's: trailer fields follow it.
    has_trailers: bool,
    /// Where the application may name a file in place of a body: what is needed to send it.
    x_sendfile: Option<Box<XSendfile>>,
    /// The body is a file that the application has named: what it says itself as a body is not sent.
    file_replaces_body: bool,
    /// What is changed in this answer on its way; `None` for nothing.
    filter: Option<Box<ResponseFilter>>,
    /// A route wants no log line.
    pub(crate) is_unlogged: bool,
    /// A route's limit for the time of this request, in milliseconds.
    pub(crate) harakiri_ms: Option<u32>,
    /// For the log: fields that the application set, bytes of the head, bytes of the body.
    pub header_count: u32,
    pub head_bytes: u64,
    pub body_bytes: u64,
    pub sent_file: bool,
}

impl Response {
    pub(crate) fn new(socket: OwnedFd) -> Response {
        let style = Style::Http { version_1_0: false };
        let terms = Terms { style, chunks: true, head_only: false, keep_alive: false, may_cork: false, date_line: [b' '; 37] };
        Response {
            out: Outbox::new(socket),
            stage: Stage::Fresh,
            framing: Framing::UntilClose,
            frame_left: 0,
            terms,
            status: 0,
            content_length: None,
            is_length_declared: false,
            has_date: false,
            has_server: false,
            overrun: false,
            short: false,
            has_trailers: false,
            x_sendfile: None,
            file_replaces_body: false,
            filter: None,
            is_unlogged: false,
            harakiri_ms: None,
            header_count: 0,
            head_bytes: 0,
            body_bytes: 0,
            sent_file: false,
        }
    }

    /// Begins the next answer, with a buffer to write it into.
    pub(crate) fn begin(&mut self, terms: Terms, buffer: Vec<u8>) {
        debug_assert!(self.out.unsent() == 0);
        self.out.bytes = buffer;
        self.out.bytes.clear();
        self.out.sent = 0;
        self.terms = terms;
        self.out.drop_files();
        self.sent_file = false;
        self.body_bytes = 0;
        self.overrun = false;
        self.short = false;
        self.has_trailers = false;
        self.x_sendfile = None;
        self.file_replaces_body = false;
        self.framing = Framing::UntilClose;
        self.frame_left = 0;
        self.filter = None;
        self.is_unlogged = false;
        self.harakiri_ms = None;
        self.forget_head();
    }

    /// Takes the buffer back when everything has left, so that idle connections own none.
    pub(crate) fn buffer_back(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out.bytes)
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.out.socket.as_fd()
    }

    /// Starts the head, or starts it anew: an application may change its mind while nothing has left.
    ///
    /// # Errors
    /// The status is not three digits, a space and a reason without control characters.
    pub fn status(&mut self, status: &[u8]) -> Result<(), HeadRefusal> {
        let Some((code, _)) = status.split_at_checked(3).filter(|(code, _)| code.iter().all(u8::is_ascii_digit)) else {
            return Err("the status does not begin with three digits");
        };
        if status.get(3).is_some_and(|byte| *byte != b' ') {
            return Err("the status has no space after its three digits");
        }
        if !is_field_value(status) || status.len() > FIELD_BYTES {
            return Err("the status has control characters in it or is too long");
        }
        let code = code.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        if code < 200 {
            return Err("the status is not a final one (200 or above)");
        }
        self.out.bytes.clear();
        self.forget_head();
        self.status = code;
        self.stage = Stage::Head;
        self.out.bytes.extend_from_slice(b"HTTP/1.1 ");
        self.out.bytes.extend_from_slice(status);
        self.out.bytes.extend_from_slice(if status.len() == 3 { b" \r\n" } else { b"\r\n" });
        Ok(())
    }

    /// Adds a field to the head.
    ///
    /// # Errors
    /// One sentence: the name is no token, the value has control characters, or the field is the server's to set
    /// (PEP 3333 forbids hop-by-hop fields to applications).
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadRefusal> {
        if !is_token(name) {
            return Err("its name is not a token (letters, digits and !#$%&'*+-.^_`|~)");
        }
        if !is_field_value(value) {
            return Err("its value has a control character in it (a line break, say)");
        }
        if name.len() + value.len() > FIELD_BYTES {
            return Err("it is longer than 64 KiB");
        }
        match known_field(name) {
            Some(Known::ContentLength) => {
                let length = decimal(value).ok_or("its value is not a number")?;
                if self.status == 204 {
                    // RFC 9110 section 8.6 forbids it there, and frameworks set it.
                    return Ok(());
                }
                if self.content_length.is_some_and(|before| before != length) {
                    return Err("it is there twice, with different values");
                }
                if self.content_length.replace(length).is_some() {
                    return Ok(());
                }
            }
            Some(Known::Date) => self.has_date = true,
            Some(Known::Server) => self.has_server = true,
            Some(Known::NamesFile(by)) if self.note_file(by, value) => return Ok(()),
            Some(Known::Trailer) if self.has_trailers => {}
            Some(Known::HopByHop | Known::Trailer) => return Err("it is hop-by-hop, and the server's business (PEP 3333)"),
            Some(Known::NamesFile(_)) | None => {}
        }
        self.out.bytes.extend_from_slice(name);
        self.out.bytes.extend_from_slice(b": ");
        self.out.bytes.extend_from_slice(value);
        self.out.bytes.extend_from_slice(b"\r\n");
        self.header_count += 1;
        Ok(())
    }

    /// Forgets a head that turned out to be wrong, while nothing has left.
    pub fn drop_head(&mut self) {
        if self.stage == Stage::Head {
            self.out.bytes.clear();
            self.forget_head();
        }
    }

    /// True once a status was given.
    pub fn has_head(&self) -> bool {
        self.stage != Stage::Fresh
    }

    /// True once the head can't be changed any more.
    pub fn head_has_left(&self) -> bool {
        matches!(self.stage, Stage::Body | Stage::Done)
    }

    /// Says how long the body will be, when the application did not and the adapter can tell.
    pub fn declare_length(&mut self, length: u64) {
        // RFC 9110 section 8.6: what an empty answer to HEAD would have been for GET is not known.
        if self.terms.head_only && length == 0 {
            return;
        }
        if self.stage == Stage::Head && self.content_length.is_none() && !self.is_bodiless_status() {
            self.content_length = Some(length);
            self.is_length_declared = true;
            let mut digits = itoa::Buffer::new();
            self.out.bytes.extend_from_slice(b"Content-Length: ");
            self.out.bytes.extend_from_slice(digits.format(length).as_bytes());
            self.out.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Takes a part of the body. An empty one changes nothing, and does not send the head.
    pub fn push(&mut self, part: &[u8], when: When) -> Pushed {
        if self.out.is_broken {
            return Pushed::Gone;
        }
        if part.is_empty() {
            return Pushed::All;
        }
        if self.stage == Stage::Head {
            if let Some(whole) = self.filter_head(Body::Part(part)) {
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
        let allowed = match self.framing {
            Framing::Discard => {
                self.body_bytes += part.len() as u64;
                return if when == When::Now { self.discarded(part.len()) } else { Pushed::All };
            }
            Framing::Length(left) => left.min(part.len() as u64) as usize,
            Framing::Chunked | Framing::UntilClose => part.len(),
        };
        self.overrun |= allowed < part.len();
        let wanted = &part[..allowed];
        self.open_frame(allowed);
        let taken = self.take(wanted, when);
        self.account(taken);
        if self.out.is_broken {
            return Pushed::Gone;
        }
        if taken < allowed { Pushed::Part(taken) } else { Pushed::All }
    }

    /// Whether something waits for the client: `write()`, which can't be suspended, then waits for the socket by itself
    /// ([`wait_for_room`]) and goes on with [`Response::room_came`].
    pub fn wants_room(&self) -> bool {
        self.out.wants_room()
    }

    /// Goes on after such a wait.
    pub fn room_came(&mut self, has_room: bool) {
        self.out.room_came(has_room);
    }

    /// The client may be sent another turn's bytes.
    pub fn begin_turn(&mut self) {
        self.out.begin_turn();
    }

    /// The client has been sent a turn's bytes: what produces more stops until the others have had their turn.
    pub fn turn_is_over(&self) -> bool {
        self.out.turn_is_over()
    }

    /// Ends the answer: what is left of the framing is written.
    pub fn finish(&mut self) {
        if self.stage == Stage::Head {
            if self.content_length.is_none() {
                self.declare_length(0);
            }
            self.filter_head(Body::Nothing);
            self.close_head();
        }
        if self.stage == Stage::Body {
            if self.filter.is_some() && self.out.file.is_none() {
                self.finish_encoding();
            }
            match self.framing {
                Framing::Chunked if self.out.file.is_none() => self.end_chunks(),
                Framing::Length(left) if left > self.out.to_come() => {
                    self.short = true;
                    self.terms.keep_alive = false;
                }
                _ => {}
            }
        }
        self.stage = Stage::Done;
    }

    /// Answers in the engine's own words, in place of whatever head the application has begun. Only while nothing has left.
    pub fn answer(&mut self, status: u16, reason: &str, text: &str) {
        self.answer_with(status, reason, text, "");
    }

    /// The same with further fields, each a whole line.
    fn answer_with(&mut self, status: u16, reason: &str, text: &str, fields: &str) {
        self.out.bytes.clear();
        self.forget_head();
        self.status = status;
        self.stage = Stage::Head;
        self.out.drop_files();
        let mut digits = itoa::Buffer::new();
        self.out.bytes.extend_from_slice(b"HTTP/1.1 ");
        self.out.bytes.extend_from_slice(digits.format(status).as_bytes());
        self.out.bytes.extend_from_slice(b" ");
        self.out.bytes.extend_from_slice(reason.as_bytes());
        self.out.bytes.extend_from_slice(b"\r\nContent-Type: text/plain; charset=utf-8\r\n");
        self.out.bytes.extend_from_slice(fields.as_bytes());
        self.declare_length(text.len() as u64);
        self.push(text.as_bytes(), When::WithTheNext);
        self.finish();
    }

    /// Gives up an answer whose head has left: the connection's end tells the client that it is not whole.
    pub fn cut_off(&mut self) {
        self.filter = None;
        self.terms.keep_alive = false;
        self.out.drop_files();
        self.stage = Stage::Done;
    }

    /// The connection closes after this answer. Has an effect on the head only while it has not been closed.
    pub fn close_after(&mut self) {
        self.terms.keep_alive = false;
    }

    /// Whether the kernel keeps the last answer until it is pushed. Asking forgets it.
    pub(crate) fn take_corked(&mut self) -> bool {
        std::mem::take(&mut self.out.is_corked)
    }

    /// The last write found no room: the poll will tell when there is some.
    pub(crate) fn is_full(&self) -> bool {
        self.out.is_full
    }

    pub(crate) fn keeps_alive(&self) -> bool {
        self.terms.keep_alive && !self.out.is_broken && !(self.framing == Framing::UntilClose && self.stage == Stage::Done)
    }

    pub(crate) fn status_code(&self) -> u16 {
        // What an application says that has taken the connection goes to nobody: the log has what the connection was taken for.
        if self.out.is_given_away { 101 } else { self.status }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.out.is_broken
    }

    /// What the application did against its own Content-Length, as the rest of a sentence.
    pub fn length_fault(&self) -> Option<&'static str> {
        if self.terms.head_only {
            None
        } else if self.overrun {
            Some("sent more than its Content-Length; the rest was cut")
        } else if self.short && !self.out.is_given_away {
            Some("sent less than its Content-Length; the connection is closed")
        } else {
            None
        }
    }

    fn forget_head(&mut self) {
        self.stage = Stage::Fresh;
        self.status = 0;
        self.content_length = None;
        self.is_length_declared = false;
        self.has_date = false;
        self.has_server = false;
        if let Some(x_sendfile) = &mut self.x_sendfile {
            x_sendfile.named = None;
        }
        self.header_count = 0;
        self.head_bytes = 0;
    }

    fn is_bodiless_status(&self) -> bool {
        matches!(self.status, 204 | 304)
    }

    /// Decides the framing (RFC 9112 section 6.3) and writes the fields that are ours.
    fn close_head(&mut self) {
        if let Some(x_sendfile) = self.x_sendfile.take().filter(|x_sendfile| x_sendfile.named.is_some()) {
            return self.hand_over(*x_sendfile);
        }
        self.framing = match self.content_length {
            _ if self.is_bodiless_status() || self.terms.head_only => Framing::Discard,
            Some(length) => Framing::Length(length),
            None if self.terms.chunks && self.terms.style != Style::Uwsgi => Framing::Chunked,
            None => Framing::UntilClose,
        };
        if let Style::Http { version_1_0 } = self.terms.style {
            if !self.has_date {
                self.out.bytes.extend_from_slice(&self.terms.date_line);
            }
            if !self.has_server {
                self.out.bytes.extend_from_slice(b"Server: bolide\r\n");
            }
            match self.framing {
                Framing::Chunked => self.out.bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
                Framing::UntilClose => self.terms.keep_alive = false,
                Framing::Length(_) | Framing::Discard => {}
            }
            match (self.terms.keep_alive, version_1_0) {
                (false, _) => self.out.bytes.extend_from_slice(b"Connection: close\r\n"),
                (true, true) => self.out.bytes.extend_from_slice(b"Connection: keep-alive\r\n"),
                (true, false) => {}
            }
        }
        self.out.bytes.extend_from_slice(b"\r\n");
        self.head_bytes = self.out.bytes.len() as u64;
        self.stage = Stage::Body;
    }

    fn end_chunks(&mut self) {
        if self.framing == Framing::Chunked {
            self.out.bytes.extend_from_slice(b"0\r\n\r\n");
        }
    }

    fn open_frame(&mut self, length: usize) {
        if self.framing == Framing::Chunked && self.frame_left == 0 && length > 0 {
            self.frame_left = length;
            self.out.bytes.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        }
    }

    /// Copies or sends as much of a part as there is room for; returns the bytes taken.
    fn take(&mut self, part: &[u8], when: When) -> usize {
        if part.len() <= COPY_BYTES && self.out.has_room(part.len(), OUTPUT_BYTES) {
            self.out.bytes.extend_from_slice(part);
            if self.framing == Framing::Chunked && self.frame_left == part.len() {
                self.out.bytes.extend_from_slice(b"\r\n");
            }
            if self.out.is_full {
                self.out.count_waiting();
            } else if when == When::Now {
                // The last part may wait a moment in the kernel for the answers of other requests; the others may not.
                if self.terms.may_cork && self.framing == Framing::Length(part.len() as u64) {
                    self.out.hold();
                } else {
                    self.out.send();
                }
            }
            return part.len();
        }
        let taken = self.out.send_through(part);
        if taken == part.len() && self.framing == Framing::Chunked && self.frame_left == taken {
            self.out.bytes.extend_from_slice(b"\r\n");
        }
        taken
    }

    fn account(&mut self, taken: usize) {
        self.body_bytes += taken as u64;
        match &mut self.framing {
            Framing::Length(left) => *left -= taken as u64,
            Framing::Chunked => self.frame_left -= taken,
            Framing::UntilClose | Framing::Discard => {}
        }
    }

    /// For a part of an answer that has no body. Nothing is written that would fail, so a client that has gone is looked for when it has
    /// its head: an application that gives parts without end would do so for nobody.
    fn discarded(&mut self, length: usize) -> Pushed {
        if self.out.unsent() == 0 && socket::has_ended(self.out.socket.as_fd()) {
            self.out.is_broken = true;
        }
        self.pushed(length, length)
    }

    /// For a part that is not sent: the head still must leave now. It counts in the turn's bytes as if it were: an application that goes on
    /// for long takes as much time for a HEAD as for a GET.
    fn pushed(&mut self, taken: usize, offered: usize) -> Pushed {
        self.out.send();
        self.out.note_sent(taken);
        match (self.out.is_broken, taken < offered) {
            (true, _) => Pushed::Gone,
            (false, true) => Pushed::Part(taken),
            (false, false) => Pushed::All,
        }
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
