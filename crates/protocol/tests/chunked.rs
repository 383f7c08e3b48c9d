//! Chunked bodies: the case list, the limits, and properties.

mod cases;

use bolide_protocol::Fault;
use bolide_protocol::http1::chunked::{ChunkedDecoder, ChunkedLimits, ChunkedStep};
use cases::http1_chunked::{CASES, LIMITS};
use proptest::prelude::*;

/// The result of reading a body: its bytes, how much of the input was used, and whether its end was found.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Read {
    body: Vec<u8>,
    used: usize,
    done: bool,
}

/// Feeds the pieces one after the other, as an event loop would.
fn read(pieces: &[&[u8]], limits: ChunkedLimits) -> Result<Read, Fault> {
    let mut decoder = ChunkedDecoder::new(limits);
    let mut found = Read { body: Vec::new(), used: 0, done: false };
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let used = match decoder.step(rest)? {
                ChunkedStep::Data { data, used } => {
                    assert!(!data.is_empty(), "a step without data");
                    assert_eq!(data.end as usize, used, "a step beyond its data");
                    found.body.extend(data.of(rest));
                    used
                }
                ChunkedStep::More { used } => {
                    assert_eq!(used, rest.len());
                    found.used += used;
                    break;
                }
                ChunkedStep::Done { used } => {
                    assert_eq!(decoder.step(b"5\r\n"), Ok(ChunkedStep::Done { used: 0 }), "a body that is complete stays so");
                    return Ok(Read { used: found.used + used, done: true, ..found });
                }
            };
            found.used += used;
            rest = &rest[used..];
        }
    }
    Ok(found)
}

fn bytewise(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.chunks(1).collect()
}

#[test]
fn test_each_body_is_read_or_refused_as_listed() {
    for case in CASES {
        let text = case.bytes.escape_ascii();
        match (read(&[case.bytes], LIMITS), case.outcome) {
            (Ok(found), Ok(body)) => {
                assert_eq!(found, Read { body: body.to_vec(), used: case.bytes.len(), done: true }, "{text}");
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
fn test_each_body_that_comes_byte_by_byte_is_read_as_if_whole() {
    for case in CASES {
        let text = case.bytes.escape_ascii();
        assert_eq!(read(&bytewise(case.bytes), LIMITS), read(&[case.bytes], LIMITS), "{text}");
        if case.outcome.is_ok() {
            for end in 0..case.bytes.len() {
                let found = read(&[&case.bytes[..end]], LIMITS);
                assert!(found.is_ok_and(|found| !found.done && found.used == end), "{text} after {end} bytes");
            }
        }
    }
}

#[test]
fn test_what_follows_a_body_is_left_to_the_next_request() {
    for case in CASES {
        for trailing in [b"\0".as_slice(), b"\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n"] {
            let longer = [case.bytes, trailing].concat();
            assert_eq!(read(&[&longer], LIMITS), read(&[case.bytes], LIMITS), "{}", case.bytes.escape_ascii());
            assert_eq!(read(&bytewise(&longer), LIMITS), read(&[case.bytes], LIMITS), "{}", case.bytes.escape_ascii());
        }
    }
}

#[test]
fn test_a_decoder_that_found_a_fault_reads_nothing_more() {
    let mut decoder = ChunkedDecoder::new(LIMITS);
    let fault = decoder.step(b"x").expect_err("not a size");
    for input in [b"".as_slice(), b"5\r\nhello\r\n", b"0\r\n\r\n"] {
        assert_eq!(decoder.step(input), Err(fault));
    }
}

#[test]
fn test_a_chunk_larger_than_any_memory_is_read_as_it_comes() {
    let mut decoder = ChunkedDecoder::new(ChunkedLimits::DEFAULT);
    assert_eq!(decoder.step(b"ffffffffffffffff\r\n"), Ok(ChunkedStep::More { used: 18 }));
    for _ in 0..3 {
        let step = decoder.step(&[7; 1000]).expect("data");
        assert!(matches!(step, ChunkedStep::Data { data, used: 1000 } if data.len() == 1000));
    }
}

#[test]
fn test_extensions_without_end_are_refused_however_they_are_spread() {
    let chunk = b"1;0123456789\r\nx\r\n";
    let endless = chunk.repeat(ChunkedLimits::DEFAULT.extension_bytes);
    let fault = read(&[&endless], ChunkedLimits::DEFAULT).expect_err("the bound was not met");
    assert!(fault.reason.contains("extensions are longer"), "{}", fault.reason);
}

/// A chunk's data, the text of its size, and its extension.
fn chunk() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let extension = proptest::sample::select(vec!["", ";a", " ;a=b", "\t; a = \"b\""]);
    (proptest::collection::vec(any::<u8>(), 1..40), 0usize..4, any::<bool>(), extension).prop_map(
        |(data, zeros, capital, extension)| {
            let size = if capital { format!("{:X}", data.len()) } else { format!("{:x}", data.len()) };
            let line = format!("{}{size}{extension}\r\n", "0".repeat(zeros));
            let written = [line.as_bytes(), &data, b"\r\n"].concat();
            (data, written)
        },
    )
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

proptest! {
    #[test]
    fn test_every_body_is_read_back_however_it_is_split(
        chunks in proptest::collection::vec(chunk(), 0..12),
        trailers in proptest::sample::select(vec!["", "A: b\r\n", "A: b\r\nC:\r\n"]),
        next in proptest::collection::vec(any::<u8>(), 0..8),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
    ) {
        let body: Vec<u8> = chunks.iter().flat_map(|(data, _)| data.clone()).collect();
        let mut written: Vec<u8> = chunks.iter().flat_map(|(_, written)| written.clone()).collect();
        written.extend(format!("0\r\n{trailers}\r\n").as_bytes());
        let expected = Read { body, used: written.len(), done: true };
        written.extend(next);
        prop_assert_eq!(read(&cut(&written, &places), ChunkedLimits::DEFAULT), Ok(expected));
    }

    #[test]
    fn test_a_damaged_body_is_judged_the_same_however_it_is_split(
        chunks in proptest::collection::vec(chunk(), 0..6),
        damage in proptest::collection::vec(
            (any::<proptest::sample::Index>(), proptest::sample::select(b"\r\n0;: x\0\xff".to_vec())),
            1..4,
        ),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
    ) {
        let mut written: Vec<u8> = chunks.iter().flat_map(|(_, written)| written.clone()).collect();
        written.extend(b"0\r\nA: b\r\n\r\n");
        for (place, byte) in damage {
            let place = place.index(written.len());
            written[place] = byte;
        }
        let whole = read(&[&written], LIMITS);
        prop_assert_eq!(read(&cut(&written, &places), LIMITS), whole.clone());
        prop_assert_eq!(read(&bytewise(&written), LIMITS), whole);
    }
}
