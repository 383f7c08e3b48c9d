//! What an answer may have beyond a status, fields and a body: early hints, trailer fields, the switch to WebSocket.
//!
//! Only asynchronous applications ask for it. It knows no language; the thread that runs the worker's loop runs it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::{Body, FIELD_BYTES, Framing, HeadRefusal, Response, Stage, Style};
use crate::fields::{Known, is_field_value, is_token, known_field};
use crate::socket::{self, Written};

impl Response {
    /// Starts the head as [`Response::status`] does, with the reason that RFC 9110 section 15 gives the number.
    ///
    /// # Errors
    /// The status is not a final one of three digits.
    pub fn status_code_only(&mut self, code: u16) -> Result<(), HeadRefusal> {
        if !(200..=999).contains(&code) {
            return Err("the status is not a final one (200 to 999)");
        }
        self.out.bytes.clear();
        self.forget_head();
        self.status = code;
        self.stage = Stage::Head;
        if code == 200 {
            self.out.bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
            return Ok(());
        }
        let mut digits = itoa::Buffer::new();
        for part in ["HTTP/1.1 ", digits.format(code), " ", reason_phrase(code), "\r\n"] {
            self.out.bytes.extend_from_slice(part.as_bytes());
        }
        Ok(())
    }

    /// Whether all has been said, be it sent or not.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The head has left, nobody knows how long the body will be, and it has not ended.
    pub fn is_stream(&self) -> bool {
        self.stage == Stage::Body && matches!(self.framing, Framing::Chunked | Framing::UntilClose)
    }

    /// The application's own Content-Length, where the body must have as many bytes.
    pub fn announced_length(&self) -> Option<u64> {
        self.content_length.filter(|_| !self.terms.head_only && !self.is_bodiless_status() && !self.names_file())
    }

    /// Whether the client is slow: nothing more should be handed in before it has taken what waits.
    pub fn is_behind(&self) -> bool {
        self.out.file.is_some() || !self.out.has_room(super::OUTPUT_BYTES / 2, super::OUTPUT_BYTES)
    }

    /// Whether a part of a file waits for the client.
    pub fn has_file(&self) -> bool {
        self.out.file.is_some()
    }

    /// Whether something waits for the client: bytes, a file, or what the application has in its hands still, because the
    /// socket took a part of it only.
    pub fn has_unsent(&self) -> bool {
        self.out.file.is_some() || self.out.unsent() > 0 || self.out.is_full
    }

    /// Bytes of the body, less what of head and body waits for the client: a figure that grows when the client takes something
    /// and stands still when it takes nothing.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.body_bytes.wrapping_sub(self.out.unsent() as u64)
    }

    pub fn client_is_gone(&self) -> bool {
        self.out.is_broken
    }

    /// The client is taken for one that has gone: what waits for it is not sent any more.
    pub(crate) fn give_client_up(&mut self) {
        self.out.is_broken = true;
    }

    /// Sends the head now, before anything of the body: the client of a stream learns that it has begun.
    pub fn send_head(&mut self) {
        if self.stage == Stage::Head {
            self.filter_head(Body::Part(b""));
            self.close_head();
            self.out.send();
        }
    }

    /// RFC 9110 section 10.1.1: the client may send the body. A socket that has no room for 25 bytes will get the final answer
    /// only, which is allowed.
    pub(crate) fn send_continue(&self) {
        match socket::write(self.out.socket.as_fd(), b"HTTP/1.1 100 Continue\r\n\r\n", &[]) {
            Written::Bytes(_) | Written::Full | Written::Broken => {}
        }
    }

    /// The same while nothing of the answer has been said.
    pub fn say_continue(&mut self) {
        if self.stage == Stage::Fresh && self.terms.style == (Style::Http { version_1_0: false }) {
            self.send_continue();
        }
    }

    /// RFC 8297: sends `103 Early Hints` with a Link field for each of `links`, at once and on its own. Clients of HTTP/1.0
    /// and front servers that speak uwsgi don't get it, nor does one whose socket has no room: it is a hint.
    ///
    /// # Errors
    /// The head of the answer is there already, or a link has a control character in it.
    pub fn early_hints(&mut self, links: &[&[u8]]) -> Result<(), HeadRefusal> {
        if self.stage != Stage::Fresh {
            return Err("early hints come before the response");
        }
        let mut head = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
        for link in links {
            if !is_field_value(link) || link.len() > FIELD_BYTES {
                return Err("a link has a control character in it or is too long");
            }
            for part in [b"Link: ", *link, b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        head.extend_from_slice(b"\r\n");
        if self.terms.style == (Style::Http { version_1_0: false }) {
            match socket::write(self.out.socket.as_fd(), &head, &[]) {
                Written::Bytes(count) if count == head.len() => {}
                Written::Full => {}
                // A part of it would spoil what follows.
                Written::Bytes(_) | Written::Broken => self.out.is_broken = true,
            }
        }
        Ok(())
    }

    /// The answer will have trailer fields: its end comes with [`Response::finish_trailers`].
    pub fn announce_trailers(&mut self) {
        self.has_trailers = true;
    }

    pub fn wants_trailers(&self) -> bool {
        self.has_trailers
    }

    /// Adds a trailer field, the first of them ends the body. Only chunks can carry them (RFC 9112 section 7.1.2): with
    /// any other framing they are dropped.
    ///
    /// # Errors
    /// As [`Response::field`].
    pub fn trailer(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadRefusal> {
        if !is_token(name) || !is_field_value(value) || name.len() + value.len() > FIELD_BYTES {
            return Err("a trailer's name is no token, or its value has a control character, or it is too long");
        }
        self.end_body_for_trailers();
        if self.framing == Framing::Chunked && !self.file_replaces_body {
            for part in [name, b": ", value, b"\r\n"] {
                self.out.bytes.extend_from_slice(part);
            }
        }
        Ok(())
    }

    /// Ends the answer after its trailer fields.
    pub fn finish_trailers(&mut self) {
        self.end_body_for_trailers();
        if self.framing == Framing::Chunked && !self.file_replaces_body {
            self.out.bytes.extend_from_slice(b"\r\n");
            self.stage = Stage::Done;
        } else {
            self.finish();
        }
    }

    fn end_body_for_trailers(&mut self) {
        if self.stage == Stage::Head {
            self.filter_head(Body::Nothing);
            self.close_head();
        }
        if self.file_replaces_body {
            return;
        }
        self.finish_encoding();
        if std::mem::take(&mut self.has_trailers) && self.framing == Framing::Chunked {
            self.out.bytes.extend_from_slice(b"0\r\n");
        }
    }

    /// RFC 6455 section 4.2.2: from here on the connection carries frames, which [`Response::push`] sends as they are.
    /// `fields` are further header fields as name and value.
    ///
    /// # Errors
    /// As [`Response::field`]; nothing has left then.
    pub fn switch_to_websocket(
        &mut self,
        accept: &[u8],
        extensions: Option<&[u8]>,
        fields: &[(&[u8], &[u8])],
    ) -> Result<(), HeadRefusal> {
        self.status(b"200 OK")?;
        self.out.bytes.clear();
        self.status = 101;
        self.out.bytes.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
        for (name, value) in [(&b"Sec-WebSocket-Accept"[..], accept)].iter().chain(fields) {
            let set = match known_field(name) {
                // RFC 9110 section 8.6: "A server MUST NOT send a Content-Length header field in any response with a status
                // code of 1xx".
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
        self.filter_head(Body::Nothing);
        if let Style::Http { .. } = self.terms.style {
            if !self.has_date {
                self.out.bytes.extend_from_slice(&self.terms.date_line);
            }
            if !self.has_server {
                self.out.bytes.extend_from_slice(b"Server: bolide\r\n");
            }
        }
        self.out.bytes.extend_from_slice(b"\r\n");
        self.head_bytes = self.out.bytes.len() as u64;
        self.framing = Framing::UntilClose;
        self.terms.keep_alive = false;
        self.stage = Stage::Body;
        self.out.send();
        Ok(())
    }

    /// Hands the connection to the application: a descriptor of its own. Nothing more is read or sent here from now on, and closing
    /// our descriptor does not end the connection.
    ///
    /// # Errors
    /// Something of an answer has left already, or there is no further descriptor.
    pub fn give_away(&mut self) -> io::Result<OwnedFd> {
        if self.head_has_left() || self.out.is_given_away {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the response has begun, or the socket was taken before"));
        }
        let own = self.out.socket.try_clone()?;
        self.out.is_broken = true;
        self.out.is_given_away = true;
        Ok(own)
    }

    /// The application has taken the connection.
    pub fn is_given_away(&self) -> bool {
        self.out.is_given_away
    }

    /// RFC 9110 section 15.6.4: too much is going on already.
    pub fn answer_busy(&mut self) {
        let text = "The server has as many requests in work as it may.";
        self.answer_with(503, reason_phrase(503), text, "Retry-After: 1\r\n");
    }

    /// RFC 6455 section 4.2.2: a client that speaks another version of WebSocket learns ours. RFC 9110 section 7.8: who sends Upgrade
    /// names it in Connection, so that no proxy hands it on.
    pub(crate) fn answer_upgrade_required(&mut self, text: &str) {
        self.answer_with(
            426,
            reason_phrase(426),
            text,
            "Sec-WebSocket-Version: 13\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
        );
    }
}

/// The reason of a status; one that no standard names has none, which RFC 9112 section 4 allows.
pub fn reason_phrase(code: u16) -> &'static str {
    bolide_routes::reason(code).unwrap_or_default()
}
