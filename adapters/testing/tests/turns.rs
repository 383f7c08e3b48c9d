//! How long a client waits, counted in turns of the worker's loop: a worker that turns again only after a timer answers too late
//! here, on any machine.

use std::sync::{Arc, Mutex, PoisonError};

use bolide_engine::app::Language;
use bolide_testing::gates::{Events, LocalGates};
use bolide_testing::harness::{Client, HTTP, Harness};
use bolide_testing::language::TestLanguage;
use bolide_testing::pages;
use bolide_testing::streaming::TestStreams;

/// Bytes that the worker's socket takes if it should be full soon.
const LITTLE_ROOM: usize = 8 * 1024;

const REQUEST: &[u8] = b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";
/// A body of it, with a length or in chunks.
const ANSWER: &str = "GET /echo\n";

/// A body larger than a socket takes, until the end of the connection.
const LARGE: &[u8] = b"GET /stream/100/10000 HTTP/1.0\r\n\r\n";

fn called() -> Harness<TestLanguage> {
    Harness::new(TestLanguage::new(Arc::new(LocalGates::default())), &[])
}

fn streamed() -> Harness<TestStreams> {
    Harness::new(TestStreams::new(), &[])
}

/// The worker has events, and has answered after one turn.
fn answers_in_one_turn<L: Language>(worker: &mut Harness<L>, client: &mut Client, what: &str) {
    assert!(worker.turn(), "{what}: the poll knows nothing of it");
    assert!(has_answer(client), "{what}: no answer in this turn");
}

fn has_answer(client: &mut Client) -> bool {
    let received = String::from_utf8(client.received()).expect("text");
    received.starts_with("HTTP/1.1 200 ") && received.contains(ANSWER)
}

fn a_request_has_its_answer_at_once<L: Language>(mut worker: Harness<L>) {
    let mut client = worker.client();
    for number in 0..3 {
        client.send(REQUEST);
        answers_in_one_turn(&mut worker, &mut client, &format!("request {number} of a connection"));
        worker.settle();
    }
    // In two pieces: the second one completes it.
    let (first, second) = REQUEST.split_at(9);
    client.send(first);
    worker.settle();
    client.send(second);
    answers_in_one_turn(&mut worker, &mut client, "the rest of a head");
    worker.settle();
    let mut others: Vec<Client> = (0..20).map(|_| worker.client()).collect();
    for other in &mut others {
        other.send(REQUEST);
    }
    // On a slow machine, the time of a turn ends before the last of them has begun.
    worker.settle();
    for other in &mut others {
        assert!(has_answer(other), "one of twenty that asked at the same time");
    }
}

#[test]
fn a_request_is_answered_in_the_turn_in_which_it_is_read() {
    a_request_has_its_answer_at_once(called());
    a_request_has_its_answer_at_once(streamed());
    a_request_has_its_answer_at_once(Harness::new(TestStreams::with_whole_bodies(), &[]));
}

#[test]
fn a_client_whose_bytes_come_while_a_call_runs_is_served_in_the_next_turn() {
    let waiting: Arc<Mutex<Option<Client>>> = Arc::default();
    let given = waiting.clone();
    let language = TestLanguage::new(Arc::new(Events(move |_: &str| {
        if let Some(client) = given.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            client.send(REQUEST);
        }
    })));
    let mut worker = Harness::new(language, &[]);
    let mut first = worker.client();
    let other = worker.client();
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(other);
    first.send(b"GET /busy/gate HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(worker.turn());
    assert!(first.received().ends_with(b"GET /busy/gate\n"));
    let mut other = waiting.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it is kept there");
    answers_in_one_turn(&mut worker, &mut other, "bytes that came while a call ran");
}

#[test]
fn a_client_that_asks_again_while_its_call_runs_is_answered_in_the_next_turn_at_the_latest() {
    let waiting: Arc<Mutex<Option<Client>>> = Arc::default();
    let given = waiting.clone();
    let language = TestLanguage::new(Arc::new(Events(move |_: &str| {
        if let Some(mut client) = given.lock().unwrap_or_else(PoisonError::into_inner).take() {
            client.send(REQUEST);
        }
    })));
    let mut worker = Harness::new(language, &[]);
    let mut client = worker.client();
    let again = Client { stream: client.stream.try_clone().expect("a copy") };
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(again);
    client.send(b"GET /busy/gate HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(worker.turn());
    worker.turn();
    let received = String::from_utf8(client.received()).expect("text");
    assert!(received.contains("GET /busy/gate\n") && received.contains(ANSWER), "{received}");
}

fn an_answer_goes_on_when_there_is_room<L: Language>(mut worker: Harness<L>) {
    let mut client = worker.client_of(HTTP, Some(LITTLE_ROOM));
    client.send(LARGE);
    worker.settle();
    let wanted = pages::stream(100, 10_000);
    let mut answer = client.received();
    assert!(!answer.ends_with(&wanted), "the socket was to be full");
    while !answer.ends_with(&wanted) {
        assert!(worker.turn(), "the socket has room, and the poll does not report it, after {} bytes", answer.len());
        let more = client.received();
        assert!(!more.is_empty(), "nothing came in the turn in which there was room, after {} bytes", answer.len());
        answer.extend_from_slice(&more);
    }
    worker.settle();
    assert_eq!(worker.connections(), 0);
}

#[test]
fn a_suspended_answer_goes_on_in_the_turn_in_which_its_socket_has_room() {
    an_answer_goes_on_when_there_is_room(called());
    an_answer_goes_on_when_there_is_room(streamed());
    an_answer_goes_on_when_there_is_room(Harness::new(TestStreams::with_whole_bodies(), &[]));
}
