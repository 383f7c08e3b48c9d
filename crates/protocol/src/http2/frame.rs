//! Frames (RFC 9113 sections 4 and 6): their heads, and the frames that the protocol itself sends. Workers run it.

use super::error::ErrorCode;
use super::limits::Http2Limits;

/// The client connection preface (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const FRAME_HEAD_BYTES: usize = 9;

/// Maximum size of a frame's payload that every peer accepts, in bytes: larger ones are neither accepted nor sent, whatever the
/// peer's setting.
pub const MAX_FRAME_BYTES: usize = 16_384;

/// Largest window in bytes (RFC 9113 section 6.9.1).
pub const MAX_WINDOW_BYTES: i64 = (1 << 31) - 1;

/// Initial window in bytes, before SETTINGS change it.
pub const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// The highest stream id.
pub const MAX_STREAM: u32 = (1 << 31) - 1;

/// The frame types.
pub mod kind {
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    /// RFC 9218 section 7.1.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The ids of settings (RFC 9113 section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1).
pub mod setting {
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    pub length: u32,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl FrameHead {
    /// Returns `None` if more bytes are needed.
    #[inline]
    pub fn read(input: &[u8]) -> Option<FrameHead> {
        let [l2, l1, l0, kind, flags, s3, s2, s1, s0, ..] = *input else { return None };
        let length = u32::from_be_bytes([0, l2, l1, l0]);
        // The bit in front of the stream id is reserved, and ignored.
        let stream = u32::from_be_bytes([s3, s2, s1, s0]) & MAX_STREAM;
        Some(FrameHead { length, kind, flags, stream })
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub fn bytes(&self) -> [u8; FRAME_HEAD_BYTES] {
        let [_, l2, l1, l0] = self.length.to_be_bytes();
        let [s3, s2, s1, s0] = self.stream.to_be_bytes();
        [l2, l1, l0, self.kind, self.flags, s3, s2, s1, s0]
    }
}

/// Returns a number of 31 bits whose first bit is reserved.
pub fn number_31(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?) & MAX_STREAM)
}

/// Writes a part of a body, at most [`MAX_FRAME_BYTES`] bytes.
#[inline]
pub fn write_data(stream: u32, payload: &[u8], is_end: bool, out: &mut Vec<u8>) {
    let flags = if is_end { flag::END_STREAM } else { 0 };
    out.extend_from_slice(&FrameHead { length: payload.len() as u32, kind: kind::DATA, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Writes a header block, in as many frames as it needs.
#[inline]
pub fn write_block(stream: u32, block: &[u8], is_end: bool, out: &mut Vec<u8>) {
    let (first, mut rest) = block.split_at(block.len().min(MAX_FRAME_BYTES));
    let end_headers = |rest: &[u8]| if rest.is_empty() { flag::END_HEADERS } else { 0 };
    let flags = end_headers(rest) | if is_end { flag::END_STREAM } else { 0 };
    out.extend_from_slice(&FrameHead { length: first.len() as u32, kind: kind::HEADERS, flags, stream }.bytes());
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(MAX_FRAME_BYTES));
        rest = behind;
        let head = FrameHead { length: piece.len() as u32, kind: kind::CONTINUATION, flags: end_headers(rest), stream };
        out.extend_from_slice(&head.bytes());
        out.extend_from_slice(piece);
    }
}

pub fn write_settings(limits: &Http2Limits, out: &mut Vec<u8>) {
    let settings = [
        (setting::MAX_CONCURRENT_STREAMS, limits.streams),
        (setting::INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
        (setting::MAX_HEADER_LIST_SIZE, limits.header_list_bytes),
        (setting::NO_RFC7540_PRIORITIES, 1),
        (setting::ENABLE_CONNECT_PROTOCOL, 1),
    ];
    let settings = &settings[..settings.len() - usize::from(!limits.has_extended_connect)];
    let head = FrameHead { length: 6 * settings.len() as u32, kind: kind::SETTINGS, flags: 0, stream: 0 };
    out.extend_from_slice(&head.bytes());
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub fn write_settings_ack(out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHead { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.bytes());
}

pub fn write_ping_ack(payload: &[u8], out: &mut Vec<u8>) {
    let head = FrameHead { length: payload.len() as u32, kind: kind::PING, flags: flag::ACK, stream: 0 };
    out.extend_from_slice(&head.bytes());
    out.extend_from_slice(payload);
}

pub fn write_window_update(stream: u32, bytes: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHead { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.bytes());
    out.extend_from_slice(&bytes.to_be_bytes());
}

pub fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHead { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub fn write_go_away(last_stream: u32, code: ErrorCode, reason: &str, out: &mut Vec<u8>) {
    let head = FrameHead { length: 8 + reason.len() as u32, kind: kind::GOAWAY, flags: 0, stream: 0 };
    out.extend_from_slice(&head.bytes());
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(mut out: &[u8]) -> Vec<(u8, u8, usize)> {
        let mut told = Vec::new();
        while let Some(head) = FrameHead::read(out) {
            assert_eq!(head.stream, 5);
            told.push((head.kind, head.flags, head.length as usize));
            out = &out[FRAME_HEAD_BYTES + head.length as usize..];
        }
        assert!(out.is_empty());
        told
    }

    #[test]
    fn a_block_that_is_larger_than_a_frame_goes_on_in_others() {
        for (bytes, is_end, expected) in [
            (7, false, vec![(kind::HEADERS, flag::END_HEADERS, 7)]),
            (MAX_FRAME_BYTES, true, vec![(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, MAX_FRAME_BYTES)]),
            (
                40_000,
                true,
                vec![
                    (kind::HEADERS, flag::END_STREAM, MAX_FRAME_BYTES),
                    (kind::CONTINUATION, 0, MAX_FRAME_BYTES),
                    (kind::CONTINUATION, flag::END_HEADERS, 40_000 - 2 * MAX_FRAME_BYTES),
                ],
            ),
        ] {
            let mut out = Vec::new();
            write_block(5, &vec![b'~'; bytes], is_end, &mut out);
            assert_eq!(told(&out), expected);
        }
    }

    #[test]
    fn the_end_of_a_body_is_with_its_last_bytes_or_alone() {
        let mut out = Vec::new();
        write_data(5, b"hello", false, &mut out);
        write_data(5, b"!", true, &mut out);
        write_data(5, b"", true, &mut out);
        assert_eq!(told(&out), [(kind::DATA, 0, 5), (kind::DATA, flag::END_STREAM, 1), (kind::DATA, flag::END_STREAM, 0)]);
    }
}
