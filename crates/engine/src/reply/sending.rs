//! The part of [`Reply`] that sends what waits: the buffer, then files, in turns that leave the other connections theirs.

use std::fs::File;
use std::sync::Arc;

use super::{Framing, Progress, Reply, Stage};
use crate::amends::Body;
use crate::outbox::FilePart;

/// Bytes of a file that are sent to one client before others have their turn.
const FILE_TURN_BYTES: u64 = 2 * 1024 * 1024;

impl Reply {
    /// Sends `length` bytes of a file from `offset` as the body, or the rest of it, by sendfile.
    pub fn push_file(&mut self, file: File, offset: i64, length: u64) {
        self.declare_length(length);
        self.push_file_part(file, offset, length);
    }

    /// The same for one part of several. Nothing may be handed in before it has left ([`Reply::is_behind`]).
    pub fn push_file_part(&mut self, file: File, offset: i64, length: u64) {
        if self.stage == Stage::Head {
            self.amend_head(Body::File);
            self.close_head();
        }
        let left = match self.framing {
            Framing::Discard => {
                self.body_bytes += length;
                return;
            }
            Framing::Length(left) => left.min(length),
            Framing::Chunked | Framing::UntilClose => length,
        };
        self.open_frame(usize::try_from(left).unwrap_or(usize::MAX));
        self.out.file = Some(FilePart { file: Arc::new(file), offset, left, promised: None, has_begun: false });
        self.sent_file = true;
    }

    /// Sends what waits: the buffer, then the file, of which it sends so much at a time that others have their turn. `Blocked`
    /// with [`Reply::is_full`] false says that there would be room for more.
    pub fn advance(&mut self) -> Progress {
        self.out.is_full = false;
        let mut turn = FILE_TURN_BYTES;
        if self.terms.may_hold && self.stage == Stage::Done && self.out.file.is_none() {
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
            let sent = self.out.send_file(turn);
            turn -= sent.min(turn);
            self.body_bytes += sent;
            if let Framing::Length(left) = &mut self.framing {
                *left -= sent;
            }
        }
        if self.out.is_broken {
            Progress::Broken
        } else if self.out.unsent() > 0 || self.out.file.is_some() {
            Progress::Blocked
        } else {
            Progress::Done
        }
    }

    pub(super) fn end_file(&mut self) {
        self.out.file = None;
        if self.begin_next_part() {
            return;
        }
        if self.framing == Framing::Chunked {
            self.frame_left = 0;
            // The end of the body only when nothing follows the file: `finish` leaves it to us.
            self.out.bytes.extend_from_slice(if self.stage == Stage::Done { b"\r\n0\r\n\r\n" } else { b"\r\n" });
        }
    }
}
