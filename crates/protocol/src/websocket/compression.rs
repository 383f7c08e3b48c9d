//! The compressors of permessage-deflate (RFC 7692 section 7.2), one pair for each thread: every message starts without the
//! context of the previous one, so messages of all connections can share them.
//!
//! Must not know frames or connections. Workers run it.

use std::borrow::Cow;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Violation;
use super::handshake::MIN_OWN_WINDOW_BITS;

/// The bytes that a sender removes from the end of each compressed message, and a receiver appends again (RFC 7692 sections 7.2.1
/// and 7.2.2): the lengths of the empty stored block that a flush ends with.
const FLUSH_TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// [`FLUSH_TAIL`], followed by an empty final block. It is only decoded as a block if it begins at a block boundary, which
/// distinguishes a complete message from a truncated one.
const CLOSING_TAIL: [u8; 6] = [0x00, 0x00, 0xff, 0xff, 0x03, 0x00];

/// Bytes of working memory that are kept between messages. Larger buffers are freed after their message.
const OUTPUT_KEPT_BYTES: usize = 64 * 1024;

/// Smallest buffer growth for inflated data, in bytes.
const MIN_ROOM_BYTES: usize = 4096;

/// Maximum number of blocks with the final bit in one message. Section 7.2.3.4 allows them; senders write one for each message or
/// fragment.
const MAX_FINAL_BLOCKS: u32 = 1024;

/// zlib's fastest level with dynamic codes. Connections share a thread, and higher levels make JSON of a few kilobytes less than
/// a tenth shorter, for up to three times the work (`examples/websocket_speed.rs`).
const LEVEL: u32 = 2;

/// Window sizes that a compressor can have: 9 to 15.
const WINDOW_SIZES: usize = 7;

const CORRUPT: Violation = Violation::payload("The message's compressed data is corrupt.");

/// Inflates the messages of all connections of a thread.
///
/// It has the largest window, whatever was negotiated: that inflates data of any smaller one.
#[derive(Debug, Default)]
pub struct Inflation {
    inflater: Option<Decompress>,
    output: Vec<u8>,
}

impl Inflation {
    /// Returns the message whose whole payload is `compressed`. Never holds more than `most` bytes and a piece of the message.
    ///
    /// # Errors
    /// 1009 if the message is longer than `most` bytes, 1007 if the data is not valid deflate.
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
        // A sender should write an empty message as one byte (section 7.2.3.6), but some do not write any bytes.
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
                let room = output.len().max(MIN_ROOM_BYTES).min(most.saturating_add(1) - output.len());
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
                // Also a message whose last block has the final bit, with no data after it.
                Status::StreamEnd if rest.is_empty() => return Ok(()),
                Status::StreamEnd if in_tail || final_blocks == MAX_FINAL_BLOCKS => return Err(CORRUPT),
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

/// Deflates the messages of all connections of a thread. A compressor for a window size is made when it is first needed.
#[derive(Debug, Default)]
pub struct Deflation {
    deflaters: [Option<Compress>; WINDOW_SIZES],
    output: Vec<u8>,
}

impl Deflation {
    /// Returns the compressed form of a payload, or `None` if it is not shorter.
    pub(super) fn deflate(&mut self, payload: &[u8], window_bits: u8) -> Option<&[u8]> {
        let place = usize::from(window_bits.checked_sub(MIN_OWN_WINDOW_BITS)?);
        let deflater = self
            .deflaters
            .get_mut(place)?
            .get_or_insert_with(|| Compress::new_with_window_bits(Compression::new(LEVEL), false, window_bits));
        deflater.reset();
        self.output.clear();
        if self.output.capacity() > OUTPUT_KEPT_BYTES {
            self.output = Vec::new();
        }
        // Only a result that is shorter than the payload fits: one call completes it, or the message is sent uncompressed.
        let room = payload.len() + FLUSH_TAIL.len();
        self.output.reserve_exact(room);
        let status = deflater.compress_vec(payload, &mut self.output, FlushCompress::Sync);
        let is_whole =
            matches!(status, Ok(Status::Ok)) && deflater.total_in() == payload.len() as u64 && self.output.len() < room;
        self.output.strip_suffix(&FLUSH_TAIL).filter(|_| is_whole)
    }
}
