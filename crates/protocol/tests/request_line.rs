//! Request lines: the case list, the limits, and properties.

mod cases;

use bolide_protocol::http1::head::{HeadLimits, RequestLine, leading_blank, request_line};
use bolide_protocol::{Fault, Progress};
use cases::http1_line::CASES;
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits::of(4096, 8192, 64);

const TRAILING: [&[u8]; 4] = [b"\0", b"\r\n", b"Host: a\r\n\r\n", b"GET /next HTTP/1.1\r\n"];

fn with_limit(request_line_bytes: usize) -> HeadLimits {
    HeadLimits { request_line_bytes, ..LIMITS }
}

fn read(bytes: &[u8]) -> Result<Progress<RequestLine>, Fault> {
    request_line(bytes, &LIMITS)
}

#[test]
fn test_each_line_is_read_or_refused_as_listed() {
    for case in CASES {
        let text = case.bytes.escape_ascii();
        match (read(case.bytes), case.outcome) {
            (Ok(Progress::Complete(line)), Ok((method, target, version))) => {
                assert_eq!(line.method.of(case.bytes), method, "{text}");
                assert_eq!(line.target.of(case.bytes), target, "{text}");
                assert_eq!(line.version, version, "{text}");
                assert_eq!(line.length as usize, case.bytes.len(), "{text}");
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
fn test_each_line_that_comes_byte_by_byte_is_read_as_if_whole() {
    for case in CASES {
        let whole = read(case.bytes);
        let mut fault_seen = false;
        for end in 0..case.bytes.len() {
            match read(&case.bytes[..end]) {
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
fn test_what_follows_a_line_changes_nothing() {
    for case in CASES {
        for trailing in TRAILING {
            assert_eq!(read(&[case.bytes, trailing].concat()), read(case.bytes), "{}", case.bytes.escape_ascii());
        }
    }
}

#[test]
fn test_a_line_of_exactly_the_limit_is_read_and_one_byte_more_is_414() {
    let line = b"GET /0123456789 HTTP/1.1\r\n";
    for trailing in TRAILING.into_iter().chain([b"".as_slice()]) {
        let bytes = [line, trailing].concat();
        assert!(matches!(request_line(&bytes, &with_limit(line.len())), Ok(Progress::Complete(_))));
        for limit in 0..line.len() {
            let fault = request_line(&bytes, &with_limit(limit)).expect_err("a line beyond the limit was read");
            assert_eq!(fault.status, 414, "limit {limit}");
        }
    }
    for end in 0..line.len() {
        assert_eq!(request_line(&line[..end], &with_limit(line.len())), Ok(Progress::Partial));
    }
}

#[test]
fn test_an_endless_target_is_refused_before_its_end() {
    let endless = [b"GET /".as_slice(), &[b'a'; 5000]].concat();
    assert_eq!(read(&endless).expect_err("it was read").status, 414);
}

#[test]
fn test_one_empty_line_before_the_request_is_skipped_and_no_more() {
    assert_eq!(leading_blank(b"\r\nGET"), 2);
    assert_eq!(leading_blank(b"\r\n\r\n"), 2);
    for bytes in [b"".as_slice(), b"G", b"\r", b"\n", b"\n\r", b"GET / HTTP/1.1\r\n"] {
        assert_eq!(leading_blank(bytes), 0);
    }
    assert_eq!(read(b"\r"), Ok(Progress::Partial), "half of an empty line is not yet a fault");
    assert_eq!(read(b"\r\n").expect_err("a second empty line was read").status, 400);
}

fn method() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(b"ABGOPSTxyz-_!0".to_vec()), 1..=32)
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => 0x21..=0x7eu8, 1 => 0x80..=0xffu8];
    proptest::collection::vec(byte, 1..200)
}

proptest! {
    #[test]
    fn test_every_line_of_the_grammar_is_read_back(method in method(), target in target(), minor in b'0'..=b'9') {
        let line = [&method, b" ".as_slice(), &target, b" HTTP/1.", &[minor], b"\r\n"].concat();
        let lenient = HeadLimits { lenient_targets: true, ..LIMITS };
        let Ok(Progress::Complete(found)) = request_line(&line, &lenient) else { panic!("{} was not read", line.escape_ascii()) };
        prop_assert_eq!(found.method.of(&line), method);
        prop_assert_eq!(found.target.of(&line), &target);
        prop_assert_eq!(found.length as usize, line.len());
        let is_strange = target.iter().any(|&byte| byte >= 0x80 || byte == b'\\');
        prop_assert_eq!(read(&line).err().map(|fault| fault.status), is_strange.then_some(400));
    }

    #[test]
    fn test_one_changed_byte_never_panics_and_never_moves_the_end(
        method in method(), target in target(), place in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut line = [&method, b" ".as_slice(), &target, b" HTTP/1.1\r\n"].concat();
        let place = place.index(line.len());
        line[place] = byte;
        // Only the CRLF may end a line, unless the change made an earlier one.
        if let Ok(Progress::Complete(found)) = read(&line) {
            prop_assert_eq!(found.length as usize, line.len());
        }
    }
}
