//! Each way in which a connection can end, in each of its states: nothing of it is left in the worker, the application is
//! notified, and the clock is needed only if time itself is the reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bolide_contract::message::Order;
use bolide_contract::settings::Settings;
use bolide_engine::app::Language;
use bolide_testing::gates::LocalGates;
use bolide_testing::harness::{Client, HTTP, Harness, log, settings};
use bolide_testing::interpreter::Interpreter;
use bolide_testing::language::TestLanguage;
use bolide_testing::pages;
use bolide_testing::streaming::TestStreams;

/// Bytes that the worker's socket takes if it should be full soon.
const LITTLE_ROOM: usize = 8 * 1024;

/// Time limits of a worker if time is the reason, in milliseconds.
const SHORT_MS: u64 = 100;

/// A state, and the data that a client sends to bring a connection there.
struct State {
    name: &'static str,
    sent: &'static [u8],
    /// The client reads nothing, and the worker's socket is full.
    is_full: bool,
    /// The application is in a call, or has an answer that waits: the engine keeps an object of it.
    is_kept: bool,
    /// A client that has only ended its own side still gets this many bytes of a body.
    still_comes: usize,
}

const fn state(name: &'static str, sent: &'static [u8]) -> State {
    State { name, sent, is_full: false, is_kept: false, still_comes: 0 }
}

/// States of any connection.
const COMMON: [State; 7] = [
    state("nothing has come", b""),
    state("a head has begun", b"GET /echo HTTP/1.1\r\nHo"),
    state("idle after an answer", b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"),
    state("a next head has begun", b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\nGET"),
    state("refused, with more to read", b"BAD\r\n\r\nand more"),
    State {
        is_full: true,
        is_kept: true,
        still_comes: 1_000_000,
        ..state("an answer is suspended", b"GET /stream/100/10000 HTTP/1.0\r\n\r\n")
    },
    State {
        is_full: true,
        still_comes: 40_000,
        ..state("an answer waits, its application is done", b"GET /stream/4/10000 HTTP/1.0\r\n\r\n")
    },
];

/// Those of an application that gets a collected body.
const COLLECTED: [State; 3] = [
    state("a body has begun", b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"),
    state(
        "a body goes to a file",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n0123456789012345678901234567890123456789",
    ),
    state("a chunk has begun", b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
];

/// Those of an application that takes its body as it arrives.
const STREAMED: [State; 3] = [
    State { is_kept: true, ..state("it waits for a body", b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc") },
    State { is_kept: true, ..state("it is at work", b"GET /slow/gate HTTP/1.1\r\nHost: h\r\n\r\n") },
    State {
        is_kept: true,
        ..state(
            "a WebSocket is open",
            b"GET /socket HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
    },
];

/// A worker with a connection in a state.
struct Case {
    state: &'static State,
    worker: Box<dyn Turning>,
    client: Client,
    interpreter: &'static Interpreter,
}

/// Each state, under each kind of application.
fn each_state(change: fn(&mut Settings)) -> Vec<Case> {
    let called = |state| {
        let language = TestLanguage::new(Arc::new(LocalGates::default()));
        in_state(state, language, language.interpreter, change)
    };
    let streamed = |state| {
        let language = TestStreams::new();
        in_state(state, language, language.interpreter, change)
    };
    let cases = COMMON.iter().chain(&COLLECTED).map(|state| in_time(|| called(state)));
    cases.chain(COMMON.iter().chain(&STREAMED).map(|state| in_time(|| streamed(state)))).collect()
}

/// Returns a case that reached its state before its worker's time limit could expire, however often the machine is busy with
/// other work.
fn in_time(case: impl Fn() -> Case) -> Case {
    loop {
        let began = Instant::now();
        let case = case();
        if began.elapsed() < Duration::from_millis(SHORT_MS) {
            let kept = (u64::from(case.state.is_kept), 0);
            assert_eq!(case.interpreter.balance(), kept, "{}", case.state.name);
            return case;
        }
    }
}

fn in_state<L: Language>(
    state: &'static State,
    language: &'static L,
    interpreter: &'static Interpreter,
    change: fn(&mut Settings),
) -> Case {
    let mut settings = settings(&["--post-buffering", "16"]);
    change(&mut settings);
    let mut worker = Harness::with_settings(language, settings);
    let mut client = worker.client_of(HTTP, state.is_full.then_some(LITTLE_ROOM));
    client.send(state.sent);
    worker.settle();
    Case { state, worker: Box::new(worker), client, interpreter }
}

impl Case {
    /// Asserts that nothing is left, and that no event had to be found by the clock.
    fn assert_over(&self) {
        let left = (self.worker.connections(), self.interpreter.balance());
        assert_eq!(left, (0, (0, 0)), "{}", self.state.name);
        assert!(!log().contains("internal error"), "{}", log());
    }
}

/// A worker of any language.
trait Turning {
    fn settle(&mut self);
    fn connections(&self) -> u32;
    fn stop(&mut self);
    fn wait_until_all_have_gone(&mut self, what: &str);
    fn wait_until_drained(&mut self, what: &str);
}

impl<L: Language> Turning for Harness<L> {
    fn settle(&mut self) {
        Harness::settle(self);
    }

    fn connections(&self) -> u32 {
        Harness::connections(self)
    }

    fn stop(&mut self) {
        self.order(&Order::Stop, None);
    }

    fn wait_until_all_have_gone(&mut self, what: &str) {
        self.wait(what, |worker| worker.connections() == 0);
    }

    fn wait_until_drained(&mut self, what: &str) {
        self.wait(what, |worker| worker.has_drained());
    }
}

#[test]
fn a_client_that_goes_is_gone_at_the_next_turn() {
    for case in each_state(|_| {}) {
        let Case { state, mut worker, client, interpreter } = case;
        drop(client);
        worker.settle();
        assert_eq!((worker.connections(), interpreter.balance()), (0, (0, 0)), "{}", state.name);
    }
    assert!(!log().contains("internal error"), "{}", log());
}

#[test]
fn a_client_that_sends_no_more_gets_what_it_has_asked_for() {
    for mut case in each_state(|_| {}) {
        let Case { state, worker, client, .. } = &mut case;
        client.end_sending();
        worker.settle();
        let mut received = client.received();
        while worker.connections() > 0 {
            worker.settle();
            let more = client.received();
            assert!(!more.is_empty() || worker.connections() == 0, "{}: it stays", state.name);
            received.extend(more);
        }
        if state.still_comes > 0 {
            let whole = pages::stream(state.still_comes / 10_000, 10_000);
            assert!(received.ends_with(&whole), "{}: {} bytes came", state.name, received.len());
        }
        case.assert_over();
    }
}

#[test]
fn a_client_that_neither_sends_nor_takes_has_its_time_and_no_more() {
    let cases = each_state(|settings| {
        settings.limits.keepalive_ms = SHORT_MS;
        for listener in &mut settings.listeners {
            listener.timeout_ms = SHORT_MS;
        }
    });
    // An application may take its time, and so may the client of a WebSocket.
    for mut case in cases.into_iter().filter(|case| !["it is at work", "a WebSocket is open"].contains(&case.state.name)) {
        let Case { state, worker, client, .. } = &mut case;
        worker.wait_until_all_have_gone(state.name);
        let (received, has_ended) = client.receive(1 << 21);
        assert!(has_ended, "{}", state.name);
        let is_told = COLLECTED.iter().any(|collected| collected.name == state.name);
        let text = String::from_utf8_lossy(&received);
        assert!(!is_told || text.starts_with("HTTP/1.1 408 "), "{}: {text}", state.name);
        case.assert_over();
    }
}

#[test]
fn a_worker_that_stops_leaves_nothing_behind() {
    let cases = each_state(|settings| {
        settings.lifecycle.reload_mercy_ms = SHORT_MS;
        for listener in &mut settings.listeners {
            listener.timeout_ms = SHORT_MS;
        }
    });
    for mut case in cases {
        case.worker.stop();
        case.worker.wait_until_drained(case.state.name);
        case.assert_over();
    }
}
