//! A connection's bytes as events: the same whole, in pieces of any size, and followed by the next request.

use bolide_protocol::fastcgi::FastCgiLimits;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::session::{HeadParts, RequestHead, Session, SessionEvent};

const LIMITS: HeadLimits = HeadLimits::of(1 << 16, 1 << 16, 100);

/// The events of a connection, with the pieces of a body joined again.
#[derive(Debug, PartialEq, Eq)]
enum TestEvent {
    Head(String),
    Body(Vec<u8>),
    End,
    Aborted,
    /// Bytes of the protocol itself, and whether they are the last.
    Own(bool),
    Fault(u16),
}

/// A name, a session, its bytes, and the expected events.
type Case = (&'static str, fn() -> Session, Vec<u8>, Vec<TestEvent>);

/// One list of cases for all protocols.
fn cases() -> Vec<Case> {
    let head = |text: &str| TestEvent::Head(text.to_owned());
    let body = |bytes: &[u8]| TestEvent::Body(bytes.to_vec());
    vec![
        (
            "two GETs",
            Session::http1,
            b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            vec![head("GET /a"), head("GET /b")],
        ),
        (
            "a length, then a GET",
            Session::http1,
            b"\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            vec![head("POST /a"), body(b"hello"), TestEvent::End, head("GET /b")],
        ),
        (
            "chunks with trailers, then an empty length",
            Session::http1,
            b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n\
              POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
                .to_vec(),
            vec![head("PUT /a"), body(b"hello"), TestEvent::End, head("POST /b")],
        ),
        (
            "a chunk that is none",
            Session::http1,
            b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nhZ".to_vec(),
            vec![head("PUT /a"), body(b"h"), TestEvent::Fault(400)],
        ),
        ("no HTTP", Session::http1, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), vec![TestEvent::Fault(400)]),
        (
            "a packet with a body",
            || Session::uwsgi(false),
            packet(&[("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "3")], b"abc"),
            vec![head("POST"), body(b"abc"), TestEvent::End],
        ),
        (
            "two packets",
            || Session::uwsgi(true),
            [packet(&[("REQUEST_METHOD", "GET")], b""), packet(&[("PATH_INFO", "/")], b"")].concat(),
            vec![head("GET"), head("")],
        ),
        ("a packet without variables", || Session::uwsgi(true), packet(&[], b""), vec![TestEvent::Fault(400)]),
        (
            "a netstring without a method",
            || Session::scgi(false),
            b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,".to_vec(),
            vec![TestEvent::Fault(400)],
        ),
        (
            "a netstring with an empty method",
            || Session::scgi(false),
            b"40:CONTENT_LENGTH\x000\0SCGI\x001\0REQUEST_METHOD\0\0,".to_vec(),
            vec![TestEvent::Fault(400)],
        ),
        (
            "a netstring with a body",
            || Session::scgi(false),
            b"44:CONTENT_LENGTH\x003\0SCGI\x001\0REQUEST_METHOD\0POST\0,abc".to_vec(),
            vec![head("POST"), body(b"abc"), TestEvent::End],
        ),
        ("no netstring", || Session::scgi(false), b"12345x".to_vec(), vec![TestEvent::Fault(400)]),
        (
            "a request of FastCGI with a body in two records, and a question in between",
            fastcgi,
            [
                b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0\x01\x04\0\x01\0\x14\0\0\x0e\x04REQUEST_METHODPOST\
                    \x01\x04\0\x01\0\0\0\0",
                &b"\x01\x05\0\x01\0\x02\x01\0ab!\x01\x2a\0\0\0\0\0\0\x01\x05\0\x01\0\x01\0\0c\x01\x05\0\x01\0\0\0\0"[..],
            ]
            .concat(),
            vec![head("POST"), body(b"ab"), TestEvent::Own(false), body(b"c"), TestEvent::End],
        ),
        (
            "a request of FastCGI that is aborted",
            fastcgi,
            [
                &b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0\x01\x04\0\x01\0\x13\0\0\x0e\x03REQUEST_METHODGET"[..],
                b"\x01\x04\0\x01\0\0\0\0\x01\x02\0\x01\0\0\0\0",
            ]
            .concat(),
            vec![head("GET"), TestEvent::Aborted],
        ),
        (
            "a request of FastCGI without a method",
            fastcgi,
            b"\x01\x01\0\x01\0\x08\0\0\0\x01\x01\0\0\0\0\0\x01\x04\0\x01\0\0\0\0".to_vec(),
            vec![TestEvent::Fault(400)],
        ),
        (
            "a role that is none, without keeping the connection",
            fastcgi,
            b"\x01\x01\0\x01\0\x08\0\0\0\x02\0\0\0\0\0\0".to_vec(),
            vec![TestEvent::Own(true)],
        ),
    ]
}

fn fastcgi() -> Session {
    Session::fastcgi(FastCgiLimits { parameter_bytes: 1 << 16, connections: 1 }, false)
}

fn packet(variables: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        block.extend_from_slice(&(text.len() as u16).to_le_bytes());
        block.extend_from_slice(text.as_bytes());
    }
    [&[0], &(block.len() as u16).to_le_bytes()[..], &[0], &block, body].concat()
}

/// Feeds the bytes in pieces of this size, as a connection does: unused bytes come again, followed by more.
fn told(session: &mut Session, bytes: &[u8], piece_bytes: usize) -> Vec<TestEvent> {
    let (mut told, mut waiting, mut parts) = (Vec::new(), Vec::new(), HeadParts::default());
    for piece in bytes.chunks(piece_bytes) {
        waiting.extend_from_slice(piece);
        loop {
            let (used, event) = match session.next(&waiting, &LIMITS, &mut parts) {
                Ok(made) => made,
                Err(fault) => {
                    told.push(TestEvent::Fault(fault.status));
                    return told;
                }
            };
            let wants_more = matches!(event, SessionEvent::More);
            match event {
                SessionEvent::Head(head) => {
                    let text = head.bytes.of(&waiting);
                    told.push(TestEvent::Head(match head.head {
                        RequestHead::Http { line, .. } => {
                            format!(
                                "{} {}",
                                String::from_utf8_lossy(line.method.of(text)),
                                String::from_utf8_lossy(line.target.of(text))
                            )
                        }
                        RequestHead::Variables { facts, .. } => {
                            facts.method.map_or(String::new(), |span| String::from_utf8_lossy(span.of(text)).into_owned())
                        }
                    }));
                }
                SessionEvent::Data(range) => match told.last_mut() {
                    Some(TestEvent::Body(body)) => body.extend_from_slice(&waiting[range]),
                    _ => told.push(TestEvent::Body(waiting[range].to_vec())),
                },
                SessionEvent::End => told.push(TestEvent::End),
                SessionEvent::Aborted { .. } => told.push(TestEvent::Aborted),
                SessionEvent::Send { close, .. } => told.push(TestEvent::Own(close)),
                SessionEvent::More => {}
            }
            waiting.drain(..used);
            if wants_more {
                break;
            }
        }
    }
    told
}

#[test]
fn a_connection_means_the_same_whole_and_in_pieces_of_any_size() {
    for (name, session, bytes, expected) in cases() {
        for piece_bytes in 1..=bytes.len() {
            assert_eq!(told(&mut session(), &bytes, piece_bytes), expected, "{name}, pieces of {piece_bytes} bytes");
        }
    }
}

#[test]
fn a_head_that_comes_again_is_known_and_gives_no_fields() {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
    let (mut session, mut parts) = (Session::http1(), HeadParts::default());
    for is_repeated in [false, true, true] {
        let (used, event) = session.next(request, &LIMITS, &mut parts).expect("well-formed");
        let SessionEvent::Head(head) = event else { panic!("{event:?}") };
        assert_eq!((used, head.is_repeated, head.is_remembered), (request.len(), is_repeated, true));
        assert_eq!(parts.fields.len(), if is_repeated { 0 } else { 2 });
    }
}
