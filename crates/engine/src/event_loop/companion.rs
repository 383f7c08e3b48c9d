//! A worker's companion: a thread without the language that looks after connections while every thread of the worker is inside a
//! call of the application. It hands connections with new requests over to other workers ([`crate::event_loop::moving`]), and
//! pushes answers that the kernel holds ([`crate::scheduling::corking`]) in time. With `health-path` it accepts connections too,
//! and answers the health checks on them ([`crate::event_loop::checks`]). With `admission` it refuses requests that wait too long
//! ([`crate::event_loop::admission`]), and those that have waited for a permit of their bulkhead too long
//! ([`crate::event_loop::bulkheads`]).
//!
//! A worker starts the companion when it has a second connection, as its next call may be a long one, and with `health-path` or
//! `admission` when it has the first. The companion looks once a millisecond while calls are slow. While they are quick, the
//! leader puts the look off with one system call in some milliseconds, since a wake-up costs more than some requests. An idle
//! companion sleeps until the next connection is attended to. If there is no other worker and neither option, it also sleeps
//! during calls, until the master orders a handover. It does not know about protocols. Workers run it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;
use std::time::Duration;

use bolide_contract::clock::now_ms;
use bolide_scoreboard::Slot;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use nix::sys::signal::SigSet;

use crate::app::Language;
use crate::event_loop::admission::Waits;
use crate::event_loop::bulkheads::{end_waits, may_wait};
use crate::event_loop::checks::Checks;
use crate::event_loop::handing_over::move_rest;
use crate::event_loop::moving::{Move, move_away};
use crate::event_loop::orders::take_orders;
use crate::event_loop::polling::{PEER_HAS_ENDED, take_event};
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::forks::ForkHooks;
use crate::logging::access_log::complain;
use crate::scheduling::clock::Clock;
use crate::scheduling::connections::{EventSource, Key};
use crate::scheduling::corking::{HOLD_US, LOOK_US};
use crate::scheduling::handover::Sleep;

/// The pause between two looks.
const TICK: Duration = Duration::from_millis(1);

/// The same while answers of HTTP/2 are held that must be pushed in time.
const HELD_TICK: Duration = Duration::from_micros(LOOK_US);

/// How long the look is put off while calls are quick. It is longer than a tick of the coarse clock (4 ms on most kernels), which
/// shows whether they are.
const PUT_OFF: Duration = Duration::from_millis(5);

/// During a long call, events wake the companion. It looks whether the call has ended after this many milliseconds at the latest.
const LOOK_MS: u16 = 20;

/// Looks without a request in service before it sleeps.
const IDLE_LOOKS: u32 = 3;

/// After this many milliseconds in which the companion was not needed, it sleeps until it is needed.
const CALM_MS: u64 = 10_000;

/// Size of its stack in bytes: its calls are few and not deep.
const STACK_BYTES: usize = 256 * 1024;

/// Events that it fetches at a time, and connections that it hands over in one look.
const EVENTS: usize = 64;

impl<L: Language> ForkHooks for Shared<L> {
    fn before_fork(&self) {
        if !self.worker.companion.has_begun.load(SeqCst) {
            return;
        }
        self.companion_thread.call_off();
        self.worker.companion.bell.ring();
        self.companion_thread.join();
        self.worker.companion.bell.clear();
    }

    fn after_fork(self: Arc<Self>) {
        // The call that has forked may be the long one.
        if self.companion_thread.allow() {
            self.begin_companion();
        }
    }
}

impl<L: Language> Shared<L> {
    /// A connection is about to be attended to.
    #[inline]
    pub(crate) fn wake_companion(self: &Arc<Self>, now_ms: u64, state: &mut LeaderState<L::App>) {
        if state.housekeeping.quick_calls.note(now_ms) {
            self.put_off_look(state);
        }
        // A health check may come on another connection, and so may a request that waits too long.
        if state.housekeeping.needs_companion && (state.connections.population().all() > 1 || self.worker.answers_in_calls()) {
            // This very call may be the one that does not end.
            state.housekeeping.needs_companion = false;
            self.begin_companion();
        }
        self.worker.companion.wake_for_work(&mut state.housekeeping.companion);
    }

    /// The calls of the last milliseconds were quick: a companion that is awake need not look for a long one yet.
    fn put_off_look(&self, state: &mut LeaderState<L::App>) {
        let is_awake = self.worker.companion.has_begun.load(Relaxed) && state.housekeeping.companion == Sleep::Awake;
        // If answers are held, the first one of each batch puts the look off.
        if is_awake && !state.housekeeping.corking.has_held() && !state.housekeeping.corking.holds() {
            self.companion_thread.look_after(PUT_OFF);
        }
    }

    /// The kernel holds a first answer. The leader pushes it in time, unless its next call is long.
    pub(crate) fn guard_corked(&self) {
        self.companion_thread.look_after(Duration::from_micros(HOLD_US));
    }

    /// A connection was attended to: its answer could have been held if a companion had watched.
    #[inline]
    pub(crate) fn note_wanted_watch(self: &Arc<Self>, state: &mut LeaderState<L::App>) {
        if self.worker.held_answers.want_watch() {
            self.need_companion(state);
        }
    }

    /// There is work for the companion: it starts or wakes, and stays awake for a while.
    #[cold]
    fn need_companion(self: &Arc<Self>, state: &mut LeaderState<L::App>) {
        self.call_companion(state);
        self.begin_companion();
    }

    /// The next call may need the companion, if there is one.
    pub(crate) fn call_companion(&self, state: &mut LeaderState<L::App>) {
        state.housekeeping.needed_ms = now_ms();
        self.worker.companion.wake_for_need(&mut state.housekeeping.companion);
    }

    /// Starts the companion if there is none. Returns whether there is one now.
    pub(crate) fn begin_companion(self: &Arc<Self>) -> bool {
        if self.worker.companion.has_begun.load(Relaxed) {
            return !self.worker.companion.has_failed.load(Relaxed);
        }
        self.worker.companion.has_begun.store(true, Relaxed);
        let shared = self.clone();
        let begun =
            thread::Builder::new().name("companion".to_owned()).stack_size(STACK_BYTES).spawn(move || shared.run_companion());
        match begun {
            Ok(thread) => self.companion_thread.put(thread),
            Err(error) => {
                self.worker.companion.has_failed.store(true, Relaxed);
                complain(self.worker.number, &format!("can't start the thread that hands over waiting connections: {error}"));
            }
        }
        !self.worker.companion.has_failed.load(Relaxed)
    }

    /// The companion's thread. It ends with the process, or for a fork.
    fn run_companion(&self) {
        self.companion_thread.note_thread();
        // Signals are the application's.
        let _ = SigSet::all().thread_block();
        let mut before = None;
        let mut checks = self.worker.answers_checks().then(Checks::new);
        // Requests in another event loop do not wait for a thread.
        let is_embedded = self.worker.row.is_embedded.load(Relaxed) == 1;
        let mut waits = (self.worker.admission.is_some() && !is_embedded).then(Waits::new);
        let mut clock = Clock::new();
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut idle_looks = 0;
        while !self.companion_thread.is_called_off() {
            // Taken first: a call rings once it shows in its slot.
            let is_expected = self.worker.companion.take_expectation();
            let calls = self.calls();
            let is_lasting = calls.is_some() && (calls == before || is_expected);
            idle_looks = if calls.is_none() { idle_looks + 1 } else { 0 };
            before = calls;
            if let Some(checks) = &mut checks {
                checks.note_calls(calls);
            }
            if let Some(waits) = &mut waits {
                waits.note_calls(calls);
            }
            if is_lasting && self.look_after_waiting(&mut events, checks.as_mut(), waits.as_mut(), &mut clock) {
                self.worker.held_answers.watch(false);
                // New events wake it immediately.
                self.wait_for_events();
            } else if idle_looks > IDLE_LOOKS || is_lasting && self.can_only_wait() {
                self.sleep(is_lasting);
                idle_looks = 0;
            } else {
                let are_wanted = self.push_held();
                self.worker.held_answers.watch(true);
                if are_wanted {
                    thread::sleep(HELD_TICK);
                } else {
                    self.wait_for_alarm();
                }
            }
        }
        self.end_companion();
    }

    /// Hands over everything that depends on the companion.
    fn end_companion(&self) {
        self.worker.held_answers.watch(false);
        let mut guard = self.lock_state();
        Self::push_corked(&mut guard);
        guard.housekeeping.companion = Sleep::Awake;
        // Whatever the outcome of the fork, the next call starts it again.
        guard.housekeeping.needs_companion = self.queue.is_some() || self.worker.needs_companion();
        self.worker.companion.has_begun.store(false, SeqCst);
    }

    /// Pushes held answers if the leader's call may outlast their time. Returns whether answers of HTTP/2 were to be held.
    fn push_held(&self) -> bool {
        let were_wanted = self.worker.held_answers.were_wanted();
        // Every answer on the list was held since the last look at the earliest.
        self.worker.held_answers.push();
        let mut guard = self.lock_state();
        if were_wanted {
            guard.housekeeping.needed_ms = now_ms();
        }
        if guard.housekeeping.corking.is_nearly_over() {
            Self::push_corked(&mut guard);
        }
        were_wanted
    }

    /// Waits for the time of the next look, or for a fork.
    fn wait_for_alarm(&self) {
        let guard = self.lock_state();
        let left = guard.housekeeping.corking.left();
        self.companion_thread.look_after(left.map_or(TICK, |left| left.min(TICK)));
        drop(guard);
        let alarm = PollFd::new(self.companion_thread.alarm(), PollFlags::POLLIN);
        let mut waits = [alarm, PollFd::new(self.worker.companion.bell.descriptor(), PollFlags::POLLIN)];
        // The next look finds out why the wait ended.
        let _ = poll(&mut waits, PollTimeout::NONE);
        self.worker.companion.bell.clear();
        self.companion_thread.note_alarm();
    }

    /// Identifies the calls that all threads of the worker are inside of, by the sum of their numbers. Numbers only grow, so
    /// equal sums mean the same calls. `None`: a thread is free.
    fn calls(&self) -> Option<u64> {
        let mut slots = self.worker.slots.iter().filter(|slot| slot.thread.load(Relaxed) != 0);
        slots.try_fold(0, |sum: u64, slot| (slot.began_ms.load(Relaxed) != 0).then(|| sum.wrapping_add(slot.count.load(Relaxed))))
    }

    /// Whether the loop of the language was found not to turn. Its next turn comes in any case: it has been asked for one.
    fn is_loop_stuck(&self) -> bool {
        let is_shown = |slot: &Slot| slot.began_ms.load(Relaxed) != 0 && slot.limit_ms.load(Relaxed) != Slot::UNLIMITED_MS;
        self.worker.row.is_embedded.load(Relaxed) == 1 && self.worker.slots.iter().any(is_shown)
    }

    /// Fetches events that no other thread fetches now, and hands over connections that have some. Returns `false` if another
    /// immediate look would achieve nothing: the worker's own threads look after the connections, or the queue is full.
    fn look_after_waiting(
        &self,
        events: &mut [EpollEvent],
        mut checks: Option<&mut Checks>,
        waits: Option<&mut Waits>,
        clock: &mut Clock,
    ) -> bool {
        let mut guard = self.lock_state();
        // A leader that sleeps in its poll fetches its events itself. In a loop of the language that does not turn, code of the
        // application that runs outside of the worker's turns is what keeps it.
        let is_asleep = self.worker.row.waiting.load(Relaxed) == 1 || guard.connections.is_none_away();
        if is_asleep && !self.is_loop_stuck() {
            return false;
        }
        Self::push_corked(&mut guard);
        if let Some(checks) = &mut checks {
            checks.begin_look(&guard.connections);
        }
        let Ok(count) = self.poll.wait(events, EpollTimeout::ZERO) else { return false };
        let mut waits_elsewhere = false;
        for event in &events[..count] {
            let source = Key(event.data()).source();
            waits_elsewhere |= match (source, &mut checks) {
                (EventSource::Connection(key), Some(checks)) => {
                    if checks.note_event(key) || event.events().intersects(PEER_HAS_ENDED) {
                        take_event::<L>(event, &mut guard.connections);
                    }
                    false
                }
                (EventSource::Listener(number), Some(checks)) => {
                    take_event::<L>(event, &mut guard.connections);
                    self.accept_for_checks(number, checks, &mut guard)
                }
                (EventSource::Control, _) => {
                    take_orders(self, &mut guard);
                    true
                }
                // The poll reports it again to the thread that answers it.
                (EventSource::Heartbeat, Some(_)) => true,
                (source, _) => {
                    take_event::<L>(event, &mut guard.connections);
                    !matches!(source, EventSource::Connection(_) | EventSource::Relay(_))
                }
            };
        }
        waits_elsewhere |= checks.is_some_and(|checks| self.answer_checks(checks, &mut guard));
        move_rest(self, &mut guard, now_ms());
        end_waits(self, clock, &mut guard);
        let refuses = waits.is_some();
        if let Some(waits) = waits {
            self.refuse_waiting(waits, &mut guard);
        }
        let must_stay = guard.housekeeping.doom.is_at_work() || self.worker.is_paused() || self.worker.is_draining();
        if must_stay || !self.may_move() {
            // Without checks, there is nothing to look for again soon.
            return self.looks_in_calls(&guard) && !waits_elsewhere;
        }
        if refuses && !self.has_free_worker() {
            // No worker refuses requests in the queue of connections. A worker may be free at any moment.
            return false;
        }
        self.move_waiting(&mut guard) && !waits_elsewhere
    }

    /// Hands over the connections that have a waiting request. Returns `false` if the queue is full.
    fn move_waiting(&self, state: &mut LeaderState<L::App>) -> bool {
        let ready: Vec<Key> = state.connections.ready().collect();
        let mut looks = EVENTS;
        for key in ready {
            let may_wait = matches!(key.source(), EventSource::Connection(_))
                && state.connections.peek(key).is_some_and(|connection| connection.may_move());
            if !may_wait {
                continue;
            }
            if looks == 0 {
                break;
            }
            looks -= 1;
            let waits = state.connections.peek(key).is_some_and(|connection| connection.has_unread());
            if waits && move_away(self, key, true, state) == Move::NoRoom {
                return false;
            }
        }
        true
    }

    /// During a long call there is nothing to do before an order of the master: no other worker could serve what waits.
    fn can_only_wait(&self) -> bool {
        self.worker.held_answers.push();
        let mut guard = self.lock_state();
        Self::push_corked(&mut guard);
        let is_handing_over = guard.housekeeping.doom.is_at_work() || guard.housekeeping.moves_at_ms.is_some();
        !is_handing_over && !self.has_other_workers() && !self.looks_in_calls(&guard)
    }

    /// Requests may need it during these calls, whether or not another worker could serve them.
    fn looks_in_calls(&self, state: &LeaderState<L::App>) -> bool {
        self.worker.answers_in_calls() || may_wait(state)
    }

    /// Sleeps until there is work, or until the master announces that the worker is to be killed, so that everything must be
    /// handed over. `in_calls`: all threads are in calls, and none of them is waited for.
    fn sleep(&self, in_calls: bool) {
        let mut guard = self.lock_state();
        if !in_calls && !guard.connections.is_none_away() || guard.housekeeping.corking.holds() {
            return;
        }
        // If other workers could serve the waiting connections, the next call may be a long one.
        let is_calm = !self.has_other_workers() && !self.looks_in_calls(&guard);
        let is_calm = is_calm && now_ms().saturating_sub(guard.housekeeping.needed_ms) > CALM_MS;
        self.worker.held_answers.watch(false);
        guard.housekeeping.companion = if is_calm { Sleep::UntilNeeded } else { Sleep::UntilWork };
        // A postponed look does not wake it.
        self.companion_thread.forget_look();
        drop(guard);
        // The master announces that the worker is to be killed for a stuck call.
        let bell = PollFd::new(self.worker.companion.bell.descriptor(), PollFlags::POLLIN);
        let alarm = PollFd::new(self.companion_thread.alarm(), PollFlags::POLLIN);
        let mut waits = [bell, alarm, PollFd::new(self.control.as_fd(), PollFlags::POLLIN)];
        // The poll would report without end that the master is gone.
        let count = if self.is_orphaned.load(Relaxed) { 2 } else { 3 };
        // Only a signal could interrupt the poll, and they are blocked here. In any case the next look finds out why the wait
        // ended.
        let _ = poll(&mut waits[..count], PollTimeout::NONE);
        self.worker.companion.bell.clear();
        self.companion_thread.note_alarm();
        // Nothing else has set this if the sleep was ended by the alarm or the master.
        self.lock_state().housekeeping.companion = Sleep::Awake;
    }

    /// Waits until the poll has events, or the long call may have ended.
    fn wait_for_events(&self) {
        let bell = PollFd::new(self.worker.companion.bell.descriptor(), PollFlags::POLLIN);
        let mut waits = [PollFd::new(self.poll.0.as_fd(), PollFlags::POLLIN), bell];
        // The next look finds out why the wait ended.
        let _ = poll(&mut waits, PollTimeout::from(LOOK_MS));
        self.worker.companion.bell.clear();
    }
}
