//! Encodes head, body and end of answers: one encoder for each connection, which is given the protocol of each answer.
//!
//! It does not own a buffer or copy a body: it writes the bytes before, between and after the parts of a body. Workers run it.

use super::blocks;
use super::head::ResponseHead;
use crate::fastcgi::{MAX_CONTENT_BYTES, RECORD_HEAD_BYTES, end_of_answer, frame_stdout, stdout_head};

/// The wire format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// We are the origin server: Date, Server and connection management are ours.
    Http11,
    /// Like [`Wire::Http11`], but a body without a length ends with the connection: HTTP/1.0 has no other way (RFC 9112 section
    /// 6.3).
    Http10,
    /// Behind a reverse proxy that does all that; the end of the connection ends the body.
    Uwsgi,
    /// Like [`Wire::Uwsgi`], but the head begins with the field Status (RFC 3875 section 6.3.3), as in SCGI.
    Cgi,
    /// FastCGI records with this request id, the last of which ends the answer. `has_status_line`: the head is an HTTP head, not
    /// a CGI one (`nph`).
    FastCgi { id: u16, has_status_line: bool },
    /// An HTTP/2 stream, whose connection makes frames of header blocks and payload. We are the origin server.
    Http2,
}

/// The pending output of an answer. On an HTTP/2 stream these are header blocks and payload, of which its connection makes frames
/// as the client's windows allow; elsewhere they are the connection's bytes.
#[derive(Debug, Default)]
pub struct Outgoing {
    pub bytes: Vec<u8>,
    /// On a stream: bytes of the header block before the payload.
    pub head_bytes: usize,
    /// On a stream: bytes of the trailer fields after the payload.
    pub trailer_bytes: usize,
    pub end: StreamEnd,
}

/// Whether a stream ends after the bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    #[default]
    Open,
    /// END_STREAM must be sent with the last of the bytes.
    Due,
    Sent,
}

impl Outgoing {
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.head_bytes = 0;
        self.trailer_bytes = 0;
        self.end = StreamEnd::Open;
    }

    fn end_stream(&mut self) {
        if self.end == StreamEnd::Open {
            self.end = StreamEnd::Due;
        }
    }
}

/// The length of a body as known when its head is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// The head has it.
    Known,
    Unknown,
    /// There is no body, whatever the head says: the answer to HEAD, 204, 304.
    NoBody,
}

/// Parameters of a head.
#[derive(Debug, Clone, Copy)]
pub struct HeadTerms<'a> {
    pub length: BodyLength,
    /// The connection may stay open.
    pub keep_alive: bool,
    /// The field Date with its line end.
    pub date_line: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFraming {
    /// The body's bytes without framing.
    Bare,
    /// RFC 9112 section 7.1
    Chunked,
    /// FastCGI records with this request id.
    Records(u16),
    /// Payload of an HTTP/2 stream. `left`: the bytes that the body still has, if its head has a length; after the end there are
    /// none.
    Payload { left: Option<u64> },
}

#[derive(Debug)]
pub struct ResponseEncoder {
    wire: Wire,
    framing: BodyFraming,
    /// Bytes that are left of the current frame, whose beginning was written.
    frame_left: u64,
    /// A header block of trailer fields, which is sent in one piece.
    trailers: Vec<u8>,
}

impl ResponseEncoder {
    pub fn new(wire: Wire) -> ResponseEncoder {
        ResponseEncoder { wire, framing: BodyFraming::Bare, frame_left: 0, trailers: Vec::new() }
    }

    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Writes a head. Returns whether the connection stays open.
    #[inline]
    pub fn head(&mut self, head: &ResponseHead, terms: HeadTerms<'_>, out: &mut Outgoing) -> bool {
        let is_unknown = terms.length == BodyLength::Unknown;
        self.frame_left = 0;
        if let Wire::FastCgi { id, .. } = self.wire {
            self.framing = BodyFraming::Records(id);
            self.recorded_head(head, id, &mut out.bytes);
            return terms.keep_alive;
        }
        if self.wire == Wire::Http2 {
            self.head_block(head, terms, out);
            return terms.keep_alive;
        }
        let out = &mut out.bytes;
        self.framing = if is_unknown && self.wire == Wire::Http11 { BodyFraming::Chunked } else { BodyFraming::Bare };
        head.write(self.status_prefix(), out);
        let keeps_alive = terms.keep_alive && !(is_unknown && self.framing == BodyFraming::Bare);
        if self.is_origin() {
            self.own_fields(head, terms.date_line, out);
            if self.framing == BodyFraming::Chunked {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            match (keeps_alive, self.wire) {
                (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
                (true, Wire::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
                (true, _) => {}
            }
        }
        out.extend_from_slice(b"\r\n");
        keeps_alive
    }

    /// A head within FastCGI records, the last of which ends the body.
    fn recorded_head(&self, head: &ResponseHead, id: u16, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
        head.write(self.status_prefix(), out);
        out.extend_from_slice(b"\r\n");
        frame_stdout(id, out, start);
    }

    /// A head as a header block, with the end of the stream if no body follows.
    fn head_block(&mut self, head: &ResponseHead, terms: HeadTerms<'_>, out: &mut Outgoing) {
        let left = match terms.length {
            BodyLength::Known => head.content_length,
            BodyLength::Unknown => None,
            BodyLength::NoBody => Some(0),
        };
        self.framing = BodyFraming::Payload { left };
        let start = out.bytes.len();
        blocks::head(head, terms.date_line, &mut out.bytes);
        out.head_bytes = out.bytes.len() - start;
        if left == Some(0) {
            out.end_stream();
        }
    }

    /// Whether we add the fields of an origin server; behind a reverse proxy that one does.
    fn is_origin(&self) -> bool {
        matches!(self.wire, Wire::Http11 | Wire::Http10)
    }

    /// Returns the bytes before the status and its reason.
    fn status_prefix(&self) -> &'static [u8] {
        match self.wire {
            Wire::Cgi | Wire::FastCgi { has_status_line: false, .. } => CGI_STATUS,
            _ => HTTP_STATUS,
        }
    }

    /// Writes the head of a switch to another protocol, whose bytes follow unframed; in HTTP/2 they are its stream's payload.
    pub fn switch(&mut self, head: &ResponseHead, date_line: &[u8], out: &mut Outgoing) {
        self.frame_left = 0;
        if self.wire == Wire::Http2 {
            self.framing = BodyFraming::Payload { left: None };
            let start = out.bytes.len();
            blocks::switch(head, date_line, &mut out.bytes);
            out.head_bytes = out.bytes.len() - start;
            return;
        }
        let out = &mut out.bytes;
        head.write(self.status_prefix(), out);
        self.framing = BodyFraming::Bare;
        if self.is_origin() {
            self.own_fields(head, date_line, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    fn own_fields(&self, head: &ResponseHead, date_line: &[u8], out: &mut Vec<u8>) {
        if !head.has_date {
            out.extend_from_slice(date_line);
        }
        if !head.has_server {
            out.extend_from_slice(b"Server: bolide\r\n");
        }
    }

    /// Writes the bytes before `length` bytes of the body, of which none was written yet. Returns how many of them belong to one
    /// frame, 0 for none: the caller writes these in any number of pieces, and reports them to [`ResponseEncoder::wrote`].
    #[inline]
    pub fn open_frame(&mut self, length: u64, out: &mut Outgoing) -> u64 {
        match self.framing {
            BodyFraming::Bare => length,
            BodyFraming::Chunked => {
                if self.frame_left == 0 && length > 0 {
                    self.frame_left = length;
                    push_hexadecimal(length, &mut out.bytes);
                    out.bytes.extend_from_slice(b"\r\n");
                }
                self.frame_left.min(length)
            }
            BodyFraming::Records(id) => {
                if self.frame_left == 0 && length > 0 {
                    self.frame_left = length.min(MAX_CONTENT_BYTES as u64);
                    out.bytes.extend_from_slice(&stdout_head(id, self.frame_left as u16));
                }
                self.frame_left.min(length)
            }
            BodyFraming::Payload { left } => left.map_or(length, |left| left.min(length)),
        }
    }

    /// Records that `bytes` of the body were written; if they complete a frame, writes its end.
    #[inline]
    pub fn wrote(&mut self, bytes: u64, out: &mut Outgoing) {
        match self.framing {
            BodyFraming::Bare => {}
            BodyFraming::Chunked => {
                self.frame_left = self.frame_left.saturating_sub(bytes);
                if self.frame_left == 0 && bytes > 0 {
                    out.bytes.extend_from_slice(b"\r\n");
                }
            }
            BodyFraming::Records(_) => self.frame_left = self.frame_left.saturating_sub(bytes),
            BodyFraming::Payload { left: None } => {}
            BodyFraming::Payload { left: Some(left) } => {
                let left = left.saturating_sub(bytes);
                self.framing = BodyFraming::Payload { left: Some(left) };
                if left == 0 {
                    out.end_stream();
                }
            }
        }
    }

    /// Writes the end of the body, and of the answer.
    #[inline]
    pub fn end(&mut self, out: &mut Outgoing) {
        match self.framing {
            BodyFraming::Bare => {}
            BodyFraming::Chunked => out.bytes.extend_from_slice(b"0\r\n\r\n"),
            BodyFraming::Records(id) => out.bytes.extend_from_slice(&end_of_answer(id)),
            // A body that is shorter than its head has said has no proper end.
            BodyFraming::Payload { left: None } => self.end_payload(out),
            BodyFraming::Payload { left: Some(_) } => {}
        }
    }

    fn end_payload(&mut self, out: &mut Outgoing) {
        self.framing = BodyFraming::Payload { left: Some(0) };
        out.end_stream();
    }

    /// Whether a frame of the body is incomplete: nothing else may be sent before its rest.
    pub fn is_within_frame(&self) -> bool {
        self.frame_left > 0
    }

    /// Whether the end of the connection ends the body, because its head has no length.
    pub fn ends_with_connection(&self) -> bool {
        self.framing == BodyFraming::Bare
    }

    /// Whether trailer fields can be sent: between [`ResponseEncoder::begin_trailers`] and [`ResponseEncoder::end_trailers`].
    pub fn has_trailers(&self) -> bool {
        match self.framing {
            BodyFraming::Chunked => true,
            BodyFraming::Payload { left } => left != Some(0),
            BodyFraming::Bare | BodyFraming::Records(_) => false,
        }
    }

    /// Ends the body before trailer fields (RFC 9112 section 7.1.2).
    pub fn begin_trailers(&mut self, out: &mut Outgoing) {
        match self.framing {
            BodyFraming::Chunked => out.bytes.extend_from_slice(b"0\r\n"),
            BodyFraming::Payload { .. } => blocks::begin_trailers(&mut self.trailers),
            BodyFraming::Bare | BodyFraming::Records(_) => {}
        }
    }

    pub fn trailer(&mut self, name: &[u8], value: &[u8], out: &mut Outgoing) {
        match self.framing {
            BodyFraming::Chunked => {
                for part in [name, b": ", value, b"\r\n"] {
                    out.bytes.extend_from_slice(part);
                }
            }
            BodyFraming::Payload { .. } => blocks::trailer(name, value, &mut self.trailers),
            BodyFraming::Bare | BodyFraming::Records(_) => {}
        }
    }

    pub fn end_trailers(&mut self, out: &mut Outgoing) {
        match self.framing {
            BodyFraming::Chunked => out.bytes.extend_from_slice(b"\r\n"),
            BodyFraming::Payload { .. } => {
                let block = std::mem::take(&mut self.trailers);
                out.bytes.extend_from_slice(&block);
                out.trailer_bytes = block.len();
                self.end_payload(out);
            }
            BodyFraming::Bare | BodyFraming::Records(_) => {}
        }
    }

    /// Returns the head of an interim response with these fields (RFC 9110 section 15.2), if the client understands it; in HTTP/2
    /// its header block.
    pub fn interim(&self, status: &str, fields: &[(&[u8], &[u8])]) -> Option<Vec<u8>> {
        match self.wire {
            Wire::Http11 => {}
            Wire::Http2 => return Some(blocks::interim(status, fields)),
            _ => return None,
        }
        let mut head = format!("HTTP/1.1 {status}\r\n").into_bytes();
        for (name, value) in fields {
            for part in [*name, b": ", *value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        head.extend_from_slice(b"\r\n");
        Some(head)
    }
}

const HTTP_STATUS: &[u8] = b"HTTP/1.1 ";
const CGI_STATUS: &[u8] = b"Status: ";

fn push_hexadecimal(number: u64, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = number.checked_ilog2().map_or(1, |log| log / 4 + 1);
    for place in (0..digits).rev() {
        out.push(DIGITS[(number >> (place * 4) & 15) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::chunked::{ChunkedDecoder, ChunkedStep};

    const DATE: &[u8] = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn head() -> ResponseHead {
        let mut head = ResponseHead::default();
        head.begin(200, b"200 OK");
        head
    }

    fn written(wire: Wire, length: BodyLength, keep_alive: bool) -> (String, bool) {
        let mut out = Outgoing::default();
        let keeps = ResponseEncoder::new(wire).head(&head(), HeadTerms { length, keep_alive, date_line: DATE }, &mut out);
        (String::from_utf8(out.bytes).expect("text"), keeps)
    }

    #[test]
    fn the_framing_follows_the_protocol_and_the_known_length() {
        let own = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: bolide\r\n";
        for (wire, length, keep_alive, end, keeps) in [
            (Wire::Http11, BodyLength::Known, true, "\r\n", true),
            (Wire::Http11, BodyLength::NoBody, true, "\r\n", true),
            (Wire::Http11, BodyLength::Known, false, "Connection: close\r\n\r\n", false),
            (Wire::Http11, BodyLength::Unknown, true, "Transfer-Encoding: chunked\r\n\r\n", true),
            (Wire::Http10, BodyLength::Unknown, true, "Connection: close\r\n\r\n", false),
            (Wire::Http10, BodyLength::Known, true, "Connection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(written(wire, length, keep_alive), (format!("{own}{end}"), keeps), "{wire:?} {length:?}");
        }
        assert_eq!(written(Wire::Uwsgi, BodyLength::Unknown, false), ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), false));
        assert_eq!(written(Wire::Cgi, BodyLength::Known, false), ("Status: 200 OK\r\n\r\n".to_owned(), false));
        // If the connection stays open, the body ends by a length.
        assert_eq!(written(Wire::Uwsgi, BodyLength::Known, true), ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), true));
        assert_eq!(written(Wire::Uwsgi, BodyLength::Unknown, true), ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), false));
        for (has_status_line, head) in [(false, "Status: 200 OK\r\n\r\n"), (true, "HTTP/1.1 200 OK\r\n\r\n")] {
            let wire = Wire::FastCgi { id: 7, has_status_line };
            for (length, keep_alive) in [(BodyLength::Unknown, true), (BodyLength::Known, false)] {
                let record = format!("\x01\x06\0\x07\0{}\0\0{head}", char::from(head.len() as u8));
                assert_eq!(written(wire, length, keep_alive), (record, keep_alive));
            }
        }
    }

    #[test]
    fn only_clients_of_http_1_1_and_http_2_get_an_interim_head() {
        let interim = |wire| ResponseEncoder::new(wire).interim("150 ", &[(b"X-A", b"b"), (b"X-C", b"")]);
        assert_eq!(interim(Wire::Http11).as_deref(), Some(&b"HTTP/1.1 150 \r\nX-A: b\r\nX-C: \r\n\r\n"[..]));
        assert!(interim(Wire::Http2).is_some());
        for wire in [Wire::Http10, Wire::Uwsgi, Wire::Cgi, Wire::FastCgi { id: 1, has_status_line: true }] {
            assert_eq!(interim(wire), None, "{wire:?}");
        }
    }

    /// Returns the contents of FastCGI records, of which there may be any number before the last two.
    fn recorded(mut wire: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        while let [1, 6, 0, 7, high, low, 0, 0, rest @ ..] = wire {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            content.extend_from_slice(&rest[..length]);
            wire = &rest[length..];
            if length == 0 {
                break;
            }
        }
        assert_eq!(wire, b"\x01\x03\0\x07\0\x08\0\0\0\0\0\0\0\0\0\0");
        content
    }

    #[test]
    fn heads_and_bodies_of_any_length_leave_in_records() {
        for (field_bytes, body_bytes) in [(10, 0), (MAX_CONTENT_BYTES, 1), (3 * MAX_CONTENT_BYTES, MAX_CONTENT_BYTES + 1)] {
            let mut head = head();
            head.add(b"X-Long", &vec![b'v'; field_bytes]);
            let mut encoder = ResponseEncoder::new(Wire::FastCgi { id: 7, has_status_line: false });
            let terms = HeadTerms { length: BodyLength::Unknown, keep_alive: true, date_line: DATE };
            let mut wire = Outgoing { bytes: b"before".to_vec(), ..Outgoing::default() };
            assert!(encoder.head(&head, terms, &mut wire) && !encoder.ends_with_connection());
            let body = vec![b'b'; body_bytes];
            let mut rest = &body[..];
            while !rest.is_empty() {
                let frame = encoder.open_frame(rest.len() as u64, &mut wire) as usize;
                for bite in [&rest[..frame / 2], &rest[frame / 2..frame]] {
                    wire.bytes.extend_from_slice(bite);
                    encoder.wrote(bite.len() as u64, &mut wire);
                }
                rest = &rest[frame..];
            }
            encoder.end(&mut wire);
            let value = "v".repeat(field_bytes);
            let text = [format!("Status: 200 OK\r\nX-Long: {value}\r\n\r\n").as_bytes(), &body].concat();
            assert!(recorded(wire.bytes.strip_prefix(b"before").expect("what was there is left alone")) == text);
        }
    }

    #[test]
    fn a_body_framed_in_any_pieces_is_read_back() {
        for pieces in [&[&b"hello"[..]][..], &[b"h", b"", b"ello"], &[&[b'x'; 70_000], b"y"]] {
            let mut encoder = ResponseEncoder::new(Wire::Http11);
            let terms = HeadTerms { length: BodyLength::Unknown, keep_alive: true, date_line: DATE };
            encoder.head(&head(), terms, &mut Outgoing::default());
            let mut wire = Outgoing::default();
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                let mut rest = *piece;
                while !rest.is_empty() {
                    let frame = encoder.open_frame(rest.len() as u64, &mut wire) as usize;
                    // In two parts: a client may be slow.
                    for bite in [&rest[..frame / 2], &rest[frame / 2..frame]] {
                        wire.bytes.extend_from_slice(bite);
                        encoder.wrote(bite.len() as u64, &mut wire);
                    }
                    rest = &rest[frame..];
                }
            }
            encoder.end(&mut wire);
            let wire = wire.bytes;
            let (mut decoder, mut body, mut at) = (ChunkedDecoder::default(), Vec::new(), 0);
            loop {
                match decoder.step(&wire[at..]).expect("well-formed") {
                    ChunkedStep::Data { data, used } => {
                        body.extend_from_slice(data.of(&wire[at..]));
                        at += used;
                    }
                    ChunkedStep::More { used } => at += used,
                    ChunkedStep::Done { used } => {
                        at += used;
                        break;
                    }
                }
            }
            assert_eq!((at, body), (wire.len(), pieces.concat()));
        }
    }

    #[test]
    fn a_length_is_written_in_hexadecimal() {
        for number in [0u64, 1, 9, 10, 15, 16, 255, 4096, u64::MAX] {
            let mut out = Vec::new();
            push_hexadecimal(number, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), format!("{number:x}"));
        }
    }
}
