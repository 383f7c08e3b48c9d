//! Client bytes on a WebSocket: the case list, fragments of every kind, memory and limits.

mod cases;

use std::borrow::Cow;

use bolide_protocol::websocket::{Event, Inflation, Limits, MessageKind, Receiver, Violation};
use cases::websocket::{CASES, Ending, LIMITS, WebsocketCase, plain_deflate};
use proptest::prelude::*;

const PLENTY: Limits = Limits { message_bytes: 1 << 20 };

/// Feeds the pieces one after the other, as an event loop would. Returns the events and the violation, if any.
fn read(receiver: &mut Receiver, pieces: &[&[u8]]) -> (Vec<Event<'static>>, Option<Violation>) {
    let mut inflation = Inflation::default();
    let mut events = Vec::new();
    for piece in pieces {
        let mut buffer = piece.to_vec();
        let mut start = 0;
        loop {
            match receiver.feed(&mut buffer[start..], &mut inflation) {
                Ok((used, Event::More)) => {
                    assert_eq!(start + used, piece.len(), "more is wanted before all was used");
                    break;
                }
                Ok((used, event)) => {
                    assert!(used > 0, "an event of nothing");
                    events.push(event.into_owned());
                    start += used;
                }
                Err(violation) => {
                    assert_eq!(receiver.feed(b"\x89\x80\0\0\0\0".to_vec().as_mut(), &mut inflation), Err(violation));
                    return (events, Some(violation));
                }
            }
        }
    }
    (events, None)
}

fn receiver(case: &WebsocketCase) -> Receiver {
    Receiver::new(LIMITS, case.has_deflate.then(plain_deflate))
}

fn bytewise(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.chunks(1).collect()
}

fn check(case: &WebsocketCase, pieces: &[&[u8]]) {
    let text = case.bytes.escape_ascii();
    let mut receiver = receiver(case);
    let (events, violation) = read(&mut receiver, pieces);
    assert_eq!(events, case.events(), "{text}");
    match (violation, case.end) {
        (Some(violation), Ending::Failed((code, words))) => {
            assert_eq!(violation.code, code, "{text}: {}", violation.reason);
            assert!(violation.reason.contains(words), "{text}: {}", violation.reason);
        }
        (None, end) => {
            assert_eq!(receiver.is_in_progress(), end == Ending::Within, "{text}");
            assert!(!matches!(end, Ending::Failed(_)), "{text} is accepted");
        }
        (violation, _) => panic!("{text}: {violation:?}"),
    }
}

#[test]
fn test_each_stream_of_frames_is_read_or_refused_as_listed() {
    for case in CASES {
        check(case, &[case.bytes]);
    }
}

#[test]
fn test_each_stream_of_frames_that_comes_byte_by_byte_is_read_as_if_whole() {
    for case in CASES {
        check(case, &bytewise(case.bytes));
        for piece_bytes in [2, 3, 5, 7] {
            check(case, &case.bytes.chunks(piece_bytes).collect::<Vec<_>>());
        }
    }
}

#[test]
fn test_events_after_a_message_come_after_it() {
    for case in CASES {
        for byte_by_byte in [false, true] {
            let longer = [case.bytes, b"\x89\x81\x01\x01\x01\x01\x20"].concat();
            let pieces = if byte_by_byte { bytewise(&longer) } else { vec![longer.as_slice()] };
            let (events, violation) = read(&mut receiver(case), &pieces);
            let text = case.bytes.escape_ascii();
            match case.end {
                Ending::Between => {
                    let expected = [case.events(), vec![Event::Ping(Cow::Borrowed(b"!"))]].concat();
                    assert_eq!((events, violation), (expected, None), "{text}");
                }
                Ending::Closed => assert_eq!((events, violation), (case.events(), None), "{text}"),
                Ending::Failed((code, _)) => {
                    assert_eq!((events, violation.map(|found| found.code)), (case.events(), Some(code)), "{text}");
                }
                // The frame would be read as the missing payload or header.
                Ending::Within => {}
            }
        }
    }
}

#[test]
fn test_reasons_of_violations_fit_a_close_frame() {
    for case in CASES {
        if let (_, Some(violation)) = read(&mut receiver(case), &[case.bytes]) {
            assert!(violation.reason.len() <= 123 && violation.reason.ends_with('.'), "{}", violation.reason);
        }
    }
}

#[test]
fn test_a_message_that_came_whole_is_not_copied() {
    let mut receiver = Receiver::new(PLENTY, None);
    let mut inflation = Inflation::default();
    let mut input = client_frame(0x82, b"as it lies");
    let payload_start = input[6..].as_ptr();
    let (_, event) = receiver.feed(&mut input, &mut inflation).expect("a message");
    let Event::Message { payload: Cow::Borrowed(payload), .. } = event else { panic!("copied: {event:?}") };
    assert_eq!((payload, payload.as_ptr()), (b"as it lies".as_slice(), payload_start));
}

#[test]
fn test_an_announced_length_claims_no_memory() {
    let mut receiver = Receiver::new(Limits { message_bytes: usize::MAX }, None);
    let mut inflation = Inflation::default();
    let mut header = b"\x82\xff\x3f\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04".to_vec();
    assert_eq!(receiver.feed(&mut header, &mut inflation), Ok((14, Event::More)));
    for _ in 0..100 {
        assert_eq!(receiver.feed(&mut [7; 1000], &mut inflation), Ok((1000, Event::More)));
    }
    assert!(receiver.is_in_progress());
}

#[test]
fn test_a_gathered_message_has_no_more_memory_than_it_needs() {
    let mut receiver = Receiver::new(PLENTY, None);
    let mut inflation = Inflation::default();
    let mut frame = client_frame(0x82, &[7; 100_000]);
    let mut messages = Vec::new();
    for piece in frame.chunks_mut(4096) {
        if let Ok((_, Event::Message { payload: Cow::Owned(payload), .. })) = receiver.feed(piece, &mut inflation) {
            messages.push(payload);
        }
    }
    assert_eq!((messages.len(), messages[0].len(), messages[0].capacity()), (1, 100_000, 100_000));
}

#[test]
fn test_an_idle_receiver_is_small() {
    assert!(size_of::<Receiver>() <= 64, "{} bytes", size_of::<Receiver>());
}

#[test]
fn test_a_message_of_exactly_the_limit_is_read_plain_and_compressed() {
    let payload = vec![b'a'; LIMITS.message_bytes];
    let longer = vec![b'a'; LIMITS.message_bytes + 1];
    for (payload, is_read) in [(&payload, true), (&longer, false)] {
        for frame in [client_frame(0x81, payload), client_frame(0xc1, &stored(payload))] {
            let (events, violation) = read(&mut Receiver::new(LIMITS, Some(plain_deflate())), &[&frame]);
            assert_eq!(events.len(), usize::from(is_read));
            assert_eq!(violation.map(|violation| violation.code), (!is_read).then_some(1009));
        }
    }
}

#[test]
fn test_a_bomb_is_refused_at_the_limit() {
    let mut compress = flate2::Compress::new(flate2::Compression::best(), false);
    let mut bomb = Vec::with_capacity(1 << 20);
    compress.compress_vec(&vec![0; 64 << 20], &mut bomb, flate2::FlushCompress::Sync).expect("room for all");
    assert!(bomb.len() < 100_000, "{} bytes", bomb.len());
    let (events, violation) = read(&mut Receiver::new(PLENTY, Some(plain_deflate())), &[&client_frame(0xc2, &bomb)]);
    assert_eq!((events.len(), violation.map(|violation| violation.code)), (0, Some(1009)));
}

#[test]
fn test_final_blocks_without_end_are_refused() {
    let blocks = [3, 0].repeat(100_000);
    let (_, violation) = read(&mut Receiver::new(PLENTY, Some(plain_deflate())), &[&client_frame(0xc2, &blocks)]);
    assert_eq!(violation.map(|violation| violation.code), Some(1007));
}

/// Deflate in stored blocks of up to 100 bytes, and the byte that ends a message.
fn stored(payload: &[u8]) -> Vec<u8> {
    let block = |piece: &[u8]| {
        let length = piece.len() as u16;
        [[0].as_slice(), &length.to_le_bytes(), &(!length).to_le_bytes(), piece].concat()
    };
    payload.chunks(100).flat_map(block).chain([0]).collect()
}

/// A frame whose mask is derived from its length.
fn client_frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let mask = (length as u32).wrapping_mul(0x9e37_79b9).to_be_bytes();
    let mut frame = vec![first_byte];
    match length {
        0..=125 => frame.push(0x80 | length as u8),
        126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Cuts the bytes at the given places.
fn cut<'a>(bytes: &'a [u8], places: &[proptest::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    let mut pieces = Vec::new();
    let mut start = 0;
    for end in ends {
        pieces.push(&bytes[start..end]);
        start = end;
    }
    pieces.push(&bytes[start..]);
    pieces
}

/// A message, whether it is compressed, where it is fragmented, and the control frames between the fragments.
#[derive(Debug, Clone)]
struct SentMessage {
    kind: MessageKind,
    payload: Vec<u8>,
    is_compressed: bool,
    places: Vec<proptest::sample::Index>,
    between: Vec<u8>,
}

impl SentMessage {
    fn written(&self) -> Vec<u8> {
        let opcode = if self.kind == MessageKind::Text { 1 } else { 2 };
        let payload = if self.is_compressed { stored(&self.payload) } else { self.payload.clone() };
        let fragments = cut(&payload, &self.places);
        let mut written = Vec::new();
        for (number, fragment) in fragments.iter().enumerate() {
            let start = if number == 0 {
                opcode | u8::from(self.is_compressed) << 6
            } else {
                written.extend(self.ping());
                0
            };
            let last = if number + 1 == fragments.len() { 0x80 } else { 0 };
            written.extend(client_frame(start | last, fragment));
        }
        written
    }

    fn ping(&self) -> Vec<u8> {
        client_frame(0x89, &self.between)
    }

    fn told(&self) -> Vec<Event<'static>> {
        let mut told = vec![Event::Ping(Cow::Owned(self.between.clone())); self.places.len()];
        told.push(Event::Message { kind: self.kind, payload: Cow::Owned(self.payload.clone()) });
        told
    }
}

fn said() -> impl Strategy<Value = SentMessage> {
    let text = proptest::collection::vec(any::<char>(), 0..200)
        .prop_map(|characters| (MessageKind::Text, characters.into_iter().collect::<String>().into_bytes()));
    let binary = proptest::collection::vec(any::<u8>(), 0..600).prop_map(|payload| (MessageKind::Binary, payload));
    let places = proptest::collection::vec(any::<proptest::sample::Index>(), 0..6);
    let between = proptest::collection::vec(any::<u8>(), 0..=125);
    (prop_oneof![text, binary], any::<bool>(), places, between).prop_map(|((kind, payload), is_compressed, places, between)| {
        SentMessage { kind, payload, is_compressed, places, between }
    })
}

proptest! {
    #[test]
    fn test_every_message_is_read_back_however_it_is_fragmented_and_split(
        said in proptest::collection::vec(said(), 0..6),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let written: Vec<u8> = said.iter().flat_map(SentMessage::written).collect();
        let told: Vec<_> = said.iter().flat_map(SentMessage::told).collect();
        let mut receiver = Receiver::new(PLENTY, Some(plain_deflate()));
        prop_assert_eq!(read(&mut receiver, &cut(&written, &places)), (told, None));
        prop_assert!(!receiver.is_in_progress());
    }

    #[test]
    fn test_a_damaged_stream_is_judged_the_same_however_it_is_split(
        said in proptest::collection::vec(said(), 1..4),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let mut written: Vec<u8> = said.iter().flat_map(SentMessage::written).collect();
        for (place, byte) in damage {
            let place = place.index(written.len());
            written[place] = byte;
        }
        let judge = |pieces: &[&[u8]]| read(&mut Receiver::new(LIMITS, Some(plain_deflate())), pieces);
        let whole = judge(&[&written]);
        prop_assert_eq!(judge(&cut(&written, &places)), whole.clone());
        prop_assert_eq!(judge(&bytewise(&written)), whole);
    }

    #[test]
    fn test_a_text_that_is_none_is_refused_at_its_first_bad_byte(
        good in proptest::collection::vec(any::<char>(), 0..40),
        bad in proptest::sample::select(vec![b"\xff".as_slice(), b"\xed\xa0", b"\xf4\x90", b"\xc0", b"\xce\x61", b"\xf8"]),
    ) {
        let good: String = good.into_iter().collect();
        let frame = client_frame(0x81, &[good.as_bytes(), bad, b"more that never comes"].concat());
        let header = frame.len() - good.len() - bad.len() - 21;
        let end = header + good.len() + bad.len();
        let refused = |end: usize| read(&mut Receiver::new(PLENTY, None), &[&frame[..end]]).1.map(|violation| violation.code);
        prop_assert_eq!(refused(end - 1), None);
        prop_assert_eq!(refused(end), Some(1007));
    }
}
