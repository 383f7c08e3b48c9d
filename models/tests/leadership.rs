//! Leadership, in each order in which the leader's calls, the standby's looks and its waits at the poll, sleepers and the end can
//! interleave. In these models, each call that a standby sees twice counts as blocked.

use std::time::Duration;

use bolide_models::explore;
use bolide_models::scheduling::concurrency::Doorbell;
use bolide_models::scheduling::leadership::{Leadership, Need, Turn};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

/// Longer than any model takes.
const LONG: Duration = Duration::from_secs(3600);

/// Turns of other threads for which a call lasts, if a standby is to see it for longer than a tick.
const LOOKS: u32 = 2;

/// A condition that a call of the application waits for.
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
        let mut is_open = self.is_open.lock().expect("no thread panicked");
        while !*is_open {
            is_open = self.opened.wait(is_open).expect("no thread panicked");
        }
    }
}

fn leadership() -> Leadership {
    Leadership::new(Some(Doorbell::default()))
}

/// Follows while work always waits for a leader.
fn follow(leadership: &Leadership) -> Turn {
    leadership.follow(false, &mut |_| Need::Waits)
}

/// The work that waits for a leader, and the mark that the worker waits at the poll: what `event_loop` and `standby` do with the
/// table, its lock and `row.waiting`.
#[derive(Default)]
struct Desk {
    state: Mutex<DeskState>,
}

#[derive(Default)]
struct DeskState {
    is_work_there: bool,
    waits: bool,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().expect("no thread panicked")
    }

    /// The standby's wait.
    fn wait_for_need(&self, leadership: &Leadership, inside: u64) -> Need {
        let mut state = self.state();
        if !leadership.is_inside(inside) {
            return Need::None;
        }
        if state.is_work_there {
            return Need::Waits;
        }
        state.waits = true;
        drop(state);
        leadership.doorbell().expect("threads are several").wait();
        let mut state = self.state();
        if leadership.is_inside(inside) {
            state.waits = false;
        }
        if state.is_work_there { Need::Came } else { Need::None }
    }

    /// A thread without the lead leaves work for the leader.
    fn leave_work(&self, leadership: &Leadership) {
        let mut state = self.state();
        state.is_work_there = true;
        if state.waits {
            leadership.doorbell().expect("threads are several").ring();
        }
    }

    /// The leader is back from a call: [`Leadership::leave_call`], and the steps under the lock.
    fn come_back(&self, leadership: &Leadership, inside: u64) -> bool {
        let still_leads = leadership.leave_call(inside);
        let mut state = self.state();
        if still_leads {
            state.waits = false;
        }
        still_leads
    }
}

/// Data that only the leader may touch while it is not inside a call.
#[derive(Default)]
struct LeadCheck {
    is_taken: AtomicBool,
}

impl LeadCheck {
    fn enter(&self) {
        assert!(!self.is_taken.swap(true, SeqCst), "two threads lead");
    }

    fn leave(&self) {
        self.is_taken.store(false, SeqCst);
    }
}

/// A leader's calls, which return immediately. Returns false if it has lost the lead, and has not entered again.
fn lead(leadership: &Leadership, check: &LeadCheck, calls: u32) -> bool {
    for _ in 0..calls {
        check.leave();
        let inside = leadership.enter_call();
        if !leadership.leave_call(inside) {
            return false;
        }
        check.enter();
    }
    true
}

fn shared() -> (Arc<Leadership>, Arc<LeadCheck>) {
    let (leadership, check) = (Arc::new(leadership()), Arc::new(LeadCheck::default()));
    leadership.take_over();
    check.enter();
    (leadership, check)
}

#[test]
fn one_thread_leads_at_a_time() {
    explore(|| {
        let (leadership, check) = shared();
        let standby = thread::spawn({
            let (leadership, check) = (leadership.clone(), check.clone());
            move || {
                if follow(&leadership) == Turn::Lead {
                    check.enter();
                    leadership.take_over();
                    assert!(lead(&leadership, &check, 1), "no other thread is there to take it");
                    check.leave();
                }
            }
        });
        lead(&leadership, &check, 2);
        leadership.stop();
        assert!(standby.join().is_ok());
    });
}

#[test]
fn the_lead_is_neither_lost_nor_doubled_when_a_call_returns_while_others_seize_it() {
    explore(|| {
        let leadership = Arc::new(leadership());
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
        let (leadership, check) = shared();
        let gate = Arc::new(Gate::default());
        let standby = thread::spawn({
            let (leadership, check, gate) = (leadership.clone(), check.clone(), gate.clone());
            move || {
                assert_eq!(follow(&leadership), Turn::Lead);
                check.enter();
                gate.open();
            }
        });
        check.leave();
        let inside = leadership.enter_call();
        gate.pass();
        assert!(!leadership.leave_call(inside), "the lead is another's by now");
        assert!(standby.join().is_ok());
    });
}

#[test]
fn a_sleeper_watches_when_the_standby_has_taken_the_lead() {
    explore(|| {
        let (leadership, gate) = (Arc::new(leadership()), Arc::new(Gate::default()));
        let seized = Arc::new(AtomicU32::new(0));
        let followers: Vec<_> = (0..2)
            .map(|_| {
                let (leadership, gate, seized) = (leadership.clone(), gate.clone(), seized.clone());
                thread::spawn(move || {
                    assert_eq!(follow(&leadership), Turn::Lead);
                    if seized.fetch_add(1, SeqCst) == 0 {
                        // The call of the first one blocks as well, until another thread leads.
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
fn the_end_reaches_every_thread_in_any_state() {
    explore(|| {
        let leadership = Arc::new(leadership());
        let followers: Vec<_> = (0..2)
            .map(|_| {
                leadership.join();
                let leadership = leadership.clone();
                thread::spawn(move || {
                    assert_eq!(follow(&leadership), Turn::End);
                    leadership.part();
                })
            })
            .collect();
        leadership.stop();
        assert!(leadership.wait_for_others(0, LONG));
        for follower in followers {
            assert!(follower.join().is_ok());
        }
    });
}

/// The poll reports nothing to the standby: the leader itself has fetched the event, and left it behind.
#[test]
fn work_that_a_leader_leaves_when_its_next_call_blocks_is_found_by_a_standby_at_the_poll() {
    explore(|| {
        let (leadership, desk, gate) = (Arc::new(leadership()), Arc::new(Desk::default()), Arc::new(Gate::default()));
        let standby = thread::spawn({
            let (leadership, desk, gate) = (leadership.clone(), desk.clone(), gate.clone());
            move || {
                let turn = leadership.follow(false, &mut |inside| desk.wait_for_need(&leadership, inside));
                assert_eq!(turn, Turn::Lead);
                gate.open();
            }
        });
        let inside = leadership.enter_call();
        // A call that lasts: the standby has time for two looks and goes to the poll.
        (0..LOOKS).for_each(|_| thread::yield_now());
        assert!(desk.come_back(&leadership, inside), "no thread needed another");
        desk.state().is_work_there = true;
        let inside = leadership.enter_call();
        gate.pass();
        assert!(!desk.come_back(&leadership, inside));
        assert!(standby.join().is_ok());
    });
}

#[test]
fn work_that_a_thread_without_the_lead_leaves_is_found_while_the_leader_is_blocked() {
    explore(|| {
        let (leadership, desk, gate) = (Arc::new(leadership()), Arc::new(Desk::default()), Arc::new(Gate::default()));
        let inside = leadership.enter_call();
        let standby = thread::spawn({
            let (leadership, desk, gate) = (leadership.clone(), desk.clone(), gate.clone());
            move || {
                let turn = leadership.follow(false, &mut |inside| desk.wait_for_need(&leadership, inside));
                assert_eq!(turn, Turn::Lead);
                gate.open();
            }
        });
        let other = thread::spawn({
            let (leadership, desk) = (leadership.clone(), desk.clone());
            move || desk.leave_work(&leadership)
        });
        gate.pass();
        assert!(!desk.come_back(&leadership, inside));
        assert!(standby.join().is_ok() && other.join().is_ok());
    });
}

#[test]
fn the_end_reaches_a_standby_at_the_poll_and_the_sleepers_behind_it() {
    explore(|| {
        let (leadership, desk) = (Arc::new(leadership()), Arc::new(Desk::default()));
        leadership.enter_call();
        let followers: Vec<_> = (0..2)
            .map(|_| {
                let (leadership, desk) = (leadership.clone(), desk.clone());
                thread::spawn(move || leadership.follow(false, &mut |inside| desk.wait_for_need(&leadership, inside)))
            })
            .collect();
        leadership.stop();
        for follower in followers {
            assert_eq!(follower.join().ok(), Some(Turn::End));
        }
    });
}
