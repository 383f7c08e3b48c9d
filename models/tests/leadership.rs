//! Who leads, in each order in which the leader's calls, the standby's looks, sleepers and the end can meet. In these models each call that
//! a standby sees twice counts as blocked.

use std::time::Duration;

use bolide_models::explore;
use bolide_models::leadership::{Leadership, Turn};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Longer than any model takes.
const LONG: Duration = Duration::from_secs(3600);

/// Something that a call of the application waits for.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        if let Ok(mut is_open) = self.is_open.lock() {
            *is_open = true;
            self.opened.notify_all();
        }
    }

    fn pass(&self) {
        let mut is_open = self.is_open.lock().expect("nobody panicked");
        while !*is_open {
            is_open = self.opened.wait(is_open).expect("nobody panicked");
        }
    }
}

/// What only the leader may touch while it is not inside a call.
#[derive(Default)]
struct Throne {
    is_taken: AtomicBool,
}

impl Throne {
    fn sit(&self) {
        assert!(!self.is_taken.swap(true, SeqCst), "two threads lead");
    }

    fn rise(&self) {
        self.is_taken.store(false, SeqCst);
    }
}

/// A leader's calls, which return at once. False: it has lost the lead, and does not sit any more.
fn lead(leadership: &Leadership, throne: &Throne, calls: u32) -> bool {
    for _ in 0..calls {
        throne.rise();
        let inside = leadership.enter_call();
        if !leadership.leave_call(inside) {
            return false;
        }
        throne.sit();
    }
    true
}

fn shared() -> (Arc<Leadership>, Arc<Throne>) {
    let (leadership, throne) = (Arc::new(Leadership::new()), Arc::new(Throne::default()));
    leadership.take_over();
    throne.sit();
    (leadership, throne)
}

#[test]
fn one_thread_leads_at_a_time() {
    explore(|| {
        let (leadership, throne) = shared();
        let standby = thread::spawn({
            let (leadership, throne) = (leadership.clone(), throne.clone());
            move || {
                if leadership.follow(false) == Turn::Lead {
                    throne.sit();
                    leadership.take_over();
                    assert!(lead(&leadership, &throne, 1), "nobody else is there to take it");
                    throne.rise();
                }
            }
        });
        lead(&leadership, &throne, 2);
        leadership.stop();
        assert!(standby.join().is_ok());
    });
}

#[test]
fn the_lead_is_neither_lost_nor_doubled_when_a_call_returns_while_others_seize_it() {
    explore(|| {
        let leadership = Arc::new(Leadership::new());
        let winners = Arc::new(AtomicU32::new(0));
        let inside = leadership.enter_call();
        let rivals: Vec<_> = (0..2)
            .map(|_| {
                let (leadership, winners) = (leadership.clone(), winners.clone());
                thread::spawn(move || winners.fetch_add(u32::from(leadership.seize()), SeqCst))
            })
            .collect();
        winners.fetch_add(u32::from(leadership.leave_call(inside)), SeqCst);
        for rival in rivals {
            assert!(rival.join().is_ok());
        }
        assert_eq!(winners.load(SeqCst), 1);
    });
}

#[test]
fn a_standby_that_goes_to_sleep_is_woken_by_the_call_that_blocks() {
    explore(|| {
        let (leadership, throne) = shared();
        let gate = Arc::new(Gate::default());
        let standby = thread::spawn({
            let (leadership, throne, gate) = (leadership.clone(), throne.clone(), gate.clone());
            move || {
                assert_eq!(leadership.follow(false), Turn::Lead);
                throne.sit();
                gate.open();
            }
        });
        throne.rise();
        let inside = leadership.enter_call();
        gate.pass();
        assert!(!leadership.leave_call(inside), "the lead is another's by now");
        assert!(standby.join().is_ok());
    });
}

#[test]
fn a_sleeper_watches_when_the_standby_has_taken_the_lead() {
    explore(|| {
        let (leadership, gate) = (Arc::new(Leadership::new()), Arc::new(Gate::default()));
        let heirs = Arc::new(AtomicU32::new(0));
        let followers: Vec<_> = (0..2)
            .map(|_| {
                let (leadership, gate, heirs) = (leadership.clone(), gate.clone(), heirs.clone());
                thread::spawn(move || {
                    assert_eq!(leadership.follow(false), Turn::Lead);
                    if heirs.fetch_add(1, SeqCst) == 0 {
                        // The first one's call blocks as well, until somebody leads.
                        let inside = leadership.enter_call();
                        gate.pass();
                        assert!(!leadership.leave_call(inside));
                    } else {
                        gate.open();
                    }
                })
            })
            .collect();
        leadership.enter_call();
        gate.pass();
        for follower in followers {
            assert!(follower.join().is_ok());
        }
    });
}

#[test]
fn the_end_finds_everybody_whatever_they_do() {
    explore(|| {
        let leadership = Arc::new(Leadership::new());
        let followers: Vec<_> = (0..2)
            .map(|_| {
                leadership.join();
                let leadership = leadership.clone();
                thread::spawn(move || {
                    assert_eq!(leadership.follow(false), Turn::End);
                    leadership.part();
                })
            })
            .collect();
        leadership.stop();
        assert!(leadership.wait_for_the_others(0, LONG));
        for follower in followers {
            assert!(follower.join().is_ok());
        }
    });
}
