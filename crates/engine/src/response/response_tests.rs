//! Tests of the bytes that a response sends, over a real socket pair.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;
use crate::sockets::transport::{SEND_TURN_BYTES, Transport};

const DATE: &[u8; 37] = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

fn terms() -> Terms {
    Terms { wire: Wire::Http11, head_only: false, keep_alive: true, client_keeps: true, may_cork: false, date_line: *DATE }
}

/// A response with its connection.
struct Answer {
    response: Response,
    transport: Transport,
}

impl Answer {
    fn writer(&mut self) -> ResponseWriter<'_> {
        ResponseWriter { response: &mut self.response, transport: &mut self.transport }
    }
}

fn begun(terms: Terms) -> (Answer, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    ours.set_nonblocking(true).expect("non-blocking");
    let mut answer = Answer { response: Response::new(), transport: Transport::new(OwnedFd::from(ours)) };
    answer.response.begin(terms, Vec::new());
    (answer, theirs)
}

/// Returns everything that is sent, and whether the connection stays open.
fn sent(mut answer: Answer, mut client: UnixStream) -> (String, bool) {
    answer.writer().finish();
    assert_eq!(answer.writer().advance(), Progress::Done);
    let keeps = answer.writer().keeps_alive();
    drop(answer);
    let mut text = String::new();
    client.read_to_string(&mut text).expect("text");
    (text, keeps)
}

/// Waits until the client has read all buffered data.
fn drained(answer: &mut Answer, most: Duration) -> bool {
    while answer.writer().wants_room() {
        let has_room = answer.writer().room_wait().wait(most);
        answer.writer().room_came(has_room);
    }
    !answer.writer().client_is_gone()
}

#[test]
fn the_framing_follows_the_known_length() {
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let http10 = Terms { wire: Wire::Http10, ..terms() };
    let uwsgi = Terms { wire: Wire::Uwsgi, keep_alive: false, ..terms() };
    let closing = Terms { keep_alive: false, ..terms() };
    let cases: [(&str, Terms, Option<&str>, &str, bool); 5] = [
        ("1.1 without a length", terms(), None, chunked, true),
        ("1.1 with a length", terms(), Some("11"), "Server: bolide\r\n\r\nhello world", true),
        ("1.1 that closes", closing, Some("11"), "Connection: close\r\n\r\nhello world", false),
        ("1.0 without a length", http10, None, "Connection: close\r\n\r\nhello world", false),
        ("1.0 with a length", http10, Some("11"), "Connection: keep-alive\r\n\r\nhello world", true),
    ];
    for (what, terms, length, end, keeps) in cases {
        let (mut answer, client) = begun(terms);
        answer.writer().status(b"200 OK").expect(what);
        if let Some(length) = length {
            answer.writer().field(b"Content-Length", length.as_bytes()).expect(what);
        }
        assert_eq!(answer.writer().push(b"hello", When::Now), Pushed::All);
        assert_eq!(answer.writer().push(b" world", When::Now), Pushed::All);
        let (text, kept) = sent(answer, client);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Date: Sun, 06 Nov 1994"), "{what}: {text}");
        assert!(text.ends_with(end), "{what}: {text}");
        assert_eq!(kept, keeps, "{what}");
    }
    let (mut answer, client) = begun(uwsgi);
    answer.writer().status(b"200 OK").expect("uwsgi");
    assert_eq!(answer.writer().push(b"hello", When::Now), Pushed::All);
    assert_eq!(sent(answer, client), ("HTTP/1.1 200 OK\r\n\r\nhello".to_owned(), false));
}

#[test]
fn head_204_and_304_have_no_body_and_keep_the_connection() {
    for (status, head_only) in [("200 OK", true), ("204 No Content", false), ("304 Not Modified", false)] {
        let (mut answer, client) = begun(Terms { head_only, ..terms() });
        answer.writer().status(status.as_bytes()).expect(status);
        assert_eq!(answer.writer().push(b"never sent", When::Now), Pushed::All);
        let (text, keeps) = sent(answer, client);
        assert!(text.ends_with("\r\n\r\n") && !text.contains("chunked") && keeps, "{text}");
    }
}

#[test]
fn a_sent_answer_still_has_its_status() {
    let (mut answer, _client) = begun(terms());
    answer.writer().switch_to_websocket(Some(b"key"), None, &[]).expect("switched");
    answer.writer().finish();
    assert_eq!(answer.writer().advance(), Progress::Done);
    let buffers = answer.writer().end();
    assert!(buffers.head.capacity() > 0 && buffers.output.capacity() > 0, "a connection that waits does not own a buffer");
    assert_eq!(answer.writer().status_code(), 101, "what comes next depends on it");
}

#[test]
fn an_empty_body_has_a_length_of_zero() {
    let (mut answer, client) = begun(terms());
    answer.writer().status(b"200 OK").expect("a status");
    assert_eq!(answer.writer().push(b"", When::Now), Pushed::All);
    let (text, keeps) = sent(answer, client);
    assert!(text.contains("Content-Length: 0\r\n") && keeps, "{text}");
}

#[test]
fn an_answer_never_breaks_its_own_content_length() {
    let (mut long, client) = begun(terms());
    long.writer().status(b"200 OK").expect("a status");
    long.writer().field(b"Content-Length", b"3").expect("a length");
    assert_eq!(long.writer().push(b"12345", When::Now), Pushed::All);
    long.writer().finish();
    assert!(long.writer().length_fault().is_some_and(|fault| fault.contains("longer")));
    let (text, keeps) = sent(long, client);
    assert!(text.ends_with("\r\n\r\n123") && keeps, "{text}");

    let (mut short, _client) = begun(terms());
    short.writer().status(b"200 OK").expect("a status");
    short.writer().field(b"Content-Length", b"9").expect("a length");
    assert_eq!(short.writer().push(b"12345", When::Now), Pushed::All);
    short.writer().finish();
    assert!(short.writer().length_fault().is_some_and(|fault| fault.contains("shorter")) && !short.writer().keeps_alive());
    short.writer().give_client_up();
    assert_eq!(short.writer().length_fault(), None, "the client has left");
}

#[test]
fn invalid_fields_of_an_application_are_refused() {
    let (mut answer, _client) = begun(terms());
    for status in [&b"OK"[..], b"20", b"200OK", b"200 O\nK", b"100 Continue", b"abc def"] {
        assert!(answer.writer().status(status).is_err(), "{:?}", String::from_utf8_lossy(status));
    }
    answer.writer().status(b"200 OK").expect("a status");
    let fields: [(&[u8], &[u8]); 9] = [
        (b"X-A", b"a\r\nb"),
        (b"X-A", b"a\nb"),
        (b"X-A", b"a\0b"),
        (b"X A", b"a"),
        (b"", b"a"),
        (b"Connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"Content-Length", b"-1"),
        (b"Content-Length", b"99999999999999999999999"),
    ];
    for (name, value) in fields {
        assert!(answer.writer().field(name, value).is_err(), "{:?}", String::from_utf8_lossy(name));
    }
}

#[test]
fn date_and_server_occur_once_regardless_of_their_origin() {
    let (mut answer, client) = begun(terms());
    answer.writer().status(b"200 OK").expect("a status");
    answer.writer().field(b"date", b"yesterday").expect("a date");
    answer.writer().field(b"SERVER", b"mine").expect("a server");
    let (text, _) = sent(answer, client);
    assert_eq!(text.to_ascii_lowercase().matches("date:").count(), 1, "{text}");
    assert_eq!(text.to_ascii_lowercase().matches("server:").count(), 1, "{text}");
}

#[test]
fn a_client_that_reads_nothing_costs_a_bounded_buffer() {
    let (mut answer, client) = begun(terms());
    answer.writer().status(b"200 OK").expect("a status");
    let part = [b'x'; 10_000];
    let mut whole_parts = 0;
    while answer.writer().push(&part, When::Now) == Pushed::All {
        whole_parts += 1;
        assert!(whole_parts < 10_000, "the buffer has no bound");
    }
    assert!(answer.transport.unsent() <= OUTPUT_BYTES + 64, "{} bytes are held", answer.transport.unsent());
    client.shutdown(std::net::Shutdown::Both).expect("its end");
    answer.writer().begin_turn();
    assert_eq!(answer.writer().advance(), Progress::Broken);
    assert_eq!(answer.writer().push(b"more", When::Now), Pushed::Gone);
}

#[test]
fn a_large_part_continues_where_it_stopped() {
    let (mut answer, mut client) = begun(terms());
    let part: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
    answer.writer().status(b"200 OK").expect("a status");
    answer.writer().field(b"Content-Length", b"1000000").expect("a length");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all)
    });
    let mut taken = 0;
    loop {
        answer.writer().begin_turn();
        match answer.writer().push(&part[taken..], When::Now) {
            Pushed::All => break,
            Pushed::Part(count) => taken += count,
            Pushed::Gone => panic!("the client is there"),
        }
        assert!(drained(&mut answer, Duration::from_secs(10)));
        answer.transport.is_full = false;
    }
    answer.writer().finish();
    assert!(drained(&mut answer, Duration::from_secs(10)));
    drop(answer);
    let all = reader.join().expect("joined").expect("read");
    assert_eq!(all[all.len() - part.len()..], part[..]);
}

#[test]
fn a_fast_client_is_sent_the_bytes_of_one_turn_at_a_time() {
    let (mut answer, mut client) = begun(terms());
    let part = vec![b'x'; 3 * SEND_TURN_BYTES];
    answer.writer().status(b"200 OK").expect("a status");
    answer.writer().declare_length(part.len() as u64);
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all.len())
    });
    let (mut taken, mut turns) = (0, 0);
    while taken < part.len() {
        answer.writer().begin_turn();
        turns += 1;
        match answer.writer().push(&part[taken..], When::Now) {
            Pushed::All => taken = part.len(),
            Pushed::Part(count) => {
                assert!(count <= SEND_TURN_BYTES, "{count} bytes in a turn");
                taken += count;
            }
            Pushed::Gone => panic!("the client is there"),
        }
        assert!(answer.writer().turn_is_over() || answer.writer().is_full() || taken == part.len());
        assert!(drained(&mut answer, Duration::from_secs(20)));
    }
    assert!(turns >= 3);
    answer.writer().finish();
    while answer.writer().advance() == Progress::Blocked {
        answer.writer().begin_turn();
    }
    drop(answer);
    assert!(reader.join().expect("joined").expect("read") > part.len());
}

#[test]
fn write_waits_for_room_also_when_its_own_buffer_is_empty() {
    let (mut answer, mut client) = begun(terms());
    answer.writer().status(b"200 OK").expect("a status");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all.len())
    });
    let part = vec![b'x'; 4 << 20];
    let mut taken = 0;
    let mut waits = 0;
    while let Pushed::Part(more) = answer.writer().push(&part[taken..], When::Now) {
        taken += more;
        waits += 1;
        assert!(waits <= part.len(), "it waits in vain");
        assert!(drained(&mut answer, Duration::from_secs(20)));
        answer.writer().begin_turn();
    }
    answer.writer().finish();
    while answer.writer().advance() == Progress::Blocked {
        answer.writer().begin_turn();
    }
    drop(answer);
    let received = reader.join().expect("joined").expect("read");
    assert!(received > part.len());
}
