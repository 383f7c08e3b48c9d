//! Decides which of a worker's threads leads. The leader polls *and* runs the application, for as long as its calls return
//! quickly or no other leader is needed. One standby watches it; the other threads sleep.
//!
//! A client's next request is best served by the thread that served its last one: its caches are warm, and an application's
//! database connection often belongs to the thread. So a standby that finds the leader blocked waits until a leader is needed,
//! and the thread that fell asleep last is woken first.
//!
//! A request costs two writes to one word: it is odd while the leader is inside a call, even otherwise. The lead passes by a
//! compare-and-swap from odd to the next even number. The leader does it when it comes back (it still leads), or a thread that
//! found it blocked (then that one leads). It does not know about languages: a thread that needs the interpreter takes it after
//! the lead, or in a call. Workers run it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::scheduling::concurrency::{
    AtomicBool, AtomicU32, AtomicU64, Condvar, Doorbell, IDLE_TICKS, Instant, Mutex, MutexGuard, Ordering::SeqCst, now_ms,
    own_thread, pause, thread_cpu_us,
};

/// The standby's interval between two looks at the leader, in microseconds, while calls return quickly.
const TICK_US: u64 = 1_000;

/// The same while calls were recently found to block.
const EAGER_TICK_US: u64 = 100;

/// For this many milliseconds after a blocked call the standby looks more often.
const EAGER_MS: u64 = 1_000;

/// A call that is on the CPU all the time keeps the lead for this many microseconds. This is CPython's switch interval, before
/// which no other thread could run the application anyway.
const ON_CPU_US: u64 = 5_000;

/// With `threads = auto`, a thread that was not needed for this long ends.
const RETIRE: Duration = Duration::from_secs(30);

pub struct Leadership {
    word: AtomicU64,
    /// Kernel's id of the leading thread, for its CPU clock.
    leader: AtomicU32,
    /// A [`Standby`].
    standby: AtomicU32,
    /// Monotonic milliseconds of the last time that a call was found to block.
    blocked_ms: AtomicU64,
    stopping: AtomicBool,
    roles: Mutex<Roles>,
    standby_wanted: Condvar,
    /// Calls a standby away from the poll. `None`: no thread ever follows.
    doorbell: Option<Doorbell>,
    all_gone: Condvar,
}

#[derive(Default)]
struct Roles {
    has_standby: bool,
    /// Each waits for its own call. The last one in is called first.
    sleepers: Vec<Arc<Condvar>>,
    /// Threads that neither lead nor attend to a connection: the standby, the sleepers, and those that change between the two.
    followers: u32,
    threads: u32,
}

/// The standby's activity: the leader reads it when it goes into a call.
#[repr(u32)]
enum Standby {
    /// It looks at the leader at each tick; or there is none.
    Looks = 0,
    /// It sleeps until a call begins.
    Rests = 1,
    /// It waits at the poll until a leader is needed, at most until the call ends that it has seen.
    AtPoll = 2,
}

/// The result of a standby's wait at the poll while the leader was inside a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// No leader is needed: the doorbell rang, or the call is over.
    None,
    /// Work was waiting already.
    Waits,
    /// Work has arrived while the standby waited, or a timer is due.
    Came,
}

/// The next step of a thread that does not lead.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It leads now.
    Lead,
    /// It ends: the worker stops, or too many threads were idle.
    End,
}

impl Leadership {
    /// `doorbell`: for a worker with several threads.
    pub fn new(doorbell: Option<Doorbell>) -> Leadership {
        Leadership {
            word: AtomicU64::new(0),
            leader: AtomicU32::new(0),
            standby: AtomicU32::new(Standby::Looks as u32),
            blocked_ms: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            roles: Mutex::new(Roles::default()),
            standby_wanted: Condvar::new(),
            doorbell,
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

    /// The calling thread leads: at startup, and after [`Turn::Lead`].
    pub fn take_over(&self) {
        self.leader.store(own_thread(), SeqCst);
    }

    /// Kernel's id of the thread that leads.
    pub fn leader(&self) -> u32 {
        self.leader.load(SeqCst)
    }

    /// Whether no thread is left that watches the leader: with `threads = auto`, it is time for another one.
    pub fn is_alone(&self) -> bool {
        self.roles().followers == 0
    }

    /// The leader goes into a call. Returns the number of the call.
    pub fn enter_call(&self) -> u64 {
        let inside = self.word.load(SeqCst) + 1;
        self.word.store(inside, SeqCst);
        if self.standby.load(SeqCst) != Standby::Looks as u32 {
            self.call_standby();
        }
        inside
    }

    /// Whether the leader is inside the call that [`Leadership::enter_call`] numbered.
    pub fn is_inside(&self, inside: u64) -> bool {
        self.word.load(SeqCst) == inside
    }

    /// The bell that calls a standby away from the poll.
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref()
    }

    /// The leader comes back from the call that [`Leadership::enter_call`] numbered. Returns `false` if another thread leads.
    pub fn leave_call(&self, inside: u64) -> bool {
        self.word.compare_exchange(inside, inside + 1, SeqCst, SeqCst).is_ok()
    }

    /// Whether a call was found to block within the last [`EAGER_MS`].
    pub fn has_blocked_lately(&self) -> bool {
        now_ms().saturating_sub(self.blocked_ms.load(SeqCst)) < EAGER_MS
    }

    /// Takes the lead from a leader that is inside a call. For a thread that knows that this leader is blocked, because it holds
    /// the interpreter itself.
    pub fn seize(&self) -> bool {
        let seen = self.word.load(SeqCst);
        seen % 2 == 1 && self.take_from(seen)
    }

    /// Runs a thread that neither leads nor holds the interpreter, until it leads or ends. `may_retire`: it may end when it is
    /// not needed. `wait_for_need` waits at the poll until a leader is needed while the current one is inside the call of this
    /// number, or until the doorbell rings.
    pub fn follow(&self, may_retire: bool, wait_for_need: &mut dyn FnMut(u64) -> Need) -> Turn {
        let mut roles = self.roles();
        roles.followers += 1;
        while roles.has_standby {
            let is_called;
            (roles, is_called) = self.sleep(roles, may_retire);
            if !is_called {
                roles.followers -= 1;
                return Turn::End;
            }
        }
        roles.has_standby = true;
        drop(roles);
        let turn = self.watch(may_retire, wait_for_need);
        let mut roles = self.roles();
        roles.has_standby = false;
        roles.followers -= 1;
        self.standby.store(Standby::Looks as u32, SeqCst);
        if let Some(next) = roles.sleepers.pop() {
            next.notify_one();
        }
        turn
    }

    /// Sleeps until the standby's place is free. Returns `false` if the thread must end.
    fn sleep<'a>(&self, mut roles: MutexGuard<'a, Roles>, may_retire: bool) -> (MutexGuard<'a, Roles>, bool) {
        let own = Arc::new(Condvar::new());
        roles.sleepers.push(own.clone());
        loop {
            let mut may_end = self.is_stopping();
            if !may_end {
                let (after, waited) = own.wait_timeout(roles, RETIRE).unwrap_or_else(PoisonError::into_inner);
                roles = after;
                may_end = self.is_stopping() || may_retire && waited.timed_out();
            }
            // A thread that is not on the list any more was called, whatever else has happened.
            let Some(place) = roles.sleepers.iter().position(|sleeper| Arc::ptr_eq(sleeper, &own)) else { return (roles, true) };
            if may_end {
                roles.sleepers.remove(place);
                return (roles, false);
            }
        }
    }

    /// All threads must end.
    pub fn stop(&self) {
        let roles = self.roles();
        self.stopping.store(true, SeqCst);
        self.standby_wanted.notify_all();
        for sleeper in &roles.sleepers {
            sleeper.notify_one();
        }
        self.ring();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Waits until only `left` threads remain, for at most `most`. Returns `false` if there are more.
    pub fn wait_for_others(&self, left: u32, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut roles = self.roles();
        while roles.threads > left {
            let Some(rest) = end.checked_duration_since(Instant::now()) else { return false };
            roles = self.all_gone.wait_timeout(roles, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The standby's watch.
    fn watch(&self, may_retire: bool, wait_for_need: &mut dyn FnMut(u64) -> Need) -> Turn {
        let mut last = Glance::take(self);
        let mut stuck_since = last;
        let mut idle_ticks = 0;
        let mut is_urgent = false;
        while !self.is_stopping() {
            let eager = is_urgent || self.has_blocked_lately();
            is_urgent = false;
            pause(if eager { EAGER_TICK_US } else { TICK_US });
            let look = Glance::take(self);
            if look.word != last.word {
                idle_ticks = 0;
                stuck_since = look;
            } else if look.word % 2 == 1 {
                let is_blocked = match self.stand_at_poll(look.word, wait_for_need) {
                    Need::None => false,
                    Need::Waits => look.is_blocked_since(&stuck_since),
                    Need::Came => {
                        let now = Glance::take(self);
                        // The leader may have just answered the client that arrived, and may be back in a moment: then no other
                        // leader is needed.
                        is_urgent = now.has_run_since(&look);
                        !is_urgent && now.is_blocked_since(&stuck_since)
                    }
                };
                if is_blocked && self.take_from(look.word) {
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

    /// Waits until a leader is needed. The leader's next call ends the wait, as the leader may have left work behind that the
    /// poll does not report.
    fn stand_at_poll(&self, inside: u64, wait_for_need: &mut dyn FnMut(u64) -> Need) -> Need {
        self.standby.store(Standby::AtPoll as u32, SeqCst);
        // The order matters: the leader writes the word and then reads the standby's state; the standby does it the other way
        // round.
        let need = if self.is_inside(inside) && !self.is_stopping() { wait_for_need(inside) } else { Need::None };
        self.standby.store(Standby::Looks as u32, SeqCst);
        need
    }

    /// A call begins, and the standby does not look at the leader: wakes it.
    #[cold]
    fn call_standby(&self) {
        let _roles = self.roles();
        if self.standby.load(SeqCst) == Standby::AtPoll as u32 {
            self.standby.store(Standby::Looks as u32, SeqCst);
            self.ring();
        } else {
            self.standby_wanted.notify_one();
        }
    }

    fn ring(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// Takes the lead from a leader that is inside the call of this word, if it still is.
    fn take_from(&self, inside: u64) -> bool {
        let taken = self.word.compare_exchange(inside, inside + 1, SeqCst, SeqCst).is_ok();
        if taken {
            self.blocked_ms.store(now_ms(), SeqCst);
        }
        taken
    }

    /// Sleeps until a call begins. Returns `false` if none began for long.
    fn rest(&self, word: u64) -> bool {
        let roles = self.roles();
        self.standby.store(Standby::Rests as u32, SeqCst);
        // The order matters: the leader writes the word and then reads whether the standby rests; the standby does it the other
        // way round.
        if self.word.load(SeqCst) != word || self.is_stopping() {
            self.standby.store(Standby::Looks as u32, SeqCst);
            return true;
        }
        let (_roles, waited) = self.standby_wanted.wait_timeout(roles, RETIRE).unwrap_or_else(PoisonError::into_inner);
        self.standby.store(Standby::Looks as u32, SeqCst);
        !waited.timed_out()
    }

    fn roles(&self) -> MutexGuard<'_, Roles> {
        // A thread that panicked ends the worker anyway; these counters are still good enough to stop with.
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A standby's observation of the leader.
#[derive(Clone, Copy)]
struct Glance {
    word: u64,
    at: Instant,
    cpu_us: u64,
}

impl Glance {
    fn take(leadership: &Leadership) -> Glance {
        let word = leadership.word.load(SeqCst);
        let cpu_us = if word % 2 == 1 { thread_cpu_us(leadership.leader.load(SeqCst)) } else { 0 };
        Glance { word, at: Instant::now(), cpu_us }
    }

    /// The same call was on a CPU in the meantime, or has ended.
    fn has_run_since(&self, earlier: &Glance) -> bool {
        self.word != earlier.word || self.cpu_us != earlier.cpu_us
    }

    /// Whether the leader is blocked: it was on a CPU for less than half of the time, or is on the CPU for longer than others
    /// should wait.
    fn is_blocked_since(&self, earlier: &Glance) -> bool {
        let wall_us = self.at.duration_since(earlier.at).as_micros() as u64;
        let cpu_us = self.cpu_us.saturating_sub(earlier.cpu_us);
        cpu_us * 2 < wall_us || wall_us >= ON_CPU_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Follows while work always waits for a leader.
    fn follow(leadership: &Leadership) -> Turn {
        leadership.follow(false, &mut |_| Need::Waits)
    }

    fn new() -> Leadership {
        Leadership::new(Doorbell::new().ok())
    }

    #[test]
    fn a_leader_that_comes_back_in_time_still_leads() {
        let leadership = new();
        let inside = leadership.enter_call();
        assert!(leadership.leave_call(inside));
        assert!(!leadership.seize(), "no thread seizes the lead of one who is not inside a call");
    }

    #[test]
    fn a_leader_whose_lead_was_seized_learns_it() {
        let leadership = new();
        let inside = leadership.enter_call();
        assert!(leadership.seize());
        assert!(!leadership.leave_call(inside));
    }

    #[test]
    fn a_standby_takes_the_lead_of_a_blocked_leader() {
        let leadership = Arc::new(new());
        leadership.take_over();
        let inside = leadership.enter_call();
        let standby = std::thread::spawn({
            let leadership = leadership.clone();
            move || follow(&leadership)
        });
        // This thread waits, so its CPU clock stands still: the leader counts as blocked.
        assert_eq!(standby.join().ok(), Some(Turn::Lead));
        assert!(!leadership.leave_call(inside));
    }

    #[test]
    fn the_last_thread_knows_whether_the_others_are_back() {
        let leadership = new();
        leadership.join();
        leadership.join();
        assert!(!leadership.wait_for_others(1, Duration::ZERO), "one is still away");
        leadership.part();
        assert!(leadership.wait_for_others(1, Duration::ZERO));
    }

    #[test]
    fn stopping_ends_standby_and_sleepers() {
        let leadership = Arc::new(new());
        let followers: Vec<_> = (0..3)
            .map(|_| {
                let leadership = leadership.clone();
                std::thread::spawn(move || follow(&leadership))
            })
            .collect();
        leadership.stop();
        for follower in followers {
            assert_eq!(follower.join().ok(), Some(Turn::End));
        }
    }

    #[test]
    fn a_blocked_leader_keeps_the_lead_until_a_leader_is_needed() {
        let leadership = Arc::new(new());
        leadership.take_over();
        let inside = leadership.enter_call();
        let (say, said) = std::sync::mpsc::channel();
        let standby = std::thread::spawn({
            let leadership = leadership.clone();
            move || {
                leadership.follow(false, &mut |seen| {
                    assert_eq!(seen, inside);
                    assert!(leadership.is_inside(inside));
                    said.recv().unwrap_or(Need::Came)
                })
            }
        });
        for _ in 0..3 {
            assert!(say.send(Need::None).is_ok());
        }
        assert!(leadership.is_inside(inside));
        // From now on a leader is always needed: this thread may have been on the CPU when the standby looked first.
        drop(say);
        assert_eq!(standby.join().ok(), Some(Turn::Lead));
        assert!(!leadership.leave_call(inside));
    }

    #[test]
    fn the_thread_that_slept_last_is_the_next_standby() {
        let leadership = Arc::new(new());
        leadership.take_over();
        let inside = leadership.enter_call();
        let (say, said) = std::sync::mpsc::channel::<Need>();
        let first = std::thread::spawn({
            let leadership = leadership.clone();
            move || leadership.follow(false, &mut |_| said.recv().unwrap_or(Need::Waits))
        });
        let came = Arc::new(Mutex::new(Vec::new()));
        let wait_for = |count: u32| {
            while leadership.roles().followers < count {
                std::thread::yield_now();
            }
        };
        wait_for(1);
        let sleepers: Vec<_> = (0..3)
            .map(|number| {
                let follower = std::thread::spawn({
                    let (leadership, came) = (leadership.clone(), came.clone());
                    move || {
                        assert_eq!(follow(&leadership), Turn::Lead);
                        came.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                        // It blocks as well, forever.
                        leadership.take_over();
                        leadership.enter_call();
                    }
                });
                wait_for(number + 2);
                follower
            })
            .collect();
        // From now on a leader is always needed: this thread may have been on the CPU when the standby looked first.
        drop(say);
        assert_eq!(first.join().ok(), Some(Turn::Lead));
        assert!(!leadership.leave_call(inside));
        leadership.enter_call();
        for sleeper in sleepers {
            assert!(sleeper.join().is_ok());
        }
        assert_eq!(*came.lock().unwrap_or_else(PoisonError::into_inner), [2, 1, 0]);
    }
}
