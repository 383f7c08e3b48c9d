//! Answers that change what the connection is: the switch to WebSocket, its refusal, and a socket that the application takes.
//!
//! It knows no language. The thread that has the request runs it.

use std::io;
use std::os::fd::OwnedFd;

use bolide_contract::scoreboard::Slot;

use super::writer::ResponseWriter;
use super::{BodyLeft, HeadRefusal, Response, Stage, reason_phrase};
use crate::response::fields::{Known, known_field};
use crate::response::filters::FirstPart;
use crate::sockets::taken_connections::TakenConnections;

impl ResponseWriter<'_> {
    /// RFC 6455 section 4.2.2: from here on the connection carries frames, which [`ResponseWriter::push`] sends as they are. Without `accept` it
    /// is a stream of HTTP/2, and switches to nothing: it carries frames within its own (RFC 8441 section 5).
    /// `fields` are further header fields as name and value.
    ///
    /// # Errors
    /// As [`Response::field`]; nothing has left then.
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
        self.filter_head(FirstPart::Nothing);
        let Response { encoder, head, terms, .. } = &mut *self.response;
        encoder.switch(head, &terms.date_line, &mut self.transport.outgoing);
        terms.keep_alive = false;
        self.head_bytes = self.transport.outgoing.bytes.len() as u64;
        self.left = BodyLeft::Unknown;
        self.stage = Stage::Body;
        self.send();
        Ok(())
    }

    /// Hands the connection to the application: a descriptor of its own. Nothing more is read or sent here from now on, and closing
    /// our descriptor does not end the connection. `slot` shows the request.
    ///
    /// # Errors
    /// Something of an answer has left already, or there is no further descriptor or thread.
    pub fn give_away(&mut self, taken: &'static TakenConnections, slot: Option<&Slot>) -> io::Result<OwnedFd> {
        if self.head_has_left() || self.transport.is_given_away() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the response has begun, or the socket was taken before"));
        }
        self.transport.give_away(taken, slot)
    }

    /// RFC 9110 section 15.6.4: too much is going on already.
    pub fn answer_busy(&mut self) {
        let text = "The server has as many requests in work as it may.";
        self.answer_with(503, reason_phrase(503), text, &[("Retry-After", "1")]);
    }

    /// RFC 6455 section 4.2.2: a client that speaks another version of WebSocket learns ours. RFC 9110 section 7.8: who sends Upgrade
    /// names it in Connection, so that no proxy hands it on.
    pub(crate) fn answer_upgrade_required(&mut self, text: &str) {
        let fields = [("Sec-WebSocket-Version", "13"), ("Connection", "upgrade"), ("Upgrade", "websocket")];
        self.answer_with(426, reason_phrase(426), text, &fields);
    }
}
