//! Tests of heads before and after the filter.

use super::*;

const SHORTEST: &[u8] = b"0123456789012345678901234567890123456789012345678901234567890123456789";

fn rules(change: impl FnOnce(&mut Answering)) -> &'static FilterRules {
    let mut answering = Answering::default();
    answering.compression.codings = vec![Coding::Gzip];
    answering.compression.least_bytes = 10;
    change(&mut answering);
    Box::leak(Box::new(FilterRules::new(&answering, &Table::default())))
}

/// Returns the head after the filter, and whether the body was replaced.
fn after(rules: &'static FilterRules, text: &str, part: FirstPart<'_>, head_only: bool) -> (String, bool) {
    let length =
        text.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).map(|text| text.parse().unwrap());
    let text = text.strip_prefix("HTTP/1.1 ").unwrap();
    let mut head = ResponseHead::default();
    head.set_ready(text[..3].parse().unwrap(), &[text.as_bytes()], 9, length);
    let routes: &'static Table = Box::leak(Box::default());
    let accepted = AcceptedCodings::read(b"gzip");
    let mut filter =
        ResponseFilter::new(rules, routes, &mut Overrides::default(), Vec::new(), accepted, (1, Box::leak(Box::default())));
    let mut filtered = FilteredHead {
        head: &mut head,
        is_unlogged: &mut false,
        log_variables: &mut Vec::new(),
        stores: &mut Vec::new(),
        head_only,
    };
    let made = filter.head(&mut filtered, part);
    let mut written = Vec::new();
    head.write(b"HTTP/1.1 ", &mut written);
    (String::from_utf8(written).unwrap(), made.is_some() || filter.encoder().is_some())
}

#[test]
fn a_compressed_answer_is_another_representation() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"x\"\r\nVary: Cookie\r\nAccept-Ranges: bytes\r\n";
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: W/\"x\"\r\nVary: Cookie, Accept-Encoding\r\n\
        Content-Encoding: gzip\r\n";
    assert_eq!(after(rules(|_| {}), text, FirstPart::Bytes(SHORTEST), false), (expected.to_owned(), true));
    // HEAD gets the same fields, although there is nothing to compress.
    assert_eq!(after(rules(|_| {}), text, FirstPart::Nothing, true), (expected.to_owned(), false));
}

#[test]
fn answers_that_must_not_be_compressed_are_unchanged() {
    for (status, fields, body) in [
        ("200 OK", "Content-Type: image/png\r\n", FirstPart::Bytes(SHORTEST)),
        ("200 OK", "", FirstPart::Bytes(SHORTEST)),
        ("200 OK", "Content-Type: text/event-stream\r\n", FirstPart::Bytes(SHORTEST)),
        ("200 OK", "Content-Type: text/css\r\nContent-Encoding: br\r\n", FirstPart::Bytes(SHORTEST)),
        ("200 OK", "Content-Type: text/css\r\nCache-Control: max-age=1, No-Transform\r\n", FirstPart::Bytes(SHORTEST)),
        ("200 OK", "Content-Type: text/css\r\nContent-Length: 9\r\n", FirstPart::Bytes(b"123456789")),
        ("200 OK", "Content-Type: text/css\r\nRepr-Digest: x\r\n", FirstPart::Bytes(SHORTEST)),
        ("200 OK", "Content-Type: image/png\r\nContent-Length: 5000\r\n", FirstPart::File),
        ("200 OK", "Content-Type: text/css\r\nContent-Encoding: gzip\r\n", FirstPart::File),
        ("200 OK", "Content-Type: text/css\r\n", FirstPart::Nothing),
        ("206 Partial Content", "Content-Type: text/css\r\n", FirstPart::Bytes(SHORTEST)),
        ("204 No Content", "Content-Type: text/css\r\n", FirstPart::Nothing),
    ] {
        let text = format!("HTTP/1.1 {status}\r\n{fields}");
        assert_eq!(after(rules(|_| {}), &text, body, false), (text.clone(), false), "{text}");
    }
}

#[test]
fn a_file_goes_through_an_encoder() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nContent-Length: 5000\r\n";
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nVary: Accept-Encoding\r\nContent-Encoding: gzip\r\n";
    assert_eq!(after(rules(|_| {}), text, FirstPart::File, false), (expected.to_owned(), true));
}

#[test]
fn a_304_has_the_fields_of_the_compressed_200() {
    let text = "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n";
    let expected = "HTTP/1.1 304 Not Modified\r\nETag: W/\"x\"\r\nVary: Accept-Encoding\r\n";
    assert_eq!(after(rules(|_| {}), text, FirstPart::Nothing, false), (expected.to_owned(), false));
    let none = rules(|answering| answering.compression.codings.clear());
    assert_eq!(after(none, text, FirstPart::Nothing, false), (text.to_owned(), false));
}

#[test]
fn a_body_that_grows_stays_as_it_is() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nContent-Length: 12\r\n";
    let (head, is_coded) = after(rules(|_| {}), text, FirstPart::Bytes(b"q8#kP0!zLm2?"), false);
    assert_eq!((head.as_str(), is_coded), (format!("{text}Vary: Accept-Encoding\r\n").as_str(), false));
}

#[test]
fn fields_are_removed_and_added_by_whole_names() {
    let rules = rules(|answering| {
        answering.compression.codings.clear();
        answering.removed = vec!["x-a".to_owned(), "HTTP/1.1 200 OK".to_owned(), "Content-Length".to_owned()];
        answering.added = vec![("X-B".to_owned(), "2".to_owned())];
        answering.collected = vec![Collected { field: "X-C".to_owned(), variable: "C".to_owned(), pulled: true }];
    });
    let text = "HTTP/1.1 200 OK\r\nX-A: 1\r\nX-AB: 1\r\nx-a: 3\r\nX-C: 4\r\nContent-Length: 7\r\nY: X-A: 1\r\n";
    let expected = "HTTP/1.1 200 OK\r\nX-AB: 1\r\nContent-Length: 7\r\nY: X-A: 1\r\nX-B: 2\r\n";
    assert_eq!(after(rules, text, FirstPart::Nothing, false).0, expected);
}

#[test]
fn http_auto_gzip_asks_the_application() {
    let rules = rules(|answering| {
        answering.compression.codings.clear();
        answering.compression.on_demand = true;
    });
    let text = "HTTP/1.1 200 OK\r\nuWSGI-Encoding: gzip\r\nContent-Type: image/x\r\n";
    let (head, is_coded) = after(rules, text, FirstPart::Bytes(b"x"), false);
    assert!(is_coded && head.contains("Content-Encoding: gzip\r\n") && !head.contains("uWSGI-Encoding"), "{head}");
    let with_length = format!("{text}Content-Length: 1\r\n");
    assert!(!after(rules, &with_length, FirstPart::Bytes(b"x"), false).1);
    assert!(!after(rules, "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\n", FirstPart::Bytes(SHORTEST), false).1);
}
