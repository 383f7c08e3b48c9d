//! Health checks (`health-path`) while no thread of the worker can begin a request. The companion accepts connections then, and
//! answers those on which a check waits. Every other request stays unread, and is served later
//! like one of a connection that was accepted then.
//!
//! It does not know about protocols or the application. The companion runs it with the table locked.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_scoreboard::Slot;

use crate::app::Language;
use crate::connection::Connection;
use crate::connection::checks::{Unread, UnreadRequest};
use crate::event_loop::accepting::{Entered, MAX_CHECKED, enter, is_full_in_pause};
use crate::event_loop::worker_state::{Housekeeping, LeaderState, Shared};
use crate::forks;
use crate::scheduling::clock::Clock;
use crate::scheduling::connections::{ConnectionTable, EventSource, Key};
use crate::sockets::socket;

/// Connections that the companion accepts in one look, and those that it looks at.
const LOOKS: usize = 64;

/// The companion's view of the connections that may have a check.
pub(crate) struct Checks {
    clock: Clock,
    /// The calls during which it looks. Nothing else is served while they last.
    calls: Option<u64>,
    /// They are not those of the last look.
    are_others: bool,
    /// Connections that wait for a thread. Each of them is queued once in the table, however many events it has.
    waiting: HashSet<u64>,
    /// Those with an event that were not looked at since. Some of them may be gone.
    candidates: VecDeque<Key>,
}

impl Checks {
    pub fn new() -> Checks {
        Checks { clock: Clock::new(), calls: None, are_others: true, waiting: HashSet::new(), candidates: VecDeque::new() }
    }

    /// The next looks are during these calls.
    pub fn note_calls(&mut self, calls: Option<u64>) {
        self.are_others |= self.calls != calls;
        self.calls = calls;
    }

    /// At the first look during other calls, every connection that waits for a thread may have a check.
    pub fn begin_look<C>(&mut self, connections: &ConnectionTable<C>) {
        if std::mem::take(&mut self.are_others) {
            let ready = connections.ready().filter(|key| matches!(key.source(), EventSource::Connection(_)));
            self.candidates = ready.collect();
            self.waiting = self.candidates.iter().map(|key| key.0).collect();
        }
    }

    /// As many connections wait as may. Some of those that were accepted may have moved to other workers.
    fn is_full<C>(&mut self, connections: &mut ConnectionTable<C>) -> bool {
        if self.waiting.len() >= MAX_CHECKED {
            self.waiting.retain(|key| connections.peek(Key(*key)).is_some());
        }
        self.waiting.len() >= MAX_CHECKED
    }

    /// Bytes have come, so there may be a whole check now. Returns whether the connection waits for a thread since this event.
    pub fn note_event(&mut self, key: Key) -> bool {
        self.candidates.push_back(key);
        self.waiting.insert(key.0)
    }
}

impl<L: Language> Shared<L> {
    /// Accepts connections while all threads are in calls. Returns `true` if some may be left in the listen queue.
    pub(crate) fn accept_for_checks(&self, number: usize, checks: &mut Checks, state: &mut LeaderState<L::App>) -> bool {
        if !self.may_accept_for_checks(number, state) {
            return true;
        }
        for _ in 0..LOOKS {
            if checks.is_full(&mut state.connections) || self.worker.is_paused() && is_full_in_pause(state) {
                return true;
            }
            match self.accept_unread(number, state) {
                Some(key) => _ = checks.note_event(key),
                None => return false,
            }
        }
        true
    }

    /// A worker with a free thread serves what waits in the listen queue, and a canary is compared by what each generation
    /// accepts when it can serve it.
    fn may_accept_for_checks(&self, number: usize, state: &LeaderState<L::App>) -> bool {
        self.worker.accepts_checks_at(number) && self.may_accept_in_calls(number, &state.housekeeping)
    }

    /// Whether the companion may accept connections from a socket.
    pub(crate) fn may_accept_in_calls(&self, number: usize, housekeeping: &Housekeeping) -> bool {
        let is_possible = !self.worker.is_told_to_drain()
            && !housekeeping.doom.is_at_work()
            && !housekeeping.descriptors.are_missing()
            && housekeeping.pauses.iter().all(|pause| pause.listener != number);
        is_possible && (self.worker.is_paused() || !self.takes_turns() && !self.has_free_worker())
    }

    /// Whether another worker in service has a thread outside of calls, by the scoreboard.
    pub(crate) fn has_free_worker(&self) -> bool {
        let is_free = |slot: &Slot| slot.thread.load(Relaxed) != 0 && slot.began_ms.load(Relaxed) == 0;
        let rows = (0..).zip(self.scoreboard.rows());
        let mut others = rows.filter(|(number, row)| *number != self.row_number && row.has_room());
        others.any(|(number, _)| self.scoreboard.slots(number).iter().any(is_free))
    }

    /// Accepts one connection, and has the poll report what comes on it: no thread attends to it now.
    pub(crate) fn accept_unread(&self, number: usize, state: &mut LeaderState<L::App>) -> Option<Key> {
        let listener = self.worker.listeners.get(number)?;
        let LeaderState { connections, housekeeping, .. } = &mut *state;
        let Entered::One(key) = enter(self, listener.accept(), number, connections, housekeeping, now_ms()) else { return None };
        let mut connection = connections.check_out(key)?;
        if self.register(key, &mut connection) {
            let due_ms = connection.due_ms();
            connections.check_in(key, connection, due_ms);
        } else {
            self.close_checked(key, &mut connection, state);
        }
        Some(key)
    }

    /// Answers the checks that are here. Returns `true` if more connections are to be looked at.
    pub(crate) fn answer_checks(&self, checks: &mut Checks, state: &mut LeaderState<L::App>) -> bool {
        for _ in 0..LOOKS {
            let Some(key) = checks.candidates.pop_front() else { return false };
            let unread = state.connections.peek(key).map(|connection| connection.unread_check(&self.worker));
            if let Some(Unread::Check(check)) = unread {
                checks.clock.tick();
                if !self.answer_check(key, &check, &checks.clock, state) {
                    checks.waiting.remove(&key.0);
                }
            }
        }
        !checks.candidates.is_empty()
    }

    /// Returns whether the connection continues.
    fn answer_check(&self, key: Key, check: &UnreadRequest, clock: &Clock, state: &mut LeaderState<L::App>) -> bool {
        let Some(mut connection) = state.connections.check_out(key) else { return false };
        let continues = connection.answer_unread(check, &self.worker, clock);
        if continues {
            let due_ms = connection.due_ms();
            state.connections.check_in(key, connection, due_ms);
        } else {
            self.close_checked(key, &mut connection, state);
        }
        continues
    }

    /// Closes a connection without the language: the next thread that holds it drops its objects.
    pub(crate) fn close_checked(&self, key: Key, connection: &mut Connection<L::App>, state: &mut LeaderState<L::App>) {
        if forks::has_forked() {
            // Closing our descriptor does not end a connection that another process has open too.
            socket::end_sending(connection.socket());
        }
        state.moved_leftovers.push(connection.leftover());
        state.connections.remove(key);
        state.connections.forget_events(key);
        state.housekeeping.descriptors.note_end(now_ms());
        self.worker.row.connections.store(state.connections.population().all() as u32, Relaxed);
    }
}
