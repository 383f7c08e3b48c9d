//! The working memory of permessage-deflate (RFC 7692 section 7.2), one of each for a thread: every message begins with a
//! decompressor or compressor that knows nothing of the one before, so any connection's message can be next.
//!
//! It must not know frames or connections. Workers run it.

use std::borrow::Cow;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Violation;
use super::handshake::OWN_WINDOW_BITS_LEAST;

/// What a sender takes off the end of each compressed message, and a receiver puts back (RFC 7692 sections 7.2.1 and 7.2.2): the
/// lengths of the empty stored block that a flush ends with.
const FLUSH_TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// [`FLUSH_TAIL`], and an empty last block behind it. That one is read as what it is only at the border of two blocks, which is
/// how a message that was cut short is told from one that is whole.
const CLOSING_TAIL: [u8; 6] = [0x00, 0x00, 0xff, 0xff, 0x03, 0x00];

/// Working memory in bytes that is kept from one message to the next. What grew beyond goes with its message.
const OUTPUT_KEPT_BYTES: usize = 64 * 1024;

/// Smallest room in bytes that is made for inflated data at once.
const ROOM_BYTES_LEAST: usize = 4096;

/// Blocks with the final bit in one message. Section 7.2.3.4 allows them; senders write one a message, or one a fragment.
const FINAL_BLOCKS_MOST: u32 = 1024;

/// Among zlib's levels the quickest that fits its codes to the message. Connections share a thread, and the levels above make JSON
/// of a few kilobytes shorter by less than a tenth, for up to three times the work (`examples/websocket_speed.rs`).
const LEVEL: u32 = 2;

/// Sizes of windows that a compressor is made for: 9 to 15.
const WINDOW_SIZES: usize = 7;

const CORRUPT: Violation = Violation::payload("The message's compressed data is corrupt.");

/// Inflates the messages of all connections of a thread.
///
/// It has the largest window whatever was negotiated: that inflates what was made with any smaller one.
#[derive(Debug, Default)]
pub struct Inflation {
    inflater: Option<Decompress>,
    output: Vec<u8>,
}

impl Inflation {
    /// The message of which `compressed` is the whole payload. Never holds more than `most` bytes and a piece of the message.
    ///
    /// # Errors
    /// 1009 when the message is longer than `most` bytes, 1007 when the data is not deflate's.
    pub(super) fn inflate(&mut self, compressed: &[u8], most: usize) -> Result<Cow<'_, [u8]>, Violation> {
        self.output.clear();
        let outcome = self.inflate_into_output(compressed, most);
        if self.output.capacity() <= OUTPUT_KEPT_BYTES {
            return outcome.map(|()| Cow::Borrowed(self.output.as_slice()));
        }
        let output = std::mem::take(&mut self.output);
        outcome.map(|()| Cow::Owned(output))
    }

    fn inflate_into_output(&mut self, compressed: &[u8], most: usize) -> Result<(), Violation> {
        // A sender writes an empty message as one byte (section 7.2.3.6), but there are those who compress nothing to nothing.
        if compressed.is_empty() {
            return Ok(());
        }
        let Inflation { inflater, output } = self;
        let inflater = inflater.get_or_insert_with(|| Decompress::new(false));
        inflater.reset(false);
        let mut rest = compressed;
        let mut in_tail = false;
        let mut final_blocks = 0;
        let first_room = if output.capacity() < compressed.len() { compressed.len().saturating_mul(2) } else { 0 };
        output.reserve_exact(first_room.min(most));
        loop {
            if output.len() == output.capacity() {
                let room = output.len().max(ROOM_BYTES_LEAST).min(most.saturating_add(1) - output.len());
                output.reserve_exact(room);
            }
            let taken_before = inflater.total_in();
            let status = inflater.decompress_vec(rest, output, FlushDecompress::None).map_err(|_| CORRUPT)?;
            let taken = usize::try_from(inflater.total_in() - taken_before).unwrap_or(usize::MAX);
            rest = rest.get(taken..).ok_or(CORRUPT)?;
            if output.len() > most {
                return Err(Violation::too_big());
            }
            let has_room = output.len() < output.capacity();
            match status {
                // Also a message whose last block has the final bit, and nothing behind it.
                Status::StreamEnd if rest.is_empty() => return Ok(()),
                Status::StreamEnd if in_tail || final_blocks == FINAL_BLOCKS_MOST => return Err(CORRUPT),
                Status::StreamEnd => {
                    final_blocks += 1;
                    inflater.reset(false);
                }
                Status::Ok | Status::BufError if !rest.is_empty() && has_room && taken == 0 => return Err(CORRUPT),
                Status::Ok | Status::BufError if !rest.is_empty() || !has_room => {}
                Status::Ok | Status::BufError if in_tail => return Err(CORRUPT),
                Status::Ok | Status::BufError => {
                    in_tail = true;
                    rest = &CLOSING_TAIL;
                }
            }
        }
    }
}

/// Deflates the messages of all connections of a thread. A compressor is made for a size of window when one first needs it.
#[derive(Debug, Default)]
pub struct Deflation {
    deflaters: [Option<Compress>; WINDOW_SIZES],
    output: Vec<u8>,
}

impl Deflation {
    /// The compressed form of a payload, or `None` when it would not be the shorter one.
    pub(super) fn deflate(&mut self, payload: &[u8], window_bits: u8) -> Option<&[u8]> {
        let place = usize::from(window_bits.checked_sub(OWN_WINDOW_BITS_LEAST)?);
        let deflater = self
            .deflaters
            .get_mut(place)?
            .get_or_insert_with(|| Compress::new_with_window_bits(Compression::new(LEVEL), false, window_bits));
        deflater.reset();
        self.output.clear();
        if self.output.capacity() > OUTPUT_KEPT_BYTES {
            self.output = Vec::new();
        }
        // Only a form that is shorter than the payload leaves room: one call does it, or the message is sent as it is.
        let room = payload.len() + FLUSH_TAIL.len();
        self.output.reserve_exact(room);
        let status = deflater.compress_vec(payload, &mut self.output, FlushCompress::Sync);
        let is_whole =
            matches!(status, Ok(Status::Ok)) && deflater.total_in() == payload.len() as u64 && self.output.len() < room;
        self.output.strip_suffix(&FLUSH_TAIL).filter(|_| is_whole)
    }
}
