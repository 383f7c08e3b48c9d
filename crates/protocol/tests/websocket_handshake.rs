//! The opening handshake of a WebSocket: the accept key, the case list of offers, and close codes.

mod cases;

use bolide_protocol::Fault;
use bolide_protocol::websocket::close;
use bolide_protocol::websocket::handshake::{Deflate, accept_key, negotiate};
use cases::websocket_offer::CASES;
use proptest::prelude::*;

const ALWAYS: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

fn answer(offer: &[u8]) -> Result<Option<String>, Fault> {
    let write = |deflate: Deflate| {
        let mut value = Vec::new();
        deflate.write_response(&mut value);
        String::from_utf8(value).expect("an answer in ASCII")
    };
    negotiate(offer).map(|chosen| chosen.map(write))
}

#[test]
fn test_the_accept_key_is_that_of_the_specification() {
    // RFC 6455 section 1.3.
    assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), Ok(*b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    // Unused bits of the last character.
    assert!(accept_key(b"dGhlIHNhbXBsZSBub25jZ/==").is_ok());
}

#[test]
fn test_a_key_that_is_not_sixteen_bytes_is_refused() {
    let keys: &[&[u8]] = &[
        b"",
        b"==",
        b"dGhlIHNhbXBsZSBub25jZQ",
        b"dGhlIHNhbXBsZSBub25jZQ=",
        b"dGhlIHNhbXBsZSBub25jZQ===",
        b"dGhlIHNhbXBsZSBub25jZQAA",
        b"dGhlIHNhbXBsZSBub25jZQA=",
        b"dGhlIHNhbXBsZSBub25j==",
        b"dGhlIHNhbXBsZSBub25jZQAAAA==",
        b"dGhlIHNhbXBsZSBub2 jZQ==",
        b"dGhlIHNhbXBsZSBub2-_ZQ==",
        b" GhlIHNhbXBsZSBub25jZQ==",
        b"dGhlIHNhbXBsZSBub25j\xe9Q==",
    ];
    for key in keys {
        let fault = accept_key(key).expect_err("a key of another length");
        assert_eq!(fault.status, 400, "{}", key.escape_ascii());
    }
}

#[test]
fn test_each_offer_is_answered_declined_or_refused_as_listed() {
    for case in CASES {
        let text = case.value.escape_ascii();
        match (answer(case.value), case.outcome) {
            (Ok(answer), Ok(bounds)) => assert_eq!(answer, bounds.map(|bounds| format!("{ALWAYS}{bounds}")), "{text}"),
            (Err(fault), Err((status, words))) => {
                assert!(fault.status == status && fault.reason.contains(words), "{text}: {fault:?}");
            }
            (answer, _) => panic!("{text}: {answer:?}"),
        }
    }
}

#[test]
fn test_an_offer_that_follows_is_taken_only_when_the_ones_before_are_declined() {
    for case in CASES {
        let Ok(outcome) = case.outcome else { continue };
        let longer = [case.value, b", permessage-deflate; client_max_window_bits=11"].concat();
        let bounds = outcome.unwrap_or("; client_max_window_bits=11");
        assert_eq!(answer(&longer), Ok(Some(format!("{ALWAYS}{bounds}"))), "{}", longer.escape_ascii());
    }
}

#[test]
fn test_windows_are_as_the_client_bounds_them() {
    let windows = |offer: &[u8]| {
        let deflate = negotiate(offer).ok().flatten().expect("an offer that can be kept");
        (deflate.server_window_bits(), deflate.client_window_bits())
    };
    assert_eq!(windows(b"permessage-deflate"), (15, 15));
    assert_eq!(windows(b"permessage-deflate; server_max_window_bits=9; client_max_window_bits"), (9, 15));
    assert_eq!(windows(b"permessage-deflate; client_max_window_bits=8"), (15, 8));
}

#[test]
fn test_close_codes_that_mean_nothing_on_the_wire_may_not_be_sent() {
    let allowed: Vec<u16> = (0..=u16::MAX).filter(|&code| close::may_be_sent(code)).collect();
    let expected: Vec<u16> = (1000..=1003).chain(1007..=1014).chain(3000..=4999).collect();
    assert_eq!(allowed, expected);
}

#[test]
fn test_a_long_reason_is_cut_between_characters() {
    assert_eq!(close::cut_reason(""), "");
    assert_eq!(close::cut_reason("going away"), "going away");
    assert_eq!(close::cut_reason(&"a".repeat(123)), "a".repeat(123));
    assert_eq!(close::cut_reason(&"a".repeat(124)), "a".repeat(123));
    assert_eq!(close::cut_reason(&"κ".repeat(62)), "κ".repeat(61));
    assert_eq!(close::cut_reason(&format!("a{}", "😀".repeat(31))), format!("a{}", "😀".repeat(30)));
}

proptest! {
    #[test]
    fn test_any_order_of_good_parameters_is_accepted(
        order in Just(vec![
            "server_no_context_takeover",
            "client_no_context_takeover",
            "server_max_window_bits=12",
            "client_max_window_bits=13",
        ])
        .prop_shuffle(),
        count in 0usize..=4,
    ) {
        let chosen = &order[..count];
        let offer = ["permessage-deflate"].iter().chain(chosen).copied().collect::<Vec<_>>().join("; ");
        let mut expected = ALWAYS.to_owned();
        for bound in ["server_max_window_bits=12", "client_max_window_bits=13"] {
            if chosen.contains(&bound) {
                expected = format!("{expected}; {bound}");
            }
        }
        prop_assert_eq!(answer(offer.as_bytes()), Ok(Some(expected)));
    }

    #[test]
    fn test_no_offer_breaks_the_reader(offer in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Err(fault) = negotiate(&offer) {
            prop_assert_eq!(fault.status, 400);
        }
    }
}
