//! One thread of a worker and its connections, with scripted clients: a request in any pieces is answered at the turn in which it
//! is complete, and no byte of it reaches another connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bolide_engine::Visited;
use bolide_engine::app::Language;
use bolide_testing::gates::{Events, LocalGates};
use bolide_testing::harness::{Client, FASTCGI, HTTP, Harness, UWSGI};
use bolide_testing::interpreter::Interpreter;
use bolide_testing::language::TestLanguage;
use bolide_testing::pages;
use bolide_testing::replies::{Reply, replies};
use bolide_testing::streaming::TestStreams;
use nix::sys::socket::{setsockopt, sockopt};

/// Requests that are sent in pieces, and the ends of their answers.
const CONVERSATIONS: [(&[u8], &[&str]); 6] = [
    (b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n", &["GET /echo\n"]),
    (b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", &["POST /echo\nhello"]),
    (
        b"POST /echo/2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nhel\r\n2\r\nlo\r\n0\r\n\
        Trailer: 1\r\n\r\n",
        &["POST /echo/2\nhello"],
    ),
    (
        b"GET /echo/one HTTP/1.1\r\nHost: h\r\n\r\n\r\nPOST /echo/two HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n\
        xGET /echo/three HTTP/1.0\r\nHost: h\r\n\r\n",
        &["GET /echo/one\n", "POST /echo/two\nx", "GET /echo/three\n"],
    ),
    (b"BAD REQUEST\r\n\r\n", &["400"]),
    (b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", &["400"]),
];

/// Bytes that a socket is to take, as far as the system lets it.
const LARGE_ROOM: usize = 1 << 22;

/// Data that a client sends at a moment that the application chooses.
type Script = (Client, &'static [u8]);

/// A worker of applications that are called, and its language.
fn called(options: &[&str]) -> (Harness<TestLanguage>, &'static Interpreter) {
    let language = TestLanguage::new(Arc::new(LocalGates::default()));
    (Harness::new(language, options), language.interpreter)
}

/// Returns the bodies of answers in order. An answer of the server itself counts by its status.
fn bodies(answers: &[u8]) -> Vec<String> {
    let found = replies(answers, |_| false).expect("answers");
    let text = |reply: Reply| {
        if reply.status == 200 { String::from_utf8_lossy(&reply.body).into_owned() } else { reply.status.to_string() }
    };
    found.into_iter().map(text).collect()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Sends a conversation with cuts at these places, and returns the answers. Each piece is served in a few turns.
fn converse<L: Language>(worker: &mut Harness<L>, sent: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<String> {
    let mut client = worker.client();
    let mut from = 0;
    for cut in cuts.into_iter().chain([sent.len()]) {
        if client.send_some(&sent[from..cut]) != Some(cut - from) {
            // The request was refused already, and the connection closed.
            break;
        }
        from = cut;
        let turns = worker.settle();
        assert!(turns <= 4, "{turns} turns for one piece");
    }
    let answers = bodies(&client.received());
    drop(client);
    worker.settle();
    answers
}

fn each_cut_gives_the_same<L: Language>(mut worker: Harness<L>, interpreter: &Interpreter) {
    for (sent, wanted) in CONVERSATIONS {
        assert_eq!(converse(&mut worker, sent, []), wanted, "whole: {}", String::from_utf8_lossy(sent));
        for cut in 1..sent.len() {
            let answers = converse(&mut worker, sent, [cut]);
            assert_eq!(answers, wanted, "cut at {cut}: {}", String::from_utf8_lossy(sent));
        }
        assert_eq!(converse(&mut worker, sent, 1..sent.len()), wanted, "byte by byte: {}", String::from_utf8_lossy(sent));
    }
    assert_eq!((worker.connections(), interpreter.balance()), (0, (0, 0)));
}

#[test]
fn a_request_is_the_same_wherever_it_is_cut() {
    let (worker, interpreter) = called(&[]);
    each_cut_gives_the_same(worker, interpreter);
}

#[test]
fn a_request_is_the_same_wherever_it_is_cut_for_an_application_that_takes_its_body_as_it_comes() {
    let language = TestStreams::new();
    each_cut_gives_the_same(Harness::new(language, &[]), language.interpreter);
}

#[test]
fn a_request_is_the_same_wherever_it_is_cut_for_an_application_that_keeps_it_with_its_whole_body() {
    let language = TestStreams::with_whole_bodies();
    each_cut_gives_the_same(Harness::new(language, &[]), language.interpreter);
}

/// A packet of the uwsgi protocol with these variables.
fn packet(variables: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in variables.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    let [low, high] = (bytes.len() as u16).to_le_bytes();
    [&[0, low, high, 0], &bytes[..]].concat()
}

/// Requests by HTTP, and all of their variables but those of the connection.
const VARIABLES: [(&[u8], &[&str]); 5] = [
    (
        b"GET /variables?a=1 HTTP/1.1\r\nHost: h\r\n\r\n",
        &[
            "HTTP_HOST=h",
            "PATH_INFO=/variables",
            "QUERY_STRING=a=1",
            "RAW_URI=/variables?a=1",
            "REQUEST_METHOD=GET",
            "REQUEST_URI=/variables?a=1",
        ],
    ),
    // RFC 3875 section 4.1.18, RFC 6265 section 4.2.1; CVE-2016-5385. The path is percent-decoded (RFC 3875 section 4.1.5).
    (
        b"GET /%76ariables HTTP/1.1\r\nHost: h\r\nAccept: a\r\naccept: b\r\nCookie: c=1\r\nCookie: d=2\r\nProxy: evil\r\n\r\n",
        &[
            "HTTP_ACCEPT=a, b",
            "HTTP_COOKIE=c=1; d=2",
            "HTTP_HOST=h",
            "PATH_INFO=/variables",
            "RAW_URI=/%76ariables",
            "REQUEST_METHOD=GET",
            "REQUEST_URI=/%76ariables",
        ],
    ),
    // RFC 9112 section 3.2.2: the host of an absolute target overrides the field.
    (
        b"GET http://there/variables HTTP/1.1\r\nHost: h\r\n\r\n",
        &[
            "HTTP_HOST=there",
            "PATH_INFO=/variables",
            "RAW_URI=http://there/variables",
            "REQUEST_METHOD=GET",
            "REQUEST_URI=/variables",
        ],
    ),
    (
        b"POST /variables HTTP/1.1\r\nHost: h\r\nContent-Type: t\r\nContent-Length: 0\r\n\r\n",
        &[
            "CONTENT_LENGTH=0",
            "CONTENT_TYPE=t",
            "HTTP_HOST=h",
            "PATH_INFO=/variables",
            "RAW_URI=/variables",
            "REQUEST_METHOD=POST",
            "REQUEST_URI=/variables",
        ],
    ),
    // RFC 9112 section 7.1.3
    (
        b"POST /variables HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[
            "CONTENT_LENGTH=0",
            "HTTP_HOST=h",
            "PATH_INFO=/variables",
            "RAW_URI=/variables",
            "REQUEST_METHOD=POST",
            "REQUEST_URI=/variables",
        ],
    ),
];

/// Returns the variables that a page showed, without those of the connection, which are the same for each request.
fn variables(shown: &str) -> Vec<&str> {
    let of_connection =
        ["REMOTE_ADDR=", "REMOTE_PORT=", "SERVER_NAME=here", "SERVER_PORT=80", "SERVER_PROTOCOL=HTTP/1.1", "scheme=http"];
    let (shared, own): (Vec<&str>, Vec<&str>) = shown.lines().partition(|line| of_connection.contains(line));
    assert_eq!(shared, of_connection, "variables of the connection");
    own
}

#[test]
fn a_language_that_gets_a_table_gets_the_variables_of_cgi() {
    let (mut called, interpreter) = called(&[]);
    let mut streams = Harness::new(TestStreams::new(), &[]);
    for (sent, wanted) in VARIABLES {
        assert_eq!(variables(&converse(&mut streams, sent, [])[0]), wanted);
        let (mut client, _) = (called.client(), called.settle());
        // The second time, the header block is the one that the connection had before.
        for again in ["first", "kept"] {
            client.send(sent);
            called.settle();
            assert_eq!(variables(&bodies(&client.received())[0]), wanted, "{again}: {}", String::from_utf8_lossy(sent));
        }
    }
    drop((called, interpreter));
}

#[test]
fn a_language_that_gets_a_table_gets_the_variables_of_a_reverse_proxy_as_they_are() {
    let (mut worker, interpreter) = called(&[]);
    let given = [
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/variables?a=1"),
        ("PATH_INFO", "/variables"),
        ("HTTP_ACCEPT", "a"),
        ("UWSGI_SCHEME", "https"),
        ("ANY_NAME", "any value"),
    ];
    let mut client = worker.client_of(UWSGI, None);
    client.send(&packet(&given));
    worker.settle();
    let received = String::from_utf8(client.received()).expect("text");
    let (_, body) = received.split_once("\r\n\r\n").expect("a head");
    let mut wanted: Vec<String> = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
    wanted.extend(["RAW_URI=/variables?a=1", "SERVER_NAME=here", "SERVER_PORT=80", "scheme=https"].map(String::from));
    wanted.sort();
    assert_eq!(body.lines().collect::<Vec<_>>(), wanted);
    drop((worker, interpreter));
}

#[test]
fn a_packet_of_uwsgi_is_the_same_wherever_it_is_cut() {
    let (mut worker, interpreter) = called(&[]);
    let variables = [("REQUEST_METHOD", "POST"), ("REQUEST_URI", "/echo"), ("PATH_INFO", "/echo"), ("CONTENT_LENGTH", "2")];
    let sent = [&packet(&variables)[..], b"hi"].concat();
    for cut in 1..sent.len() {
        let mut client = worker.client_of(UWSGI, None);
        client.send(&sent[..cut]);
        worker.settle();
        assert_eq!(client.received(), b"", "an answer before its request, at {cut}");
        client.send(&sent[cut..]);
        worker.settle();
        assert!(client.received().ends_with(b"POST /echo\nhi"), "cut at {cut}");
    }
    drop((worker, interpreter));
}

/// Represents the record that answers a question.
const KNOWN_NOT: &str = "[known not]";

/// A record of FastCGI, of request 7.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 7, high, low, 0, 0], content].concat()
}

/// A request of FastCGI whose body comes in two records with a question in between.
fn fastcgi_request(keeps: bool) -> Vec<u8> {
    let mut parameters = Vec::new();
    for (name, value) in [("REQUEST_METHOD", "POST"), ("REQUEST_URI", "/echo"), ("PATH_INFO", "/echo"), ("CONTENT_LENGTH", "3")] {
        parameters.extend([name.len() as u8, value.len() as u8]);
        parameters.extend([name, value].concat().as_bytes());
    }
    let (first, second) = parameters.split_at(20);
    let question = [1, 42, 0, 0, 0, 0, 0, 0].to_vec();
    [
        record(1, &[0, 1, u8::from(keeps), 0, 0, 0, 0, 0]),
        record(4, first),
        record(4, second),
        record(4, b""),
        record(5, b"he"),
        question,
        record(5, b"y"),
        record(5, b""),
    ]
    .concat()
}

/// Returns the contents of an answer's records in order; a placeholder represents records of other kinds.
fn fastcgi_answer(mut answer: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let [1, kind, 0, id, high, low, 0, 0, rest @ ..] = answer {
        let (part, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        match (kind, id) {
            (6, 7) => content.extend_from_slice(part),
            (11, 0) => content.extend_from_slice(KNOWN_NOT.as_bytes()),
            (3, 7) => content.extend_from_slice(b"[end]"),
            other => panic!("{other:?}"),
        }
        answer = rest;
    }
    assert_eq!(answer, b"", "no record");
    content
}

fn each_cut_of_records_gives_the_same<L: Language>(mut worker: Harness<L>, interpreter: &Interpreter) {
    let (sent, last) = (fastcgi_request(true), fastcgi_request(false));
    for cut in 1..=sent.len() {
        let mut client = worker.client_of(FASTCGI, None);
        for piece in [&sent[..cut], &sent[cut..]] {
            client.send(piece);
            worker.settle();
        }
        for request in [&b""[..], &last] {
            client.send(request);
            worker.settle();
            let answer = String::from_utf8(fastcgi_answer(&client.received())).expect("text");
            // The question is answered when it comes, be it between two parts of the answer.
            assert_eq!(answer.matches(KNOWN_NOT).count(), 1, "cut at {cut}: {answer}");
            let answer = answer.replace(KNOWN_NOT, "");
            assert!(answer.starts_with("Status: 200 ") && answer.ends_with("POST /echo\nhey[end]"), "cut at {cut}: {answer}");
        }
        assert_eq!(worker.connections(), 0, "the client has not asked for a connection that is kept");
    }
    assert_eq!(interpreter.balance(), (0, 0));
}

#[test]
fn a_request_of_fastcgi_is_the_same_wherever_it_is_cut() {
    let (worker, interpreter) = called(&[]);
    each_cut_of_records_gives_the_same(worker, interpreter);
}

#[test]
fn a_request_of_fastcgi_is_the_same_wherever_it_is_cut_for_an_application_that_takes_its_body_as_it_comes() {
    let language = TestStreams::new();
    each_cut_of_records_gives_the_same(Harness::new(language, &[]), language.interpreter);
    let language = TestStreams::with_whole_bodies();
    each_cut_of_records_gives_the_same(Harness::new(language, &[]), language.interpreter);
}

#[test]
fn two_requests_that_come_at_once_have_their_answers_in_the_order_in_which_they_end() {
    let (mut worker, _) = called(&[]);
    let (mut one, mut two) = (worker.client(), worker.client());
    one.send(b"POST /echo/one HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\non");
    worker.settle();
    two.send(b"POST /echo/two HTTP/1.1\r\nHo");
    worker.settle();
    two.send(b"st: h\r\nContent-Length: 3\r\n\r\ntwo");
    one.send(b"e");
    worker.settle();
    assert_eq!((bodies(&one.received()), bodies(&two.received())), (vec![], vec!["POST /echo/two\ntwo".to_owned()]));
    one.send(b"!");
    worker.settle();
    assert_eq!(bodies(&one.received()), ["POST /echo/one\none!"]);
}

#[test]
fn a_header_block_that_is_remembered_is_that_of_its_own_connection() {
    for is_interleaved in [false, true] {
        let (mut worker, interpreter) = called(&[]);
        let (mut one, mut two) = (worker.client(), worker.client());
        let ask = |worker: &mut Harness<TestLanguage>, client: &mut Client, fields: &str| {
            client.send(format!("GET /fields HTTP/1.1\r\n{fields}\r\n").as_bytes());
            worker.settle();
            bodies(&client.received())
        };
        for _ in 0..4 {
            assert_eq!(ask(&mut worker, &mut one, "Host: h\r\nX-Name: one\r\n"), ["Host=h\nX-Name=one\n"]);
            if is_interleaved {
                assert_eq!(ask(&mut worker, &mut two, "Accept: */*\r\nHost: other\r\n"), ["Accept=*/*\nHost=other\n"]);
            }
        }
        assert_eq!(ask(&mut worker, &mut one, "Host: h\r\nX-Name: six\r\n"), ["Host=h\nX-Name=six\n"]);
        drop((one, two));
        worker.settle();
        assert_eq!(interpreter.balance(), (0, 0));
    }
}

#[test]
fn requests_that_arrive_during_a_call_are_served_without_the_clock() {
    // The application is in a call when its client's next request and another client's arrive.
    let scripts: Arc<Mutex<VecDeque<Script>>> = Arc::default();
    let (told, clients) = (scripts.clone(), Arc::new(Mutex::new(Vec::new())));
    let kept = clients.clone();
    let language = TestLanguage::new(Arc::new(Events(move |_: &str| {
        let mut scripts = told.lock().unwrap_or_else(PoisonError::into_inner);
        for (mut client, sent) in scripts.drain(..) {
            client.send(sent);
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    })));
    let mut worker = Harness::new(language, &[]);
    let (mut first, other) = (worker.client(), worker.client());
    first.send(b"GET /busy/gate HTTP/1.1\r\nHost: h\r\n\r\n");
    let again = Client { stream: first.stream.try_clone().expect("a copy") };
    let next: &[u8] = b"GET /echo/next HTTP/1.1\r\nHost: h\r\n\r\n";
    scripts.lock().unwrap_or_else(PoisonError::into_inner).extend([(again, next), (other, next)]);
    worker.settle();
    assert_eq!(bodies(&first.received()), ["GET /busy/gate\n", "GET /echo/next\n"]);
    let mut clients = std::mem::take(&mut *clients.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(bodies(&clients[1].received()), ["GET /echo/next\n"]);
}

fn what_follows_a_kept_request_is_served_after_it<const STREAMS_BODY: bool>(language: &'static TestStreams<STREAMS_BODY>) {
    let mut worker = Harness::new(language, &[]);
    let mut client = worker.client();
    client.send(b"POST /slow/gate HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab");
    worker.settle();
    client.send(b"cdGET /echo/next HTTP/1.1\r\nHost: h\r\n\r\n");
    worker.settle();
    assert_eq!((client.received(), language.going_on()), (Vec::new(), 1));
    language.open("gate", &worker.engine);
    // The visit leaves work to do, and schedules a turn immediately.
    assert!(worker.turn());
    worker.settle();
    assert_eq!(bodies(&client.received()), ["POST /slow/gate\nabcd", "GET /echo/next\n"]);
    drop(client);
    worker.settle();
    assert_eq!((language.going_on(), language.interpreter.balance()), (0, (0, 0)));
}

#[test]
fn a_request_that_arrives_while_the_application_has_another_is_served_after_it() {
    what_follows_a_kept_request_is_served_after_it(TestStreams::new());
    what_follows_a_kept_request_is_served_after_it(TestStreams::with_whole_bodies());
}

fn pipelined_requests_are_kept_one_after_the_other<const STREAMS_BODY: bool>(language: &'static TestStreams<STREAMS_BODY>) {
    let mut worker = Harness::new(language, &[]);
    let (mut client, mut other) = (worker.client(), worker.client());
    let ask = |gate: &str| format!("POST /slow/{gate} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n{gate}");
    client.send([ask("a"), ask("b"), ask("c")].concat().as_bytes());
    other.send(ask("d").as_bytes());
    worker.settle();
    assert_eq!(language.going_on(), 2, "one of each connection");
    for gate in ["b", "c"] {
        assert_eq!(language.open(gate, &worker.engine), [], "it is not its turn");
    }
    for gate in ["a", "b", "c", "d"] {
        assert_eq!(language.open(gate, &worker.engine), [Visited::Done(())]);
        assert!(worker.turn(), "the visit leaves something to do");
        worker.settle();
        let answers = bodies(&if gate == "d" { &mut other } else { &mut client }.received());
        assert_eq!(answers, [format!("POST /slow/{gate}\n{gate}")]);
    }
    // Both are kept alive; one disconnects while the application has its request.
    client.send(b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
    other.send(ask("e").as_bytes());
    worker.settle();
    assert_eq!((bodies(&client.received()), language.going_on()), (vec!["GET /echo\n".to_owned()], 1));
    drop((client, other));
    worker.settle();
    assert_eq!((worker.connections(), language.going_on(), language.interpreter.balance()), (0, 0, (0, 0)));
}

#[test]
fn pipelined_requests_that_the_application_keeps_are_answered_in_their_order() {
    pipelined_requests_are_kept_one_after_the_other(TestStreams::new());
    pipelined_requests_are_kept_one_after_the_other(TestStreams::with_whole_bodies());
}

#[test]
fn one_client_does_not_hold_the_thread_with_requests_without_end() {
    // Large enough that few of them fit into the buffer of one read; the number of small ones is bounded.
    for padding_bytes in [3_500, 1] {
        let padding = "x".repeat(padding_bytes);
        let request = format!("GET /echo/greedy HTTP/1.1\r\nHost: h\r\nX-Padding: {padding}\r\n\r\n");
        let (mut worker, _) = called(&[]);
        // Neither its requests nor the answers, which it does not read, fill a socket.
        let (mut greedy, mut modest) = (worker.client_of(HTTP, Some(LARGE_ROOM)), worker.client());
        setsockopt(&greedy.stream, sockopt::SndBuf, &LARGE_ROOM).expect("set");
        let mut requests = 0;
        while greedy.send_some(request.as_bytes()) == Some(request.len()) {
            requests += 1;
        }
        assert!(worker.turn());
        modest.send(b"GET /echo/modest HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut turns = 0;
        while modest.received().is_empty() {
            assert!(worker.turn());
            turns += 1;
        }
        let answered = bodies(&greedy.received()).len();
        assert!(turns <= 2 && answered * 2 < requests, "{turns} turns, in which {answered} of {requests} requests came first");
    }
}

#[test]
fn a_client_that_is_slow_gets_all_of_its_answer_and_others_theirs_meanwhile() {
    let (mut worker, interpreter) = called(&[]);
    let mut slow = worker.client_of(0, Some(8 * 1024));
    slow.send(b"GET /stream/60/10000 HTTP/1.0\r\n\r\n");
    worker.settle();
    assert_eq!(interpreter.balance(), (1, 0), "the answer is suspended");
    let (mut answer, mut ended) = (Vec::new(), false);
    while !ended {
        let (bytes, end) = slow.receive(3_000);
        answer.extend_from_slice(&bytes);
        ended = end;
        let mut other = worker.client();
        other.send(b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
        worker.settle();
        assert_eq!(bodies(&other.received()), ["GET /echo\n"]);
    }
    let body = find(&answer, b"\r\n\r\n").expect("a head") + 4;
    assert!(answer[body..] == pages::stream(60, 10_000), "the body is another one, of {} bytes", answer.len() - body);
    worker.settle();
    assert_eq!((interpreter.balance(), worker.connections()), ((0, 0), 0));
}

#[test]
fn a_failure_is_answered_with_500_or_ends_the_connection_when_something_has_left() {
    let (mut worker, interpreter) = called(&[]);
    for (target, status, is_whole) in [("/fail", "500", true), ("/fail/3/1000", "200", false), ("/short", "200", false)] {
        let mut client = worker.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        worker.settle();
        let (answer, ended) = client.receive(1 << 20);
        assert_eq!(&answer[9..12], status.as_bytes(), "{target}");
        let end: &[u8] = if is_whole { b"Internal Server Error" } else { b"\r\n0\r\n\r\n" };
        assert_eq!((answer.ends_with(end), ended), (is_whole, !is_whole), "{target}");
    }
    let mut client = worker.client();
    client.send(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
    worker.settle();
    assert_eq!(bodies(&client.received()), ["GET /long", "GET /echo\n"]);
    assert_eq!(interpreter.balance(), (0, 0));
}
