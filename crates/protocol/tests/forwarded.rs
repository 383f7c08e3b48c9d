//! Forwarded fields of reverse proxies: the case list, each field alone, long lists, and properties.

mod cases;

use std::net::IpAddr;

use bolide_protocol::forwarded::{ForwardedFields, ForwardedRequest, forwarded_request};
use bolide_protocol::http1::head::{Field, HeadLimits, Version, header_block};
use cases::forwarded::{CASES, ForwardedFacts};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits::of(1000, 1 << 20, 1000);

const ALL: ForwardedFields = ForwardedFields {
    x_forwarded_for: true,
    x_forwarded_proto: true,
    x_forwarded_host: true,
    x_forwarded_port: true,
    x_forwarded_prefix: true,
    forwarded: true,
};

fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

fn block(list: &[(&str, &str)]) -> (Vec<u8>, Vec<Field>) {
    let lines: String = list.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let bytes = [lines.as_bytes(), b"\r\n"].concat();
    let mut fields = Vec::new();
    header_block(&bytes, Version::Http10, &LIMITS, &mut fields).expect("well-formed");
    (bytes, fields)
}

fn said(found: ForwardedRequest<'_>) -> (String, Option<u16>, &'static str, String, Option<u16>, Option<String>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        found.client.map(|client| client.address.to_string()).unwrap_or_default(),
        found.client.and_then(|client| client.port),
        found.is_https.map_or("", |is_https| if is_https { "https" } else { "http" }),
        found.host.map(text).unwrap_or_default(),
        found.port,
        found.prefix.map(text),
    )
}

fn check(list: &[(&str, &str)], counting: ForwardedFields, expected: ForwardedFacts) {
    let (bytes, fields) = block(list);
    let found = said(forwarded_request(&fields, &bytes, counting, &is_trusted));
    let (client, client_port, scheme, host, port, prefix) = expected;
    assert_eq!(found, (client.into(), client_port, scheme, host.into(), port, prefix.map(str::to_owned)), "{list:?}");
}

#[test]
fn test_each_block_says_what_is_listed() {
    for (list, expected) in CASES {
        check(list, ALL, *expected);
    }
}

#[test]
fn test_a_field_that_does_not_count_says_nothing() {
    for (list, _) in CASES {
        check(list, ForwardedFields::default(), ("", None, "", "", None, None));
    }
    let both = [("Forwarded", "for=192.0.2.1;proto=https"), ("X-Forwarded-For", "192.0.2.2")];
    let standard = ForwardedFields { forwarded: true, ..ForwardedFields::default() };
    check(&both, standard, ("192.0.2.1", None, "https", "", None, None));
    check(&both, ForwardedFields { x_forwarded_for: false, ..ALL }, ("192.0.2.1", None, "https", "", None, None));
    check(&both, ForwardedFields { forwarded: false, ..ALL }, ("192.0.2.2", None, "", "", None, None));
}

#[test]
fn test_a_list_without_end_is_looked_at_up_to_its_bound() {
    let long = ["192.0.2.1"].into_iter().chain(std::iter::repeat_n("10.0.0.1", 64)).collect::<Vec<_>>();
    check(&[("X-Forwarded-For", &long.join(","))], ALL, ("10.0.0.1", None, "", "", None, None));
    check(&[("X-Forwarded-For", &long[..64].join(","))], ALL, ("192.0.2.1", None, "", "", None, None));
    let elements = |count: usize| long[..count].iter().map(|address| format!("for={address}")).collect::<Vec<_>>().join(",");
    check(&[("Forwarded", &elements(65))], ALL, ("", None, "", "", None, None));
    check(&[("Forwarded", &elements(63))], ALL, ("192.0.2.1", None, "", "", None, None));
}

proptest! {
    /// Whatever a client sends, the values that its reverse proxy appends take precedence.
    #[test]
    fn test_a_client_can_not_override_its_reverse_proxy(
        words in "[ -~]{0,60}",
        lines in proptest::collection::vec("[ -~]{0,40}", 0..4),
    ) {
        let mut list: Vec<(&str, &str)> = lines.iter().map(|line| ("X-Forwarded-For", line.as_str())).collect();
        let appended = format!("{words}, 192.0.2.1");
        list.extend([("X-Forwarded-For", appended.as_str()), ("X-Forwarded-For", "10.0.0.1")]);
        list.extend([("X-Forwarded-Proto", words.as_str()), ("X-Forwarded-Proto", "https")]);
        let (bytes, fields) = block(&list);
        let found = forwarded_request(&fields, &bytes, ALL, &is_trusted);
        prop_assert_eq!(found.client.map(|client| client.address.to_string()), Some("192.0.2.1".to_owned()));
        prop_assert_eq!(found.is_https, Some(true));
    }

    /// Every value that is found is well-formed.
    #[test]
    fn test_found_values_are_safe_to_use(
        name in "(X-Forwarded-(For|Proto|Host|Port|Prefix)|Forwarded)",
        value in "(for|host|proto|[=;,\"\\\\:/.\\[\\]a-f0-9 ]){0,40}",
    ) {
        let (bytes, fields) = block(&[(&name, &value)]);
        let found = forwarded_request(&fields, &bytes, ALL, &is_trusted);
        let is_plain = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\?#".contains(byte));
        // Commas and semicolons may stand in the name of a host (RFC 3986 section 3.2.2).
        prop_assert!(found.host.is_none_or(|host| !host.is_empty() && is_plain(host) && !host.contains(&b'/')));
        // Commas separate entries, and a semicolon may stand in a path (RFC 3986 section 3.3).
        let is_path = |prefix: &[u8]| !prefix.starts_with(b"//") && !prefix.ends_with(b"/");
        prop_assert!(found.prefix.is_none_or(|prefix| is_plain(prefix) && !prefix.contains(&b',') && is_path(prefix)));
    }
}
