//! The `h2` crate as a client of the session: each understands the bytes of the other.
//!
//! There is no runtime: its futures are polled by hand, and its connection is two buffers.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bolide_protocol::http1::Framing;
use bolide_protocol::http1::head::HeadLimits;
use bolide_protocol::http2::frame::{MAX_FRAME_BYTES, write_block, write_data};
use bolide_protocol::http2::{ErrorCode, Http2, Http2Event, Http2Limits};
use bolide_protocol::response::{BodyLength, HeadTerms, Outgoing, ResponseEncoder, ResponseHead, StreamEnd, Wire};
use bolide_protocol::session::{HeadParts, RequestHead};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const LIMITS: HeadLimits = HeadLimits::of(8192, 65536, 200);
const DATE: &[u8] = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

/// Both directions of a connection; the client's end of it is [`Pipe`].
#[derive(Default)]
struct Wires {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

struct Pipe(Rc<RefCell<Wires>>);

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let waiting = &mut self.0.borrow_mut().to_client;
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
        self.0.borrow_mut().to_server.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Deterministic pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn text(&mut self, letters: &[u8], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| char::from(letters[self.below(letters.len())])).collect()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        let first = self.below(256);
        (0..length).map(|place| (place * 7 + first) as u8).collect()
    }
}

/// A request that the server is answering: the answer repeats the request.
struct Answer {
    stream: u32,
    method: String,
    encoder: ResponseEncoder,
    out: Outgoing,
    /// The request's head, then its body.
    text: Vec<u8>,
    is_complete: bool,
    has_begun: bool,
    sent: usize,
    has_length: bool,
    has_trailers: bool,
}

struct Server {
    session: Http2,
    parts: HeadParts,
    input: Vec<u8>,
    answers: Vec<Answer>,
    /// The fields of the last head.
    known: Vec<(String, String)>,
}

impl Server {
    fn new(limits: Http2Limits) -> Server {
        let (session, parts) = (Http2::new(limits), HeadParts::default());
        Server { session, parts, input: Vec::new(), answers: Vec::new(), known: Vec::new() }
    }

    /// Reads a piece of the client's bytes, and answers the complete requests.
    fn turn(&mut self, wires: &mut Wires, chance: &mut Random) {
        let count = match chance.below(4) {
            0 => 1,
            1 => chance.below(100),
            _ => usize::MAX,
        };
        let count = count.min(wires.to_server.len());
        self.input.extend(wires.to_server.drain(..count));
        loop {
            let (used, event) = self.session.next(&self.input, &LIMITS, &mut self.parts).expect("h2 does not make mistakes");
            let is_more = matches!(event, Http2Event::More);
            self.take(event, chance);
            self.input.drain(..used);
            if is_more {
                break;
            }
        }
        wires.to_client.append(self.session.output());
        for answer in &mut self.answers {
            if answer.is_complete {
                write(&mut self.session, answer, &mut wires.to_client, chance);
            }
        }
        for answer in self.answers.extract_if(.., |answer| answer.out.end == StreamEnd::Sent) {
            self.session.note_answered(answer.stream);
        }
        wires.to_client.append(self.session.output());
    }

    fn take(&mut self, event: Http2Event, chance: &mut Random) {
        match event {
            Http2Event::Head { stream, head, is_complete, protocol } => {
                let RequestHead::Http { line, facts } = head.head else { panic!("a head of another protocol") };
                assert_eq!((head.wire, protocol), (Wire::Http2, None));
                assert_eq!(is_complete, head.body == Framing::None);
                let bytes = head.bytes.of(&self.parts.bytes);
                assert_eq!(bytes.len(), (line.length + facts.length) as usize);
                let block = &bytes[line.length as usize..];
                assert!(block.ends_with(b"\r\n\r\n"));
                let text = |span: bolide_protocol::Span| String::from_utf8_lossy(span.of(block)).into_owned();
                self.known = self.parts.fields.iter().map(|field| (text(field.name), text(field.value))).collect();
                assert_eq!(facts.host.map(text).as_deref(), Some("example.com"));
                let method = String::from_utf8_lossy(line.method.of(bytes)).into_owned();
                let mut said = format!("{method} {}\n", String::from_utf8_lossy(line.target.of(bytes)));
                for (name, value) in &self.known {
                    said.push_str(&format!("{name}={value}\n"));
                }
                let encoder = ResponseEncoder::new(head.wire);
                let (has_length, has_trailers) = (chance.below(2) == 0, chance.below(2) == 0);
                let text = said.into_bytes();
                self.answers.push(Answer {
                    stream,
                    method,
                    encoder,
                    out: Outgoing::default(),
                    text,
                    is_complete,
                    has_begun: false,
                    sent: 0,
                    has_length,
                    has_trailers,
                });
            }
            Http2Event::Data { stream, range } => {
                let answer = self.answers.iter_mut().find(|answer| answer.stream == stream).expect("its head came before");
                self.session.note_taken(stream, range.len() as u64);
                answer.text.extend_from_slice(&self.input[range]);
            }
            Http2Event::End { stream } => {
                self.answers.iter_mut().find(|answer| answer.stream == stream).expect("its head came before").is_complete = true;
            }
            Http2Event::Room { .. } | Http2Event::More => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Writes as much of an answer as the windows allow, and sometimes less.
fn write(session: &mut Http2, answer: &mut Answer, out: &mut Vec<u8>, chance: &mut Random) {
    let Answer { encoder, out: own, text, sent, stream, .. } = answer;
    if !answer.has_begun {
        answer.has_begun = true;
        let mut head = ResponseHead::default();
        head.begin(200, b"200 OK");
        head.add(b"Content-Type", b"text/plain");
        head.add(b"X-Long", &vec![b'v'; if chance.below(8) == 0 { 40_000 } else { 3 }]);
        head.add(b"Set-Cookie", b"a=b; Path=/");
        head.add(b"Connection", b"close");
        let mut length = BodyLength::Unknown;
        if answer.has_length {
            head.set_length(text.len() as u64);
            length = BodyLength::Known;
        }
        if answer.method == "HEAD" {
            length = BodyLength::NoBody;
        }
        if chance.below(3) == 0 {
            let interim = encoder.interim("103 Early Hints", &[(b"Link", b"</a>; rel=preload")]).expect("HTTP/2 has them");
            write_block(*stream, &interim, false, out);
        }
        assert!(encoder.head(&head, HeadTerms { length, keep_alive: true, date_line: DATE }, own));
        write_block(*stream, &std::mem::take(&mut own.bytes), own.end == StreamEnd::Due, out);
    }
    while *sent < text.len() && encoder.has_trailers() {
        let rest = &text[*sent..];
        let room = session.room(*stream).min(rest.len() as u64).min(MAX_FRAME_BYTES as u64);
        let count = encoder.open_frame(room, own) as usize;
        session.note_sent(*stream, count as u64);
        if count == 0 {
            return;
        }
        encoder.wrote(count as u64, own);
        write_data(*stream, &rest[..count], own.end == StreamEnd::Due, out);
        *sent += count;
    }
    if own.end == StreamEnd::Open && answer.has_trailers && encoder.has_trailers() {
        encoder.begin_trailers(own);
        encoder.trailer(b"X-Trailer", b"yes", own);
        encoder.end_trailers(own);
        write_block(*stream, &own.bytes, true, out);
    } else if own.end == StreamEnd::Open {
        encoder.end(own);
        write_data(*stream, b"", own.end == StreamEnd::Due, out);
    }
    own.end = StreamEnd::Sent;
}

fn poll<Output>(future: &mut Pin<&mut (impl Future<Output = Output> + ?Sized)>) -> Poll<Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// One request of the client.
struct Asked {
    request: http::Request<()>,
    body: Vec<u8>,
    /// The request as the server must understand it.
    said: Vec<u8>,
}

fn asked(chance: &mut Random) -> Asked {
    let method = ["GET", "POST", "PUT", "HEAD", "PATCH"][chance.below(5)];
    let path = format!("/{}", chance.text(b"abcdefghi/0123-_.~%20", 40).replace('%', "%25"));
    let mut builder = http::Request::builder().method(method).uri(format!("http://example.com{path}"));
    let mut said = format!("{method} {path}\nhost=example.com\n");
    let mut cookies = Vec::new();
    for number in 0..chance.below(12) {
        let name = if chance.below(3) == 0 {
            format!("x-{number}")
        } else {
            ["accept", "user-agent", "x-b", "cookie"][chance.below(4)].to_owned()
        };
        let value = chance.text(b"abcABC019 ;=/\\\"(){}~!$^`|<>*", 60).trim().to_owned();
        builder = builder.header(&name, &value);
        if name == "cookie" {
            cookies.push(value);
        }
    }
    let most = if chance.below(3) == 0 { 400_000 } else { 300 };
    let body = if method == "GET" || method == "HEAD" { Vec::new() } else { chance.bytes(most) };
    let request = builder.body(()).expect("a request");
    // h2 sends the fields in its map's order.
    for (name, value) in request.headers() {
        if name != "cookie" {
            said.push_str(&format!("{name}={}\n", value.to_str().expect("text")));
        }
    }
    if !cookies.is_empty() {
        said.push_str(&format!("cookie={}\n", cookies.join("; ")));
    }
    let said = if method == "HEAD" { Vec::new() } else { [said.as_bytes(), &body].concat() };
    Asked { request, body, said }
}

#[test]
fn requests_of_all_kinds_come_as_they_were_sent_and_answers_arrive_as_they_were_written() {
    for seed in 0..40 {
        let mut chance = Random(seed);
        let wires = Rc::new(RefCell::new(Wires::default()));
        let mut server = Server::new(Http2Limits::default());
        let handshake = h2::client::Builder::new()
            .initial_window_size([70_000, 1000, 1 << 20][seed as usize % 3])
            .handshake::<_, Bytes>(Pipe(Rc::clone(&wires)));
        let mut handshake = pin!(handshake);
        let Poll::Ready(Ok((client, connection))) = poll(&mut handshake) else { panic!("the handshake only writes") };
        let mut connection = pin!(connection);
        let requests: Vec<Asked> = (0..20).map(|_| asked(&mut chance)).collect();
        let requests: Vec<Asked> = requests.into_iter().flat_map(twice).collect();
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
        for asked in requests {
            let client = client.clone();
            tasks.push(Box::pin(exchange(client, asked)));
        }
        let mut idle = 0;
        while !tasks.is_empty() {
            let before = tasks.len();
            let _ = poll(&mut connection);
            tasks.retain_mut(|task| poll(&mut task.as_mut()).is_pending());
            let _ = poll(&mut connection);
            server.turn(&mut wires.borrow_mut(), &mut chance);
            idle = if tasks.len() < before { 0 } else { idle + 1 };
            assert!(idle < 200_000, "{} requests of seed {seed} have no end", tasks.len());
        }
        assert_eq!(server.session.open_streams(), 0);
        server.session.go_away(true);
        assert!(server.session.is_draining() && !server.session.is_open(1));
        server.session.reset(1, ErrorCode::CANCEL);
    }
}

/// Returns the same request twice, so that its head is repeated.
fn twice(asked: Asked) -> [Asked; 2] {
    let mut again = http::Request::builder().method(asked.request.method()).uri(asked.request.uri());
    for (name, value) in asked.request.headers() {
        again = again.header(name, value);
    }
    let again = Asked { request: again.body(()).expect("a request"), body: asked.body.clone(), said: asked.said.clone() };
    [asked, again]
}

async fn exchange(client: h2::client::SendRequest<Bytes>, asked: Asked) {
    let mut client = client.ready().await.expect("a connection");
    let (response, mut body) = client.send_request(asked.request, asked.body.is_empty()).expect("a stream");
    let mut rest = Bytes::from(asked.body);
    while !rest.is_empty() {
        body.reserve_capacity(rest.len());
        let room = std::future::poll_fn(|context| body.poll_capacity(context)).await.expect("an open stream").expect("room");
        let piece = rest.split_to(room.min(rest.len()));
        body.send_data(piece, rest.is_empty()).expect("an open stream");
    }
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(response.headers()["server"], "bolide");
    assert_eq!(response.headers()["set-cookie"], "a=b; Path=/");
    assert!(!response.headers().contains_key("connection"));
    let mut stream = response.into_body();
    let mut said = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.expect("a whole answer");
        stream.flow_control().release_capacity(piece.len()).expect("a window");
        said.extend_from_slice(&piece);
    }
    if let Some(trailers) = stream.trailers().await.expect("a whole answer") {
        assert_eq!(trailers["x-trailer"], "yes");
    }
    assert_eq!(String::from_utf8_lossy(&said), String::from_utf8_lossy(&asked.said));
}
