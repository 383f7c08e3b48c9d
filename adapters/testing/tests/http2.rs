//! HTTP/2, counted in turns of the worker's loop: streams of one connection wait for their client only, and do not delay each
//! other.

use std::sync::{Arc, Mutex, PoisonError};

use bolide_contract::message::Order;
use bolide_engine::app::Language;
use bolide_testing::gates::Events;
use bolide_testing::harness::{Client, HTTP, Harness};
use bolide_testing::http2::*;
use bolide_testing::language::TestLanguage;
use bolide_testing::pages::stream;
use bolide_testing::streaming::TestStreams;

fn requests_are_answered_in_the_turn_in_which_they_are_read<L: Language>(mut worker: Harness<L>) {
    let mut client = client(&mut worker);
    let mut got = Got::default();
    for round in 0..3u32 {
        let numbers: Vec<u32> = (0..20).map(|number| round * 40 + number * 2 + 1).collect();
        client.send(&numbers.iter().flat_map(|number| get(*number, "/echo")).collect::<Vec<u8>>());
        assert!(worker.turn(), "the poll tells of the requests");
        worker.settle();
        got.read(&mut client);
        for number in numbers {
            assert_eq!(got.text(number), "GET /echo\n", "stream {number}");
            assert!(got.ended.contains(&number));
        }
        assert_eq!(worker.connections(), 1, "streams end with their answers");
    }
    assert_eq!((got.reset.len(), got.goaways.len()), (0, 0));
}

#[test]
fn requests_of_one_connection_are_answered_without_a_look_at_the_clock() {
    requests_are_answered_in_the_turn_in_which_they_are_read(called());
    requests_are_answered_in_the_turn_in_which_they_are_read(streamed().0);
}

fn a_connection_is_understood_in_any_pieces<L: Language>(mut worker: Harness<L>) {
    let mut client = worker.client_of(HTTP, None);
    let body = [post(3, "/echo"), frame(DATA, 0, 3, b"hel"), frame(DATA, END_STREAM, 3, b"lo")].concat();
    for byte in [PREFACE, &frame(SETTINGS, 0, 0, b""), &get(1, "/echo"), &body].concat() {
        client.send(&[byte]);
        worker.settle();
    }
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!((got.text(1), got.text(3)), ("GET /echo\n", "POST /echo\nhello"));
    assert_eq!(worker.connections(), 1);
}

#[test]
fn a_connection_is_understood_byte_by_byte() {
    a_connection_is_understood_in_any_pieces(called());
    a_connection_is_understood_in_any_pieces(streamed().0);
    a_connection_is_understood_in_any_pieces(worker(TestStreams::with_whole_bodies()));
}

fn a_kept_request_holds_up_no_other<const STREAMS_BODY: bool>(language: &'static TestStreams<STREAMS_BODY>) {
    let mut worker = worker(language);
    let mut client = client(&mut worker);
    client.send(&[get(1, "/slow/gate"), get(3, "/echo"), get(5, "/slow/gate")].concat());
    worker.settle();
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!((got.text(3), got.ended.as_slice()), ("GET /echo\n", &[3][..]));
    language.open("gate", &worker.engine);
    assert!(worker.engine.wants_turn(), "what a visit has left is sent by the next turn");
    worker.settle();
    got.read(&mut client);
    assert_eq!((got.text(1), got.text(5)), ("GET /slow/gate\n", "GET /slow/gate\n"));
    assert_eq!(language.going_on(), 0);
}

#[test]
fn a_request_that_waits_holds_up_no_other_of_its_connection() {
    a_kept_request_holds_up_no_other(TestStreams::new());
    a_kept_request_holds_up_no_other(TestStreams::with_whole_bodies());
}

/// A body larger than its client's window: it stops there, and continues when the client opens the window.
fn a_body_waits_for_its_window<L: Language>(mut worker: Harness<L>) {
    let mut client = client(&mut worker);
    let body = stream(30, 10_000);
    client.send(&get(1, "/stream/30/10000"));
    worker.settle();
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!(got.bodies[&1].len(), WINDOW_BYTES);
    // The connection's window is closed for all streams: an answer's head arrives, and no body.
    client.send(&get(3, "/echo"));
    worker.settle();
    got.read(&mut client);
    assert_eq!(got.bodies.get(&3).map(Vec::len), Some(0), "its head has no need of a window");
    client.send(&window(0, 1 << 20));
    worker.settle();
    got.read(&mut client);
    assert_eq!(got.text(3), "GET /echo\n");
    // A byte at a time, too.
    for _ in 0..3 {
        let before = got.bodies[&1].len();
        client.send(&window(1, 1));
        worker.settle();
        got.read(&mut client);
        assert_eq!(got.bodies[&1].len(), before + 1);
    }
    client.send(&window(1, 1 << 20));
    // A socket takes fewer bytes than that at a time.
    while worker.settle() > 0 {
        got.read(&mut client);
    }
    assert!(got.bodies[&1] == body && got.ended.contains(&1), "{} bytes", got.bodies[&1].len());
    assert_eq!(worker.connections(), 1);
}

#[test]
fn a_body_goes_on_when_its_window_opens() {
    a_body_waits_for_its_window(called());
    a_body_waits_for_its_window(streamed().0);
}

#[test]
fn a_request_that_its_client_cancels_is_given_up_at_once() {
    let (mut worker, language) = streamed();
    let mut client = client(&mut worker);
    client.send(&[get(1, "/slow/gate"), get(3, "/stream/30/10000"), post(5, "/echo")].concat());
    worker.settle();
    assert_eq!(language.going_on(), 3);
    for (number, left) in [(1, 2), (3, 1), (5, 0)] {
        client.send(&frame(RST_STREAM, 0, number, &8u32.to_be_bytes()));
        worker.settle();
        assert_eq!((language.going_on(), worker.connections()), (left, 1 + left as u32), "stream {number}");
    }
    client.send(&[get(7, "/echo"), window(0, 1 << 20)].concat());
    worker.settle();
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!(got.text(7), "GET /echo\n", "the connection goes on");
}

fn nothing_is_left_of_a_client_that_goes<L: Language>(mut worker: Harness<L>, paths: &[&str]) {
    let mut client = client(&mut worker);
    for (number, path) in paths.iter().enumerate() {
        client.send(&get(number as u32 * 2 + 1, path));
    }
    client.send(&post(101, "/echo"));
    worker.settle();
    assert!(worker.connections() > 2);
    drop(client);
    worker.settle();
    assert_eq!(worker.connections(), 0);
}

#[test]
fn all_requests_of_a_client_that_goes_are_given_up() {
    nothing_is_left_of_a_client_that_goes(called(), &["/stream/30/10000", "/stream/31/10000"]);
    let (worker, language) = streamed();
    nothing_is_left_of_a_client_that_goes(worker, &["/slow/gate", "/stream/30/10000"]);
    assert_eq!(language.going_on(), 0);
}

#[test]
fn an_answer_that_fails_half_way_is_reset_and_its_connection_goes_on() {
    let mut worker = called();
    let mut client = client(&mut worker);
    client.send(&[get(1, "/fail/2/10"), get(3, "/fail"), get(5, "/echo")].concat());
    worker.settle();
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!((got.reset.as_slice(), got.text(5)), (&[1][..], "GET /echo\n"));
    assert!(got.text(3).contains("Internal Server Error"), "{}", got.text(3));
}

#[test]
fn a_worker_that_drains_says_so_and_finishes_what_was_asked_for() {
    let (mut worker, language) = streamed();
    let mut client = client(&mut worker);
    let mut idle = self::client(&mut worker);
    client.send(&get(1, "/slow/gate"));
    worker.settle();
    worker.order(&Order::Drain { has_successors: false }, None);
    worker.settle();
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!(got.goaways, [0x7fff_ffff], "RFC 9113 section 6.8: requests that are on their way are served");
    client.send(&get(3, "/echo"));
    worker.settle();
    got.read(&mut client);
    assert_eq!(got.text(3), "GET /echo\n");
    let mut of_idle = Got::default();
    worker.wait("the last frame of the shutdown", |_| {
        got.read(&mut client);
        of_idle.read(&mut idle);
        got.goaways.len() == 2 && of_idle.goaways.len() == 2
    });
    assert_eq!((got.goaways[1], of_idle.goaways[1]), (3, 0));
    drop(idle);
    client.send(&get(5, "/echo"));
    worker.settle();
    language.open("gate", &worker.engine);
    worker.settle();
    got.read(&mut client);
    assert_eq!((got.text(1), got.text(5)), ("GET /slow/gate\n", ""));
    drop(client);
    worker.wait("the end", |worker| worker.has_drained());
}

#[test]
fn a_client_of_many_requests_holds_up_others_for_few_of_them() {
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = calls.clone();
    // Each call takes longer than the time in which a turn begins requests.
    let language = TestLanguage::new(Arc::new(Events(move |name: &str| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        let began = std::time::Instant::now();
        while began.elapsed().as_micros() < 2_000 {}
    })));
    let mut worker = worker(language);
    let mut many = client(&mut worker);
    let mut one = client(&mut worker);
    many.send(&(0..90).flat_map(|number| get(number * 2 + 1, "/slow/many")).collect::<Vec<u8>>());
    one.send(&get(1, "/slow/one"));
    worker.settle();
    let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    let place = calls.iter().position(|name| name == "one");
    assert!(calls.len() == 91 && place.is_some_and(|place| place < 10), "{place:?} of {}", calls.len());
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_its_connection_ends() {
    let (mut worker, language) = streamed();
    let mut client = client(&mut worker);
    // A PING has eight bytes (RFC 9113 section 6.7).
    client.send(&[get(1, "/slow/gate"), frame(6, 0, 0, b"six"), get(3, "/echo")].concat());
    worker.settle();
    let mut got = Got::default();
    got.read(&mut client);
    assert_eq!((got.goaways.len(), got.text(3), language.going_on()), (1, "", 0));
    assert!(client.receive(1).1, "and there is nothing more to come");
    drop(client);
    worker.settle();
    assert_eq!(worker.connections(), 0);
}

#[test]
fn bytes_that_begin_neither_http_version_end_the_connection_without_an_answer() {
    let mut worker = called();
    for (sent, answer) in [
        (&b"NONSENSE\r\n\r\n"[..], ""),
        (b"GET / HTTP/3.0\r\n\r\n", "HTTP/1.1 505 "),
        (b"GET /echo HTTP/1.0\r\n\r\n", "HTTP/1.1 200 "),
    ] {
        let mut client = worker.client_of(HTTP, None);
        client.send(sent);
        worker.settle();
        let received = String::from_utf8_lossy(&client.received()).into_owned();
        assert!(received.contains(answer) && received.starts_with("HTTP/") != answer.is_empty(), "{received}");
        assert!(client.receive(1).1, "the connection ends");
    }
}

/// More bytes than a turn reads: an edge-triggered poll does not report the rest.
fn a_large_body_comes_whole<L: Language>(mut worker: Harness<L>) {
    let mut client = client(&mut worker);
    let body = vec![b'b'; 3 << 20];
    client.send(&[post(1, "/echo"), window(0, 1 << 24), window(1, 1 << 24)].concat());
    let mut got = Got::default();
    let mut frames: Vec<u8> = body.chunks(16_000).flat_map(|chunk| frame(DATA, 0, 1, chunk)).collect();
    frames.extend(frame(DATA, END_STREAM, 1, b""));
    // A piece is smaller than the worker's window, which is open again once all of it was used.
    let mut sent = 0;
    while sent < frames.len() {
        let piece = &frames[sent..frames.len().min(sent + 200_000)];
        sent += client.send_some(piece).expect("it is there");
        while worker.settle() > 0 {
            got.read(&mut client);
        }
    }
    while worker.settle() > 0 {
        got.read(&mut client);
    }
    assert_eq!(
        (got.bodies.get(&1).map(Vec::len), got.reset.len(), got.goaways.len()),
        (Some(body.len() + "POST /echo\n".len()), 0, 0)
    );
}

#[test]
fn a_body_of_many_turns_comes_whole() {
    a_large_body_comes_whole(called());
    a_large_body_comes_whole(streamed().0);
}

#[test]
fn a_request_that_is_cancelled_at_once_is_not_called() {
    let calls: Arc<Mutex<u32>> = Arc::default();
    let noted = calls.clone();
    let language = TestLanguage::new(Arc::new(Events(move |_: &str| *noted.lock().unwrap_or_else(PoisonError::into_inner) += 1)));
    let mut worker = worker(language);
    let mut client = client(&mut worker);
    for number in 0..20 {
        client.send(&[get(number * 2 + 1, "/slow/counted"), frame(RST_STREAM, 0, number * 2 + 1, &8u32.to_be_bytes())].concat());
    }
    worker.settle();
    assert_eq!((*calls.lock().unwrap_or_else(PoisonError::into_inner), worker.connections()), (0, 1));
}

/// Bytes of bodies that are cancelled, or that the application does not read, return to the connection's window.
fn uploads_that_come_to_nothing_leave_the_window_open<L: Language>(mut worker: Harness<L>) {
    const PIECE_BYTES: usize = 16_384;
    let mut client = client(&mut worker);
    let mut got = Got::default();
    // An answer that comes before the cancellation has room.
    client.send(&window(0, 1 << 30));
    got.read(&mut client);
    let window = WINDOW_BYTES + got.granted;
    let mut sent = 0;
    for number in (1..).step_by(2).take(3 * window / PIECE_BYTES) {
        let upload = [post(number, "/echo"), frame(DATA, 0, number, &vec![b'x'; PIECE_BYTES])].concat();
        let reset = frame(RST_STREAM, 0, number, &8u32.to_be_bytes());
        client.send(&upload);
        if number % 4 == 1 {
            // Otherwise it is cancelled before it was accepted.
            worker.settle();
        }
        client.send(&reset);
        worker.settle();
        sent += PIECE_BYTES;
        got.read(&mut client);
        // Half of the window may wait for the frame that returns it.
        assert!(WINDOW_BYTES + got.granted - sent > window / 2, "after {number}: {} of {sent} bytes", got.granted);
    }
    assert_eq!((worker.connections(), got.goaways.len()), (1, 0));
    client.send(&[post(9001, "/echo"), frame(DATA, END_STREAM, 9001, b"hello")].concat());
    worker.settle();
    got.read(&mut client);
    assert_eq!(got.text(9001), "POST /echo\nhello");
}

#[test]
fn cancelled_uploads_leave_the_window_open() {
    uploads_that_come_to_nothing_leave_the_window_open(called());
    uploads_that_come_to_nothing_leave_the_window_open(streamed().0);
}

#[test]
fn a_client_that_always_has_another_request_holds_up_others_for_a_few_batches() {
    const MAX_CALLS: u32 = 20_000;
    #[derive(Default)]
    struct Seen {
        clients: Option<[Client; 2]>,
        /// Calls of the first client's requests, and their number when the second client's request was called.
        calls: u32,
        others: Option<u32>,
    }
    let state: Arc<Mutex<Seen>> = Arc::default();
    let shared = state.clone();
    let language = TestLanguage::new(Arc::new(Events(move |name: &str| {
        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { clients, calls, others } = &mut *state;
        let Some([greedy, modest]) = clients else { return };
        if name == "modest" {
            *others = Some(*calls);
        } else {
            *calls += 1;
            drop(greedy.received());
            if others.is_none() && *calls < MAX_CALLS {
                greedy.send(&get(*calls * 2 + 199, "/slow/greedy"));
            }
            if *calls == 100 {
                modest.send(&get(1, "/slow/modest"));
            }
        }
    })));
    let mut worker = worker(language);
    let mut clients = [client(&mut worker), client(&mut worker)];
    clients[0].send(&(0..90).flat_map(|number| get(number * 2 + 1, "/slow/greedy")).collect::<Vec<u8>>());
    state.lock().unwrap_or_else(PoisonError::into_inner).clients = Some(clients);
    worker.settle();
    let others = state.lock().unwrap_or_else(PoisonError::into_inner).others;
    assert!(others.is_some_and(|calls| calls < 100 + 8 * 32), "served after {others:?} requests of the other");
}
