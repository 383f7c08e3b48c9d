//! Reads of a slot by the master and tools while a thread writes it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_models::explore;
use bolide_models::slot::{End, Entry, Phase, Recorder, Remembered, Seen, Slot, TRACE_BYTES};
use loom::sync::Arc;

/// Two consecutive requests of a slot: time, limit and text of each. The texts take two words of memory, and the second one is
/// shorter.
const REQUESTS: [(u64, u32, &str); 2] = [(5, 0, "GET /first"), (5, 9, "PUT /next")];

/// A slot and its ring of two entries.
#[derive(Default)]
struct Memory {
    slot: Slot,
    ring: [Entry; 2],
}

impl Memory {
    fn recorder(&self) -> Recorder<'_> {
        match Recorder::new(&self.slot, &self.ring) {
            Some(recorder) => recorder,
            None => unreachable!("the ring has entries"),
        }
    }
}

fn serve(slot: Recorder<'_>) {
    for (began_ms, limit_ms, text) in REQUESTS {
        if limit_ms > 0 {
            slot.limit_ms.store(limit_ms, Relaxed);
        }
        slot.begin(began_ms, &[text.as_bytes()]);
        slot.end();
        if limit_ms > 0 {
            slot.limit_ms.store(0, Relaxed);
        }
    }
}

fn is_one_of_them(seen: &Seen) -> bool {
    (1..).zip(REQUESTS).any(|(count, (began_ms, limit_ms, text))| {
        (seen.count, seen.began_ms, seen.limit_ms, seen.text.as_str()) == (count, began_ms, limit_ms, text)
    })
}

#[test]
fn a_request_in_flight_is_never_seen_with_half_of_anothers_text_number_or_limit() {
    explore(|| {
        let slot = Arc::new(Memory::default());
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || serve(slot.recorder())
        });
        if let Some(seen) = slot.recorder().look() {
            assert!(is_one_of_them(&seen), "{seen:?}");
        }
        assert!(writer.join().is_ok());
        assert_eq!(slot.recorder().look(), None, "nothing is in flight");
    });
}

#[test]
fn a_stuck_request_is_seen_by_a_later_reader() {
    explore(|| {
        let slot = Arc::new(Memory::default());
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || {
                slot.recorder().begin(7, &[b"GET ", b"/stuck"]);
            }
        });
        assert!(writer.join().is_ok());
        assert_eq!(
            slot.recorder().look(),
            Some(Seen { began_ms: 7, count: 1, limit_ms: 0, text: "GET /stuck".to_owned(), identifier: String::new() })
        );
    });
}

#[test]
fn a_request_that_begins_where_the_last_one_said_no_end_is_not_mixed_with_it() {
    explore(|| {
        let slot = Arc::new(Memory::default());
        slot.recorder().begin(5, &[b"GET /first"]);
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || {
                slot.recorder().begin(5, &[b"PUT /next"]);
            }
        });
        if let Some(seen) = slot.recorder().look() {
            assert!([(1, "GET /first"), (2, "PUT /next")].contains(&(seen.count, seen.text.as_str())), "{seen:?}");
        }
        assert!(writer.join().is_ok());
    });
}

#[test]
fn a_remembered_request_never_has_the_text_time_or_end_of_another_one() {
    const TEXTS: [&str; 3] = ["GET /first", "PUT /2", "GET /3"];
    explore(|| {
        let slot = Arc::new(Memory::default());
        let serve = |recorder: Recorder<'_>, number: usize| {
            let begun = recorder.begin(number as u64, &[TEXTS[number - 1].as_bytes()]);
            recorder.leave();
            recorder.complete(begun, End { status: number as u16, microseconds: number as u64 });
        };
        serve(slot.recorder(), 1);
        serve(slot.recorder(), 2);
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || serve(slot.recorder(), 3)
        });
        let is_whole = |seen: &Remembered| {
            let number = seen.number as usize;
            let end = End { status: number as u16, microseconds: number as u64 };
            seen.text == TEXTS[number - 1] && seen.began_ms == seen.number && seen.end.is_none_or(|found| found == end)
        };
        let seen = slot.recorder().remembered();
        assert!(seen.iter().all(is_whole), "{seen:?}");
        assert!(writer.join().is_ok());
        let last = slot.recorder().remembered();
        assert!(last.len() == 2 && last.iter().all(|seen| is_whole(seen) && seen.end.is_some()), "{last:?}");
    });
}

#[test]
fn a_remembered_request_never_has_half_of_a_place_in_a_trace_and_never_that_of_another_one() {
    explore(|| {
        let slot = Arc::new(Memory::default());
        let serve = |recorder: Recorder<'_>, number: u8| {
            let begun = recorder.begin(1, &[b"GET /"]);
            recorder.trace(begun, &[number; TRACE_BYTES]);
            recorder.leave();
        };
        serve(slot.recorder(), 1);
        slot.recorder().begin(1, &[b"GET /"]);
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || serve(slot.recorder(), 3)
        });
        // Its entry is that of the first one; the second one has no trace.
        let is_own = |seen: &Remembered| seen.trace.is_none_or(|trace| trace == [seen.number as u8; TRACE_BYTES]);
        let seen = slot.recorder().remembered();
        assert!(seen.iter().all(is_own), "{seen:?}");
        assert!(writer.join().is_ok());
        let last = slot.recorder().remembered();
        let traced: Vec<bool> = last.iter().map(|seen| seen.trace.is_some()).collect();
        assert!(traced == [false, true] && last.iter().all(is_own), "{last:?}");
    });
}

#[test]
fn a_phase_is_never_that_of_another_request_and_never_an_end() {
    explore(|| {
        let slot = Arc::new(Memory::default());
        let old = slot.recorder().begin(1, &[b"GET /old"]);
        slot.recorder().leave();
        slot.recorder().begin(2, &[b"GET /b"]);
        slot.recorder().leave();
        let other = loom::thread::spawn({
            let slot = slot.clone();
            move || slot.recorder().enter_phase(old, Phase::Sending)
        });
        // Its entry is that of the old one.
        let new = slot.recorder().await_call(3, &[b"PUT /new"], Phase::Body);
        let seen = slot.recorder().remembered();
        assert!(seen.iter().all(|seen| seen.end.is_none() && (seen.number == old || seen.phase != Phase::Sending)), "{seen:?}");
        assert!(other.join().is_ok());
        assert!(slot.recorder().resume(new, 4));
        let seen = slot.recorder().remembered();
        assert!(seen.iter().all(|seen| seen.end.is_none() && seen.phase == Phase::Application), "{seen:?}");
    });
}

#[test]
fn an_end_that_another_thread_records_late_is_never_the_end_of_a_newer_request() {
    explore(|| {
        let slot = Arc::new(Memory::default());
        let old = slot.recorder().begin(1, &[b"GET /old"]);
        slot.recorder().begin(2, &[b"GET /b"]);
        let other = loom::thread::spawn({
            let slot = slot.clone();
            move || slot.recorder().complete(old, End { status: 500, microseconds: 9 })
        });
        // Its entry is that of the old one.
        slot.recorder().begin(3, &[b"GET /new"]);
        assert!(other.join().is_ok());
        let seen = slot.recorder().remembered();
        assert!(seen.iter().any(|seen| seen.text == "GET /new" && seen.end.is_none()), "{seen:?}");
    });
}
