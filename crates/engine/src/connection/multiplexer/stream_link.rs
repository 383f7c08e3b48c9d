//! The transport of one stream: it reads from the connection's input, and its header blocks and payload become frames there.
//!
//! It decides how much may be sent, by the client's windows and by the bytes that are waiting already. It does not know about the
//! application. The worker thread that attends to the stream runs it.

use std::sync::Arc;

use bolide_protocol::http2::MAX_FRAME_BYTES;
use bolide_protocol::http2::frame::{write_block, write_data};
use bolide_protocol::response::{Outgoing, StreamEnd};

use super::room_wait::WaitingStream;
use super::streams::StreamEntry;
use super::{Multiplexer, SharedMultiplexer};
use crate::sockets::socket::Read;
use crate::sockets::transport::{Moved, StreamPart, StreamTransport, StreamWait};

/// The link of one stream to its connection.
pub struct StreamLink {
    shared: Arc<SharedMultiplexer>,
    number: u32,
}

impl Drop for StreamLink {
    fn drop(&mut self) {
        self.shared.lock().end_stream(self.number);
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
        let Some(line) = multiplexer.streams.entry(self.number) else { return Read::Broken };
        let count = line.inbound.len().min(buffer.len());
        if count == 0 {
            return match line {
                StreamEntry { is_reset: true, .. } => Read::Broken,
                StreamEntry { is_tunnel: true, has_ended: true, .. } => Read::End,
                _ => Read::Nothing,
            };
        }
        buffer[..count].copy_from_slice(&line.inbound[..count]);
        line.inbound.drain(..count);
        if line.inbound.is_empty() {
            // A stream without input, such as a WebSocket most of the time, does not own a buffer.
            line.inbound = Vec::new();
        }
        // With chunk framing, this is more than the body's bytes, which the session knows the number of.
        multiplexer.session.note_taken(self.number, count as u64);
        Read::Bytes(count)
    }

    fn has_input(&self) -> bool {
        self.shared.lock().streams.entry(self.number).is_none_or(|line| line.is_reset || !line.inbound.is_empty())
    }

    fn is_gone(&self) -> bool {
        self.shared.lock().is_gone(self.number)
    }

    fn has_gone_by_now(&self) -> bool {
        let mut multiplexer = self.shared.lock();
        if !multiplexer.is_gone(self.number) {
            multiplexer.look_ahead();
        }
        multiplexer.is_gone(self.number)
    }

    fn room_wait(&self) -> Box<dyn StreamWait> {
        Box::new(WaitingStream { shared: self.shared.clone(), number: self.number })
    }

    fn send(&self, outgoing: &mut Outgoing, sent: &mut usize, part: StreamPart<'_>, may_wait: bool) -> (Moved, usize) {
        let mut multiplexer = self.shared.lock();
        if multiplexer.is_gone(self.number) {
            return (Moved::Gone, 0);
        }
        let before = *sent;
        let (moved, taken) = match multiplexer.move_waiting(self.number, outgoing, sent) {
            Moved::All => multiplexer.move_part(self.number, outgoing, part),
            moved => (moved, 0),
        };
        if let Some(line) = multiplexer.streams.entry(self.number) {
            line.sent_bytes += (*sent - before + taken) as u64;
        }
        if moved == Moved::Part {
            multiplexer.note_waiting(self.number);
        }
        match may_wait {
            true => multiplexer.hold(&self.shared),
            false => multiplexer.flush(),
        }
        (moved, taken)
    }
}

impl Multiplexer {
    pub(super) fn is_gone(&self, number: u32) -> bool {
        self.transport.is_broken || self.streams.is_gone(number)
    }

    /// Makes frames of waiting bytes: the head, as much of the payload as there is room for, and behind it the end or the trailer
    /// fields.
    fn move_waiting(&mut self, number: u32, outgoing: &mut Outgoing, sent: &mut usize) -> Moved {
        let is_due = outgoing.end == StreamEnd::Due;
        let all = outgoing.bytes.len();
        if outgoing.head_bytes > 0 {
            if self.is_behind() {
                return Moved::Part;
            }
            let end = *sent + outgoing.head_bytes;
            self.move_block(number, &outgoing.bytes[*sent..end], is_due && end == all);
            (*sent, outgoing.head_bytes) = (end, 0);
            if is_due && end == all {
                outgoing.end = StreamEnd::Sent;
                return Moved::All;
            }
        }
        let payload = &outgoing.bytes[*sent..all - outgoing.trailer_bytes];
        let is_last = is_due && outgoing.trailer_bytes == 0;
        let taken = self.move_payload(number, payload, is_last);
        *sent += taken;
        if taken < payload.len() {
            return Moved::Part;
        }
        if outgoing.trailer_bytes > 0 {
            if self.is_behind() {
                return Moved::Part;
            }
            self.move_block(number, &outgoing.bytes[*sent..], true);
            (*sent, outgoing.trailer_bytes) = (all, 0);
        }
        if is_due {
            outgoing.end = StreamEnd::Sent;
        }
        Moved::All
    }

    /// The same with a part that the stream does not keep. Also returns how many bytes were taken.
    fn move_part(&mut self, number: u32, outgoing: &mut Outgoing, part: StreamPart<'_>) -> (Moved, usize) {
        let is_last = part.is_last && outgoing.end == StreamEnd::Open && !part.bytes.is_empty();
        let taken = self.move_payload(number, part.bytes, is_last);
        if taken < part.bytes.len() {
            return (Moved::Part, taken);
        }
        if is_last {
            outgoing.end = StreamEnd::Sent;
        }
        (Moved::All, taken)
    }

    fn move_block(&mut self, number: u32, block: &[u8], is_end: bool) {
        write_block(number, block, is_end, &mut self.transport.outgoing.bytes);
        if is_end {
            self.session.note_answered(number);
        }
    }

    /// Makes frames of as much of a payload as the windows have room for. `is_last`: the stream ends behind it. Returns the
    /// bytes.
    fn move_payload(&mut self, number: u32, payload: &[u8], is_last: bool) -> usize {
        let mut taken = 0;
        while taken < payload.len() && !self.is_behind() {
            let room = usize::try_from(self.session.room(number)).unwrap_or(usize::MAX);
            let piece = &payload[taken..];
            let piece = &piece[..piece.len().min(room).min(MAX_FRAME_BYTES)];
            if piece.is_empty() {
                break;
            }
            taken += piece.len();
            write_data(number, piece, is_last && taken == payload.len(), &mut self.transport.outgoing.bytes);
            self.session.note_sent(number, piece.len() as u64);
        }
        if is_last && payload.is_empty() {
            write_data(number, b"", true, &mut self.transport.outgoing.bytes);
        }
        if is_last && taken == payload.len() {
            self.session.note_answered(number);
        }
        taken
    }
}
