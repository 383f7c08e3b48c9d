//! Reads of a slot by the master and tools while a thread writes it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_models::explore;
use bolide_models::slot::{Seen, Slot};
use loom::sync::Arc;

/// Two consecutive requests of a slot: time, limit and text of each. The texts take two words of memory, and the second one is
/// shorter.
const REQUESTS: [(u64, u32, &str); 2] = [(5, 0, "GET /first"), (5, 9, "PUT /next")];

fn serve(slot: &Slot) {
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
        let slot = Arc::new(Slot::default());
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || serve(&slot)
        });
        if let Some(seen) = slot.look() {
            assert!(is_one_of_them(&seen), "{seen:?}");
        }
        assert!(writer.join().is_ok());
        assert_eq!(slot.look(), None, "nothing is in flight");
    });
}

#[test]
fn a_stuck_request_is_seen_by_a_later_reader() {
    explore(|| {
        let slot = Arc::new(Slot::default());
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || slot.begin(7, &[b"GET ", b"/stuck"])
        });
        assert!(writer.join().is_ok());
        assert_eq!(slot.look(), Some(Seen { began_ms: 7, count: 1, limit_ms: 0, text: "GET /stuck".to_owned() }));
    });
}

#[test]
fn a_request_that_begins_where_the_last_one_said_no_end_is_not_mixed_with_it() {
    explore(|| {
        let slot = Arc::new(Slot::default());
        slot.begin(5, &[b"GET /first"]);
        let writer = loom::thread::spawn({
            let slot = slot.clone();
            move || slot.begin(5, &[b"PUT /next"])
        });
        if let Some(seen) = slot.look() {
            assert!([(1, "GET /first"), (2, "PUT /next")].contains(&(seen.count, seen.text.as_str())), "{seen:?}");
        }
        assert!(writer.join().is_ok());
    });
}
