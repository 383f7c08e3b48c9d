//! Targets and percent escapes: the case lists, and properties.

mod cases;

use bolide_protocol::Fault;
use bolide_protocol::http1::target::{TargetForm, decode_path, percent_decode, split_target};
use cases::target::{CASES, DOT_SEGMENTS, ESCAPES, EscapeCase};
use proptest::prelude::*;

#[test]
fn test_each_target_is_split_or_refused_as_listed() {
    for case in CASES {
        let text = case.target.escape_ascii();
        match (split_target(case.target, case.method), case.outcome) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.form, expected.form, "{text}");
                assert_eq!(found.path.of(case.target), expected.path, "{text}");
                assert_eq!(found.has_query, expected.query.is_some(), "{text}");
                assert_eq!(found.query.of(case.target), expected.query.unwrap_or_default(), "{text}");
                assert_eq!(found.authority.of(case.target), expected.authority, "{text}");
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
fn test_each_target_cut_short_or_prolonged_never_panics_and_keeps_its_parts_inside() {
    for case in CASES {
        let longer = [case.target, b"?a/b%"].concat();
        for end in 0..=longer.len() {
            let target = &longer[..end];
            if let Ok(found) = split_target(target, case.method) {
                assert!(!found.path.of(target).is_empty(), "{}", target.escape_ascii());
                assert_eq!(found.query.of(target).len(), found.query.len());
            }
        }
    }
}

type Decode = fn(&[u8], &mut Vec<u8>) -> Result<bool, Fault>;

fn check_decoding(case: &EscapeCase, decode: Decode) {
    let text = case.path.escape_ascii();
    let mut decoded = b"before".to_vec();
    match (decode(case.path, &mut decoded), case.outcome) {
        (Ok(true), Ok(Some(expected))) => {
            assert_eq!(decoded.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{text}")
        }
        (Ok(false), Ok(None)) => assert_eq!(decoded, b"before", "{text}"),
        (Err(fault), Err((status, words))) => {
            assert_eq!(fault.status, status, "{text}: {}", fault.reason);
            assert!(fault.reason.contains(words), "{text}: {}", fault.reason);
        }
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn test_each_path_is_decoded_or_refused_as_listed() {
    for case in ESCAPES {
        check_decoding(case, percent_decode);
        check_decoding(case, decode_path);
    }
}

#[test]
fn test_each_dot_segment_is_taken_out_as_listed() {
    for case in DOT_SEGMENTS {
        check_decoding(case, decode_path);
    }
}

#[test]
fn test_each_path_is_decoded_piece_by_piece_as_it_is_whole() {
    for case in ESCAPES {
        let Ok(expected) = case.outcome else { continue };
        let expected = expected.unwrap_or(case.path);
        for end in 0..=case.path.len() {
            let decode = |part: &[u8]| {
                let mut decoded = Vec::new();
                percent_decode(part, &mut decoded).map(|changed| if changed { decoded } else { part.to_vec() })
            };
            // A cut inside an escape leaves a `%` without its digits; any other cut changes nothing.
            if let (Ok(left), Ok(right)) = (decode(&case.path[..end]), decode(&case.path[end..])) {
                let inside_escape = (1..=2).any(|back| end >= back && case.path.get(end - back) == Some(&b'%'));
                assert!(inside_escape || [left, right].concat() == expected, "{}", case.path.escape_ascii());
            }
        }
    }
}

proptest! {
    #[test]
    fn test_every_path_that_is_encoded_is_decoded_to_itself(
        path in proptest::collection::vec((1..=255u8, any::<bool>(), any::<bool>()), 0..60),
    ) {
        let plain: Vec<u8> = path.iter().map(|(byte, _, _)| *byte).collect();
        let encoded: Vec<u8> = path
            .iter()
            .flat_map(|&(byte, escape, capital)| match (escape || byte == b'%', capital) {
                (false, _) => vec![byte],
                (true, true) => format!("%{byte:02X}").into_bytes(),
                (true, false) => format!("%{byte:02x}").into_bytes(),
            })
            .collect();
        let mut decoded = Vec::new();
        let changed = percent_decode(&encoded, &mut decoded).expect("a good path");
        prop_assert_eq!(changed, encoded.contains(&b'%'));
        prop_assert_eq!(if changed { decoded } else { encoded }, plain);
    }

    #[test]
    fn test_no_path_keeps_a_dot_segment_that_was_not_encoded(
        segments in proptest::collection::vec(proptest::sample::select(vec!["", ".", "..", "...", "a", ".a", "b%2fc"]), 0..12),
    ) {
        let path = format!("/{}", segments.join("/"));
        let mut decoded = Vec::new();
        let changed = decode_path(path.as_bytes(), &mut decoded).expect("a good path");
        let found = if changed { decoded } else { path.into_bytes() };
        prop_assert!(found.starts_with(b"/"));
        prop_assert!(!found.split(|&byte| byte == b'/').any(|segment| matches!(segment, b"." | b"..")));
    }

    #[test]
    fn test_random_bytes_are_split_into_parts_that_make_the_target_again(
        start in proptest::sample::select(vec!["/", "*", "http://", "HTTPS://a", "x", ""]),
        rest in proptest::collection::vec(
            prop_oneof![4 => proptest::sample::select(b"/?#:@[]%a".to_vec()), 1 => any::<u8>()],
            0..30,
        ),
    ) {
        let target = [start.as_bytes(), &rest].concat();
        if let Ok(found) = split_target(&target, b"GET") {
            let query = if found.has_query { [b"?", found.query.of(&target)].concat() } else { Vec::new() };
            match found.form {
                TargetForm::Origin => prop_assert_eq!([found.path.of(&target), &query].concat(), target),
                TargetForm::Absolute => {
                    prop_assert!(found.path.of(&target).starts_with(b"/"));
                    prop_assert!(!found.authority.of(&target).contains(&b'/'));
                    prop_assert!(target.ends_with(&query));
                }
                form => panic!("GET has no target of form {form:?}"),
            }
        }
    }
}
