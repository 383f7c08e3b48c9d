//! The format of jobs: the case list whole, byte by byte and with trailing data, and properties.

mod cases;

use bolide_spool::format::{HEAD_BYTES, MAX_VARIABLES_BYTES, Reading, Unwritable, head, push_variable, read};
use cases::{CASES, Outcome};
use proptest::prelude::*;

fn check(bytes: &[u8], expected: &Outcome, tail: &[u8]) {
    let text = bytes.escape_ascii();
    match (read(bytes), expected) {
        (Reading::Job(layout), Outcome::Job { variables, body }) => {
            let found: Vec<(&[u8], &[u8])> =
                layout.variables.iter().map(|(name, value)| (&bytes[name.clone()], &bytes[value.clone()])).collect();
            assert_eq!(&found, variables, "{text}");
            assert_eq!(bytes[layout.body], [*body, tail].concat(), "{text}");
        }
        (Reading::Unfinished, Outcome::Unfinished) => {}
        (Reading::Junk(reason), Outcome::Junk(words)) => assert!(reason.contains(words), "{text}: {reason}"),
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn test_each_job_is_read_or_refused_as_listed() {
    for case in CASES {
        check(case.bytes, &case.outcome, b"");
    }
}

#[test]
fn test_each_job_waits_for_the_end_of_its_packet_and_is_refused_for_good() {
    for case in CASES {
        let (mut was_job, mut refused) = (false, None);
        for end in 0..=case.bytes.len() {
            let text = case.bytes[..end].escape_ascii();
            match read(&case.bytes[..end]) {
                Reading::Unfinished => assert!(!was_job && refused.is_none(), "{text}: was judged with fewer bytes"),
                Reading::Job(layout) => {
                    was_job = true;
                    assert_eq!(layout.body.end, end, "{text}");
                }
                Reading::Junk(reason) => assert_eq!(*refused.get_or_insert(reason), reason, "{text}: refused for another reason"),
            }
        }
        assert_eq!(was_job, matches!(case.outcome, Outcome::Job { .. }));
        assert_eq!(refused.is_some(), matches!(case.outcome, Outcome::Junk(_)));
    }
}

#[test]
fn test_data_after_the_packet_is_the_body() {
    for case in CASES.iter().filter(|case| !matches!(case.outcome, Outcome::Unfinished)) {
        for tail in [&b"\0"[..], b"\x11\x00\x00\x00", b"\x01\x00a\x00\x00"] {
            check(&[case.bytes, tail].concat(), &case.outcome, tail);
        }
    }
}

#[test]
fn test_as_many_bytes_as_a_packet_can_have_are_written_and_one_more_is_not() {
    let mut block = Vec::new();
    assert_eq!(push_variable(&mut block, b"a", &vec![b'v'; MAX_VARIABLES_BYTES - 5]), Ok(()));
    assert_eq!(block.len(), MAX_VARIABLES_BYTES);
    assert!(head(block.len()).is_some());
    assert_eq!(push_variable(&mut block, b"a", b""), Err(Unwritable::TooLarge));
    assert_eq!(head(block.len() + 1), None);
    let mut other = Vec::new();
    assert_eq!(push_variable(&mut other, b"a", &vec![b'v'; MAX_VARIABLES_BYTES - 4]), Err(Unwritable::TooLarge));
    assert_eq!(push_variable(&mut other, &vec![b'v'; 1 << 20], b""), Err(Unwritable::TooLarge));
    assert_eq!(push_variable(&mut other, b"", b"v"), Err(Unwritable::Nameless));
    assert!(other.is_empty());
}

proptest! {
    #[test]
    fn test_every_written_job_is_read_back(
        list in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..20), proptest::collection::vec(any::<u8>(), 0..300)), 0..30,
        ),
        body: Vec<u8>,
    ) {
        let mut block = Vec::new();
        for (name, value) in &list {
            prop_assert_eq!(push_variable(&mut block, name, value), Ok(()));
        }
        let Some(head) = head(block.len()) else { return Err(TestCaseError::fail("too large")) };
        let bytes = [&head[..], &block, &body].concat();
        let Reading::Job(layout) = read(&bytes) else { return Err(TestCaseError::fail("no job")) };
        let found: Vec<(Vec<u8>, Vec<u8>)> =
            layout.variables.iter().map(|(name, value)| (bytes[name.clone()].to_vec(), bytes[value.clone()].to_vec())).collect();
        prop_assert_eq!(found, list);
        prop_assert_eq!(&bytes[layout.body], &body[..]);
    }

    #[test]
    fn test_no_bytes_are_read_beyond_their_end(mut bytes in proptest::collection::vec(any::<u8>(), HEAD_BYTES..60)) {
        bytes[0] = 17;
        bytes[2] = 0;
        if let Reading::Job(layout) = read(&bytes) {
            prop_assert_eq!(layout.body.end, bytes.len());
            prop_assert!(layout.variables.iter().all(|(name, value)| name.end < value.start && value.end <= layout.body.start));
        }
    }
}
