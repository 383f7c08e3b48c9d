//! Answers as frames of HTTP/2 (RFC 9113 section 8.1): heads, trailers, what stands before a body's bytes. Workers run it.

use super::head::ResponseHead;
use crate::http2::frame::{FRAME_BYTES_MOST, FRAME_HEAD_BYTES, FrameHead, flag, kind};
use crate::http2::hpack::encoder;

/// What stands before the value in the field that is the server's date, and behind it.
const DATE_NAME: &[u8] = b"Date: ";

/// Writes a head with the server's own fields. `is_end`: nothing follows it.
#[inline]
pub(super) fn head(head: &ResponseHead, date_line: &[u8], stream: u32, is_end: bool, out: &mut Vec<u8>) {
    let start = begin(head.status(), out);
    head.each(|name, value| {
        if !is_of_connection(name) {
            encoder::field(name, value, out);
        }
    });
    own_fields(head, date_line, out);
    frame(out, start, stream, is_end);
}

/// The head that tells the client of an extended CONNECT that the other protocol begins (RFC 8441 section 5): 200 is what 101 is elsewhere, and
/// the key is not answered.
pub(super) fn switch(head: &ResponseHead, date_line: &[u8], stream: u32, out: &mut Vec<u8>) {
    let status = if head.status() == 101 { 200 } else { head.status() };
    let start = begin(status, out);
    head.each(|name, value| {
        if !is_of_connection(name) && !name.eq_ignore_ascii_case(b"sec-websocket-accept") {
            encoder::field(name, value, out);
        }
    });
    own_fields(head, date_line, out);
    frame(out, start, stream, false);
}

/// The head of an interim response. `status` begins with three digits.
pub(super) fn interim(status: &str, fields: &[(&[u8], &[u8])], stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let number = status.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(100);
    let start = begin(number, &mut out);
    for (name, value) in fields {
        encoder::field(name, value, &mut out);
    }
    frame(&mut out, start, stream, false);
    out
}

/// What stands before `bytes` of a body.
#[inline]
pub(super) fn data(stream: u32, bytes: u32, is_end: bool, out: &mut Vec<u8>) {
    let flags = if is_end { flag::END_STREAM } else { 0 };
    out.extend_from_slice(&FrameHead { length: bytes, kind: kind::DATA, flags, stream }.bytes());
}

pub(super) fn begin_trailers(block: &mut Vec<u8>) {
    block.clear();
    encoder::begin_trailers(block);
}

pub(super) fn trailer(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    if !is_of_connection(name) {
        encoder::field(name, value, block);
    }
}

pub(super) fn end_trailers(stream: u32, block: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
    out.extend_from_slice(block);
    frame(out, start, stream, true);
}

/// Leaves room for a frame's head, and begins a header block. Returns where.
#[inline]
fn begin(status: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
    encoder::begin(status, out);
    start
}

#[inline]
fn own_fields(head: &ResponseHead, date_line: &[u8], out: &mut Vec<u8>) {
    if !head.has_date {
        let date = date_line.strip_prefix(DATE_NAME).unwrap_or_default().trim_ascii_end();
        encoder::field(b"date", date, out);
    }
    if !head.has_server {
        encoder::field(b"server", b"bolide", out);
    }
}

/// Makes frames of the header block that stands behind the room for a frame's head at `start`.
#[inline]
fn frame(out: &mut Vec<u8>, start: usize, stream: u32, is_end: bool) {
    let length = out.len() - start - FRAME_HEAD_BYTES;
    let end_stream = if is_end { flag::END_STREAM } else { 0 };
    let is_whole = length <= FRAME_BYTES_MOST;
    let flags = end_stream | if is_whole { flag::END_HEADERS } else { 0 };
    let head = FrameHead { length: length.min(FRAME_BYTES_MOST) as u32, kind: kind::HEADERS, flags, stream };
    if let Some(room) = out.get_mut(start..start + FRAME_HEAD_BYTES) {
        room.copy_from_slice(&head.bytes());
    }
    if !is_whole {
        let rest = out.split_off(start + FRAME_HEAD_BYTES + FRAME_BYTES_MOST);
        continue_block(&rest, stream, out);
    }
}

/// The part of a header block that its first frame has no room for.
#[cold]
fn continue_block(rest: &[u8], stream: u32, out: &mut Vec<u8>) {
    let mut pieces = rest.chunks(FRAME_BYTES_MOST).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
        out.extend_from_slice(&FrameHead { length: piece.len() as u32, kind: kind::CONTINUATION, flags, stream }.bytes());
        out.extend_from_slice(piece);
    }
}

/// RFC 9113 section 8.2.2.
#[inline]
fn is_of_connection(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        _ => false,
    }
}
