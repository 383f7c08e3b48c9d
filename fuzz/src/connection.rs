//! A whole connection of a worker with the test language: the client's bytes are sent, in pieces that the input chooses, to the
//! real engine over a socket pair. The first byte of an input selects the behavior of the client ([`Client`]), the second how
//! the rest is split.

use std::cell::RefCell;
use std::sync::Arc;

use bolide_engine::app::Language;
use bolide_testing::gates::Events;
use bolide_testing::harness::{HTTP, Harness, UWSGI, discard_log};
use bolide_testing::interpreter::Interpreter;
use bolide_testing::language::TestLanguage;
use bolide_testing::replies::{Reply, replies};
use bolide_testing::streaming::TestStreams;

use crate::mutate::Chance;
use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target {
    name: "connection",
    check,
    seeds,
    words: &[
        b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        b"HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"/stream/3/30000",
        b"/fail/2/10",
        b"/slow/x",
        b"/short",
        b"Transfer-Encoding: chunked\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Upgrade: websocket\r\n",
        b" HTTP/1.0\r\n",
        b"\r\n\r\n",
        b"\x0e\0REQUEST_METHOD\x04\0POST",
        b"\x09\0PATH_INFO\x05\0/echo",
        b"\x81\x85\0\0\0\0hello",
    ],
};

/// Limits of the worker for heads and bodies, in bytes.
const OPTIONS: [&str; 6] = ["--buffer-size", "4096", "--limit-post", "20000", "--post-buffering", "1000"];

/// Send buffer of the worker's socket for a slow client, in bytes.
const LITTLE_ROOM: usize = 4 * 1024;

/// Bytes that a slow client reads at a time.
const SIP_BYTES: usize = 3_000;

/// How often a client looks for a missing answer while nothing arrives.
const MAX_LOOKS: u32 = 3;

/// Limit for the growth of the process over all inputs together, in pages of 4 KiB: a leak of a few bytes a connection soon
/// exceeds it.
const MAX_GROWTH_PAGES: u64 = 64 * 256;

/// Inputs between two checks of the process size.
const LOOK_INPUTS: u32 = 256;

/// The behavior of a client.
struct Client {
    listener: u32,
    /// The application holds its requests, as an asynchronous one does.
    streams: bool,
    is_slow: bool,
    /// It closes before it has read anything.
    goes: bool,
}

/// A worker that lives as long as its thread, and its interpreter.
struct Served<L: Language> {
    worker: Harness<L>,
    interpreter: &'static Interpreter,
}

thread_local! {
    static CALLED: RefCell<Option<Served<TestLanguage>>> = const { RefCell::new(None) };
    static STREAMED: RefCell<Option<Served<TestStreams>>> = const { RefCell::new(None) };
    /// Inputs of this thread, and the pages of the process when they began.
    static GROWTH: RefCell<(u32, u64)> = const { RefCell::new((0, 0)) };
}

fn check(input: &[u8]) -> Result<Kind, String> {
    let [first, cut, sent @ ..] = input else { return Ok(Kind::of("nothing")) };
    if sent.windows(5).any(|window| window == b"leave") {
        // The application would end the worker.
        return Ok(Kind::of("nothing"));
    }
    let client = Client {
        listener: if first & 1 == 0 { HTTP } else { UWSGI },
        streams: first & 2 != 0,
        is_slow: first & 4 != 0,
        goes: first & 8 != 0,
    };
    check_growth()?;
    if client.streams {
        return STREAMED.with_borrow_mut(|served| {
            let served = served.get_or_insert_with(|| {
                let language = TestStreams::new();
                served_by(language, language.interpreter)
            });
            let (found, calls) = talk(served, &client, sent, *cut)?;
            kind_of(&client, &found, &calls)
        });
    }
    CALLED.with_borrow_mut(|served| {
        let served = served.get_or_insert_with(|| {
            let language = TestLanguage::new(Arc::new(Events(|_: &str| {})));
            served_by(language, language.interpreter)
        });
        let (found, calls) = talk(served, &client, sent, *cut)?;
        if !client.goes {
            let whole = talk(served, &client, sent, 0)?;
            ensure!(whole.1 == calls, "cut, {calls:?} were called, and whole {:?}", whole.1);
            // Bytes that are refused may be refused before the end of their head, or not at all if the client closes before.
            let answers = |received: &[u8]| answers_to(&client, received, &calls);
            ensure!(
                answers(&whole.0)? == answers(&found)?,
                "cut, the answers are {}, and whole {}",
                found.escape_ascii(),
                whole.0.escape_ascii()
            );
        }
        kind_of(&client, &found, &calls)
    })
}

fn served_by<L: Language>(language: &'static L, interpreter: &'static Interpreter) -> Served<L> {
    discard_log();
    Served { worker: Harness::new(language, &OPTIONS), interpreter }
}

/// The received bytes, and the calls of the application. The error is a broken invariant.
fn talk<L: Language>(served: &mut Served<L>, how: &Client, sent: &[u8], cut: u8) -> Result<(Vec<u8>, Vec<Vec<u8>>), String> {
    let Served { worker, interpreter } = served;
    let mut client = worker.client_of(how.listener, how.is_slow.then_some(LITTLE_ROOM));
    let mut chance = Chance::new(cut.into());
    let mut received = Vec::new();
    let mut left = sent;
    let mut is_open = true;
    let mut waits = 0;
    while !left.is_empty() && is_open && waits < MAX_LOOKS {
        let piece = if cut == 0 { left.len() } else { 1 + chance.below(left.len()) };
        match client.send_some(&left[..piece]) {
            Some(0) => waits += 1,
            Some(count) => (left, waits) = (&left[count..], 0),
            None => is_open = false,
        }
        worker.settle();
        if !how.goes {
            received.extend(client.receive(if how.is_slow { SIP_BYTES } else { usize::from(u16::MAX) }).0);
            worker.settle();
        }
    }
    if how.goes {
        drop(client);
    } else {
        let _is_closed_already = client.stream.shutdown(std::net::Shutdown::Write);
        let mut looks = 0;
        while looks < MAX_LOOKS {
            worker.settle();
            let (bytes, has_ended) = client.receive(if how.is_slow { SIP_BYTES } else { usize::from(u16::MAX) });
            looks = if bytes.is_empty() { looks + 1 } else { 0 };
            received.extend(bytes);
            if has_ended {
                break;
            }
        }
        ensure!(looks < MAX_LOOKS, "neither an answer nor a close after {} bytes", received.len());
        drop(client);
    }
    worker.settle();
    ensure!(worker.connections() == 0, "the connection is not over");
    let (kept, faults) = interpreter.balance();
    ensure!((kept, faults) == (0, 0), "{kept} answers or exchanges are left with the engine, {faults} times it broke its word");
    Ok((received, interpreter.take_calls()))
}

/// Each request has one answer, in order. One refusal may follow them.
fn kind_of(how: &Client, received: &[u8], calls: &[Vec<u8>]) -> Result<Kind, String> {
    if how.goes {
        return Ok(Kind::of(("gone", calls.len().min(4))));
    }
    if how.listener == UWSGI {
        ensure!(calls.len() <= 1, "{} calls for one packet", calls.len());
        return Ok(Kind::of(("uwsgi", how.streams, received.get(..12).map(<[u8]>::to_vec), calls.len())));
    }
    if received.windows(34).any(|window| window == b"HTTP/1.1 101 Switching Protocols\r\n") {
        return Ok(Kind::of(("websocket", calls.len().min(4))));
    }
    let found = all_answers(received, calls)?;
    let most = calls.len() + 1;
    ensure!((calls.len()..=most).contains(&found.len()), "{} answers to {} calls", found.len(), calls.len());
    for (number, reply) in found.iter().enumerate() {
        ensure!(reply.is_whole || number + 1 == found.len(), "an answer that is not whole, and others behind it");
        let is_echo = reply.status == 200
            && !reply.body.is_empty()
            && calls[number].split(|byte| *byte == b' ').nth(1).is_some_and(|target| target.starts_with(b"/echo"));
        ensure!(!is_echo || reply.body.starts_with(&calls[number]), "answer {number} is that of another request");
    }
    let statuses: Vec<(u16, bool)> = found.iter().take(4).map(|reply| (reply.status, reply.is_whole)).collect();
    Ok(Kind::of((how.streams, statuses, calls.len().min(4))))
}

/// The answers of the application, without parts that depend on timing: the header fields, and interim responses (100 Continue).
fn answers_to(how: &Client, received: &[u8], calls: &[Vec<u8>]) -> Result<Vec<Reply>, String> {
    if how.listener == UWSGI {
        let lines = received.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"Date: "));
        let body = lines.flatten().copied().collect();
        return Ok(if calls.is_empty() { Vec::new() } else { vec![Reply { status: 0, body, is_whole: true }] });
    }
    let mut found = all_answers(received, calls)?;
    found.truncate(calls.len());
    Ok(found)
}

fn all_answers(received: &[u8], calls: &[Vec<u8>]) -> Result<Vec<Reply>, String> {
    replies(received, |number| calls.get(number).is_some_and(|line| line.starts_with(b"HEAD ")))
}

fn check_growth() -> Result<(), String> {
    GROWTH.with_borrow_mut(|(inputs, first)| {
        *inputs += 1;
        if *inputs % LOOK_INPUTS != 0 {
            return Ok(());
        }
        let pages = resident_pages();
        if *first == 0 {
            *first = pages;
        }
        ensure!(pages < *first + MAX_GROWTH_PAGES, "the process has grown from {first} to {pages} pages in {inputs} connections");
        Ok(())
    })
}

fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn seeds() -> Vec<Vec<u8>> {
    let http: [&[u8]; 16] = [
        b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /echo/1 HTTP/1.1\r\nHost: h\r\n\r\nGET /echo/2 HTTP/1.1\r\nHost: h\r\n\r\nGET /fields HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloHEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /none HTTP/1.1\r\n\
        Host: h\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
        b"POST /slow/x HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\nhello",
        b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /stream/3/30000 HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /stream/20/20000 HTTP/1.0\r\n\r\n",
        b"GET /fail HTTP/1.1\r\nHost: h\r\n\r\nGET /fail/2/1000 HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /short HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /long HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /echo HTTP/1.1\r\n\r\n",
        b"\r\n\r\nGET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /slow/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
        \r\nGET",
        b"GET http://h:80/echo?a=%41 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /socket HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x85\0\0\0\0hello\x88\x80\0\0\0\0",
    ];
    let uwsgi: [&[u8]; 3] =
        [b"\0\x28\0\0\x0e\0REQUEST_METHOD\x04\0POST\x09\0PATH_INFO\x05\0/echo", b"\0\0\0\0", b"\x01\xff\xff\0\x01\0A\0\0"];
    let mut seeds = Vec::new();
    for behavior in (0..16).step_by(2) {
        seeds.extend(http.iter().map(|sent| [&[behavior, behavior * 3], *sent].concat()));
        seeds.extend(uwsgi.iter().map(|sent| [&[behavior + 1, behavior * 3], *sent].concat()));
    }
    seeds
}
