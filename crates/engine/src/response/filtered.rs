//! The part of [`Response`] for answers that are changed on their way: its head handed to [`ResponseFilter`], its body through an encoder.
//!
//! Only responses with a filter come here.

use crate::response::{Framing, OUTPUT_BYTES, Pushed, Response, When};
use crate::response_filters::{Body, Head, ResponseFilter};

/// Bytes of a body that go through the encoder between two looks at how much waits for the client.
const SLICE_BYTES: usize = 16 * 1024;

impl Response {
    /// What is to be changed in this answer. Between its beginning and its first part.
    pub(crate) fn amend(&mut self, filter: Box<ResponseFilter>) {
        self.filter = Some(filter);
    }

    /// Something may be changed in what is left of this answer: its body may be compressed.
    pub fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// Says what a 304 is about.
    pub(crate) fn note_unmodified(&mut self, content_type: &str, bytes: u64, is_compressed: bool) {
        if let Some(filter) = &mut self.filter {
            filter.note_unmodified(content_type.as_bytes(), bytes, is_compressed);
        }
    }

    /// Changes the head, which is complete. Returns the body in place of `body`, if it was compressed whole.
    pub(super) fn filter_head(&mut self, body: Body<'_>) -> Option<Vec<u8>> {
        if self.names_file() {
            // The head is not this one: it is changed when it has become the file's.
            return None;
        }
        let mut filter = self.filter.take()?;
        let mut head = Head {
            text: &mut self.out.bytes,
            status: &mut self.status,
            content_length: &mut self.content_length,
            is_length_declared: self.is_length_declared,
            has_date: &mut self.has_date,
            has_server: &mut self.has_server,
            count: &mut self.header_count,
            is_unlogged: &mut self.is_unlogged,
            head_only: self.terms.head_only,
        };
        let made = filter.head(&mut head, body);
        // An encoder is all that the body still needs.
        self.filter = filter.encoder().is_some().then_some(filter);
        made
    }

    /// Sends a body that is complete and of our own making: what the client does not take at once waits here, whatever its size.
    pub(super) fn push_whole(&mut self, body: &[u8]) {
        self.close_head();
        if self.framing != Framing::Discard {
            self.out.bytes.extend_from_slice(body);
        }
        self.framing = match self.framing {
            Framing::Length(left) => Framing::Length(left.saturating_sub(body.len() as u64)),
            other => other,
        };
        self.body_bytes += body.len() as u64;
    }

    /// Gives a body that is complete, after its head.
    pub(crate) fn give_whole(&mut self, body: &[u8]) {
        self.declare_length(body.len() as u64);
        match self.filter_head(Body::Part(body)) {
            Some(whole) => self.push_whole(&whole),
            // A body of any size that is worth an encoder of its own goes through it in `push_encoded`; this one is here already.
            None => match self.filter.take() {
                Some(mut filter) => {
                    let mut made = Vec::new();
                    self.close_head();
                    let ended = filter.take_encoder().is_some_and(|mut encoder| {
                        encoder.write(body, &mut made).and_then(|()| encoder.finish(&mut made)).is_ok()
                    });
                    if ended { self.frame(&made) } else { _ = self.encoder_failed() }
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
            if !self.out.has_room(1, OUTPUT_BYTES) {
                self.out.send();
                if self.out.is_broken {
                    return Pushed::Gone;
                }
                if !self.out.has_room(1, OUTPUT_BYTES) {
                    self.out.count_waiting();
                    return Pushed::Part(taken);
                }
            }
            let mut made = Vec::new();
            let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
            if encoder.is_none_or(|encoder| encoder.write(slice, &mut made).is_err()) {
                return self.encoder_failed();
            }
            self.frame(&made);
            taken += slice.len();
        }
        if when == When::Now {
            let mut made = Vec::new();
            let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
            if encoder.is_none_or(|encoder| encoder.flush(&mut made).is_err()) {
                return self.encoder_failed();
            }
            self.frame(&made);
            self.out.send();
        }
        if self.out.is_broken { Pushed::Gone } else { Pushed::All }
    }

    /// Ends a body that goes through an encoder.
    pub(super) fn finish_encoding(&mut self) {
        let encoder = self.filter.take().and_then(|mut filter| filter.take_encoder());
        let mut made = Vec::new();
        match encoder.map(|encoder| encoder.finish(&mut made)) {
            Some(Ok(())) => self.frame(&made),
            Some(Err(_)) => {
                self.encoder_failed();
            }
            None => {}
        }
    }

    /// Writes a piece of the body as the framing wants it.
    pub(super) fn frame(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.body_bytes += piece.len() as u64;
        if self.framing == Framing::Chunked {
            self.out.bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            self.out.bytes.extend_from_slice(piece);
            self.out.bytes.extend_from_slice(b"\r\n");
        } else {
            self.out.bytes.extend_from_slice(piece);
        }
    }

    /// An encoder that writes into memory has no error but the end of memory. The body can't be ended, and the connection's end says so.
    pub(super) fn encoder_failed(&mut self) -> Pushed {
        self.filter = None;
        self.out.is_broken = true;
        Pushed::Gone
    }
}
