//! An answer as a language sees it: everything that an adapter may do to it, and everything that it may know of it. The engine
//! lends one to each call of [`crate::app::App`].
//!
//! Behind this face are encoders, buffers, the socket and the turns of connections, in `response`, which no adapter sees. Every
//! language binds all of its calls, so there is one for each purpose. It does not know about languages. Worker threads run it.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use bolide_scoreboard::Recorder;

pub use crate::response::notes::Notes;
use crate::response::{BELONGS_TO_SERVER, ResponseWriter, end_given_up, reason_phrase};
pub use crate::response::{HeadRefusal, Progress, Pushed, Stage, When};
pub use crate::sockets::socket::wait_for_client;
use crate::sockets::taken_connections::TakenConnections;
pub use crate::sockets::transport::RoomWait;

/// An answer, lent for the time of a call.
pub struct Answer<'a> {
    writer: ResponseWriter<'a>,
}

/// The status of an answer.
#[derive(Debug, Clone, Copy)]
pub enum Status<'a> {
    /// Three digits, and behind a space a reason phrase.
    Line(&'a [u8]),
    /// With the standard reason phrase of RFC 9110 section 15.
    Code(u16),
}

/// What is done with a field that only the server may set: PEP 3333 forbids hop-by-hop fields to applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFields {
    Refused,
    /// The field is dropped, and what the application means by it is done: `Connection: close` closes the connection. With
    /// `frames_chunks`, `Transfer-Encoding: chunked` says that the application's body consists of chunks.
    Dropped {
        frames_chunks: bool,
    },
}

/// What has become of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Set,
    Dropped,
}

/// How much of a body a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileIs {
    /// All of it, so its length is the answer's.
    TheBody,
    /// A part. No other part may be pushed before it has been sent ([`Answer::sends_file`]).
    APart,
}

/// What follows the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Code of the application runs before the connection is served again, so the client is shown the end now.
    ApplicationRuns,
    RequestEnds,
}

/// The end of an answer that is not what the application wanted to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// An answer of the server's own with this status. If a part of the application's has left, it is cut off instead.
    Status(u16),
    /// RFC 9110 section 15.6.4: the application has as many requests as it may have.
    Busy,
    /// The answer ends in the middle, and the end of the connection shows it.
    CutOff,
    /// The application has given the request up because its client left. If no part of the answer was sent, none is. The request
    /// then ends without a status, because neither the application nor the server has failed.
    ClientLeft,
    /// The answer ends in its current state, and the connection with it. Data that the client does not read immediately is lost,
    /// as in uWSGI.
    Disconnect,
}

/// A response before the answer.
#[derive(Debug, Clone, Copy)]
pub enum Interim<'a> {
    /// RFC 9110 section 10.1.1: the client may send the body.
    Continue,
    /// RFC 8297, with a Link field for each.
    EarlyHints(&'a [&'a [u8]]),
    /// RFC 9110 section 15.2: a status between 102 and 199, with any fields.
    Status(u16, &'a [(&'a [u8], &'a [u8])]),
}

/// The facts of a body that an adapter needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyFacts {
    /// The application's own Content-Length, if the body must have this length.
    pub announced: Option<u64>,
    /// The application has set the length that the body has, or would have.
    pub has_length: bool,
    /// The answer consists of a head without a body (RFC 9110 sections 9.3.2, 15.3.5 and 15.4.5): it is complete after the head.
    pub is_dropped: bool,
    /// The body may be compressed.
    pub is_filtered: bool,
    /// The application's body consists of chunks, so its parts must be pushed as bytes.
    pub is_chunked: bool,
    /// Trailer fields follow the body.
    pub has_trailers: bool,
}

impl<'a> Answer<'a> {
    #[inline(always)]
    pub(crate) fn of(writer: &'a mut ResponseWriter<'_>) -> Answer<'a> {
        Answer { writer: writer.reborrow() }
    }

    /// What is behind the face, for the engine.
    pub(crate) fn writer(&self) -> &ResponseWriter<'_> {
        &self.writer
    }

    pub(crate) fn writer_mut(&mut self) -> &mut ResponseWriter<'a> {
        &mut self.writer
    }

    /// Returns another face of the same answer, for a caller that can't use this one where it is.
    pub fn reborrow(&mut self) -> Answer<'_> {
        Answer::of(&mut self.writer)
    }

    // Its state.

    /// How far the answer has come.
    #[inline]
    pub fn stage(&self) -> Stage {
        self.writer.stage()
    }

    /// The client has disconnected: nothing reaches it any more.
    pub fn client_is_gone(&self) -> bool {
        self.writer.client_is_gone()
    }

    /// The application has taken over the connection.
    pub fn is_taken_over(&self) -> bool {
        self.writer.is_given_away()
    }

    /// A part of a file waits to be sent.
    pub fn sends_file(&self) -> bool {
        self.writer.has_file()
    }

    #[inline]
    pub fn body(&self) -> BodyFacts {
        BodyFacts {
            announced: self.writer.announced_length(),
            has_length: self.writer.has_length(),
            is_dropped: self.writer.has_no_body(),
            is_filtered: self.writer.is_filtered(),
            is_chunked: self.writer.decodes_parts(),
            has_trailers: self.writer.wants_trailers(),
        }
    }

    /// How the application has violated its own Content-Length, as the rest of a sentence.
    pub fn length_fault(&self) -> Option<&'static str> {
        self.writer.length_fault()
    }

    /// The client reads in time, and has not had its turn: the application may go on. Otherwise it waits until the engine resumes
    /// it, or tells it of a client event.
    pub fn has_room(&self) -> bool {
        !self.writer.is_behind() && !self.turn_is_over()
    }

    /// The client's turn is over: producers of more data stop until other connections have had theirs.
    #[inline]
    pub fn turn_is_over(&self) -> bool {
        self.writer.turn_is_over()
    }

    /// The socket of the connection. It stays the server's.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.writer.socket()
    }

    // The head. It may be changed until something has been sent.

    /// Begins the head, or begins it again.
    ///
    /// # Errors
    /// The status is not a final one of three digits, or its reason contains control characters.
    pub fn begin(&mut self, status: Status<'_>) -> Result<(), HeadRefusal> {
        match status {
            Status::Line(line) => self.writer.status(line),
            Status::Code(code) => self.writer.status_code_only(code),
        }
    }

    /// Adds a field to the head.
    ///
    /// # Errors
    /// One sentence: the name is not a token, the value has control characters, or only the server may set the field.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8], server_fields: ServerFields) -> Result<Field, HeadRefusal> {
        match (self.writer.field(name, value), server_fields) {
            (Ok(()), _) => Ok(Field::Set),
            (Err(BELONGS_TO_SERVER), ServerFields::Dropped { frames_chunks }) => {
                self.writer.drop_field(name, value, frames_chunks);
                Ok(Field::Dropped)
            }
            (Err(refusal), _) => Err(refusal),
        }
    }

    /// Trailer fields will follow the body. Called before the fields of the head, one of which may be Trailer.
    pub fn announce_trailers(&mut self) {
        self.writer.announce_trailers();
    }

    /// Sets the length of the body, if the application has not set it and the adapter knows it.
    pub fn set_length(&mut self, length: u64) {
        self.writer.declare_length(length);
    }

    /// Discards a head that was refused, if nothing has been sent.
    pub fn retract(&mut self) {
        self.writer.drop_head();
    }

    // The body.

    /// Accepts a part of the body. An empty part does nothing, and does not even send the head.
    #[inline]
    pub fn push(&mut self, part: &[u8], when: When) -> Pushed {
        self.writer.push(part, when)
    }

    /// As [`Answer::push`], for a call that can't be suspended, such as `write()`. The client's turn does not end in it. After
    /// [`Pushed::Part`] the caller waits ([`Answer::room`]) and writes the rest. An empty rest means that data was accepted, and
    /// must be sent before the call returns.
    pub fn write(&mut self, part: &[u8]) -> Pushed {
        self.writer.begin_turn();
        if part.is_empty() || self.writer.has_file() {
            match self.writer.advance() {
                Progress::Done if part.is_empty() => return Pushed::All,
                Progress::Done => {}
                Progress::Blocked => return Pushed::Part(0),
                Progress::Broken => return Pushed::Gone,
            }
        }
        match self.writer.push(part, When::Now) {
            // A stream's data would be sent in the stream's own turn, and its client may wait for that while all threads are in
            // such calls.
            Pushed::All if self.writer.holds_call() => Pushed::Part(part.len()),
            pushed => pushed,
        }
    }

    /// Returns the wait for a client that must read first. The wait owns all that it needs, so the answer may be elsewhere in the
    /// meantime. `None`: there is nothing to wait for but the turns of other connections.
    pub fn room(&mut self) -> Option<RoomWait> {
        self.writer.wants_room().then(|| self.writer.room_wait())
    }

    /// Goes on after such a wait. A client that has read nothing in its time has disconnected.
    pub fn waited(&mut self, has_room: bool) {
        self.writer.room_came(has_room);
    }

    /// Accepts `length` bytes of a file from `offset`, which are sent in turns.
    pub fn push_file(&mut self, file: File, offset: i64, length: u64, is: FileIs) {
        if is == FileIs::TheBody {
            self.writer.declare_length(length);
        }
        self.writer.push_file_part(file, offset, length);
    }

    /// Sends what was accepted, and the head, as far as the client reads: it does not wait for the next part.
    pub fn flush(&mut self) -> Progress {
        self.writer.send_head();
        self.writer.advance()
    }

    /// Adds a trailer field; the first one ends the body. Only chunked bodies can have them (RFC 9112 section 7.1.2): with any
    /// other framing they are dropped.
    ///
    /// # Errors
    /// The name is not a token, or the value has control characters.
    pub fn trailer(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadRefusal> {
        self.writer.trailer(name, value)
    }

    /// Ends the answer, and sends it as far as the client reads. The engine sends the rest.
    #[inline]
    pub fn finish(&mut self, then: Then) -> Progress {
        self.writer.complete(then == Then::ApplicationRuns)
    }

    /// Parts of the answer were written in the call, on a connection that carries other requests: its end must be written in the
    /// call too ([`Answer::finish_in_call`]). Asked after the application's call.
    #[inline]
    pub fn was_sent_in_call(&self) -> bool {
        self.writer.was_sent_in_call()
    }

    /// Ends such an answer, and waits until it has been sent, at most `timeout` for each time that the client must read first. A
    /// file after it is sent in turns, like any other. The caller does not hold the language.
    pub fn finish_in_call(&mut self, timeout: Duration) {
        self.writer.finish_in_call(timeout);
    }

    // What is not an answer of the application.

    /// Ends the answer otherwise.
    pub fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Status(_) if self.stage() >= Stage::Body => self.writer.cut_off(),
            Failure::Status(code) => self.writer.answer(code, reason_phrase(code), reason_phrase(code)),
            Failure::Busy => self.writer.answer_busy(),
            Failure::CutOff => self.writer.cut_off(),
            Failure::ClientLeft => end_given_up(&mut self.writer),
            Failure::Disconnect => self.writer.disconnect(),
        }
    }

    /// The request has waited too long, and is refused.
    pub(crate) fn refuse(&mut self, retry_after: &str) {
        self.writer.answer_overloaded(retry_after);
    }

    /// Sends a response before the answer, immediately. It is only a hint, so clients of HTTP/1.0, reverse proxies that speak
    /// uwsgi, and clients whose socket is full do not get it.
    ///
    /// # Errors
    /// The answer has begun, the status or a field is invalid or belongs to the server, or the fields have more than 64 KiB.
    pub fn inform(&mut self, interim: Interim<'_>) -> Result<(), HeadRefusal> {
        match interim {
            Interim::Continue => {
                self.writer.say_continue();
                Ok(())
            }
            Interim::EarlyHints(links) => self.writer.early_hints(links),
            Interim::Status(status, fields) => self.writer.informational(status, fields),
        }
    }

    /// Passes the connection to the application, as a duplicate descriptor. The server no longer reads or sends on it, and
    /// closing its own descriptor does not end the connection. `slot` is the request's.
    ///
    /// # Errors
    /// Part of an answer has already been sent, or no more descriptors or threads are available.
    pub fn take_over(&mut self, taken: &'static TakenConnections, slot: Option<Recorder<'static>>) -> io::Result<OwnedFd> {
        self.writer.give_away(taken, slot)
    }

    /// Closes the connection after this answer. Changes the head only until it is sent.
    pub fn close_after(&mut self) {
        self.writer.close_after();
    }

    /// The exchange's log line and limits.
    pub fn notes(&mut self) -> &mut Notes {
        &mut self.writer.notes
    }
}
