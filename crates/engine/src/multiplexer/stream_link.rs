//! The transport of one stream: its bytes come out of the connection's, and its frames go into it.
//!
//! The stream's own buffer has whole frames, as the encoder writes them; what of them may leave is decided here, by the client's windows and
//! by what waits already. It knows no application. The thread that attends to the stream runs it.

use std::sync::Arc;

use bolide_protocol::http2::frame::{FRAME_HEAD_BYTES, FrameHead, flag, kind};

use super::room::WaitingStream;
use super::{Line, Multiplexer, SharedMultiplexer};
use crate::socket::Read;
use crate::transport::{Moved, StreamTransport, StreamWait};

/// One stream's way to its client.
pub struct StreamLink {
    shared: Arc<SharedMultiplexer>,
    number: u32,
}

impl Drop for StreamLink {
    fn drop(&mut self) {
        self.shared.lock().end_line(self.number);
    }
}

impl StreamLink {
    pub fn new(shared: Arc<SharedMultiplexer>, number: u32) -> StreamLink {
        StreamLink { shared, number }
    }
}

impl StreamTransport for StreamLink {
    fn read(&self, buffer: &mut [u8]) -> Read {
        let mut multiplexer = self.shared.lock();
        let Some(line) = multiplexer.line(self.number) else { return Read::Broken };
        let count = line.inbound.len().min(buffer.len());
        if count == 0 {
            return match line {
                Line { is_reset: true, .. } => Read::Broken,
                Line { is_tunnel: true, has_ended: true, .. } => Read::End,
                _ => Read::Nothing,
            };
        }
        buffer[..count].copy_from_slice(&line.inbound[..count]);
        line.inbound.drain(..count);
        if line.inbound.is_empty() {
            // A stream on which nothing comes, as a WebSocket is most of the time, owns no buffer.
            line.inbound = Vec::new();
        }
        // With what stands around chunks it is more than the body's bytes, of which the session knows how many there are.
        multiplexer.session.note_taken(self.number, count as u64);
        Read::Bytes(count)
    }

    fn has_input(&self) -> bool {
        self.shared.lock().line(self.number).is_none_or(|line| line.is_reset || !line.inbound.is_empty())
    }

    fn is_gone(&self) -> bool {
        self.shared.lock().is_gone(self.number)
    }

    fn room_wait(&self) -> Box<dyn StreamWait> {
        Box::new(WaitingStream { shared: self.shared.clone(), number: self.number })
    }

    fn send(&self, staged: &mut [u8], sent: &mut usize, may_wait: bool) -> Moved {
        let mut multiplexer = self.shared.lock();
        if multiplexer.is_gone(self.number) {
            return Moved::Gone;
        }
        let before = *sent;
        let moved = multiplexer.move_frames(self.number, staged, sent);
        if let Some(line) = multiplexer.line(self.number) {
            line.sent_bytes += (*sent - before) as u64;
        }
        if moved == Moved::Part {
            multiplexer.note_waiting(self.number);
        }
        match may_wait {
            true => multiplexer.hold(&self.shared),
            false => multiplexer.flush(),
        }
        moved
    }
}

impl Multiplexer {
    pub(super) fn is_gone(&mut self, number: u32) -> bool {
        self.transport.is_broken || self.line(number).is_none_or(|line| line.is_reset)
    }

    fn move_frames(&mut self, number: u32, staged: &mut [u8], sent: &mut usize) -> Moved {
        loop {
            let Some(head) = staged.get(*sent..).and_then(FrameHead::read) else { return Moved::All };
            let length = u64::from(head.length);
            let end = *sent + FRAME_HEAD_BYTES + head.length as usize;
            if staged.len() < end {
                // The rest of it is still to be written.
                return Moved::All;
            }
            if self.is_behind() {
                return Moved::Part;
            }
            if head.kind == kind::DATA {
                let room = self.session.room(number).min(length);
                if room < length {
                    if room > 0 {
                        self.move_piece(number, staged, sent, head, room as u32);
                    }
                    return Moved::Part;
                }
                self.session.note_sent(number, length);
            }
            self.transport.bytes.extend_from_slice(&staged[*sent..end]);
            *sent = end;
            if matches!(head.kind, kind::DATA | kind::HEADERS) && head.has(flag::END_STREAM) {
                self.session.note_answered(number);
            }
        }
    }

    /// Moves the first `bytes` of a frame of data as a frame of their own. What is left of it gets a head of its own, for which there is room
    /// where the first one and its bytes have been.
    fn move_piece(&mut self, number: u32, staged: &mut [u8], sent: &mut usize, head: FrameHead, bytes: u32) {
        let payload = *sent + FRAME_HEAD_BYTES;
        let (piece, rest) = cut(head, bytes);
        self.transport.bytes.extend_from_slice(&piece.bytes());
        self.transport.bytes.extend_from_slice(&staged[payload..payload + bytes as usize]);
        self.session.note_sent(number, u64::from(bytes));
        *sent += bytes as usize;
        staged[*sent..*sent + FRAME_HEAD_BYTES].copy_from_slice(&rest.bytes());
    }
}

/// The heads of a frame of data in two: of its first `bytes`, and of the rest.
fn cut(head: FrameHead, bytes: u32) -> (FrameHead, FrameHead) {
    let piece = FrameHead { length: bytes, flags: 0, ..head };
    (piece, FrameHead { length: head.length - bytes, ..head })
}
