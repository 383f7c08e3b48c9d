//! Time as a worker sees it, on a clock that the tests advance by hand: calls of the application take minutes here, and no test
//! waits for them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bolide_contract::clock::{advance_thread_clock, now_ms};
use bolide_scoreboard::Slot;
use bolide_testing::gates::Events;
use bolide_testing::harness::{Client, Harness};
use bolide_testing::language::TestLanguage;

/// A call that takes as long as the test says.
const SLOW: &[u8] = b"GET /busy/call HTTP/1.1\r\nHost: h\r\n\r\n";
const QUICK: &[u8] = b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";

/// A worker whose slow calls take this many milliseconds each.
fn slow(call_ms: u64, options: &[&str]) -> Harness<TestLanguage> {
    Harness::new(TestLanguage::new(Arc::new(Events(move |_: &str| advance_thread_clock(call_ms)))), options)
}

/// This many clients, which send their requests at the same moment, as in a burst.
fn burst(worker: &mut Harness<TestLanguage>, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| worker.client()).collect();
    for client in &mut clients {
        client.send(SLOW);
    }
    clients
}

#[test]
fn the_time_of_a_call_begins_with_the_call_and_not_with_the_burst_that_brought_it() {
    static SLOT: OnceLock<&'static Slot> = OnceLock::new();
    let ages: Arc<Mutex<Vec<u64>>> = Arc::default();
    let noted = ages.clone();
    let mut worker = Harness::new(
        TestLanguage::new(Arc::new(Events(move |_: &str| {
            let began_ms = SLOT.get().map_or(0, |slot| slot.began_ms.load(Relaxed));
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(now_ms().saturating_sub(began_ms));
            advance_thread_clock(60_000);
        }))),
        &[],
    );
    SLOT.get_or_init(|| &worker.slots[0]);
    let clients = burst(&mut worker, 20);
    worker.settle();
    let ages = ages.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(ages.len(), clients.len());
    // The ages that harakiri checks: a call that begins has an age of 0.
    assert!(ages.iter().all(|age| *age < 60_000), "{ages:?}");
}

#[test]
fn requests_that_follow_one_another_on_a_connection_have_a_time_each() {
    let mut worker = slow(60_000, &[]);
    let mut client = worker.client();
    client.send(&SLOW.repeat(3));
    worker.settle();
    assert_eq!(dates(&mut client).len(), 3);
}

/// The different dates of the answers so far.
fn dates(client: &mut Client) -> Vec<String> {
    let answers = String::from_utf8(client.received()).expect("text");
    let mut dates: Vec<String> = answers.lines().filter(|line| line.starts_with("Date: ")).map(str::to_owned).collect();
    dates.dedup();
    dates
}

#[test]
fn the_date_of_an_answer_is_that_of_its_own_call() {
    let mut worker = slow(60_000, &[]);
    let mut clients = burst(&mut worker, 12);
    worker.settle();
    let mut all: Vec<String> = clients.iter_mut().flat_map(dates).collect();
    all.dedup();
    assert_eq!(all.len(), 12);
}

#[test]
fn a_connection_is_kept_its_whole_time_after_an_answer_that_others_waited_for() {
    let mut worker = slow(400, &["--http-keepalive=4"]);
    let clients = burst(&mut worker, 20);
    worker.settle();
    // Eight seconds have passed for the first of them too: its time began with its answer.
    worker.pass(0);
    let kept = worker.connections();
    assert!((10..20).contains(&kept), "those that were answered in the last four seconds, of {kept}");
    for _ in 0..9 {
        worker.pass(400);
    }
    assert!(worker.connections() >= 1, "the last one has had its answer 3.6 s ago");
    worker.pass(800);
    assert_eq!(worker.connections(), 0);
    drop(clients);
}

#[test]
fn an_idle_connection_ends_in_its_time_and_not_before() {
    let mut worker = slow(0, &["--http-keepalive=3600"]);
    let mut client = worker.client();
    client.send(QUICK);
    worker.settle();
    worker.pass(3_599_000);
    assert_eq!(worker.connections(), 1);
    client.send(QUICK);
    worker.settle();
    worker.pass(3_599_000);
    assert_eq!(worker.connections(), 1, "each answer begins it again");
    worker.pass(2_000);
    assert_eq!(worker.connections(), 0);
}

#[test]
fn a_body_that_waited_behind_other_calls_has_its_whole_time() {
    let mut worker = slow(2_000, &["--socket-timeout", "4"]);
    let mut sender = worker.client();
    let mut others = burst(&mut worker, 4);
    sender.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
    worker.settle();
    worker.pass(1_500);
    sender.send(b"dy");
    worker.settle();
    let answer = String::from_utf8(sender.received()).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(others.iter_mut().all(|other| other.received().starts_with(b"HTTP/1.1 200 ")));
}

#[test]
fn a_head_that_drips_has_its_time_as_a_whole() {
    let mut worker = slow(0, &["--socket-timeout", "4"]);
    let mut client = worker.client();
    for byte in b"GET / H" {
        client.send(&[*byte]);
        worker.settle();
        worker.pass(500);
    }
    assert_eq!(worker.connections(), 1);
    worker.pass(1_000);
    assert_eq!(worker.connections(), 0);
    assert!(String::from_utf8(client.received()).expect("text").contains("408"));
}

#[test]
fn a_turn_within_another_loop_begins_no_further_call_behind_a_slow_one() {
    let mut worker = slow(300, &[]);
    let mut clients = burst(&mut worker, 10);
    for answered in 1..=10 {
        assert!(worker.turn(), "there is more to do");
        let answers = clients.iter_mut().map(|client| usize::from(!client.received().is_empty())).sum::<usize>();
        assert_eq!(answers, 1, "of turn {answered}");
    }
}
