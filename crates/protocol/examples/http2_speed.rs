//! Measures the cost of a request and its answer on an HTTP/2 connection, in nanoseconds: ours, and the `h2` crate's server.
//!
//! `cargo run --release -p bolide-protocol --example http2_speed`. A request is a HEADERS frame as `h2`'s client writes it on a
//! connection that has sent the same fields before; an answer is a head without a body. Prints the best of several rounds,
//! because on a busy machine that is the least disturbed one.

use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::{Http2, Http2Event, Http2Limits};
use bolide_protocol::response::{BodyLength, HeadTerms, Outgoing, ResponseEncoder, ResponseHead};
use bolide_protocol::session::HeadParts;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const ROUNDS: usize = 400;
const REQUESTS_PER_ROUND: u32 = 500;
const LIMITS: HeadLimits = HeadLimits::of(8192, 65536, 100);
const DATE: &[u8] = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

const SMALL: &[(&str, &str)] = &[("user-agent", "h2load nghttp2/1.64.0")];

const BROWSER: &[(&str, &str)] = &[
    ("cache-control", "max-age=0"),
    ("sec-ch-ua", "\"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
    ("referer", "https://www.example.org/shop/"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9"),
    ("cookie", "sessionid=3f9d2b7c5a1e4f608d7c9b2a1e3f5d7c"),
    ("cookie", "csrftoken=Zx8Qw2Er4Ty6Ui8Op0As2Df4Gh6Jk8L0"),
    ("priority", "u=0, i"),
];

/// Bytes to be read, and bytes that were written.
#[derive(Default)]
struct Wires {
    input: Vec<u8>,
    output: Vec<u8>,
}

struct Pipe(Rc<RefCell<Wires>>);

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let waiting = &mut self.0.borrow_mut().input;
        if waiting.is_empty() {
            return Poll::Pending;
        }
        let count = waiting.len().min(buffer.remaining());
        buffer.put_slice(&waiting[..count]);
        waiting.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn poll<Output>(future: &mut Pin<&mut impl Future<Output = Output>>) -> Poll<Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A client's bytes: all up to its first request, and a request after that.
struct Recorded {
    beginning: Vec<u8>,
    request: Vec<u8>,
}

fn recorded(fields: &[(&str, &str)]) -> Recorded {
    let wires = Rc::new(RefCell::new(Wires::default()));
    let mut handshake = pin!(h2::client::handshake(Pipe(Rc::clone(&wires))));
    let Poll::Ready(Ok((mut client, connection))) = poll(&mut handshake) else { panic!("the handshake only writes") };
    let mut connection = pin!(connection);
    let mut send = || {
        let mut request = http::Request::get("https://www.example.org/shop/articles/4711?color=blue&size=42&sort=price");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let sent = client.send_request(request.body(()).expect("a request"), true).expect("a stream");
        let _ = poll(&mut connection);
        std::mem::forget(sent);
        std::mem::take(&mut wires.borrow_mut().output)
    };
    let beginning = send();
    Recorded { beginning, request: send() }
}

impl Recorded {
    /// Returns the request with another stream id.
    fn on(&mut self, stream: u32) -> &[u8] {
        self.request[5..9].copy_from_slice(&stream.to_be_bytes());
        &self.request
    }
}

fn main() {
    for (label, fields) in [("h2load-like", SMALL), ("browser-like", BROWSER)] {
        let mut recorded = recorded(fields);
        let (read, both) = (ours(&mut recorded, false), ours(&mut recorded, true));
        let theirs = theirs(&mut recorded);
        let bytes = recorded.request.len();
        println!("{label:13} {bytes:4} bytes: {both:6.1} ns, of which reading {read:6.1}; h2 {theirs:6.1} ns");
    }
}

fn nanoseconds(mut exchange: impl FnMut(u32)) -> f64 {
    let (mut best, mut stream) = (f64::INFINITY, 1);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..REQUESTS_PER_ROUND {
            stream += 2;
            exchange(stream);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(REQUESTS_PER_ROUND));
    }
    best
}

fn ours(recorded: &mut Recorded, is_answered: bool) -> f64 {
    let (mut session, mut parts) = (Http2::new(Http2Limits::default()), HeadParts::default());
    let mut at = 0;
    while at < recorded.beginning.len() {
        at += session.next(&recorded.beginning[at..], &LIMITS, &mut parts).expect("h2 does not make mistakes").0;
    }
    session.note_answered(1);
    session.output().clear();
    let (mut head, mut out) = (ResponseHead::default(), Outgoing::default());
    nanoseconds(|stream| {
        let (_, event) = session.next(black_box(recorded.on(stream)), &LIMITS, &mut parts).expect("h2 does not make mistakes");
        let Http2Event::Head { head: request, .. } = black_box(event) else { panic!("no request") };
        if is_answered {
            out.clear();
            head.begin(200, b"200 OK");
            head.add(b"Content-Type", b"text/html; charset=utf-8");
            head.add(b"Content-Length", b"5");
            let terms = HeadTerms { length: BodyLength::NoBody, keep_alive: true, date_line: DATE };
            ResponseEncoder::new(request.wire).head(&head, terms, &mut out);
            black_box(&out);
        }
        session.note_answered(stream);
    })
}

fn theirs(recorded: &mut Recorded) -> f64 {
    let wires = Rc::new(RefCell::new(Wires::default()));
    wires.borrow_mut().input.extend_from_slice(&recorded.beginning);
    let mut handshake = pin!(h2::server::handshake(Pipe(Rc::clone(&wires))));
    let Poll::Ready(Ok(mut connection)) = poll(&mut handshake) else { panic!("the handshake has all it needs") };
    let mut context = Context::from_waker(Waker::noop());
    let answer = |connection: &mut h2::server::Connection<Pipe, Bytes>, context: &mut Context<'_>| {
        let Poll::Ready(Some(Ok((request, mut respond)))) = connection.poll_accept(context) else { panic!("no request") };
        black_box(request);
        let response = http::Response::builder()
            .header("content-type", "text/html; charset=utf-8")
            .header("content-length", "5")
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .header("server", "bolide");
        respond.send_response(response.body(()).expect("an answer"), true).expect("an open stream");
        assert!(connection.poll_accept(context).is_pending());
    };
    answer(&mut connection, &mut context);
    nanoseconds(|stream| {
        let mut both = wires.borrow_mut();
        both.output.clear();
        both.input.extend_from_slice(recorded.on(stream));
        drop(both);
        answer(&mut connection, &mut context);
    })
}
