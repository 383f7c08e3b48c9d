//! The part of [`Response`] that sends what waits: the buffer, then files, in turns that leave the other connections theirs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Framing, Progress, Response, Stage};
use crate::outbox::FilePart;
use crate::response_filters::Body;

/// Bytes of a file that are compressed for one client before others have their turn: a millisecond's work or two.
const ENCODED_TURN_BYTES: usize = 64 * 1024;

/// Bytes of a file that are sent to one client before others have their turn.
const FILE_TURN_BYTES: u64 = 2 * 1024 * 1024;

impl Response {
    /// Sends `length` bytes of a file from `offset` as the body, or the rest of it, by sendfile.
    pub fn push_file(&mut self, file: File, offset: i64, length: u64) {
        self.declare_length(length);
        self.push_file_part(file, offset, length);
    }

    /// The same for one part of several. Nothing may be handed in before it has left ([`Response::is_behind`]).
    pub fn push_file_part(&mut self, file: File, offset: i64, length: u64) {
        let announced = self.content_length;
        if self.stage == Stage::Head {
            self.filter_head(Body::File);
            self.close_head();
        }
        if self.file_replaces_body {
            return;
        }
        let left = match self.framing {
            Framing::Discard => {
                self.body_bytes += length;
                return;
            }
            Framing::Length(left) => left.min(length),
            // What is encoded has lost the length that was announced for it.
            Framing::Chunked | Framing::UntilClose => announced.map_or(length, |announced| announced.min(length)),
        };
        if self.filter.is_none() {
            self.open_frame(usize::try_from(left).unwrap_or(usize::MAX));
        }
        self.out.file = Some(FilePart { file: Arc::new(file), offset, left, promised: None, has_begun: false });
        self.sent_file = true;
    }

    /// Sends what waits: the buffer, then the file, of which it sends so much at a time that others have their turn. `Blocked`
    /// with [`Response::is_full`] false says that there would be room for more.
    pub fn advance(&mut self) -> Progress {
        self.out.is_full = false;
        let mut turn = FILE_TURN_BYTES;
        if self.terms.may_cork && self.stage == Stage::Done && self.out.file.is_none() {
            self.out.hold();
        } else {
            self.out.send();
        }
        while !self.out.is_broken && !self.out.is_full && self.out.unsent() == 0 {
            let Some(part) = &self.out.file else { break };
            if part.left == 0 {
                self.end_file();
                self.out.send();
                continue;
            }
            if turn == 0 {
                break;
            }
            if self.filter.is_some() {
                self.encode_file();
                self.out.send();
                turn = 0;
                continue;
            }
            let sent = self.out.send_file(turn);
            turn -= sent.min(turn);
            self.body_bytes += sent;
            if let Framing::Length(left) = &mut self.framing {
                *left -= sent;
            }
        }
        self.out.count_waiting();
        if self.out.is_broken {
            Progress::Broken
        } else if self.out.unsent() > 0 || self.out.file.is_some() {
            Progress::Blocked
        } else {
            Progress::Done
        }
    }

    /// Takes the next piece of the file through the encoder.
    fn encode_file(&mut self) {
        let Some(part) = &mut self.out.file else { return };
        let wanted = usize::try_from(part.left).unwrap_or(usize::MAX).min(ENCODED_TURN_BYTES);
        let mut piece = vec![0; wanted];
        let is_read = part.file.read_exact_at(&mut piece, part.offset.cast_unsigned()).is_ok();
        part.offset += wanted.cast_signed() as i64;
        part.left -= wanted as u64;
        let is_last = part.left == 0;
        // What is shorter than it was, or has become something else meanwhile, must not look like a whole answer.
        if !is_read || (is_last && part.has_changed()) {
            self.out.is_broken = true;
            return;
        }
        part.has_begun = true;
        let mut made = Vec::new();
        let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
        if encoder.is_none_or(|encoder| encoder.write(&piece, &mut made).is_err()) {
            self.encoder_failed();
            return;
        }
        self.frame(&made);
    }

    pub(super) fn end_file(&mut self) {
        self.out.file = None;
        if self.begin_next_part() {
            return;
        }
        if self.filter.is_some() {
            // Where more may follow the file, `finish` ends the encoding.
            if self.stage == Stage::Done {
                self.finish_encoding();
                self.end_chunks();
            }
            return;
        }
        if self.framing == Framing::Chunked {
            self.frame_left = 0;
            // The end of the body only when nothing follows the file: `finish` leaves it to us.
            self.out.bytes.extend_from_slice(if self.stage == Stage::Done { b"\r\n0\r\n\r\n" } else { b"\r\n" });
        }
    }
}
