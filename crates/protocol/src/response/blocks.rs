//! Heads and trailer fields of answers as HTTP/2 header blocks (RFC 9113 section 8.1). Workers run it.

use super::head::ResponseHead;
use crate::hpack::encoder;

/// The bytes before the value in the server's date line.
const DATE_NAME: &[u8] = b"Date: ";

/// Writes a head with the server's own fields.
#[inline]
pub(super) fn head(head: &ResponseHead, date_line: &[u8], out: &mut Vec<u8>) {
    encoder::begin(head.status(), out);
    head.each(|name, value| {
        if !is_of_connection(name) {
            encoder::field(name, value, out);
        }
    });
    own_fields(head, date_line, out);
}

/// Writes the head that accepts an extended CONNECT (RFC 8441 section 5): its status is 200 instead of 101, and the WebSocket key
/// is not answered.
pub(super) fn switch(head: &ResponseHead, date_line: &[u8], out: &mut Vec<u8>) {
    let status = if head.status() == 101 { 200 } else { head.status() };
    encoder::begin(status, out);
    head.each(|name, value| {
        if !is_of_connection(name) && !name.eq_ignore_ascii_case(b"sec-websocket-accept") {
            encoder::field(name, value, out);
        }
    });
    own_fields(head, date_line, out);
}

/// Returns the head of an interim response. `status` begins with three digits.
pub(super) fn interim(status: &str, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let number = status.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(100);
    encoder::begin(number, &mut out);
    for (name, value) in fields {
        encoder::field(name, value, &mut out);
    }
    out
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
    use super::super::{BodyLength, HeadTerms, Outgoing, ResponseEncoder, StreamEnd, Wire};
    use super::*;

    const DATE: &[u8] = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    fn response(status: u16, fields: &[(&[u8], &[u8])]) -> ResponseHead {
        let mut head = ResponseHead::default();
        head.begin_with(status, "Reason");
        for (name, value) in fields {
            head.add(name, value);
        }
        head
    }

    /// Returns an encoder after its head, and the bytes that it has written.
    fn begun(head: &ResponseHead, length: BodyLength) -> (ResponseEncoder, Outgoing) {
        let (mut encoder, mut out) = (ResponseEncoder::new(Wire::Http2), Outgoing::default());
        assert!(encoder.head(head, HeadTerms { length, keep_alive: true, date_line: DATE }, &mut out));
        assert!(!encoder.ends_with_connection());
        assert_eq!((out.head_bytes, out.trailer_bytes), (out.bytes.len(), 0));
        (encoder, out)
    }

    #[test]
    fn names_are_lower_case_and_connection_fields_are_left_out() {
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
        let (_, out) = begun(&head, BodyLength::Unknown);
        assert_eq!(out.bytes, b"\x20\x8d\0\x05x-own\x02~~\x0f\x12\x01~\x0f\x27\x01~");
        let (_, out) = begun(&response(299, &[(b"Set-Cookie", b"~")]), BodyLength::Unknown);
        assert!(out.bytes.starts_with(b"\x20\x08\x03299\x1f\x28\x01~\x0f\x12"), "{}", out.bytes.escape_ascii());
    }

    #[test]
    fn the_end_of_the_stream_is_set_as_soon_as_it_is_known() {
        for (length, content_length, end) in [
            (BodyLength::NoBody, Some(7), StreamEnd::Due),
            (BodyLength::Known, Some(0), StreamEnd::Due),
            (BodyLength::Known, Some(7), StreamEnd::Open),
            (BodyLength::Unknown, None, StreamEnd::Open),
        ] {
            let mut head = response(200, &[]);
            head.content_length = content_length;
            let (encoder, out) = begun(&head, length);
            assert_eq!((out.end, encoder.has_trailers()), (end, end == StreamEnd::Open), "{length:?}");
        }
        let (mut encoder, mut out) = begun(&response(200, &[]), BodyLength::Unknown);
        encoder.end(&mut out);
        assert_eq!(out.end, StreamEnd::Due);
        out.end = StreamEnd::Sent;
        encoder.end(&mut out);
        assert_eq!((out.end, out.bytes.len()), (StreamEnd::Sent, out.head_bytes), "once");
    }

    #[test]
    fn a_body_leaves_as_it_is_and_its_last_byte_ends_it() {
        let mut head = response(200, &[]);
        head.set_length(40_000);
        let (mut encoder, mut out) = begun(&head, BodyLength::Known);
        let mut left = 40_000u64;
        for (given, expected) in [(20_000, 20_000), (0, 0), (1, 1), (20_000, 19_999)] {
            assert_eq!(out.end, StreamEnd::Open);
            assert_eq!(encoder.open_frame(given, &mut out), expected);
            assert!(!encoder.is_within_frame());
            encoder.wrote(expected, &mut out);
            left -= expected;
        }
        assert_eq!((left, out.end, out.bytes.len()), (0, StreamEnd::Due, out.head_bytes));
        encoder.end(&mut out);
        assert_eq!(out.bytes.len(), out.head_bytes);
    }

    #[test]
    fn a_body_that_is_cut_off_has_no_end() {
        let mut head = response(200, &[]);
        head.set_length(10);
        let (mut encoder, mut out) = begun(&head, BodyLength::Known);
        let count = encoder.open_frame(9, &mut out);
        encoder.wrote(count, &mut out);
        encoder.end(&mut out);
        assert_eq!((out.bytes.len(), out.end), (out.head_bytes, StreamEnd::Open));
    }

    #[test]
    fn interim_heads_and_trailers_are_blocks_too() {
        let (mut encoder, _) = begun(&response(200, &[]), BodyLength::Unknown);
        let interim = encoder.interim("103 Early Hints", &[(b"Link", b"~")]).expect("HTTP/2 has them");
        assert_eq!(interim, b"\x20\x08\x03103\x0f\x1e\x01~");
        // A status without a phrase of its own.
        assert_eq!(encoder.interim("199 ", &[]).as_deref(), Some(&b"\x20\x08\x03199"[..]));
        let mut out = Outgoing::default();
        encoder.begin_trailers(&mut out);
        encoder.trailer(b"X-T", b"~", &mut out);
        encoder.trailer(b"Connection", b"~", &mut out);
        assert!(out.bytes.is_empty(), "they leave in one piece");
        encoder.end_trailers(&mut out);
        assert_eq!(out.bytes, b"\x20\0\x03x-t\x01~");
        assert_eq!((out.trailer_bytes, out.end), (8, StreamEnd::Due));
        let (mut encoder, mut out) = (ResponseEncoder::new(Wire::Http2), Outgoing::default());
        let mut head =
            response(101, &[(b"Upgrade", b"websocket"), (b"Sec-WebSocket-Accept", b"~"), (b"Sec-WebSocket-Protocol", b"~")]);
        (head.has_date, head.has_server) = (true, true);
        encoder.switch(&head, DATE, &mut out);
        assert_eq!(out.bytes, b"\x20\x88\0\x16sec-websocket-protocol\x01~");
        assert_eq!((out.head_bytes, out.end), (out.bytes.len(), StreamEnd::Open));
    }
}
