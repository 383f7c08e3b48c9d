//! What an answer may have beyond a status, fields and a body: interim responses before it, trailer fields behind it.
//!
//! It knows no language. Asynchronous applications ask for it, on the thread that runs the worker's loop; `100 Continue` any worker's thread.

use super::writer::ResponseWriter;
use super::{FIELD_BYTES, HeadRefusal, Response, Stage};
use crate::response::fields::is_field_value;
use crate::response::filters::FirstPart;
use bolide_protocol::http1::is_token;

impl Response {
    /// The answer will have trailer fields: its end comes with [`ResponseWriter::finish_trailers`].
    pub fn announce_trailers(&mut self) {
        self.has_trailers = true;
    }

    pub fn wants_trailers(&self) -> bool {
        self.has_trailers
    }
}

impl ResponseWriter<'_> {
    /// RFC 9110 section 10.1.1: the client may send the body. A socket that has no room for 25 bytes will get the final answer
    /// only, which is allowed. Only while nothing of the answer has been said.
    pub fn say_continue(&mut self) {
        if self.stage == Stage::Fresh {
            self.interim("100 Continue", &[]);
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
        if links.iter().any(|link| !is_field_value(link) || link.len() > FIELD_BYTES) {
            return Err("a link has a control character in it or is too long");
        }
        let fields: Vec<(&[u8], &[u8])> = links.iter().map(|link| (&b"Link"[..], *link)).collect();
        self.interim("103 Early Hints", &fields);
        Ok(())
    }

    fn interim(&mut self, status: &str, fields: &[(&[u8], &[u8])]) {
        if let Some(head) = self.encoder.interim(status, fields) {
            self.transport.send_aside(&head);
        }
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
        if !self.file_replaces_body {
            self.response.encoder.trailer(name, value, &mut self.transport.outgoing);
        }
        Ok(())
    }

    /// Ends the answer after its trailer fields.
    pub fn finish_trailers(&mut self) {
        self.end_body_for_trailers();
        if self.encoder.has_trailers() && !self.file_replaces_body {
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
        if self.file_replaces_body {
            return;
        }
        self.finish_encoding();
        if std::mem::take(&mut self.has_trailers) {
            self.response.encoder.begin_trailers(&mut self.transport.outgoing);
        }
    }
}
