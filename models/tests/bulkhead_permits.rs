//! Permits of a bulkhead that workers take and release at the same moment, and requests that wait for one.

use bolide_models::bulkhead_permits::{Holder, Permits};
use bolide_models::explore;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

struct Words {
    permits: Vec<AtomicU64>,
    places: Vec<AtomicU64>,
    marks: Vec<AtomicU64>,
}

impl Words {
    fn new(permits: usize, places: usize) -> Arc<Words> {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Words { permits: zeros(permits), places: zeros(places), marks: zeros(1) })
    }

    fn permits(&self) -> Permits<'_> {
        Permits { permits: &self.permits, places: &self.places, marks: &self.marks }
    }
}

fn holder(row: u16) -> Holder {
    Holder { row, pid: 100 + u32::from(row) }
}

#[test]
fn no_more_requests_have_a_permit_than_there_are() {
    explore(|| {
        let words = Words::new(1, 1);
        let inside = Arc::new(AtomicU64::new(0));
        let enter = |row: u16, words: Arc<Words>, inside: Arc<AtomicU64>| {
            if let Some(number) = words.permits().take(1, holder(row)) {
                assert_eq!(inside.fetch_add(1, Relaxed), 0, "two have the one permit");
                inside.fetch_sub(1, Relaxed);
                let _rung = words.permits().release(number);
            }
        };
        let (there, of_there) = (words.clone(), inside.clone());
        let other = loom::thread::spawn(move || enter(1, there, of_there));
        enter(2, words, inside);
        other.join().expect("no panic");
    });
}

#[test]
fn a_request_that_waits_finds_a_free_permit_or_is_rung_for() {
    explore(|| {
        let words = Words::new(1, 1);
        let number = words.permits().take(1, holder(1)).expect("free");
        let rings = Arc::new(AtomicBool::new(false));
        let (there, bell) = (words.clone(), rings.clone());
        let releasing = loom::thread::spawn(move || {
            if there.permits().release(number) {
                bell.store(true, Relaxed);
            }
        });
        words.permits().wait(1, holder(2), 5).expect("a place");
        let found = words.permits().take(1, holder(2));
        releasing.join().expect("no panic");
        assert!(found.is_some() || rings.load(Relaxed), "the permit is free, and nothing wakes the request");
    });
}

#[test]
fn what_a_killed_worker_held_comes_to_a_request_that_waits() {
    explore(|| {
        let words = Words::new(1, 2);
        words.permits().take(1, holder(1)).expect("free");
        words.permits().wait(2, holder(1), 3).expect("a place");
        let there = words.clone();
        let master = loom::thread::spawn(move || there.permits().free(holder(1)));
        words.permits().wait(2, holder(2), 5).expect("a place");
        let found = words.permits().take(1, holder(2));
        let rings = master.join().expect("no panic");
        assert!(found.is_some() || rings);
        assert_eq!(words.permits().waiting(), 1, "the dead one does not wait any more");
    });
}

#[test]
fn a_place_that_is_given_back_is_not_marked_for_the_next_one() {
    explore(|| {
        let words = Words::new(1, 1);
        let place = words.permits().wait(1, holder(1), 1).expect("a place");
        let there = words.clone();
        let other = loom::thread::spawn(move || there.permits().wait(1, holder(2), 2).is_some());
        words.permits().leave(place);
        let has_come = other.join().expect("no panic");
        assert_eq!(words.permits().has_waiting(), has_come);
    });
}
