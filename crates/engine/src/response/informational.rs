//! The parts of an answer beyond status, fields and body: bytes between its frames, interim responses, trailer fields, the switch
//! to WebSocket and its refusal, fields that belong to the server, bodies that an application frames itself, and a socket that
//! the application takes over.
//!
//! It does not know about languages. The thread that serves the request runs it.

use std::io;
use std::os::fd::OwnedFd;

use bolide_protocol::http1::is_token;
use bolide_protocol::response::Wire;
use bolide_scoreboard::Recorder;

use super::body::{BodyLeft, Trailers};
use super::writer::ResponseWriter;
use super::{FIELD_BYTES, HeadRefusal, OUTPUT_BYTES, Pushed, Response, Stage, When, reason_phrase};
use crate::response::fields::{Known, has_word, is_field_value, known_field};
use crate::response::filters::FirstPart;
use crate::response::own_chunks::{MORE_BEHIND, NO_CHUNKS, OwnChunk, OwnChunks};
use crate::sockets::taken_connections::TakenConnections;

/// Maximum size of the fields of an interim response, in bytes. A client reads it in one piece, before the answer.
const INTERIM_BYTES: usize = 64 * 1024;

/// Returns the status of an interim response with its phrase, if the application may send it.
fn interim_status(status: u16) -> Result<String, HeadRefusal> {
    match status {
        100 => Err("100 is sent by the server, when the application asks for the body"),
        101 => Err("101 changes the protocol, which the server does itself"),
        102 => Ok("102 Processing".to_owned()),
        103 => Ok("103 Early Hints".to_owned()),
        // draft-ietf-httpbis-resumable-upload
        104 => Ok("104 Upload Resumption Supported".to_owned()),
        // RFC 9112 section 4: a status without a phrase of its own keeps the space.
        105..=199 => Ok(format!("{status} ")),
        _ => Err("the status of an informational response is between 102 and 199"),
    }
}

impl Response {
    /// The answer will have trailer fields; it ends with [`ResponseWriter::finish_trailers`].
    pub fn announce_trailers(&mut self) {
        self.body.trailers = Trailers::Announced;
    }

    pub fn wants_trailers(&self) -> bool {
        self.body.trailers != Trailers::None
    }

    /// Drops a field that [`Response::field`] refuses because it belongs to the server, and does what the application means by
    /// it. `frames_chunks`: a body with `Transfer-Encoding: chunked` consists of chunks.
    #[cold]
    pub fn drop_field(&mut self, name: &[u8], value: &[u8], frames_chunks: bool) {
        // It means the connection with the client. That with a reverse proxy is the reverse proxy's (FastCGI 1.0 section 5.1).
        let is_clients = matches!(self.encoder.wire(), Wire::Http11 | Wire::Http10);
        if is_clients && name.eq_ignore_ascii_case(b"connection") && has_word(value, b"close") {
            self.close_after();
        }
        if frames_chunks && name.eq_ignore_ascii_case(b"transfer-encoding") && has_word(value, b"chunked") {
            self.body.own_chunks = Some(Box::default());
            // RFC 9112 section 6.3: the coding overrides a length, which counted the chunks.
            self.head.content_length = None;
            self.head.remove(b"content-length");
        }
    }

    /// Adds a field about the connection with the client, which belongs to the server.
    pub(crate) fn field_of_connection(&mut self, name: &[u8], value: &[u8]) {
        self.head.add_own(name, value);
    }

    /// Whether the parts of the body must be pushed as bytes, because they are decoded.
    pub fn decodes_parts(&self) -> bool {
        self.body.own_chunks.is_some()
    }
}

impl ResponseWriter<'_> {
    /// As [`ResponseWriter::push`], for a part that consists of chunks.
    #[cold]
    pub(super) fn push_chunks(&mut self, mut own: Box<OwnChunks>, part: &[u8], when: When) -> Pushed {
        if self.has_no_body() || self.names_file() {
            return self.push(part, when);
        }
        let mut rest = part;
        loop {
            match own.next(rest) {
                OwnChunk::Data { data, used } => match self.push(data, When::WithTheNext) {
                    Pushed::All => rest = &rest[used..],
                    Pushed::Part(taken) => {
                        let used = used - (data.len() - taken);
                        own.take_only(rest, used);
                        self.body.own_chunks = Some(own);
                        return Pushed::Part(part.len() - rest.len() + used);
                    }
                    Pushed::Gone => return Pushed::Gone,
                },
                OwnChunk::More => break,
                OwnChunk::End { is_exact } => {
                    self.body.chunk_fault = self.body.chunk_fault.or((!is_exact).then_some(MORE_BEHIND));
                    break;
                }
                OwnChunk::Malformed => {
                    self.end_in_chunks();
                    return Pushed::Gone;
                }
            }
        }
        self.body.own_chunks = Some(own);
        if when == When::Now {
            // A part without data sends the head, as any other part does.
            self.send_head();
            self.send();
        }
        if self.client_is_gone() { Pushed::Gone } else { Pushed::All }
    }

    /// Ends an answer whose chunks are malformed or incomplete: the client must not take its body for a complete one.
    #[cold]
    pub(super) fn end_in_chunks(&mut self) {
        self.send_head();
        self.send();
        self.body.chunk_fault = Some(NO_CHUNKS);
        self.cut_off();
    }

    /// Whether the last chunk of an application's own chunks is missing.
    pub(super) fn lacks_last_chunk(&mut self) -> bool {
        let may_lack = !self.has_no_body() && !self.names_file();
        let own = self.body.own_chunks.as_mut().filter(|_| may_lack);
        own.is_some_and(|own| !own.is_complete())
    }

    /// Sends a few bytes of the protocol between the frames of the current answer. If there is no room for them, the client is
    /// disconnected, because they must arrive completely.
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

    /// RFC 9110 section 10.1.1: the client may send the body. If the socket has no room for 25 bytes, only the final answer is
    /// sent, which is allowed. Does nothing after the answer has begun.
    pub fn say_continue(&mut self) {
        if self.stage == Stage::Fresh {
            self.interim("100 Continue", &[]);
        }
    }

    /// RFC 8297: sends `103 Early Hints` with a Link field for each of `links`, immediately. Clients of HTTP/1.0, reverse proxies
    /// that speak uwsgi, and clients whose socket has no room don't get it: it is only a hint.
    ///
    /// # Errors
    /// The head of the answer already exists, a link has a control character in it, or the links are too many.
    pub fn early_hints(&mut self, links: &[&[u8]]) -> Result<(), HeadRefusal> {
        if self.stage != Stage::Fresh {
            return Err("early hints must precede the response");
        }
        let fields: Vec<(&[u8], &[u8])> = links.iter().map(|link| (&b"Link"[..], *link)).collect();
        self.informational(103, &fields)
    }

    /// RFC 9110 section 15.2: sends an interim response with this status and any fields, on the same terms as
    /// [`ResponseWriter::early_hints`]. After the head has been sent it does nothing, as under gunicorn.
    ///
    /// # Errors
    /// The status is not the application's to send, or a field is not well-formed, belongs to the server, or they are too many.
    pub fn informational(&mut self, status: u16, fields: &[(&[u8], &[u8])]) -> Result<(), HeadRefusal> {
        let status = interim_status(status)?;
        let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > INTERIM_BYTES {
            return Err("its fields have more than 64 KiB");
        }
        for (name, value) in fields {
            if !is_token(name) || !is_field_value(value) {
                return Err("a field's name is not a token, or its value contains a control character");
            }
            if matches!(known_field(name), Some(Known::ContentLength | Known::HopByHop | Known::Trailer)) {
                return Err("a field belongs to the server");
            }
        }
        if !self.head_has_left() {
            self.interim(&status, fields);
        }
        Ok(())
    }

    fn interim(&mut self, status: &str, fields: &[(&[u8], &[u8])]) {
        if let Some(head) = self.encoder.interim(status, fields) {
            self.transport.send_aside(&head);
        }
    }

    /// Adds a trailer field; the first one ends the body. Only chunked bodies can have them (RFC 9112 section 7.1.2): with any
    /// other framing they are dropped.
    ///
    /// # Errors
    /// As [`Response::field`].
    pub fn trailer(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadRefusal> {
        if !is_token(name) || !is_field_value(value) || name.len() + value.len() > FIELD_BYTES {
            return Err("a trailer's name is not a token, its value contains a control character, or it is too long");
        }
        self.end_body_for_trailers();
        if !self.body.file_replaces_body {
            self.response.encoder.trailer(name, value, &mut self.transport.outgoing);
        }
        Ok(())
    }

    /// Ends the answer after its trailer fields.
    pub fn finish_trailers(&mut self) {
        self.end_body_for_trailers();
        if self.encoder.has_trailers() && !self.body.file_replaces_body {
            self.response.encoder.end_trailers(&mut self.transport.outgoing);
            self.stage = Stage::Done;
        } else {
            self.finish();
        }
    }

    fn end_body_for_trailers(&mut self) {
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::Nothing);
            self.close_head();
        }
        if self.body.file_replaces_body {
            return;
        }
        self.finish_encoding();
        if std::mem::replace(&mut self.body.trailers, Trailers::Begun) == Trailers::Announced {
            self.response.encoder.begin_trailers(&mut self.transport.outgoing);
        }
    }

    /// RFC 6455 section 4.2.2: from here on the connection carries WebSocket frames, which [`ResponseWriter::push`] sends
    /// unchanged. Without `accept` it is an HTTP/2 stream, which carries them in its own frames (RFC 8441 section 5). `fields`
    /// are names and values of additional header fields.
    ///
    /// # Errors
    /// As [`Response::field`]; nothing has been sent in this case.
    pub fn switch_to_websocket(
        &mut self,
        accept: Option<&[u8]>,
        extensions: Option<&[u8]>,
        fields: &[(&[u8], &[u8])],
    ) -> Result<(), HeadRefusal> {
        self.forget_head();
        self.stage = Stage::Head;
        if accept.is_some() {
            self.head.begin(101, b"101 Switching Protocols");
            self.head.add_own(b"Upgrade", b"websocket");
            self.head.add_own(b"Connection", b"Upgrade");
        } else {
            self.head.begin(200, b"200 OK");
        }
        let accept = accept.map(|accept| (&b"Sec-WebSocket-Accept"[..], accept));
        for (name, value) in accept.iter().chain(fields) {
            let set = match known_field(name) {
                // RFC 9110 section 8.6: "A server MUST NOT send a Content-Length header field in any response with a status code
                // of 1xx".
                Some(Known::ContentLength) => Err("the switch to WebSocket has no body"),
                _ => self.field(name, value),
            };
            if let Err(refusal) = set {
                self.drop_head();
                return Err(refusal);
            }
        }
        if let Some(extensions) = extensions {
            self.field(b"Sec-WebSocket-Extensions", extensions)?;
        }
        self.switch();
        Ok(())
    }

    /// Switches to another protocol with the head of another worker, which has a status of 101.
    ///
    /// # Errors
    /// As [`Response::field`]; nothing has been sent in this case.
    pub(crate) fn switch_as<'a>(
        &mut self,
        status: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), HeadRefusal> {
        self.forget_head();
        self.stage = Stage::Head;
        self.head.begin(101, status);
        for (name, value) in fields {
            match known_field(name) {
                // They are what the switch consists of.
                Some(Known::HopByHop) => self.field_of_connection(name, value),
                _ => self.field(name, value)?,
            }
        }
        self.switch();
        Ok(())
    }

    fn switch(&mut self) {
        self.filter_head(FirstPart::Nothing);
        let Response { encoder, head, terms, .. } = &mut *self.response;
        encoder.switch(head, &terms.date_line, &mut self.transport.outgoing);
        terms.keep_alive = false;
        self.head_bytes = self.transport.outgoing.bytes.len() as u64;
        self.body.left = BodyLeft::Unknown;
        self.stage = Stage::Body;
        self.send();
    }

    /// Passes the connection to the application, as a duplicate descriptor. The server no longer reads or sends on it, and
    /// closing its own descriptor does not end the connection. `slot` is the request's.
    ///
    /// # Errors
    /// Part of an answer has already been sent, or no more descriptors or threads are available.
    pub fn give_away(&mut self, taken: &'static TakenConnections, slot: Option<Recorder<'static>>) -> io::Result<OwnedFd> {
        if self.head_has_left() || self.transport.is_given_away() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the response has begun, or the socket was already taken"));
        }
        self.transport.give_away(taken, slot)
    }

    /// RFC 9110 section 15.6.4: the server is overloaded.
    pub fn answer_busy(&mut self) {
        let text = "The server has reached its limit of open requests.";
        self.answer_with(503, reason_phrase(503), text, &[("Retry-After", "1")]);
    }

    /// The same for a request that has waited too long. `retry_after` are seconds.
    pub(crate) fn answer_overloaded(&mut self, retry_after: &str) {
        let fields = [("Retry-After", retry_after), ("Cache-Control", "no-store")];
        self.answer_with(503, reason_phrase(503), "The server is overloaded.", &fields);
    }

    /// RFC 6455 section 4.2.2: a client with another version of WebSocket is told the supported one. RFC 9110 section 7.8: a
    /// sender of Upgrade must list it in Connection, so that proxies don't forward it.
    pub(crate) fn answer_upgrade_required(&mut self, text: &str) {
        let fields = [("Sec-WebSocket-Version", "13"), ("Connection", "upgrade"), ("Upgrade", "websocket")];
        self.answer_with(426, reason_phrase(426), text, &fields);
    }
}
