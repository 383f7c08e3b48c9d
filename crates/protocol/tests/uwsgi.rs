//! uwsgi packets: the case list, the limits, and properties.

mod cases;

use bolide_protocol::uwsgi::{PACKET_HEAD_BYTES, PacketHead, packet_head, variables};
use bolide_protocol::variables::{MAX_VARIABLE_COUNT, Variable, VariableFacts};
use bolide_protocol::{Fault, Progress, Span};
use cases::uwsgi::CASES;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> (Result<VariableFacts, Fault>, Vec<Variable>) {
    let mut found = vec![Variable { name: Span::default(), value: Span::default() }; 2];
    let outcome = variables(bytes, &mut found);
    (outcome, found)
}

fn named<'a>(found: &[Variable], bytes: &'a [u8]) -> Vec<(&'a [u8], &'a [u8])> {
    found.iter().map(|variable| (variable.name.of(bytes), variable.value.of(bytes))).collect()
}

fn written<Name: AsRef<[u8]>, Value: AsRef<[u8]>>(list: &[(Name, Value)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in list.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]) {
        bytes.extend(u16::try_from(text.len()).expect("a test's text is short").to_le_bytes());
        bytes.extend(text);
    }
    bytes
}

#[test]
fn test_each_block_is_read_or_refused_as_listed() {
    for case in CASES {
        let text = case.bytes.escape_ascii();
        let (outcome, found) = read(case.bytes);
        match (outcome, case.outcome) {
            (Ok(facts), Ok(expected)) => {
                assert_eq!(named(&found, case.bytes), expected.variables, "{text}");
                assert_eq!(facts.content_length, expected.content_length, "{text}");
                assert_eq!(facts.method.map(|span| span.of(case.bytes)), expected.method, "{text}");
                assert_eq!(facts.uri.map(|span| span.of(case.bytes)), expected.uri, "{text}");
                assert_eq!(facts.protocol.map(|span| span.of(case.bytes)), expected.protocol, "{text}");
                assert_eq!(facts.head_request, expected.head_request, "{text}");
            }
            (Err(fault), Err((status, words))) => {
                assert_eq!(fault.status, status, "{text}: {}", fault.reason);
                assert!(fault.reason.contains(words), "{text}: {}", fault.reason);
            }
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}

/// The caller waits until a block is complete, so a truncated block only results from a wrong `vars_bytes`. The result must be
/// the variables before the cut, or a fault, and never a truncated variable.
#[test]
fn test_each_block_cut_short_is_refused_or_ends_behind_a_variable() {
    for case in CASES {
        let Ok(expected) = case.outcome else { continue };
        for end in 0..case.bytes.len() {
            let (outcome, found) = read(&case.bytes[..end]);
            if outcome.is_ok() {
                let part = &expected.variables[..found.len()];
                assert_eq!(named(&found, case.bytes), part);
                assert_eq!(written(part).len(), end, "{}", case.bytes.escape_ascii());
            } else {
                assert!(outcome.is_err_and(|fault| fault.reason.contains("ends beyond the packet")));
            }
        }
    }
}

#[test]
fn test_what_follows_a_block_is_taken_for_a_variable_or_refused() {
    for case in CASES {
        let one_more = [case.bytes, &written(&[("Z", "z")])].concat();
        let (outcome, found) = read(&one_more);
        match case.outcome {
            Ok(expected) => {
                assert!(outcome.is_ok());
                assert_eq!(named(&found, &one_more), [expected.variables, &[(b"Z", b"z")]].concat());
                assert_eq!(read(&[case.bytes, b"\0"].concat()).0.map_err(|fault| fault.status), Err(400));
            }
            // A length beyond the block may lead into the added bytes, so only other faults are certain to remain.
            Err((_, words)) if words.contains("beyond") => {}
            Err((status, _)) => assert_eq!(outcome.map_err(|fault| fault.status), Err(status)),
        }
    }
}

#[test]
fn test_a_packet_head_is_read_from_its_fourth_byte_on() {
    let bytes = [5, 0x34, 0x12, 7, 99];
    for end in 0..PACKET_HEAD_BYTES {
        assert_eq!(packet_head(&bytes[..end]), Progress::Partial);
    }
    let head = PacketHead { modifier1: 5, vars_bytes: 0x1234, modifier2: 7 };
    for end in PACKET_HEAD_BYTES..=bytes.len() {
        assert_eq!(packet_head(&bytes[..end]), Progress::Complete(head));
    }
}

#[test]
fn test_as_many_variables_as_the_limit_are_read_and_one_more_is_431() {
    let list = vec![("A", ""); MAX_VARIABLE_COUNT + 1];
    let (outcome, found) = read(&written(&list[1..]));
    assert!(outcome.is_ok());
    assert_eq!(found.len(), MAX_VARIABLE_COUNT);
    assert_eq!(read(&written(&list)).0.map_err(|fault| fault.status), Err(431));
}

#[test]
fn test_a_variable_that_fills_the_largest_packet_is_read() {
    let value = vec![b'v'; usize::from(u16::MAX) - 5];
    let bytes = written(&[(b"A".to_vec(), value.clone())]);
    assert_eq!(bytes.len(), usize::from(u16::MAX));
    let (outcome, found) = read(&bytes);
    assert!(outcome.is_ok());
    assert_eq!(named(&found, &bytes), [(b"A".as_slice(), value.as_slice())]);
}

proptest! {
    #[test]
    fn test_every_list_of_variables_is_read_back(
        list in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..20), proptest::collection::vec(any::<u8>(), 0..300)), 0..30,
        ),
    ) {
        let bytes = written(&list);
        let (outcome, found) = read(&bytes);
        prop_assert!(outcome.is_ok());
        let list: Vec<(&[u8], &[u8])> = list.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        prop_assert_eq!(named(&found, &bytes), list);
    }

    #[test]
    fn test_whatever_is_accepted_is_what_its_variables_are_written_as(bytes in proptest::collection::vec(0..4u8, 0..40)) {
        let (outcome, found) = read(&bytes);
        if outcome.is_ok() {
            prop_assert_eq!(written(&named(&found, &bytes)), bytes);
        }
    }
}
