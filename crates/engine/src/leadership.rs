//! Who of a worker's threads leads. The leader polls *and* runs the application, for as long as its calls return
//! quickly; one standby watches it; the others sleep. DESIGN.md section 3, "Threads".
//!
//! All that a request pays is two writes to one word: odd while the leader is inside a call, even otherwise.
//! The lead passes by a compare-and-swap from odd to the next even number, either by the leader that comes back
//! (it still leads) or by a thread that found it blocked (then that one leads). It knows no language: who must
//! hold an interpreter takes it after the lead, or in a call.

use std::sync::PoisonError;
use std::time::Duration;

use crate::concurrency::{
    AtomicBool, AtomicU32, AtomicU64, Condvar, IDLE_TICKS, Instant, Mutex, MutexGuard, Ordering::SeqCst, now_ms, own_thread,
    pause, thread_cpu_us,
};

/// How often a standby looks at the leader, in microseconds, while calls return quickly.
const TICK_US: u64 = 1_000;

/// And while calls were lately found to block.
const EAGER_TICK_US: u64 = 100;

/// For how many milliseconds after a blocked call the standby looks more often.
const EAGER_MS: u64 = 1_000;

/// A call that is on the CPU all the time keeps the lead for this many microseconds: CPython's switch interval,
/// before which nobody else could run the application anyway.
const ON_CPU_US: u64 = 5_000;

/// With `threads = auto`, a thread that nobody needed for this long ends.
const RETIRE: Duration = Duration::from_secs(30);

pub struct Leadership {
    word: AtomicU64,
    /// Kernel's id of the leading thread, for its CPU clock.
    leader: AtomicU32,
    standby_is_awake: AtomicBool,
    /// Monotonic milliseconds of the last time that a call was found to block.
    blocked_ms: AtomicU64,
    stopping: AtomicBool,
    roles: Mutex<Roles>,
    standby_wanted: Condvar,
    sleeper_wanted: Condvar,
    all_gone: Condvar,
}

#[derive(Default)]
struct Roles {
    has_standby: bool,
    sleepers: u32,
    threads: u32,
}

/// What a thread that does not lead is to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It leads now.
    Lead,
    /// It ends: the worker stops, or too many threads were idle.
    End,
}

impl Leadership {
    pub fn new() -> Leadership {
        Leadership {
            word: AtomicU64::new(0),
            leader: AtomicU32::new(0),
            standby_is_awake: AtomicBool::new(false),
            blocked_ms: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            roles: Mutex::new(Roles::default()),
            standby_wanted: Condvar::new(),
            sleeper_wanted: Condvar::new(),
            all_gone: Condvar::new(),
        }
    }

    /// A thread joins. Returns how many there are now.
    pub fn join(&self) -> u32 {
        let mut roles = self.roles();
        roles.threads += 1;
        roles.threads
    }

    /// A thread ends.
    pub fn part(&self) {
        let mut roles = self.roles();
        roles.threads -= 1;
        self.all_gone.notify_all();
    }

    /// The calling thread leads: at the start, and after [`Turn::Lead`].
    pub fn take_over(&self) {
        self.leader.store(own_thread(), SeqCst);
    }

    /// Kernel's id of the thread that leads.
    pub fn leader(&self) -> u32 {
        self.leader.load(SeqCst)
    }

    /// True when no thread is left to watch over the leader: with `threads = auto`, time for another.
    pub fn is_alone(&self) -> bool {
        let roles = self.roles();
        !roles.has_standby && roles.sleepers == 0
    }

    /// The leader goes into a call.
    pub fn enter_call(&self) -> u64 {
        let inside = self.word.load(SeqCst) + 1;
        self.word.store(inside, SeqCst);
        if !self.standby_is_awake.load(SeqCst) {
            let _roles = self.roles();
            self.standby_wanted.notify_one();
        }
        inside
    }

    /// The leader comes back from the call that [`Leadership::enter_call`] numbered. False: somebody else leads.
    pub fn leave_call(&self, inside: u64) -> bool {
        self.word.compare_exchange(inside, inside + 1, SeqCst, SeqCst).is_ok()
    }

    /// For a thread that knows that a leader inside a call is blocked, because it holds the interpreter itself: that leader loses the lead.
    pub fn seize(&self) -> bool {
        let seen = self.word.load(SeqCst);
        seen % 2 == 1 && self.take_from(seen)
    }

    /// What a thread that does not lead, and holds no interpreter, does until it leads or ends.
    /// `may_retire`: it may end when nobody needs it.
    pub fn follow(&self, may_retire: bool) -> Turn {
        let mut roles = self.roles();
        while roles.has_standby {
            if self.is_stopping() {
                return Turn::End;
            }
            roles.sleepers += 1;
            let (after, waited) = self.sleeper_wanted.wait_timeout(roles, RETIRE).unwrap_or_else(PoisonError::into_inner);
            roles = after;
            roles.sleepers -= 1;
            if may_retire && waited.timed_out() && roles.has_standby {
                return Turn::End;
            }
        }
        roles.has_standby = true;
        drop(roles);
        let turn = self.watch(may_retire);
        let mut roles = self.roles();
        roles.has_standby = false;
        self.standby_is_awake.store(false, SeqCst);
        self.sleeper_wanted.notify_one();
        turn
    }

    /// All threads are to end.
    pub fn stop(&self) {
        let _roles = self.roles();
        self.stopping.store(true, SeqCst);
        self.standby_wanted.notify_all();
        self.sleeper_wanted.notify_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Waits until only `left` threads are there, for `most` at the longest. False: there are more.
    pub fn wait_for_the_others(&self, left: u32, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut roles = self.roles();
        while roles.threads > left {
            let Some(rest) = end.checked_duration_since(Instant::now()) else { return false };
            roles = self.all_gone.wait_timeout(roles, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The standby's watch.
    fn watch(&self, may_retire: bool) -> Turn {
        let mut last = Look::take(self);
        let mut stuck_since = last;
        let mut idle_ticks = 0;
        self.standby_is_awake.store(true, SeqCst);
        while !self.is_stopping() {
            let eager = now_ms().saturating_sub(self.blocked_ms.load(SeqCst)) < EAGER_MS;
            pause(if eager { EAGER_TICK_US } else { TICK_US });
            let look = Look::take(self);
            if look.word != last.word {
                idle_ticks = 0;
                stuck_since = look;
            } else if look.word % 2 == 1 {
                if look.is_blocked_since(&stuck_since) && self.take_from(look.word) {
                    return Turn::Lead;
                }
            } else {
                idle_ticks += 1;
                if idle_ticks > IDLE_TICKS {
                    if !self.rest(look.word) && may_retire {
                        return Turn::End;
                    }
                    idle_ticks = 0;
                }
            }
            last = look;
        }
        Turn::End
    }

    /// Takes the lead from a leader that is inside the call of this word, if it still is.
    fn take_from(&self, inside: u64) -> bool {
        let taken = self.word.compare_exchange(inside, inside + 1, SeqCst, SeqCst).is_ok();
        if taken {
            self.blocked_ms.store(now_ms(), SeqCst);
        }
        taken
    }

    /// Sleeps until a call begins. False when none began for long.
    fn rest(&self, word: u64) -> bool {
        let roles = self.roles();
        self.standby_is_awake.store(false, SeqCst);
        // The order matters: the leader writes the word and then looks whether we are awake; we do it the other way round.
        if self.word.load(SeqCst) != word || self.is_stopping() {
            self.standby_is_awake.store(true, SeqCst);
            return true;
        }
        let (_roles, waited) = self.standby_wanted.wait_timeout(roles, RETIRE).unwrap_or_else(PoisonError::into_inner);
        self.standby_is_awake.store(true, SeqCst);
        !waited.timed_out()
    }

    fn roles(&self) -> MutexGuard<'_, Roles> {
        // A thread that panicked ends the worker anyway; what it left of these counters is still good to stop with.
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a standby sees of the leader.
#[derive(Clone, Copy)]
struct Look {
    word: u64,
    at: Instant,
    cpu_us: u64,
}

impl Look {
    fn take(leadership: &Leadership) -> Look {
        let word = leadership.word.load(SeqCst);
        let cpu_us = if word % 2 == 1 { thread_cpu_us(leadership.leader.load(SeqCst)) } else { 0 };
        Look { word, at: Instant::now(), cpu_us }
    }

    /// Blocked: it used less than half of the time on a CPU; or it is on the CPU for longer than others should wait.
    fn is_blocked_since(&self, earlier: &Look) -> bool {
        let wall_us = self.at.duration_since(earlier.at).as_micros() as u64;
        let cpu_us = self.cpu_us.saturating_sub(earlier.cpu_us);
        cpu_us * 2 < wall_us || wall_us >= ON_CPU_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_leader_that_comes_back_in_time_still_leads() {
        let leadership = Leadership::new();
        let inside = leadership.enter_call();
        assert!(leadership.leave_call(inside));
        assert!(!leadership.seize(), "nobody seizes the lead of one who is not inside a call");
    }

    #[test]
    fn a_leader_whose_lead_was_seized_learns_it() {
        let leadership = Leadership::new();
        let inside = leadership.enter_call();
        assert!(leadership.seize());
        assert!(!leadership.leave_call(inside));
    }

    #[test]
    fn a_standby_takes_the_lead_of_a_blocked_leader() {
        let leadership = Arc::new(Leadership::new());
        leadership.take_over();
        let inside = leadership.enter_call();
        let standby = std::thread::spawn({
            let leadership = leadership.clone();
            move || leadership.follow(false)
        });
        // This thread waits, so its CPU clock stands still: that is what "blocked" means.
        assert_eq!(standby.join().ok(), Some(Turn::Lead));
        assert!(!leadership.leave_call(inside));
    }

    #[test]
    fn the_last_thread_knows_whether_the_others_are_back() {
        let leadership = Leadership::new();
        leadership.join();
        leadership.join();
        assert!(!leadership.wait_for_the_others(1, Duration::ZERO), "one is still away");
        leadership.part();
        assert!(leadership.wait_for_the_others(1, Duration::ZERO));
    }

    #[test]
    fn stopping_ends_standby_and_sleepers() {
        let leadership = Arc::new(Leadership::new());
        let followers: Vec<_> = (0..3)
            .map(|_| {
                let leadership = leadership.clone();
                std::thread::spawn(move || leadership.follow(false))
            })
            .collect();
        leadership.stop();
        for follower in followers {
            assert_eq!(follower.join().ok(), Some(Turn::End));
        }
    }
}
