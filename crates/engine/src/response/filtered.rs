//! The part of [`Response`] for answers that are changed on their way: its head handed to [`ResponseFilter`], its body through an encoder.
//!
//! Only responses with a filter come here.

use super::writer::ResponseWriter;
use super::{BodyLeft, OUTPUT_BYTES, Pushed, Response, When};
use crate::response::filters::{FilteredHead, FirstPart, ResponseFilter};

/// Bytes of a body that go through the encoder between two looks at how much waits for the client.
const SLICE_BYTES: usize = 16 * 1024;

impl Response {
    /// What is to be changed in this answer. Between its beginning and its first part.
    pub(crate) fn set_filter(&mut self, filter: Box<ResponseFilter>) {
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
}

impl ResponseWriter<'_> {
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
