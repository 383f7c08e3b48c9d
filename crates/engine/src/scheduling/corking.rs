//! Batches answers in the kernel while calls are slow and other requests wait.
//!
//! A client on another CPU sleeps while a slow application works. Each answer then wakes it, and on a virtual machine a wake-up
//! costs the sender about 8 µs: a tenth of a small Flask view. So while more requests are ready, a finished answer is sent with
//! MSG_MORE, and pushed with the others after [`HOLD_US`] at the latest: the first push wakes the client, and the rest find it
//! awake. The worker's companion pushes answers during a call that lasts longer than that, so no answer is held before there is a
//! companion. The kernel has the bytes immediately: it sends them if the worker dies or the connection is closed (tcp(7),
//! TCP_CORK).
//!
//! Quick applications gain nothing, as their clients are awake. For them it stays off, and costs a read of the clock in one turn
//! of 16. It does not know about sockets. Workers run it.

use std::time::Duration;

use crate::scheduling::clock::precise_us;
use crate::scheduling::connections::Key;

/// The longest time that an answer is held while other requests wait, in microseconds. Then the companion pushes it.
pub const HOLD_US: u64 = 1_000;

/// The leader pushes held answers this many calls before the companion's alarm is due. The next held answer then sets the alarm
/// again before it goes off. A Django page costs 1.11 times as much as without a bound if three in four alarms go off, and 1.04
/// times as much if few do.
const CALLS_BEFORE_ALARM: u64 = 3;

/// The leader holds answers for at least this many microseconds: in slow calls, waking the client for each answer costs more than
/// waking the companion.
const MIN_PUSH_US: u64 = HOLD_US / 2;

/// The companion's interval while answers of HTTP/2 are held, in microseconds.
pub const LOOK_US: u64 = 800;

/// Maximum number of answers that are held at the same time.
const MAX_HELD: usize = 64;

/// An application is slow if the requests of a turn took this many microseconds on average.
const SLOW_US: u64 = 30;

/// One turn in this many is measured.
const MEASURED_TURN: u32 = 16;

/// The answers that the kernel holds. A worker with several threads holds none while its calls block: another client could not be
/// answered in the meantime with one thread, but can be here.
#[derive(Default)]
pub struct Corking {
    held: Vec<Key>,
    since_us: u64,
    is_on: bool,
    /// The average time of a request in the last measured turn, in microseconds.
    call_us: u64,
    has_held: bool,
    turns: u32,
    began_us: u64,
    served: u64,
}

impl Corking {
    /// Whether the answers of slow calls are currently held.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// A turn begins: connections have events.
    pub fn begin_turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        self.served = 0;
        self.began_us = if self.turns.is_multiple_of(MEASURED_TURN) { precise_us() } else { 0 };
    }

    /// A connection was attended to; `held` says whether the kernel holds its answer. Returns `true` if it is time to push.
    pub fn attended(&mut self, key: Key, held: bool) -> bool {
        self.served += 1;
        if held {
            if self.held.is_empty() {
                self.since_us = precise_us();
            }
            self.held.push(key);
            self.has_held = true;
        }
        !self.held.is_empty()
            && (self.held.len() >= MAX_HELD || precise_us().saturating_sub(self.since_us) >= self.push_after_us())
    }

    /// Microseconds after which the leader pushes.
    fn push_after_us(&self) -> u64 {
        HOLD_US.saturating_sub(CALLS_BEFORE_ALARM * self.call_us).max(MIN_PUSH_US)
    }

    /// Whether an answer was held since the last call: then an alarm is set for it.
    pub fn has_held(&mut self) -> bool {
        std::mem::take(&mut self.has_held)
    }

    /// Exactly one answer is held, the first.
    pub fn holds_first(&self) -> bool {
        self.held.len() == 1
    }

    /// Returns how long the held answers may be held still.
    pub fn left(&self) -> Option<Duration> {
        let left_us = || HOLD_US.saturating_sub(precise_us().saturating_sub(self.since_us));
        self.holds().then(|| Duration::from_micros(left_us().max(1)))
    }

    /// The queue is empty. Evaluates a measured turn.
    pub fn end_turn(&mut self) {
        if self.began_us != 0 && self.served > 0 {
            self.judge(precise_us().saturating_sub(self.began_us));
            self.began_us = 0;
        }
    }

    /// Decides by the length of a turn whether the application is slow.
    fn judge(&mut self, turn_us: u64) {
        self.call_us = turn_us / self.served;
        self.is_on = self.call_us >= SLOW_US;
    }

    /// Answers are held.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// A look [`LOOK_US`] later would be too late for the held answers.
    pub fn is_nearly_over(&self) -> bool {
        self.holds() && precise_us().saturating_sub(self.since_us) + LOOK_US >= HOLD_US
    }

    /// The connection is attended to again. Returns whether its answer was held, which the caller pushes.
    pub fn take(&mut self, key: Key) -> bool {
        let place = self.held.iter().position(|held| *held == key);
        if let Some(place) = place {
            self.held.swap_remove(place);
        }
        place.is_some()
    }

    /// The next answer to push.
    pub fn next(&mut self) -> Option<Key> {
        self.held.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_pushed_when_many_are_held() {
        let mut corking = Corking::default();
        let mut pushes = 0;
        for number in 0..MAX_HELD as u64 {
            if corking.attended(Key(number), true) {
                pushes += 1;
                while corking.next().is_some() {}
            }
        }
        assert!(pushes >= 1, "nothing is held beyond {MAX_HELD} answers");
        assert!(!corking.attended(Key(0), false), "nothing is held now");
    }

    #[test]
    fn an_answer_is_not_held_while_its_connection_is_attended_to() {
        let mut corking = Corking::default();
        corking.attended(Key(1), true);
        corking.attended(Key(2), true);
        assert!(corking.take(Key(1)));
        assert!(!corking.take(Key(1)));
        assert_eq!((corking.next(), corking.next()), (Some(Key(2)), None));
    }

    #[test]
    fn held_answers_have_their_time_from_the_first_one_on() {
        let mut corking = Corking::default();
        assert_eq!((corking.left(), corking.holds_first()), (None, false));
        corking.attended(Key(1), true);
        assert!(corking.holds_first());
        assert!(corking.left().is_some_and(|left| left <= Duration::from_micros(HOLD_US)));
        corking.since_us -= HOLD_US;
        assert_eq!(corking.left(), Some(Duration::from_micros(1)), "it is over, and a timer wants a time");
        assert!(corking.attended(Key(2), true), "the leader pushes before the companion must");
        assert!(!corking.holds_first());
    }

    #[test]
    fn the_leader_pushes_before_the_alarm_goes_off_as_far_as_calls_let_it() {
        for (call_us, pushes_after_us) in [(0, HOLD_US), (80, 760), (300, MIN_PUSH_US), (HOLD_US, MIN_PUSH_US)] {
            let corking = Corking { call_us, ..Corking::default() };
            assert_eq!(corking.push_after_us(), pushes_after_us, "calls of {call_us} µs");
        }
    }

    #[test]
    fn has_held_is_true_once() {
        let mut corking = Corking::default();
        corking.attended(Key(1), false);
        assert!(!corking.has_held());
        corking.attended(Key(1), true);
        assert!(corking.has_held());
        assert!(!corking.has_held());
    }

    #[test]
    fn turns_are_judged_by_the_time_of_a_request() {
        let mut corking = Corking::default();
        for (turn_us, is_slow) in [(1000 * SLOW_US - 1, false), (1000 * SLOW_US, true), (0, false)] {
            corking.begin_turn();
            for number in 0..1000 {
                corking.attended(Key(number), false);
            }
            corking.judge(turn_us);
            assert_eq!(corking.is_on(), is_slow, "{turn_us} µs");
        }
    }

    #[test]
    fn one_turn_in_sixteen_is_measured() {
        let mut corking = Corking::default();
        let mut measured = 0;
        for _ in 0..MEASURED_TURN * 2 {
            corking.begin_turn();
            measured += u32::from(corking.began_us != 0);
            corking.attended(Key(1), false);
            corking.end_turn();
            assert_eq!(corking.began_us, 0);
        }
        assert_eq!(measured, 2);
    }
}
