//! The part of [`Response`] that sends what waits: the buffer, then files, in turns that leave the other connections theirs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bolide_protocol::response::{ResponseEncoder, Wire};

use super::writer::ResponseWriter;
use super::{BodyLeft, Progress, Response, Stage};
use crate::response::filters::FirstPart;
use crate::sockets::body_file::BodyFile;
use crate::sockets::transport::Transport;

/// Bytes of a file that are compressed for one client before others have their turn: a millisecond's work or two.
const ENCODED_TURN_BYTES: usize = 64 * 1024;

/// Bytes of a file that are sent to one client before others have their turn.
const FILE_TURN_BYTES: u64 = 2 * 1024 * 1024;

impl ResponseWriter<'_> {
    /// Sends `length` bytes of a file from `offset` as the body, or the rest of it, by sendfile.
    pub fn push_file(&mut self, file: File, offset: i64, length: u64) {
        self.declare_length(length);
        self.push_file_part(file, offset, length);
    }

    /// The same for one part of several. Nothing may be handed in before it has left ([`ResponseWriter::is_behind`]).
    pub fn push_file_part(&mut self, file: File, offset: i64, length: u64) {
        let announced = self.head.content_length;
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::File);
            self.close_head();
        }
        if self.file_replaces_body {
            return;
        }
        let left = match self.left {
            BodyLeft::Discard => return,
            BodyLeft::Length(left) => left.min(length),
            // What is encoded has lost the length that was announced for it.
            BodyLeft::Unknown => announced.map_or(length, |announced| announced.min(length)),
        };
        if self.filter.is_none() {
            self.response.encoder.open_frame(left, &mut self.transport.outgoing);
        }
        self.file = Some(Box::new(BodyFile { file: Arc::new(file), offset, left, promised: None, has_begun: false }));
        self.sent_file = true;
    }

    /// Ends the answer and sends what waits of it. With `code_follows`, code of the application's runs before the connection is seen to again: a
    /// client that waits for the connection's end has it now.
    pub fn complete(&mut self, code_follows: bool) -> Progress {
        self.finish();
        let progress = self.advance();
        if code_follows && progress == Progress::Done {
            self.show_end();
        }
        progress
    }

    /// All of the answer has left: where the connection ends with it, its client is shown that. One of HTTP/1.1 that was told a length does not
    /// wait for it; others read to the end whatever they were told, as many a front server does.
    pub(crate) fn show_end(&mut self) {
        let counts_bytes = self.left != BodyLeft::Unknown && matches!(self.terms.wire, Wire::Http11);
        if self.encoder.ends_with_connection() && !counts_bytes && !self.keeps_alive() && !self.transport.is_given_away() {
            self.transport.end_sending();
        }
    }

    /// Sends what waits: the buffer, then the file, of which it sends so much at a time that others have their turn. `Blocked`
    /// with a transport that is not full says that there would be room for more.
    pub fn advance(&mut self) -> Progress {
        self.transport.is_full = false;
        let mut turn = FILE_TURN_BYTES;
        if self.terms.may_cork && self.stage == Stage::Done && self.file.is_none() {
            self.transport.cork();
        } else {
            self.send();
        }
        while !self.transport.is_broken && !self.transport.is_full && self.transport.is_clear_for_file() {
            let Some(part) = &self.file else { break };
            if part.left == 0 {
                self.end_file();
                self.send();
                continue;
            }
            if turn == 0 {
                break;
            }
            if self.filter.is_some() {
                self.encode_file();
                self.send();
                turn = 0;
                continue;
            }
            let sent = self.send_piece_of_file(turn);
            turn -= sent.min(turn);
        }
        self.transport.count_waiting();
        if self.transport.is_broken {
            Progress::Broken
        } else if self.transport.unsent() > 0 || self.file.is_some() {
            Progress::Blocked
        } else {
            Progress::Done
        }
    }

    /// Sends a piece of the file, `most` bytes at the most, with what stands before it; returns its bytes.
    fn send_piece_of_file(&mut self, most: u64) -> u64 {
        let Response { encoder, file, .. } = &mut *self.response;
        let Some(part) = file else { return 0 };
        let sent = send_framed(encoder, self.transport, part, most);
        self.account_file(sent);
        if self.transport.is_stream() {
            // Its end leaves with its last bytes.
            self.transport.send(false);
        }
        sent
    }

    fn account_file(&mut self, sent: u64) {
        self.account(usize::try_from(sent).unwrap_or(usize::MAX));
    }

    /// Takes the next piece of the file through the encoder.
    fn encode_file(&mut self) {
        let Some(part) = &mut self.response.file else { return };
        let wanted = usize::try_from(part.left).unwrap_or(usize::MAX).min(ENCODED_TURN_BYTES);
        let mut piece = vec![0; wanted];
        let is_read = part.file.read_exact_at(&mut piece, part.offset.cast_unsigned()).is_ok();
        part.offset += wanted.cast_signed() as i64;
        part.left -= wanted as u64;
        let is_last = part.left == 0;
        // What is shorter than it was, or has become something else meanwhile, must not look like a whole answer.
        if !is_read || (is_last && part.has_changed()) {
            self.transport.is_broken = true;
            return;
        }
        part.has_begun = true;
        let mut made = Vec::new();
        let encoder = self.filter.as_mut().and_then(|filter| filter.encoder());
        if encoder.is_none_or(|encoder| encoder.write(&piece, &mut made).is_err()) {
            self.encoder_failed();
            return;
        }
        self.write_framed(&made);
    }

    fn end_file(&mut self) {
        self.file = None;
        if self.begin_next_part() {
            return;
        }
        // The end of the body only when nothing follows the file: `finish` leaves it to us.
        if self.stage == Stage::Done {
            if self.filter.is_some() {
                self.finish_encoding();
            }
            self.end_body();
        }
    }
}

/// Sends a piece of a file within the frame that it belongs to.
fn send_framed(encoder: &mut ResponseEncoder, transport: &mut Transport, part: &mut BodyFile, most: u64) -> u64 {
    let frame = encoder.open_frame(part.left, &mut transport.outgoing);
    if transport.unsent() > 0 {
        transport.send(true);
        if !transport.is_clear_for_file() {
            return 0;
        }
    }
    transport.send_file(part, most.min(frame))
}
