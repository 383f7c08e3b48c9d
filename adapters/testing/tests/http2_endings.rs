//! Every stream of HTTP/2 ends, and so does a connection without streams: random sequences of client actions, over several
//! connections of one worker at a time.
//!
//! Time is real and short if a worker must wake by itself. The random sequences advance the clock by hand: however slow the
//! machine is, no limit expires between two of their steps.

use std::time::{Duration, Instant};

use bolide_contract::clock::now_ms;
use bolide_contract::message::Order;
use bolide_contract::tls::Http2;
use bolide_engine::app::Language;
use bolide_testing::harness::{Client, Harness, settings};
use bolide_testing::http2::*;
use bolide_testing::streaming::TestStreams;
use proptest::prelude::*;
use proptest::sample::Index;

/// How long a connection without streams is kept, in milliseconds: short, because a test waits for it.
const KEEPALIVE_MS: u64 = 300;

/// A worker's clock is late by a tick of the kernel (4 ms, or 10 ms) and by the time of one turn: this is the upper bound, on a
/// slow machine too, in milliseconds.
const CLOCK_LATE_MS: u64 = 50;

/// How long a client may take to complete a message, in milliseconds.
const TIMEOUT_MS: u64 = 400;

/// The same limits with the manual clock, and the step by which it is advanced.
const PATIENT_KEEPALIVE_MS: u64 = 1000 * KEEPALIVE_MS;
const PATIENT_TIMEOUT_MS: u64 = 1000 * TIMEOUT_MS;
const TURNED_MS: u64 = PATIENT_KEEPALIVE_MS / 30;

/// When all connections have ended on that clock: a client can keep one for the time of a request and an idle time after it.
const ENDS_MS: u64 = 2 * (PATIENT_KEEPALIVE_MS + PATIENT_TIMEOUT_MS);

/// Concurrent connections of a worker.
const CLIENTS: usize = 12;

const PING_FRAME: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const CANCEL: [u8; 4] = 8u32.to_be_bytes();

fn limited<L: Language>(language: &'static L, keepalive_ms: u64, timeout_ms: u64) -> Harness<L> {
    let mut settings = settings(&[]);
    settings.listeners[0].http2 = Http2::Everywhere;
    settings.limits.keepalive_ms = keepalive_ms;
    settings.listeners[0].timeout_ms = timeout_ms;
    Harness::with_settings(language, settings)
}

fn impatient<L: Language>(language: &'static L) -> Harness<L> {
    limited(language, KEEPALIVE_MS, TIMEOUT_MS)
}

/// The worker closes its connection although the client neither reads nor sends: both would be events of the connection.
fn wait_for_the_end<L: Language>(worker: &mut Harness<L>) {
    worker.wait("the end of a connection of which there is no news", |worker| worker.connections() == 0);
}

#[test]
fn a_connection_whose_last_stream_ends_without_an_event_of_its_client_ends_in_its_time() {
    let language = TestStreams::new();
    let mut worker = impatient(language);
    let mut client = client(&mut worker);
    let mut got = Got::default();
    client.send(&get(1, "/slow/gate"));
    worker.settle();
    let began = Instant::now();
    language.open("gate", &worker.engine);
    worker.settle();
    wait_for_the_end(&mut worker);
    assert!(began.elapsed() >= Duration::from_millis(KEEPALIVE_MS - CLOCK_LATE_MS), "it is kept for a next request");
    got.read(&mut client);
    assert_eq!((got.text(1), got.goaways.as_slice()), ("GET /slow/gate\n", &[1][..]));
}

#[test]
fn frames_that_ask_for_nothing_do_not_keep_a_connection() {
    let mut worker = impatient(TestStreams::new());
    let mut client = client(&mut worker);
    let mut got = Got::default();
    client.send(&get(1, "/echo"));
    worker.settle();
    // Few enough to take less than a minute; every second one is cut.
    let (begun, rest) = PING_FRAME.split_at(5);
    let pieces = [PING_FRAME, begun, rest];
    let (mut sent, mut sent_at) = (0, Instant::now());
    worker.wait("the end of a connection that only chats", |worker| {
        if sent_at.elapsed() > Duration::from_millis(20) {
            let _may_be_closed = client.send_some(pieces[sent % 3]);
            (sent, sent_at) = (sent + 1, Instant::now());
            worker.settle();
        }
        let (bytes, has_ended) = client.receive(64 * 1024);
        got.take(&bytes);
        has_ended
    });
    assert_eq!((got.text(1), got.goaways.as_slice(), got.codes.as_slice()), ("GET /echo\n", &[1][..], &[0][..]));
}

#[test]
fn a_worker_that_drains_ends_with_a_last_stream_whose_client_stays() {
    let language = TestStreams::new();
    let mut worker = impatient(language);
    let mut client = client(&mut worker);
    let mut got = Got::default();
    client.send(&get(1, "/slow/gate"));
    worker.settle();
    worker.order(&Order::Drain { has_successors: false }, None);
    worker.wait("the last frame of the shutdown", |_| {
        got.read(&mut client);
        got.goaways.len() == 2
    });
    worker.settle();
    language.open("gate", &worker.engine);
    worker.wait("the end of a worker that drains", |worker| worker.has_drained());
    got.read(&mut client);
    assert_eq!(got.text(1), "GET /slow/gate\n");
}

/// A client's next action on its connection.
#[derive(Debug, Clone)]
enum Step {
    Get {
        path: &'static str,
    },
    /// An upload, of which this many bytes arrive, and perhaps its end.
    Upload {
        path: &'static str,
        bytes: u16,
        is_whole: bool,
    },
    /// The same with a reset, all in one write.
    Cancelled {
        bytes: u16,
    },
    Reset {
        on: Index,
    },
    End {
        on: Index,
    },
    /// Reads more of an answer.
    Take {
        bytes: u16,
    },
    Chat,
    HalfAFrame,
    /// An answer continues that its application has held back.
    Open {
        gate: usize,
    },
}

const GATES: [&str; 3] = ["a", "b", "c"];
const HELD: [&str; 3] = ["/slow/a", "/slow/b", "/slow/c"];

fn step() -> impl Strategy<Value = Step> {
    let path = || proptest::sample::select(vec!["/echo", "/fail", "/fail/3/1000", "/stream/9/9000", HELD[0], HELD[1], HELD[2]]);
    prop_oneof![
        4 => path().prop_map(|path| Step::Get { path }),
        3 => (path(), any::<u16>(), any::<bool>()).prop_map(|(path, bytes, is_whole)| Step::Upload { path, bytes, is_whole }),
        1 => any::<u16>().prop_map(|bytes| Step::Cancelled { bytes }),
        2 => any::<Index>().prop_map(|on| Step::Reset { on }),
        2 => any::<Index>().prop_map(|on| Step::End { on }),
        2 => any::<u16>().prop_map(|bytes| Step::Take { bytes }),
        1 => Just(Step::Chat),
        1 => Just(Step::HalfAFrame),
        2 => (0..GATES.len()).prop_map(|gate| Step::Open { gate }),
    ]
}

/// A client that obeys the protocol.
struct Peer {
    client: Client,
    got: Got,
    next: u32,
    /// Streams whose body is not complete yet.
    bodies: Vec<u32>,
    /// The rest of a frame that was begun.
    rest: Vec<u8>,
    /// The last time at which a stream was certainly open, on the worker's clock.
    was_busy_ms: u64,
    has_ended: bool,
}

/// DATA frames of a small body.
fn body(number: u32, bytes: u16) -> Vec<u8> {
    frame(DATA, 0, number, &vec![b'x'; usize::from(bytes) % 10_000])
}

impl Peer {
    fn new(worker: &mut Harness<TestStreams>) -> Peer {
        let client = client(worker);
        Peer {
            client,
            got: Got::default(),
            next: 1,
            bodies: Vec::new(),
            rest: Vec::new(),
            was_busy_ms: now_ms(),
            has_ended: false,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let bytes = [std::mem::take(&mut self.rest), bytes.to_vec()].concat();
        // A socket takes all bytes of these few steps; a closed connection takes none.
        let _may_be_closed = self.client.send_some(&bytes);
    }

    fn number(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    fn open(&self) -> Vec<u32> {
        let is_over = |number: &u32| self.got.ended.contains(number) || self.got.reset.contains(number);
        (1..self.next).step_by(2).filter(|number| !is_over(number)).collect()
    }

    fn step(&mut self, step: &Step, worker: &Harness<TestStreams>, language: &TestStreams) {
        match step {
            Step::Get { path } => {
                let number = self.number();
                self.send(&get(number, path));
            }
            Step::Upload { path, bytes, is_whole } => {
                let number = self.number();
                let end = if *is_whole { frame(DATA, END_STREAM, number, b"") } else { Vec::new() };
                self.send(&[post(number, path), body(number, *bytes), end].concat());
                if !is_whole {
                    self.bodies.push(number);
                }
            }
            Step::Cancelled { bytes } => {
                let number = self.number();
                self.send(&[post(number, "/echo"), body(number, *bytes), frame(RST_STREAM, 0, number, &CANCEL)].concat());
                self.got.reset.push(number);
            }
            Step::Reset { on } => {
                let open = self.open();
                if !open.is_empty() {
                    self.reset(open[on.index(open.len())]);
                }
            }
            Step::End { on } => {
                if !self.bodies.is_empty() {
                    let number = self.bodies.swap_remove(on.index(self.bodies.len()));
                    self.send(&frame(DATA, END_STREAM, number, b""));
                }
            }
            Step::Take { bytes } => self.send(&window(0, u32::from(*bytes) + 1)),
            Step::Chat => self.send(&[PING_FRAME, &frame(SETTINGS, 0, 0, b"")].concat()),
            Step::HalfAFrame => {
                let (begun, rest) = PING_FRAME.split_at(5);
                self.send(begun);
                self.rest = rest.to_vec();
            }
            Step::Open { gate } => drop(language.open(GATES[*gate], &worker.engine)),
        }
    }

    fn reset(&mut self, number: u32) {
        self.send(&frame(RST_STREAM, 0, number, &CANCEL));
        self.bodies.retain(|body| *body != number);
        self.got.reset.push(number);
    }

    fn read(&mut self) {
        let (bytes, has_ended) = self.client.receive(1 << 20);
        self.got.take(&bytes);
        self.has_ended |= has_ended;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4, failure_persistence: None, ..ProptestConfig::with_cases(6) })]
    #[test]
    fn every_stream_ends_and_every_idle_connection_in_its_time(
        walks in proptest::collection::vec(proptest::collection::vec(step(), 1..25), CLIENTS),
        resets in any::<bool>(),
    ) {
        let language = TestStreams::new();
        let mut worker = limited(language, PATIENT_KEEPALIVE_MS, PATIENT_TIMEOUT_MS);
        let mut peers: Vec<Peer> = (0..CLIENTS).map(|_| Peer::new(&mut worker)).collect();
        for round in 0..25 {
            for (peer, walk) in peers.iter_mut().zip(&walks) {
                let Some(step) = walk.get(round) else { continue };
                // Another client's step may have ended the last stream, and then the idle time of the connection has begun.
                peer.read();
                if !peer.open().is_empty() {
                    peer.was_busy_ms = now_ms();
                }
                peer.step(step, &worker, language);
                worker.settle();
                peer.read();
            }
        }
        // The last frames of the clients, and the end of answers that applications hold back.
        for peer in &mut peers {
            peer.read();
            let open = peer.open();
            if !open.is_empty() {
                peer.was_busy_ms = now_ms();
            }
            peer.send(&window(0, 1 << 24));
            for number in open {
                if resets {
                    peer.reset(number);
                    continue;
                }
                peer.send(&window(number, 1 << 24));
                if peer.bodies.contains(&number) {
                    peer.send(&frame(DATA, END_STREAM, number, b""));
                }
            }
        }
        for gate in GATES {
            worker.settle();
            language.open(gate, &worker.engine);
        }
        // A socket takes fewer bytes than all answers have.
        while worker.settle() > 0 {
            peers.iter_mut().for_each(Peer::read);
        }
        prop_assert_eq!(language.going_on(), 0, "no stream is left to its application");
        prop_assert!(worker.connections() as usize <= CLIENTS, "nor in the table");
        let until_ms = now_ms() + ENDS_MS;
        while !peers.iter().all(|peer| peer.has_ended) {
            prop_assert!(now_ms() < until_ms, "all connections end");
            worker.pass(TURNED_MS);
            for peer in &mut peers {
                let had_ended = peer.has_ended;
                peer.read();
                if peer.has_ended && !had_ended {
                    let kept_ms = now_ms() - peer.was_busy_ms;
                    prop_assert!(kept_ms >= PATIENT_KEEPALIVE_MS - CLOCK_LATE_MS, "closed after {kept_ms} ms");
                }
            }
        }
        for peer in &peers {
            prop_assert_eq!(peer.open(), [0; 0], "each stream has been told its end");
        }
        drop(peers);
        worker.settle();
        prop_assert_eq!(worker.connections(), 0);
    }
}
