//! Several threads of one worker: a thread that is blocked in a call does not delay others, and events of a connection in the
//! meantime are handled when the call returns, without the clock.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Once};

use bolide_contract::message::{self, Order, Received, Report};
use bolide_testing::gates::{LocalGates, TEST_TIMEOUT};
use bolide_testing::harness::{HTTP, assignment, keep_tests_alive, log, settings};
use bolide_testing::language::TestLanguage;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A worker with threads of its own.
struct Worker {
    language: &'static TestLanguage,
    gates: Arc<LocalGates>,
    master: OwnedFd,
    ended: Receiver<std::io::Result<()>>,
}

impl Worker {
    fn start(threads: &str) -> Worker {
        Worker::with(&["--threads", threads])
    }

    /// A worker with a static file and a route.
    fn with_own_answers(threads: &str) -> Worker {
        // Written once: another test may be sending it.
        static WRITTEN: Once = Once::new();
        let directory = concat!(env!("CARGO_TARGET_TMPDIR"), "/own_answers");
        WRITTEN.call_once(|| {
            std::fs::create_dir_all(directory).expect("made");
            std::fs::write(format!("{directory}/own.txt"), "own").expect("written");
        });
        let map = format!("/files={directory}");
        let worker = Worker::with(&["--threads", threads, "--static-map", &map, "--route", "^/gone$ return:410"]);
        worker.wait_for_threads(threads.parse().unwrap_or(2));
        worker
    }

    /// A thread has started when it has held the language for the first time: this many requests run at the same time then.
    fn wait_for_threads(&self, count: usize) {
        let clients: Vec<TcpStream> = (0..count).map(|_| self.client()).collect();
        for (number, client) in clients.iter().enumerate() {
            ask(client, &format!("/slow/up-{number}"));
        }
        let gates: Vec<String> = (0..count).map(|number| format!("up-{number}")).collect();
        gates.iter().for_each(|gate| self.gates.wait_for_arrival(gate));
        gates.iter().for_each(|gate| self.gates.open(gate));
        for (number, client) in clients.iter().enumerate() {
            hear(client, &format!("/slow/up-{number}"));
        }
    }

    fn with(options: &[&str]) -> Worker {
        log();
        keep_tests_alive();
        let gates = Arc::new(LocalGates::default());
        let language = TestLanguage::new(gates.clone());
        let (assignment, master) = assignment(settings(options));
        let (end, ended) = channel();
        std::thread::spawn(move || {
            let result = bolide_engine::serve(language, assignment);
            // A test that has failed already does not wait for it.
            let _nobody_waits = end.send(result);
        });
        let worker = Worker { language, gates, master, ended };
        worker.wait_for(|report| matches!(report, Report::Serving { .. }));
        worker
    }

    fn wait_for(&self, wanted: impl Fn(&Report) -> bool) {
        loop {
            let mut waits = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
            let count = poll(&mut waits, PollTimeout::try_from(TEST_TIMEOUT).expect("a short time")).expect("polled");
            assert!(count > 0, "the worker says nothing");
            match message::receive::<Report>(self.master.as_fd()) {
                Ok(Received::Message(report, _)) if wanted(&report) => return,
                Ok(Received::Message(..) | Received::Nothing) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A TCP client: with a pair of UNIX sockets, each read of the client would wake the worker's poll.
    fn client(&self) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (far, _) = listener.accept().expect("accepted");
        far.set_nonblocking(true).expect("set");
        near.set_read_timeout(Some(TEST_TIMEOUT)).expect("set");
        message::send(self.master.as_fd(), &Order::Serve { listener: HTTP }, Some(far.as_raw_fd())).expect("ordered");
        near
    }

    /// Stops the worker normally.
    fn end(self) {
        self.order_to_drain();
        self.assert_ends();
    }

    fn order_to_drain(&self) {
        message::send(self.master.as_fd(), &Order::Drain { has_successors: false }, None).expect("ordered");
    }

    /// Asserts that it ends as ordered: everything is answered, every thread has released the language, and no event had to be
    /// found by the clock.
    fn assert_ends(self) {
        self.ended.recv_timeout(TEST_TIMEOUT).expect("the worker exits").expect("well");
        assert_eq!(self.language.interpreter.balance(), (0, 0));
        self.language.interpreter.acquire();
        self.language.interpreter.release();
        assert!(!log().contains("internal error"), "{}", log());
    }
}

fn ask(mut client: &TcpStream, target: &str) {
    client.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).expect("sent");
}

/// Waits for the answer to this target.
fn hear(mut client: &TcpStream, target: &str) {
    let wanted = format!("GET {target}\n");
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(wanted.as_bytes()) {
        client.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {}", String::from_utf8_lossy(&received)));
        received.push(byte[0]);
    }
}

#[test]
fn a_call_that_blocks_keeps_no_other_client_waiting() {
    for threads in ["2", "4", "auto"] {
        let worker = Worker::start(threads);
        let (slow, quick) = (worker.client(), worker.client());
        for gate in ["one", "two", "three"] {
            let target = format!("/slow/{gate}");
            ask(&slow, &target);
            worker.gates.wait_for_arrival(gate);
            for _ in 0..10 {
                ask(&quick, "/echo");
                hear(&quick, "/echo");
            }
            worker.gates.open(gate);
            hear(&slow, &target);
        }
        drop((slow, quick));
        worker.end();
    }
}

#[test]
fn events_of_a_connection_in_a_call_are_handled_when_the_call_returns() {
    for threads in ["2", "3"] {
        let worker = Worker::start(threads);
        let (slow, quick) = (worker.client(), worker.client());
        for round in 0..20 {
            let gate = format!("gate-{round}");
            ask(&slow, &format!("/slow/{gate}"));
            worker.gates.wait_for_arrival(&gate);
            // The poll reports this event before later ones: it belongs to a connection that is in a call, and is reported once.
            ask(&slow, "/echo/next");
            ask(&quick, "/echo");
            hear(&quick, "/echo");
            worker.gates.open(&gate);
            hear(&slow, &format!("/slow/{gate}"));
            hear(&slow, "/echo/next");
        }
        drop((slow, quick));
        worker.end();
    }
}

#[test]
fn every_thread_may_be_blocked_and_all_go_on() {
    for threads in ["3", "auto"] {
        let worker = Worker::start(threads);
        let clients: Vec<TcpStream> = (0..3).map(|_| worker.client()).collect();
        for (number, client) in clients.iter().enumerate() {
            ask(client, &format!("/slow/{number}"));
        }
        for number in 0..clients.len() {
            worker.gates.wait_for_arrival(&number.to_string());
        }
        let late = worker.client();
        ask(&late, "/echo");
        for (number, client) in clients.iter().enumerate().rev() {
            worker.gates.open(&number.to_string());
            hear(client, &format!("/slow/{number}"));
        }
        hear(&late, "/echo");
        drop((clients, late));
        worker.end();
    }
}

#[test]
fn a_call_that_keeps_the_language_ends_and_all_are_answered() {
    let worker = Worker::start("2");
    let (busy, other) = (worker.client(), worker.client());
    ask(&busy, "/busy/gate");
    worker.gates.wait_for_arrival("gate");
    ask(&other, "/echo");
    ask(&busy, "/echo/next");
    worker.gates.open("gate");
    hear(&busy, "/busy/gate");
    hear(&busy, "/echo/next");
    hear(&other, "/echo");
    drop((busy, other));
    worker.end();
}

/// Requests an answer that the worker makes without the application, and reads it.
fn have_own_answers(mut client: &TcpStream) {
    for (target, fields, status) in [("/files/own.txt", "", "200"), ("/gone", "X-Other: 1\r\n", "410")] {
        client.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes()).expect("sent");
        let mut line = [0; "HTTP/1.1 200".len()];
        client.read_exact(&mut line).unwrap_or_else(|error| panic!("{error} in place of {target}"));
        assert_eq!(String::from_utf8_lossy(&line), format!("HTTP/1.1 {status}"));
        let mut rest = String::new();
        let mut byte = [0];
        while !rest.contains("\r\n\r\n") {
            client.read_exact(&mut byte).expect("the rest of the head");
            rest.push(char::from(byte[0]));
        }
        let (_, length) = rest.split_once("Content-Length: ").expect("a length");
        let length = length.lines().next().and_then(|length| length.parse().ok()).expect("a number");
        client.read_exact(&mut vec![0; length]).expect("the body");
    }
}

#[test]
fn files_and_routes_wait_for_no_thread_that_has_the_language() {
    // With three threads, one holds the language and one waits for it; with fewer, no thread may be waiting.
    for (threads, waiting) in [("2", 0), ("3", 1), ("auto", 0)] {
        let worker = Worker::with_own_answers(threads);
        let (busy, known, late) = (worker.client(), worker.client(), worker.client());
        ask(&known, "/echo");
        hear(&known, "/echo");
        ask(&busy, "/busy/gate");
        worker.gates.wait_for_arrival("gate");
        let waiting: Vec<TcpStream> = (0..waiting).map(|_| worker.client()).collect();
        for client in &waiting {
            ask(client, "/echo");
        }
        for _ in 0..10 {
            have_own_answers(&late);
        }
        worker.gates.open("gate");
        hear(&busy, "/busy/gate");
        for client in &waiting {
            hear(client, "/echo");
        }
        drop((busy, known, late, waiting));
        worker.end();
    }
}

#[test]
fn a_memo_of_a_connection_is_dropped_by_a_thread_that_holds_the_language() {
    for threads in ["2", "3"] {
        let worker = Worker::with_own_answers(threads);
        let (busy, watch) = (worker.client(), worker.client());
        for gate in ["one", "two"] {
            let known: Vec<TcpStream> = (0..10).map(|_| worker.client()).collect();
            for client in &known {
                // The second time, its header block is known and its memo is used.
                for _ in 0..2 {
                    ask(client, "/echo");
                    hear(client, "/echo");
                }
            }
            let target = format!("/busy/{gate}");
            ask(&busy, &target);
            worker.gates.wait_for_arrival(gate);
            // Another header block replaces the known one, or the client disconnects.
            known[..5].iter().for_each(have_own_answers);
            drop(known);
            have_own_answers(&watch);
            worker.gates.open(gate);
            hear(&busy, &target);
        }
        drop((busy, watch));
        worker.end();
    }
}

#[test]
fn a_suspended_answer_is_given_back_by_a_thread_that_holds_the_language_when_its_client_disconnects() {
    let worker = Worker::with_own_answers("3");
    let (busy, slow, watch) = (worker.client(), worker.client(), worker.client());
    ask(&slow, "/stream/1000/65536");
    // The answer has begun: most of it waits for this client.
    let mut some = [0; 64];
    (&slow).read_exact(&mut some).expect("the answer begins");
    ask(&busy, "/busy/gate");
    worker.gates.wait_for_arrival("gate");
    drop(slow);
    have_own_answers(&watch);
    worker.gates.open("gate");
    hear(&busy, "/busy/gate");
    drop((busy, watch));
    worker.end();
}

#[test]
fn a_drain_in_the_middle_of_a_call_waits_for_its_answer() {
    let worker = Worker::start("2");
    let slow = worker.client();
    ask(&slow, "/slow/gate");
    worker.gates.wait_for_arrival("gate");
    worker.order_to_drain();
    worker.gates.open("gate");
    hear(&slow, "/slow/gate");
    drop(slow);
    // It may have ended already, and then it does not take orders any more.
    worker.assert_ends();
}
