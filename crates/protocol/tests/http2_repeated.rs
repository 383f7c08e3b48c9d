//! An HTTP/2 connection remembers fields and a whole header block. Neither changes the meaning of a head: it is the same as on a
//! new connection.

mod cases;

use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{ErrorCode, Http2, Http2Event, Http2Limits};
use bolide_protocol::session::{HeadParts, RequestHead};
use cases::http2::{BEGINNING, HAS_PRIORITY, HEADERS, PRIORITY_UPDATE, WHOLE, cases, fields, frame};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 100);

/// The difference between the stream ids of a case and those of its repetition.
const STREAM_OFFSET: u32 = 100;

/// Bytes of the HPACK table, and the size of each entry besides its bytes (RFC 7541 section 4.1).
const TABLE_BYTES: usize = 4096;
const ENTRY_SURPLUS_BYTES: usize = 32;

/// Returns the result of each head of a connection, by stream; and whether the connection continues.
fn heads(bytes: &[u8]) -> (Vec<(u32, String)>, bool) {
    let mut session = Http2::new(Http2Limits { has_extended_connect: true, ..Http2Limits::default() });
    let (mut parts, mut used, mut told) = (HeadParts::default(), 0, Vec::new());
    loop {
        session.output().clear();
        let Ok((count, event)) = session.next(&bytes[used..], &LIMITS, &mut parts) else { return (told, false) };
        used += count;
        told.extend(malformed(session.output()));
        match event {
            Http2Event::More if count == 0 => return (told, true),
            Http2Event::Head { stream, head, is_complete, protocol } => {
                let RequestHead::Http { line, facts } = head.head else { panic!("another protocol's head") };
                let bytes = head.bytes.of(&parts.bytes);
                let block = &bytes[line.length as usize..][..facts.length as usize];
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                let named: Vec<_> =
                    parts.fields.iter().map(|field| (text(field.name.of(block)), text(field.value.of(block)))).collect();
                let (method, target) = (text(line.method.of(bytes)), text(line.target.of(bytes)));
                let host = facts.host.map(|host| text(host.of(block)));
                let protocol = protocol.map(|protocol| text(protocol.of(bytes)));
                told.push((
                    stream,
                    format!(
                        "{method} {target} {named:?} of {host:?} {:?} {is_complete} {} {protocol:?} {:?} in {}",
                        head.body,
                        facts.expect_continue,
                        session.priority(stream),
                        text(block),
                    ),
                ));
            }
            Http2Event::Refused { stream, fault } => told.push((stream, format!("refused {}", fault.status))),
            _ => {}
        }
    }
}

/// Returns the streams that these frames reset because their request is malformed.
fn malformed(mut output: &[u8]) -> Vec<(u32, String)> {
    let mut streams = Vec::new();
    while let [l2, l1, l0, kind, _, stream @ ..] = output {
        let length = u32::from_be_bytes([0, *l2, *l1, *l0]) as usize;
        let number = |at: usize| u32::from_be_bytes(*output[at..].first_chunk().expect("a number"));
        if *kind == cases::http2::RST_STREAM && number(9) == ErrorCode::PROTOCOL_ERROR.0 {
            streams.push((u32::from_be_bytes(*stream.first_chunk().expect("a whole head")), "malformed".to_owned()));
        }
        output = &output[9 + length..];
    }
    streams
}

/// Returns the frames with higher stream ids; the connection's own frames come only once.
fn moved(mut frames: &[u8]) -> Vec<u8> {
    let mut moved = Vec::new();
    while let [l2, l1, l0, kind, flags, s3, s2, s1, s0, rest @ ..] = frames {
        let length = u32::from_be_bytes([0, *l2, *l1, *l0]) as usize;
        let (stream, mut payload) = (u32::from_be_bytes([*s3, *s2, *s1, *s0]) & 0x7fff_ffff, rest[..length].to_vec());
        // These contain a stream id in the first four bytes of their payload.
        if *kind == PRIORITY_UPDATE || *kind == HEADERS && flags & HAS_PRIORITY != 0 {
            let named = u32::from_be_bytes(*payload.first_chunk().expect("a number")) + STREAM_OFFSET;
            payload[..4].copy_from_slice(&named.to_be_bytes());
        }
        match stream {
            0 if *kind != PRIORITY_UPDATE => {}
            0 => moved.extend(frame(*kind, *flags, 0, &payload)),
            _ => moved.extend(frame(*kind, *flags, stream + STREAM_OFFSET, &payload)),
        }
        frames = &rest[length..];
    }
    moved
}

#[test]
fn each_case_that_comes_again_on_its_connection_means_the_same() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for case in cases().into_iter().filter(|case| !case.has_own_beginning) {
        let (first, goes_on) = heads(&[BEGINNING, &case.bytes].concat());
        if !goes_on || first.is_empty() {
            continue;
        }
        compared += 1;
        let again = moved(&case.bytes);
        let (all, _) = heads(&[BEGINNING, &case.bytes, &again, &moved(&again)].concat());
        let times = |times: u32| first.iter().map(move |(stream, told)| (stream + times * STREAM_OFFSET, told.clone()));
        let expected: Vec<_> = times(0).chain(times(1)).chain(times(2)).collect();
        if all != expected {
            wrong.push(format!("{}: {all:#?} and not {expected:#?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 60, "only {compared} cases have a head");
}

/// How a field is encoded (RFC 7541 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldEncoding {
    /// As a literal without indexing.
    Literal,
    /// As a literal that is added to the table.
    Kept,
    /// As an indexed field if it is in the table; else as a literal that is added.
    Known,
}

type Head = Vec<(&'static str, &'static str, FieldEncoding)>;

/// A client's HPACK encoder.
#[derive(Default)]
struct Encoder {
    /// The newest comes first.
    table: Vec<(&'static str, &'static str)>,
}

impl Encoder {
    fn block(&mut self, head: &Head) -> Vec<u8> {
        let mut block = Vec::new();
        for &(name, value, way) in head {
            let known = self.table.iter().position(|entry| *entry == (name, value)).filter(|_| way == FieldEncoding::Known);
            match (known, way) {
                // 62 is the newest entry. Sixty others fit an integer of one byte.
                (Some(place), _) if place < 60 => block.push(0x80 | (62 + place) as u8),
                (_, FieldEncoding::Literal) => block.extend(fields(&[(name, value)])),
                _ => {
                    let literal = fields(&[(name, value)]);
                    block.push(0x40);
                    block.extend_from_slice(&literal[1..]);
                    self.table.insert(0, (name, value));
                    let size = |entry: &(&str, &str)| entry.0.len() + entry.1.len() + ENTRY_SURPLUS_BYTES;
                    while self.table.iter().map(size).sum::<usize>() > TABLE_BYTES {
                        self.table.pop();
                    }
                }
            }
        }
        block
    }
}

fn way() -> impl Strategy<Value = FieldEncoding> {
    prop_oneof![Just(FieldEncoding::Literal), Just(FieldEncoding::Kept), Just(FieldEncoding::Known), Just(FieldEncoding::Known)]
}

/// Names that are forbidden, dropped by HTTP/1, or have a meaning.
const NAMES: &[&str] = &[
    "x",
    "x-y",
    "x_y",
    "_",
    "x_forwarded_for",
    "remote_user",
    "content_length",
    "x: a",
    "x_y: a",
    "X_y",
    "X",
    "x y",
    "",
    "cookie",
    "host",
    "te",
    "priority",
    "expect",
    "content-length",
    "connection",
    ":path",
];

const VALUES: &[&str] =
    &["a", "6.6.6.6", "b: c", "", "a\r\nx: b", "a\r\nx_y: b", " a", "x", "trailers", "u=1", "0", "100-continue", "\0"];

fn field() -> impl Strategy<Value = (&'static str, &'static str, FieldEncoding)> {
    // Most are valid, or nearly: a connection with only malformed heads tests little.
    let usual = prop::sample::select(&["x", "x-y", "x_y", "x_forwarded_for", "cookie", "accept"][..]);
    let name = prop_oneof![3 => usual, 1 => prop::sample::select(NAMES)];
    let value = prop_oneof![3 => prop::sample::select(&["a", "b", "6.6.6.6"][..]), 1 => prop::sample::select(VALUES)];
    (name, value, way())
}

/// A GET with fields, and the encodings of its pseudo-header fields.
fn head() -> impl Strategy<Value = Head> {
    (prop::collection::vec(field(), 0..6), way(), prop::bool::ANY).prop_map(|(regular, way, has_authority)| {
        let mut head = vec![(":method", "GET", way), (":scheme", "http", way), (":path", "/", way)];
        head.push(if has_authority { (":authority", "x", way) } else { ("host", "x", way) });
        head.extend(regular);
        head
    })
}

proptest! {
    #[test]
    fn a_head_has_the_same_meaning_as_on_a_new_connection(
        pool in prop::collection::vec(head(), 1..4),
        order in prop::collection::vec((0usize..4, prop::option::of(way())), 1..16),
    ) {
        let mut encoder = Encoder::default();
        let (mut bytes, mut expected) = (BEGINNING.to_vec(), Vec::new());
        for (number, (place, way)) in order.iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let mut head = pool[place % pool.len()].clone();
            if let Some(way) = way {
                head.iter_mut().for_each(|field| field.2 = *way);
            }
            bytes.extend(frame(HEADERS, WHOLE, stream, &encoder.block(&head)));
            let alone: Vec<(&str, &str)> = head.iter().map(|(name, value, _)| (*name, *value)).collect();
            let (first, _) = heads(&[BEGINNING, &frame(HEADERS, WHOLE, 1, &fields(&alone))].concat());
            expected.extend(first.into_iter().map(|(_, told)| (stream, told)));
        }
        let (all, goes_on) = heads(&bytes);
        // A client that sends only malformed heads gets ENHANCE_YOUR_CALM.
        prop_assert!(goes_on || expected.iter().filter(|(_, told)| told == "malformed").count() > 5);
        prop_assert_eq!(&all[..], &expected[..all.len()]);
        prop_assert!(!goes_on || all.len() == expected.len());
        prop_assert!(all.iter().all(|(_, told)| !told.contains("x_") && !told.contains("remote_user")), "{:?}", all);
    }
}
