//! Header blocks: the case list, the limits, and properties, with `httparse` as the second opinion.

mod cases;

use bolide_protocol::http1::head::{Field, Framing, HeadLimits, HeaderFacts, Version, header_block};
use bolide_protocol::{Fault, Progress};
use cases::http1_block::CASES;
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 64);

const TRAILING: [&[u8]; 5] = [b"\0", b"\r\n", b" x", b"X: y\r\n\r\n", b"GET / HTTP/1.1\r\n"];

type Outcome = Result<Progress<HeaderFacts>, Fault>;

fn read(bytes: &[u8], version: Version) -> (Outcome, Vec<Field>) {
    read_within(bytes, version, &LIMITS)
}

fn read_within(bytes: &[u8], version: Version, limits: &HeadLimits) -> (Outcome, Vec<Field>) {
    let mut fields = vec![Field { name: Default::default(), value: Default::default() }; 3];
    let outcome = header_block(bytes, version, limits, &mut fields);
    (outcome, fields)
}

fn named<'a>(fields: &[Field], bytes: &'a [u8]) -> Vec<(&'a [u8], &'a [u8])> {
    fields.iter().map(|field| (field.name.of(bytes), field.value.of(bytes))).collect()
}

#[test]
fn test_each_block_is_read_or_refused_as_listed() {
    for case in CASES {
        let text = case.bytes.escape_ascii();
        let (outcome, fields) = read(case.bytes, case.version);
        match (outcome, case.outcome) {
            (Ok(Progress::Complete(facts)), Ok(expected)) => {
                assert_eq!(facts.length as usize, case.bytes.len(), "{text}");
                assert_eq!(facts.framing, expected.framing, "{text}");
                assert_eq!(facts.keep_alive, expected.keep_alive, "{text}");
                assert_eq!(facts.expect_continue, expected.expect_continue, "{text}");
                assert_eq!(facts.upgrade, expected.upgrade, "{text}");
                assert_eq!(facts.host.map(|host| host.of(case.bytes)), expected.host, "{text}");
                if let Some(list) = expected.fields {
                    assert_eq!(named(&fields, case.bytes), list, "{text}");
                }
            }
            (Err(fault), Err((status, words))) => {
                assert_eq!(fault.status, status, "{text}: {}", fault.reason);
                assert!(fault.reason.contains(words), "{text}: {}", fault.reason);
            }
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}

#[test]
fn test_each_block_that_comes_byte_by_byte_is_read_as_if_whole() {
    for case in CASES {
        let whole = read(case.bytes, case.version).0;
        let mut fault_seen = false;
        for end in 0..case.bytes.len() {
            match read(&case.bytes[..end], case.version).0 {
                Ok(Progress::Partial) => assert!(!fault_seen, "{}: a fault was forgotten", case.bytes.escape_ascii()),
                early => {
                    assert!(early.is_err(), "{}: complete after {end} bytes", case.bytes.escape_ascii());
                    assert_eq!(early, whole, "{} after {end} bytes", case.bytes.escape_ascii());
                    fault_seen = true;
                }
            }
        }
    }
}

#[test]
fn test_what_follows_a_block_changes_nothing() {
    for case in CASES {
        for trailing in TRAILING {
            let longer = [case.bytes, trailing].concat();
            assert_eq!(read(&longer, case.version), read(case.bytes, case.version), "{}", case.bytes.escape_ascii());
        }
    }
}

#[test]
fn test_a_block_of_exactly_the_limit_is_read_and_one_byte_more_is_431() {
    let block = b"Host: a\r\nX: 0123456789\r\n\r\n";
    for trailing in TRAILING.into_iter().chain([b"".as_slice()]) {
        let bytes = [block, trailing].concat();
        let exact = HeadLimits { head_bytes: block.len(), ..LIMITS };
        assert!(matches!(read_within(&bytes, Version::Http11, &exact).0, Ok(Progress::Complete(_))));
        for head_bytes in 0..block.len() {
            let outcome = read_within(&bytes, Version::Http11, &HeadLimits { head_bytes, ..LIMITS }).0;
            assert_eq!(outcome.expect_err("a block beyond the limit was read").status, 431, "limit {head_bytes}");
        }
    }
}

#[test]
fn test_as_many_fields_as_the_limit_are_read_and_one_more_is_431() {
    let block = |count: usize| ["Host: a\r\n", &"X: b\r\n".repeat(count - 1), "\r\n"].concat();
    for header_count in [1, 2, 7, 500] {
        let limits = HeadLimits { header_count, head_bytes: 65536, ..LIMITS };
        let (outcome, fields) = read_within(block(header_count).as_bytes(), Version::Http11, &limits);
        assert!(matches!(outcome, Ok(Progress::Complete(_))));
        assert_eq!(fields.len(), header_count);
        let fault = read_within(block(header_count + 1).as_bytes(), Version::Http11, &limits).0.expect_err("too many were read");
        assert_eq!(fault.status, 431);
    }
}

#[test]
fn test_dropped_fields_count_against_the_limit() {
    let limits = HeadLimits { header_count: 2, ..LIMITS };
    let outcome = read_within(b"Host: a\r\na_b: c\r\nd_e: f\r\n\r\n", Version::Http11, &limits).0;
    assert_eq!(outcome.expect_err("too many were read").status, 431);
}

#[test]
fn test_fields_of_an_earlier_head_are_cleared_and_their_room_is_kept() {
    let mut fields = Vec::with_capacity(8);
    for _ in 0..3 {
        let outcome = header_block(b"Host: a\r\nX: b\r\n\r\n", Version::Http11, &LIMITS, &mut fields);
        assert!(matches!(outcome, Ok(Progress::Complete(_))));
        assert_eq!((fields.len(), fields.capacity()), (2, 8));
    }
}

/// Names without an underscore, and none that matters to the framing.
fn name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(b"ABCxyz-!0.~".to_vec()), 1..20)
}

/// Values without blanks at their ends.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let inner = prop_oneof![8 => 0x21..=0x7eu8, 1 => 0x80..=0xffu8, 2 => Just(b' '), 1 => Just(b'\t')];
    proptest::collection::vec(inner, 0..60).prop_map(|text| text.trim_ascii().to_vec())
}

fn blanks() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(b" \t".to_vec()), 0..3)
}

/// Pieces of blocks, good and bad, from which random blocks are made.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"Host: a\r\n",
        b"Host",
        b": ",
        b":",
        b"\r\n",
        b"\r",
        b"\n",
        b" ",
        b"\t",
        b"Content-Length: 3\r\n",
        b"Content-Length",
        b"5",
        b"Transfer-Encoding: chunked\r\n",
        b"chunked",
        b",",
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"X_Y: z\r\n",
        b"\0",
        b"\xff",
        b"Upgrade: a\r\n",
        b"a-name",
        b"\r\n\r\n",
    ];
    prop_oneof![6 => proptest::sample::select(words).prop_map(<[u8]>::to_vec), 1 => proptest::collection::vec(any::<u8>(), 0..4)]
}

proptest! {
    #[test]
    fn test_every_field_of_the_grammar_is_read_back(
        list in proptest::collection::vec((name(), blanks(), value(), blanks()), 0..20),
    ) {
        let mut bytes = b"Host: a\r\n".to_vec();
        for (name, before, value, after) in &list {
            bytes.extend([name, b":".as_slice(), before, value, after, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        let (outcome, fields) = read(&bytes, Version::Http11);
        let Ok(Progress::Complete(facts)) = outcome else { panic!("{}: {outcome:?}", bytes.escape_ascii()) };
        prop_assert_eq!(facts.length as usize, bytes.len());
        prop_assert_eq!(facts.framing, Framing::None);
        let written: Vec<(&[u8], &[u8])> = list.iter().map(|(name, _, value, _)| (name.as_slice(), value.as_slice())).collect();
        prop_assert_eq!(&named(&fields, &bytes)[1..], written);
    }

    #[test]
    fn test_another_parser_reads_accepted_input_the_same_way(pieces in proptest::collection::vec(piece(), 0..24)) {
        let mut bytes = b"Host: a\r\n".to_vec();
        bytes.extend(pieces.concat());
        bytes.extend(b"\r\n\r\n");
        let (outcome, fields) = read(&bytes, Version::Http11);
        if let Ok(Progress::Complete(facts)) = outcome {
            let mut headers = [httparse::EMPTY_HEADER; 128];
            let Ok(httparse::Status::Complete((length, headers))) = httparse::parse_headers(&bytes, &mut headers) else {
                panic!("{}: refused by httparse", bytes.escape_ascii());
            };
            prop_assert_eq!(facts.length as usize, length);
            let theirs: Vec<(&[u8], &[u8])> = headers
                .iter()
                .filter(|header| !header.name.contains('_'))
                .map(|header| (header.name.as_bytes(), header.value))
                .collect();
            prop_assert_eq!(named(&fields, &bytes), theirs);
        }
    }

    #[test]
    fn test_random_blocks_that_come_byte_by_byte_are_read_as_if_whole(pieces in proptest::collection::vec(piece(), 0..16)) {
        let bytes = pieces.concat();
        let whole = read(&bytes, Version::Http11);
        let mut settled = None;
        for end in 0..=bytes.len() {
            let now = read(&bytes[..end], Version::Http11);
            if let Some(before) = &settled {
                prop_assert_eq!(before, &now);
            } else if now.0 != Ok(Progress::Partial) {
                settled = Some(now);
            }
        }
        prop_assert_eq!(settled.unwrap_or_else(|| whole.clone()), whole);
    }
}
