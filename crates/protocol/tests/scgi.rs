//! SCGI request heads: the case list whole, byte by byte and with a body after it, the limits, and properties.

mod cases;

use bolide_protocol::scgi::{ScgiHead, request_head};
use bolide_protocol::variables::{MAX_VARIABLE_COUNT, Variable};
use bolide_protocol::{Fault, Progress, Span};
use cases::scgi::{CASES, MAX_BLOCK_BYTES, Outcome};
use proptest::prelude::*;

const NO_LIMIT: usize = 1 << 20;

fn read(bytes: &[u8], block_bytes_most: usize) -> (Result<Progress<ScgiHead>, Fault>, Vec<Variable>) {
    let mut found = vec![Variable { name: Span::default(), value: Span::default() }; 2];
    let outcome = request_head(bytes, block_bytes_most, &mut found);
    (outcome, found)
}

fn named<'a>(found: &[Variable], block: &'a [u8]) -> Vec<(&'a [u8], &'a [u8])> {
    found.iter().map(|variable| (variable.name.of(block), variable.value.of(block))).collect()
}

fn written<Name: AsRef<[u8]>, Value: AsRef<[u8]>>(list: &[(Name, Value)]) -> Vec<u8> {
    let mut block = Vec::new();
    for text in list.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]) {
        block.extend(text);
        block.push(0);
    }
    [format!("{}:", block.len()).as_bytes(), &block, b","].concat()
}

fn check(bytes: &[u8], case_bytes: &[u8], expected: &Outcome) {
    let text = bytes.escape_ascii();
    let (outcome, found) = read(bytes, MAX_BLOCK_BYTES);
    match (outcome, expected) {
        (Ok(Progress::Complete(head)), Outcome::Read { variables, content_length }) => {
            assert_eq!(head.length, case_bytes.len(), "{text}");
            let block = head.block.of(bytes);
            assert_eq!(&named(&found, block), variables, "{text}");
            assert_eq!(head.facts.content_length, Some(*content_length), "{text}");
            let last = |name: &[u8]| variables.iter().rfind(|(found, _)| *found == name).map(|(_, value)| *value);
            assert_eq!(head.facts.method.map(|span| span.of(block)), last(b"REQUEST_METHOD"), "{text}");
            assert_eq!(head.facts.uri.map(|span| span.of(block)), last(b"REQUEST_URI"), "{text}");
            assert_eq!(head.facts.protocol.map(|span| span.of(block)), last(b"SERVER_PROTOCOL"), "{text}");
            assert_eq!(head.facts.head_request, last(b"REQUEST_METHOD") == Some(b"HEAD"), "{text}");
        }
        (Ok(Progress::Partial), Outcome::Partial) => {}
        (Err(fault), Outcome::Refused((status, words))) => {
            assert_eq!(fault.status, *status, "{text}: {}", fault.reason);
            assert!(fault.reason.contains(words), "{text}: {}", fault.reason);
        }
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn test_each_head_is_read_or_refused_as_listed() {
    for case in CASES {
        check(case.bytes, case.bytes, &case.outcome);
    }
}

#[test]
fn test_each_head_waits_for_its_last_byte_and_is_refused_for_good() {
    for case in CASES {
        let mut fault = None;
        for end in 0..=case.bytes.len() {
            let (outcome, _) = read(&case.bytes[..end], MAX_BLOCK_BYTES);
            let text = case.bytes[..end].escape_ascii();
            match outcome {
                Ok(Progress::Partial) => assert!(fault.is_none(), "{text}: what was refused is waited for"),
                Ok(Progress::Complete(_)) => assert_eq!(end, case.bytes.len(), "{text}"),
                Err(found) => assert_eq!(*fault.get_or_insert(found), found, "{text}: refused for another reason"),
            }
        }
        assert_eq!(fault.is_some(), matches!(case.outcome, Outcome::Refused(_)));
    }
}

#[test]
fn test_what_follows_a_head_is_left_alone() {
    for case in CASES.iter().filter(|case| !matches!(case.outcome, Outcome::Partial)) {
        for tail in [&b"\0"[..], b",", b"0:,", b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,"] {
            check(&[case.bytes, tail].concat(), case.bytes, &case.outcome);
        }
    }
}

#[test]
fn test_as_many_variables_as_the_limit_are_read_and_one_more_is_431() {
    let mut list = vec![("CONTENT_LENGTH", "0"), ("SCGI", "1")];
    list.resize(MAX_VARIABLE_COUNT, ("A", ""));
    let (outcome, found) = read(&written(&list), NO_LIMIT);
    assert!(outcome.is_ok());
    assert_eq!(found.len(), MAX_VARIABLE_COUNT);
    list.push(("A", ""));
    assert_eq!(read(&written(&list), NO_LIMIT).0.map_err(|fault| fault.status), Err(431));
}

#[test]
fn test_a_block_as_large_as_the_limit_is_read_and_one_byte_more_is_431() {
    let value = "v".repeat(MAX_BLOCK_BYTES - 26);
    let list = [("CONTENT_LENGTH", "0"), ("SCGI", "1"), ("A", &value[1..])];
    let bytes = written(&list);
    assert!(bytes.starts_with(b"200:") || bytes.starts_with(b"199:"));
    let exact = bytes.iter().position(|byte| *byte == b':').map_or(0, |colon| bytes.len() - colon - 2);
    assert!(matches!(read(&bytes, exact).0, Ok(Progress::Complete(_))));
    assert_eq!(read(&bytes, exact - 1).0.map_err(|fault| fault.status), Err(431));
}

proptest! {
    #[test]
    fn test_every_list_of_variables_is_read_back(
        list in proptest::collection::vec(
            (proptest::collection::vec(1..=255u8, 1..20), proptest::collection::vec(1..=255u8, 0..300)), 0..30,
        ),
        length: u64,
    ) {
        let length = length.to_string();
        let mut whole = vec![(b"CONTENT_LENGTH".to_vec(), length.into_bytes()), (b"SCGI".to_vec(), b"1".to_vec())];
        whole.extend(list);
        let bytes = written(&whole);
        let (outcome, found) = read(&bytes, NO_LIMIT);
        let Ok(Progress::Complete(head)) = outcome else { return Err(TestCaseError::fail(format!("{outcome:?}"))) };
        prop_assert_eq!(head.length, bytes.len());
        let whole: Vec<(&[u8], &[u8])> = whole.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        prop_assert_eq!(named(&found, head.block.of(&bytes)), whole);
    }

    #[test]
    fn test_no_bytes_are_read_beyond_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let (Ok(Progress::Complete(head)), _) = read(&bytes, NO_LIMIT) {
            prop_assert!(head.length <= bytes.len());
        }
    }
}
