//! PROXY headers: the case list whole, byte by byte and with bytes after it.

mod cases;

use bolide_protocol::proxy_header::{ProxyHeader, ProxySource, proxy_header};
use bolide_protocol::{Fault, Progress};
use cases::proxy_header::{Outcome, cases};

fn check(bytes: &[u8], length: usize, expected: &Outcome) {
    let text = bytes.escape_ascii();
    match (proxy_header(bytes), expected) {
        (Ok(Progress::Complete(header)), Outcome::Read(source, tls)) => {
            assert_eq!(header.length, length, "{text}");
            let found = match header.source {
                ProxySource::Sender => "sender".to_owned(),
                ProxySource::Unix => "unix".to_owned(),
                ProxySource::Address(address) => address.to_string(),
            };
            assert_eq!(found, *source, "{text}");
            let words = |span: bolide_protocol::Span| String::from_utf8_lossy(span.of(bytes)).into_owned();
            let found = header
                .tls
                .map(|tls| (words(tls.version), words(tls.cipher), words(tls.common_name), tls.has_certificate, tls.is_verified));
            let expected = tls.map(|(version, cipher, name, has, is)| (version.into(), cipher.into(), name.into(), has, is));
            assert_eq!(found, expected, "{text}");
        }
        (Ok(Progress::Partial), Outcome::Partial) => {}
        (Err(fault), Outcome::Refused(words)) => assert!(fault.reason.contains(words), "{text}: {}", fault.reason),
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn test_each_header_is_read_or_refused_as_listed() {
    for case in cases() {
        check(&case.bytes, case.bytes.len(), &case.outcome);
    }
}

#[test]
fn test_each_header_waits_for_its_last_byte_and_is_refused_for_good() {
    for case in cases() {
        let mut fault: Option<Fault> = None;
        for end in 0..=case.bytes.len() {
            let text = case.bytes[..end].escape_ascii();
            match proxy_header(&case.bytes[..end]) {
                Ok(Progress::Partial) => assert!(fault.is_none(), "{text}: what was refused is waited for"),
                Ok(Progress::Complete(ProxyHeader { length, .. })) => {
                    assert_eq!((end, length), (case.bytes.len(), end), "{text}")
                }
                Err(found) => assert_eq!(*fault.get_or_insert(found), found, "{text}: refused for another reason"),
            }
        }
        assert_eq!(fault.is_some(), matches!(case.outcome, Outcome::Refused(_)), "{}", case.bytes.escape_ascii());
    }
}

#[test]
fn test_what_follows_a_header_changes_nothing() {
    for case in cases().iter().filter(|case| !matches!(case.outcome, Outcome::Partial)) {
        for rest in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\r\n", b"\0", b"PROXY UNKNOWN\r\n"] {
            check(&[&case.bytes, rest].concat(), case.bytes.len(), &case.outcome);
        }
    }
}
