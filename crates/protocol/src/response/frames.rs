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

#[cfg(test)]
mod tests {
    use super::super::{BodyLength, HeadTerms, ResponseEncoder, Wire};
    use super::*;

    const DATE: &[u8] = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    const WIRE: Wire = Wire::Http2 { stream: 5 };

    fn response(status: u16, fields: &[(&[u8], &[u8])]) -> ResponseHead {
        let mut head = ResponseHead::default();
        head.begin_with(status, "Reason");
        for (name, value) in fields {
            head.add(name, value);
        }
        head
    }

    /// An encoder behind its head, and the frames of that.
    fn begun(head: &ResponseHead, length: BodyLength) -> (ResponseEncoder, Vec<FrameHead>, Vec<u8>) {
        let (mut encoder, mut out) = (ResponseEncoder::new(WIRE), Vec::new());
        assert!(encoder.head(head, HeadTerms { length, keep_alive: true, date_line: DATE }, &mut out));
        assert!(!encoder.ends_with_connection());
        (encoder, frames(&out), out)
    }

    fn frames(mut out: &[u8]) -> Vec<FrameHead> {
        let mut frames = Vec::new();
        while let Some(head) = FrameHead::read(out) {
            assert_eq!(head.stream, 5);
            frames.push(head);
            out = &out[FRAME_HEAD_BYTES + head.length as usize..];
        }
        assert!(out.is_empty());
        frames
    }

    #[test]
    fn names_are_small_and_what_speaks_of_a_connection_is_left_out() {
        let left_out: [(&[u8], &[u8]); 5] = [
            (b"Connection", b"close"),
            (b"Keep-Alive", b"1"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Upgrade", b"x"),
            (b"Proxy-Connection", b"x"),
        ];
        let with_own: [(&[u8], &[u8]); 3] = [(b"X-Own", b"~~"), (b"Date", b"~"), (b"SERVER", b"~")];
        let mut head = response(404, &[&left_out[..], &with_own].concat());
        (head.has_date, head.has_server) = (true, true);
        let (_, _, out) = begun(&head, BodyLength::Unknown);
        assert_eq!(out[FRAME_HEAD_BYTES..], b"\x20\x8d\0\x05x-own\x02~~\x0f\x12\x01~\x0f\x27\x01~"[..]);
        let (_, _, out) = begun(&response(299, &[(b"Set-Cookie", b"~")]), BodyLength::Unknown);
        assert!(out[FRAME_HEAD_BYTES..].starts_with(b"\x20\x08\x03299\x1f\x28\x01~\x0f\x12"), "{}", out.escape_ascii());
    }

    #[test]
    fn the_end_of_the_stream_is_said_as_soon_as_it_is_known() {
        let empty = response(200, &[]);
        for (length, content_length, ended) in [
            (BodyLength::NoBody, Some(7), true),
            (BodyLength::Known, Some(0), true),
            (BodyLength::Known, Some(7), false),
            (BodyLength::Unknown, None, false),
        ] {
            let mut head = response(200, &[]);
            head.content_length = content_length;
            let (encoder, frames, _) = begun(&head, length);
            assert_eq!((encoder.has_ended(), frames[0].has(flag::END_STREAM), frames.len()), (ended, ended, 1), "{length:?}");
            assert_eq!(encoder.has_trailers(), !ended);
        }
        let (mut encoder, _, _) = begun(&empty, BodyLength::Unknown);
        let mut out = Vec::new();
        encoder.end(&mut out);
        encoder.end(&mut out);
        assert_eq!(frames(&out), [FrameHead { length: 0, kind: kind::DATA, flags: flag::END_STREAM, stream: 5 }]);
    }

    #[test]
    fn a_body_leaves_in_frames_the_last_of_which_ends_it() {
        let mut head = response(200, &[]);
        head.set_length(40_000);
        let (mut encoder, _, _) = begun(&head, BodyLength::Known);
        let (mut out, mut left) = (Vec::new(), 40_000u64);
        for (given, expected) in [(20_000, 16_384), (3616, 3616), (0, 0), (1, 1), (20_000, 16_384), (3615, 3615)] {
            assert_eq!(encoder.open_frame(given, &mut out), expected);
            assert_eq!(encoder.open_frame(given, &mut out), expected, "the frame is open");
            assert_eq!(encoder.is_within_frame(), expected > 0);
            out.resize(out.len() + expected as usize, b'x');
            encoder.wrote(expected, &mut out);
            left -= expected;
        }
        assert_eq!((left, encoder.has_ended()), (0, true));
        encoder.end(&mut out);
        let ends: Vec<bool> = frames(&out).iter().map(|frame| frame.has(flag::END_STREAM)).collect();
        assert_eq!(ends, [false, false, false, false, true]);
    }

    #[test]
    fn a_body_that_is_cut_off_has_no_end() {
        let mut head = response(200, &[]);
        head.set_length(10);
        let (mut encoder, _, _) = begun(&head, BodyLength::Known);
        let mut out = Vec::new();
        let frame = encoder.open_frame(9, &mut out);
        encoder.wrote(frame, &mut out);
        let written = out.len();
        encoder.end(&mut out);
        assert_eq!((out.len(), encoder.has_ended()), (written, false));
    }

    #[test]
    fn a_head_that_is_larger_than_a_frame_goes_on_in_others() {
        let long = vec![b'~'; 40_000];
        let (_, heads, _) = begun(&response(200, &[(b"x", &long)]), BodyLength::NoBody);
        let told: Vec<_> = heads.iter().map(|head| (head.kind, head.flags, head.length as usize)).collect();
        let rest = told[2].2;
        assert!(rest < FRAME_BYTES_MOST);
        let expected = [
            (kind::HEADERS, flag::END_STREAM, FRAME_BYTES_MOST),
            (kind::CONTINUATION, 0, FRAME_BYTES_MOST),
            (kind::CONTINUATION, flag::END_HEADERS, rest),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_stands_before_and_behind_an_answer_is_framed_too() {
        let (mut encoder, _, _) = begun(&response(200, &[]), BodyLength::Unknown);
        let interim = encoder.interim("103 Early Hints", &[(b"Link", b"~")]).expect("HTTP/2 has them");
        assert_eq!(interim, b"\0\0\x0a\x01\x04\0\0\0\x05\x20\x08\x03103\x0f\x1e\x01~");
        let mut out = Vec::new();
        encoder.begin_trailers(&mut out);
        encoder.trailer(b"X-T", b"~", &mut out);
        encoder.trailer(b"Connection", b"~", &mut out);
        assert!(out.is_empty(), "they leave in one piece");
        encoder.end_trailers(&mut out);
        assert_eq!(out, b"\0\0\x08\x01\x05\0\0\0\x05\x20\0\x03x-t\x01~");
        assert!(encoder.has_ended());
        let mut encoder = ResponseEncoder::new(WIRE);
        let mut out = Vec::new();
        let mut head =
            response(101, &[(b"Upgrade", b"websocket"), (b"Sec-WebSocket-Accept", b"~"), (b"Sec-WebSocket-Protocol", b"~")]);
        (head.has_date, head.has_server) = (true, true);
        encoder.switch(&head, DATE, &mut out);
        assert_eq!(out, b"\0\0\x1c\x01\x04\0\0\0\x05\x20\x88\0\x16sec-websocket-protocol\x01~");
        assert!(!encoder.has_ended());
    }
}
