//! The bytes that the server sends on a WebSocket, also read back by `tungstenite` and `flate2`.

mod cases;

use std::io::Cursor;

use bolide_protocol::websocket::handshake::negotiate;
use bolide_protocol::websocket::{Deflate, Deflation, MessageKind, send};
use cases::websocket::plain_deflate;
use proptest::prelude::*;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Data, OpCode};

fn written(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    encode(&mut out);
    out.strip_prefix(b"before").expect("what was there stays").to_vec()
}

fn deflated(kind: MessageKind, payload: &[u8], deflate: &Deflate, deflation: &mut Deflation) -> Vec<u8> {
    written(|out| send::encode_message(kind, payload, Some((deflate, deflation)), out))
}

/// Returns the frame's header and payload, with no bytes after it.
fn frame(bytes: &[u8]) -> (FrameHeader, &[u8]) {
    let mut cursor = Cursor::new(bytes);
    let (header, length) = FrameHeader::parse(&mut cursor).expect("a good header").expect("a whole header");
    let payload = &bytes[cursor.position() as usize..];
    assert_eq!(payload.len() as u64, length);
    assert!(header.is_final && header.mask.is_none() && !header.rsv2 && !header.rsv3, "{header:?}");
    (header, payload)
}

/// Inflates as a client would, with a window of its own size.
fn inflated(compressed: &[u8], window_bits: u8, most: usize) -> Vec<u8> {
    let mut inflater = flate2::Decompress::new_with_window_bits(false, window_bits);
    let mut payload = Vec::with_capacity(most + 64);
    let input = [compressed, b"\0\0\xff\xff"].concat();
    inflater.decompress_vec(&input, &mut payload, flate2::FlushDecompress::Sync).expect("good data");
    assert_eq!(inflater.total_in(), input.len() as u64);
    payload
}

/// Typical application data.
fn json(records: usize) -> Vec<u8> {
    let record = |number| format!("{{\"id\":{number},\"name\":\"customer {number}\",\"balance\":{}}},", number * 7919 % 1000);
    (0..records).map(record).collect::<String>().into_bytes()
}

#[test]
fn test_messages_are_one_unmasked_frame_with_the_shortest_length() {
    let message = |kind, payload: &[u8]| written(|out| send::encode_message(kind, payload, None, out));
    // RFC 6455 section 5.7.
    assert_eq!(message(MessageKind::Text, b"Hello"), b"\x81\x05Hello");
    assert_eq!(message(MessageKind::Text, b""), b"\x81\x00");
    for (length, head) in [
        (125usize, b"\x82\x7d".as_slice()),
        (126, b"\x82\x7e\x00\x7e"),
        (256, b"\x82\x7e\x01\x00"),
        (65535, b"\x82\x7e\xff\xff"),
        (65536, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
    ] {
        let payload = vec![7; length];
        assert_eq!(message(MessageKind::Binary, &payload), [head, &payload].concat());
        assert_eq!(written(|out| send::encode_head(MessageKind::Binary, length as u64, out)), head);
    }
}

#[test]
fn test_control_frames_are_never_longer_than_allowed() {
    assert_eq!(written(|out| send::encode_ping(b"", out)), b"\x89\x00");
    assert_eq!(written(|out| send::encode_pong(b"Hello", out)), b"\x8a\x05Hello");
    for encode in [send::encode_ping, send::encode_pong] {
        assert_eq!(written(|out| encode(&[7; 200], out)).len(), 127);
    }
    let long = "κ".repeat(100);
    let close = written(|out| send::encode_close(Some(1011), &long, out));
    assert_eq!(close, [b"\x88\x7c\x03\xf3", "κ".repeat(61).as_bytes()].concat());
}

#[test]
fn test_codes_that_may_not_be_sent_close_without_a_code() {
    assert_eq!(written(|out| send::encode_close(Some(1000), "", out)), b"\x88\x02\x03\xe8");
    assert_eq!(written(|out| send::encode_close(Some(4000), "why", out)), b"\x88\x05\x0f\xa0why");
    for code in [None, Some(0), Some(1004), Some(1005), Some(1006), Some(1015), Some(2000), Some(5000)] {
        assert_eq!(written(|out| send::encode_close(code, "why", out)), b"\x88\x00");
    }
}

#[test]
fn test_messages_are_compressed_when_that_makes_them_shorter() {
    let (deflate, mut deflation) = (plain_deflate(), Deflation::default());
    let payload = json(100);
    let bytes = deflated(MessageKind::Text, &payload, &deflate, &mut deflation);
    let (header, compressed) = frame(&bytes);
    assert!(header.rsv1 && header.opcode == OpCode::Data(Data::Text));
    assert!(compressed.len() * 2 < payload.len(), "{} of {} bytes", compressed.len(), payload.len());
    assert_eq!(inflated(compressed, 15, payload.len()), payload);
    // Data without repetition, and short data.
    let noise: Vec<u8> = (0..4096u32).map(|number| (number.wrapping_mul(number).wrapping_mul(0x9e37_79b9) >> 17) as u8).collect();
    for payload in [noise.as_slice(), &[7; send::MIN_COMPRESSED_BYTES - 1], b""] {
        let bytes = deflated(MessageKind::Binary, payload, &deflate, &mut deflation);
        assert_eq!(frame(&bytes).1, payload);
        assert!(!frame(&bytes).0.rsv1);
    }
}

#[test]
fn test_each_message_is_compressed_as_if_it_were_the_first() {
    let (deflate, mut deflation) = (plain_deflate(), Deflation::default());
    let payload = json(50);
    let first = deflated(MessageKind::Text, &payload, &deflate, &mut deflation);
    // A message that was given up halfway, and one that makes the working memory grow.
    let noise: Vec<u8> =
        (0..300_000u32).map(|number| (number.wrapping_mul(number).wrapping_mul(0x9e37_79b9) >> 17) as u8).collect();
    deflated(MessageKind::Binary, &noise, &deflate, &mut deflation);
    deflated(MessageKind::Binary, &json(20_000), &deflate, &mut deflation);
    assert_eq!(deflated(MessageKind::Text, &payload, &deflate, &mut deflation), first);
}

#[test]
fn test_the_clients_window_is_enough_for_every_message() {
    let mut deflation = Deflation::default();
    // Repetitions that only a larger window would find.
    let payload = json(3000).repeat(2);
    for window_bits in 9..=15 {
        let offer = format!("permessage-deflate; server_max_window_bits={window_bits}");
        let deflate = negotiate(offer.as_bytes()).ok().flatten().expect("an offer that can be kept");
        let bytes = deflated(MessageKind::Binary, &payload, &deflate, &mut deflation);
        let (header, compressed) = frame(&bytes);
        assert!(header.rsv1);
        assert_eq!(inflated(compressed, window_bits, payload.len()), payload, "{window_bits} bits");
    }
}

proptest! {
    #[test]
    fn test_every_compressed_message_is_read_back_and_shorter(
        words in proptest::collection::vec(
            proptest::sample::select(vec!["a", "bc", "def", "\0\0\0\0", "κόσμε", "{\"id\":"]),
            60..2000,
        ),
        window_bits in 9u8..=15,
    ) {
        let payload = words.concat().into_bytes();
        let offer = format!("permessage-deflate; server_max_window_bits={window_bits}");
        let deflate = negotiate(offer.as_bytes()).ok().flatten().expect("an offer that can be kept");
        let bytes = deflated(MessageKind::Binary, &payload, &deflate, &mut Deflation::default());
        let (header, body) = frame(&bytes);
        if header.rsv1 {
            prop_assert!(body.len() < payload.len());
            prop_assert_eq!(inflated(body, window_bits, payload.len()), payload);
        } else {
            prop_assert_eq!(body, payload);
        }
    }
}
