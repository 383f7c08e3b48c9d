//! The body of an answer that is compressed while it is sent: parts go through the filter's encoder, and from there, framed, into
//! the transport's buffer.
//!
//! It knows no language and no coding. The thread that serves the request runs it.

use super::writer::ResponseWriter;
use super::{OUTPUT_BYTES, Pushed, When};

/// Bytes of a body that are encoded between two checks of the buffered data.
const SLICE_BYTES: usize = 16 * 1024;

impl ResponseWriter<'_> {
    /// Encodes a part of the body.
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

    /// Ends an encoded body.
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

    /// An encoder that writes to memory only fails without memory. The body can't be completed, and the end of the connection
    /// shows that.
    pub(super) fn encoder_failed(&mut self) -> Pushed {
        self.filter = None;
        self.transport.is_broken = true;
        Pushed::Gone
    }
}
