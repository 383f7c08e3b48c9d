//! The worker's event loop: it polls, attends to connections that have events, and handles timers. One thread leads it at a time
//! ([`crate::scheduling::leadership`]). The state is unlocked while a connection is attended to, as a call may last long.
//! The poll is edge-triggered: each connection is registered once in its life, and read until it is empty. Workers run it.

mod accepting;
mod admission;
mod bulkheads;
mod census;
mod checks;
mod companion;
mod descriptors;
pub mod draining;
pub mod embedded;
mod handing_over;
mod moving;
mod multiplexing;
mod orders;
pub mod panics;
mod pausing;
mod polling;
mod sessions;
mod signal_pools;
mod standby;
mod threads;
mod uwsgi_signals;
pub mod worker_state;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::message::Report;
use bolide_scoreboard::Accepting;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::app::{App, Language};
use crate::app_thread::AppThread;
use crate::connection::{Connection, Link, NextAction};
use crate::event_loop::accepting::{accept, end_pauses, end_shortage_if_due, listen, listen_for_checks, listen_or_leave};
use crate::event_loop::bulkheads::{give_left_permits, give_permits, note_waiting};
use crate::event_loop::descriptors::log_lost_descriptors;
use crate::event_loop::draining::{End, begin_drain, idle_until_ms, log_mercy_end, log_stream_end, stream_spread_ms};
use crate::event_loop::handing_over::{give_up_rested, move_rest};
use crate::event_loop::moving::{drop_moved_leftovers, take_moved};
use crate::event_loop::multiplexing::{insert_streams, place_stream_back};
use crate::event_loop::orders::take_orders;
use crate::event_loop::panics::end_worker_at_a_panic;
use crate::event_loop::pausing::check_in;
use crate::event_loop::polling::{TIDY_MS, must_look_before, poll};
use crate::event_loop::sessions::{has_drained, move_to_owner, take_sessions, watch_relay};
use crate::event_loop::signal_pools::watch_signal_pools;
use crate::event_loop::uwsgi_signals::{adopt_signals, handle_uwsgi_signal};
use crate::event_loop::worker_state::{Assignment, Guard, Housekeeping, LeadEnd, LeaderState, Shared};
use crate::exchange::context::ThreadContext;
use crate::forks;
use crate::logging::access_log::complain;
use crate::scheduling::connections::{ConnectionTable, Due, EventSource, Key};
use crate::scheduling::deadlines::NEVER_MS;
use crate::sockets::socket;
use crate::succession::opened_for_worker;

/// Events that one poll fetches.
pub(crate) const EVENTS: usize = 256;

/// Serves until an order to drain has been carried out. The calling thread runs the language, and is the worker's first thread.
///
/// # Errors
/// The poll or another thread can't be created, or the language refuses the calling thread.
pub fn serve<L: Language>(language: &'static L, assignment: Assignment) -> io::Result<()> {
    let succession = assignment.succession.clone();
    let shared = opened_for_worker(succession.as_deref(), || prepare(language, assignment))?;
    if shared.worker.has_one_thread {
        let hooks = Arc::downgrade(&shared);
        forks::set_fork_hooks(hooks);
    }
    threads::run(&shared)?;
    shared.end_threads_before_succession();
    shared.worker.peer_warnings.log_rest(shared.worker.number);
    shared.report(|row, pid| Report::Leaving { row, pid });
    Ok(())
}

/// Creates the state that the threads share, and a poll with the listening sockets registered.
pub(crate) fn prepare<L: Language>(language: &'static L, assignment: Assignment) -> io::Result<Arc<Shared<L>>> {
    bolide_log::identity::set_worker(assignment.worker);
    end_worker_at_a_panic(assignment.worker);
    let shared = Arc::new(Shared::new(language, assignment)?);
    if !shared.is_held.load(Relaxed) {
        for number in 0..shared.worker.listeners.len() {
            listen(&shared, number)?;
        }
        shared.watch_queue();
        shared.watch_sessions();
    }
    shared.poll.add(&shared.control, EpollEvent::new(EpollFlags::EPOLLIN, Key::CONTROL.0))?;
    adopt_signals(&shared);
    if let Some(bell) = &shared.bell {
        // Edge-triggered: each ring is reported once, so the counter is never read.
        shared.poll.add(bell, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, Key::BELL.0))?;
    }
    Ok(shared)
}

impl<L: Language> Shared<L> {
    /// Reports to the master and the other workers that this worker serves, or is ready to. The first poll follows immediately.
    pub fn announce(&self) {
        let row = self.worker.row;
        row.pid.store(std::process::id(), Relaxed);
        row.worker.store(self.worker.number, Relaxed);
        row.started_ms.store(now_ms(), Relaxed);
        row.spread_ms.store(stream_spread_ms(&self.worker.settings.lifecycle), Relaxed);
        self.lock_state().housekeeping.memory_trim.note_baseline(crate::allocator::own_bytes());
        self.watch_slow_requests();
        if self.is_held.load(Relaxed) {
            return self.report(|row, pid| Report::Passed { row, pid });
        }
        self.report_serving();
    }

    /// The generation is admitted: this worker accepts connections from now on.
    fn admit(&self) {
        if !self.is_held.swap(false, Relaxed) || self.worker.is_draining() {
            return;
        }
        match self.worker.is_paused() {
            true => listen_for_checks(self),
            false => self.listen_to_all(),
        }
        self.report_serving();
    }

    /// Registers every listening socket with the poll.
    pub(crate) fn listen_to_all(&self) {
        for number in 0..self.worker.listeners.len() {
            listen_or_leave(self, number);
        }
        self.watch_queue();
        self.watch_sessions();
        watch_signal_pools(self);
    }

    fn report_serving(&self) {
        let row = self.worker.row;
        // Otherwise the others would take it for busy until its first poll: a burst right after startup is shared too.
        row.turned_ms.store(now_ms(), Relaxed);
        row.accepting.store(Accepting::Yes.code(), Relaxed);
        self.report(|row, pid| Report::Serving { row, pid });
    }

    /// Leads until the lead is lost or the worker has drained. The calling thread is one that runs the language.
    pub fn lead(self: &Arc<Self>, thread: &mut ThreadContext, app: &mut AppThread<L::App>, alone: bool) -> LeadEnd {
        // A signal that arrived since this thread last ran the language (at its start, or as a follower) interrupts no wait any
        // more. A thread that takes the language late runs its handlers once no thread is in the application. They run on the
        // first thread alone.
        let mut owes_handlers = app.is_late() && thread.core == 0;
        if app.is_held() {
            self.run_signal_handlers(app);
            owes_handlers = false;
        }
        let mut is_interrupted = false;
        let mut guard = self.lock_state();
        self.note_leader();
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let still_leads;
            let polled_ms = thread.clock.now_ms;
            (guard, still_leads) = self.attend_ready(guard, thread, app, alone, polled_ms, || {});
            if !still_leads {
                drop(guard);
                thread.log.flush();
                return LeadEnd::Lost;
            }
            Self::push_corked(&mut guard);
            self.worker.held_answers.push();
            guard.housekeeping.corking.end_turn();
            thread.log.flush();
            if is_interrupted || owes_handlers && self.is_calm() {
                owes_handlers = false;
                let (back, still_leads) = self.run_signal_handlers_unlocked(guard, app, alone);
                guard = back;
                if !still_leads {
                    return LeadEnd::Lost;
                }
            }
            self.run_timers(&mut guard, thread);
            if has_drained(self, &mut guard) {
                return LeadEnd::Drained;
            }
            (guard, is_interrupted) = poll(self, guard, thread, app, &mut events);
            is_interrupted &= app.is_held() || thread.core == 0;
            guard.housekeeping.corking.begin_turn();
        }
    }

    /// Attends to ready keys until none is left or the monotonic time `until_ms` has passed. Then the poll is asked for more: new
    /// clients are queued behind the clients before them, not behind all their later requests. Returns `false` if the lead is
    /// lost.
    pub(crate) fn attend_ready<'a>(
        self: &'a Arc<Self>,
        mut guard: Guard<'a, L>,
        thread: &mut ThreadContext,
        app: &mut AppThread<L::App>,
        alone: bool,
        until_ms: u64,
        answer_heartbeat: impl Fn(),
    ) -> (Guard<'a, L>, bool) {
        while let Some(key) = guard.connections.next_ready() {
            match key.source() {
                EventSource::Control => take_orders(self, &mut guard),
                EventSource::Listener(number) => accept(self, number, &mut guard, thread),
                EventSource::Queue => take_moved(self, &mut guard, thread.clock.now_ms),
                EventSource::Sessions => _ = take_sessions(self, &mut guard, thread.clock.now_ms),
                EventSource::Bulkheads => give_permits(self, &mut guard, thread.clock.now_ms),
                EventSource::Heartbeat => answer_heartbeat(),
                // A relay's events are those of its connection.
                EventSource::Bell | EventSource::Relay(_) => {}
                EventSource::Signals => {
                    let still_leads;
                    (guard, still_leads) = handle_uwsgi_signal(self, guard, thread, app, alone);
                    if !still_leads {
                        return (guard, false);
                    }
                }
                EventSource::Connection(key) => {
                    let still_leads;
                    (guard, still_leads) = self.attend(key, guard, thread, app, alone);
                    if !still_leads {
                        return (guard, false);
                    }
                }
            }
            if thread.clock.now_ms > until_ms {
                break;
            }
        }
        (guard, true)
    }

    pub(crate) fn push_corked(state: &mut LeaderState<L::App>) {
        while let Some(key) = state.housekeeping.corking.next() {
            if let Some(connection) = state.connections.peek(key) {
                connection.push();
            }
        }
    }

    /// Attends to a connection, which is checked out in the meantime, with the state unlocked. Returns `false` if the lead was
    /// lost.
    fn attend<'a>(
        self: &'a Arc<Self>,
        key: Key,
        mut guard: Guard<'a, L>,
        thread: &mut ThreadContext,
        app: &mut AppThread<L::App>,
        alone: bool,
    ) -> (Guard<'a, L>, bool) {
        let Some(mut connection) = guard.connections.check_out(key) else { return (guard, true) };
        connection.peer_has_ended = guard.connections.has_ended(key);
        connection.key = key;
        if guard.housekeeping.corking.take(key) {
            // Its client has sent another request before it had this answer, and the call may be a long one.
            connection.push();
        }
        let may_cork = guard.housekeeping.corking.is_on()
            && guard.connections.has_ready()
            && self.worker.is_tcp(connection.listener())
            && (alone || !self.leadership.has_blocked_lately());
        // No answer is held unless the companion runs, which pushes it in time.
        thread.may_cork = may_cork && self.begin_companion();
        self.wake_companion(thread.clock.now_ms, &mut guard);
        drop_moved_leftovers(&mut guard, app);
        drop(guard);
        let inside = (!alone).then(|| self.leadership.enter_call());
        let after = connection.attend(thread, app, &self.worker);
        let mut is_held = connection.take_corked();
        if is_held && matches!(after, NextAction::Move(_)) {
            // Another worker continues with the connection, and knows nothing of it.
            connection.push();
            is_held = false;
        }
        let (mut guard, still_leads) = self.come_back(inside);
        if is_held && !still_leads {
            // The leader knows nothing of it.
            connection.push();
        }
        let is_held = is_held && still_leads;
        self.place_back(key, connection, after, &mut guard, app);
        self.note_wanted_watch(&mut guard);
        if !still_leads {
            self.wake_leader(&mut guard);
        } else if guard.housekeeping.corking.attended(key, is_held) {
            Self::push_corked(&mut guard);
        } else if is_held && guard.housekeeping.corking.holds_first() {
            self.guard_corked();
        }
        (guard, still_leads)
    }

    /// Whether there is work that does not need a poll: events of connections, or the end of a drain.
    pub(crate) fn has_work(&self, state: &LeaderState<L::App>) -> bool {
        state.connections.has_ready() || self.worker.is_draining() && state.connections.population().all() == 0
    }

    /// Wakes the leader for a connection that a thread without the lead has put back. It sleeps in the poll (or the standby waits
    /// there during its call), and would notice the connection only when its wait ends, or after the connection's limit.
    fn wake_leader(&self, state: &mut LeaderState<L::App>) {
        let must_count = self.worker.has_scraper && state.housekeeping.census.note_change();
        // `waiting` is written under the lock that this thread holds: a leader that is about to sleep has set it already.
        let sleeps = self.worker.row.waiting.load(Relaxed) == 1;
        let is_late = must_look_before(self, &state.connections, state.housekeeping.sleeps_until_ms);
        if sleeps
            && (is_late || must_count || self.needs_leader(state))
            && let Some(bell) = &self.bell
        {
            // A full counter has rung already.
            let _ = bell.write(1);
        }
    }

    pub(crate) fn place_back(
        &self,
        key: Key,
        connection: Box<Connection<L::App>>,
        after: NextAction,
        state: &mut LeaderState<L::App>,
        app: &mut AppThread<L::App>,
    ) {
        let waits_for = self.worker.bulkheads.and_then(|_| connection.ticket()).map(|ticket| ticket.bulkhead.number);
        self.place(key, connection, after, state, app);
        if let Some(number) = waits_for {
            note_waiting(self, key, number, state, now_ms());
        }
    }

    fn place(
        &self,
        key: Key,
        mut connection: Box<Connection<L::App>>,
        mut after: NextAction,
        state: &mut LeaderState<L::App>,
        app: &mut AppThread<L::App>,
    ) {
        if self.worker.affinity.is_some() && !watch_relay(self, key, &mut connection, state) {
            after = NextAction::Close;
        }
        match connection.link() {
            Link::Socket { .. } => {}
            Link::Multiplexed(multiplexer) => insert_streams(self, &connection, multiplexer, &mut state.connections),
            Link::Stream { multiplexer, number } => {
                let link = (multiplexer.clone(), *number);
                return place_stream_back(self, key, connection, link, after, state, app);
            }
        }
        if let NextAction::Move(owner) = after {
            return move_to_owner(self, key, connection, owner, state, app);
        }
        let LeaderState { connections, housekeeping, .. } = &mut *state;
        let is_known = connection.is_polled;
        let stays = after != NextAction::Close && (is_known || self.register(key, &mut connection));
        let stays = stays && (after != NextAction::Again || !is_known || self.rearm_connection(key, &connection));
        if stays {
            self.limit_time(&mut connection, housekeeping);
            let is_given_up = self.worker.hands_over() || housekeeping.doom.is_at_work();
            let is_given_up = is_given_up && connection.is_idle();
            check_in(self, key, connection, after == NextAction::Rest, connections);
            if is_given_up {
                give_up_rested(self, key, state);
            }
        } else {
            self.end_for_others(&connection);
            if !app.is_held() {
                app.discard(connection.leftover());
            }
            connections.remove(key);
            housekeeping.descriptors.note_end(now_ms());
            self.worker.row.connections.store(connections.population().all() as u32, Relaxed);
        }
    }

    /// A draining worker keeps an idle connection only for a short time.
    pub(crate) fn limit_time(&self, connection: &mut Connection<L::App>, housekeeping: &mut Housekeeping) {
        if self.worker.is_draining() && connection.is_idle() {
            connection.deadline_ms = connection.deadline_ms.min(idle_until_ms(&self.worker, connection.has_served()));
        } else if self.worker.is_draining() {
            connection.arrive_by(housekeeping.arrivals_end_ms, &self.worker, now_ms());
        }
    }

    /// Closing our descriptor does not end a connection that another process has open too.
    fn end_for_others(&self, connection: &Connection<L::App>) {
        if connection.is_given_away() {
            // The poll would continue to report it as long as its new owner has it open.
            let _known_to_the_poll = self.poll.delete(connection.socket());
        } else if connection.is_shared || forks::has_forked() {
            socket::end_sending(connection.socket());
        }
    }

    fn rearm_connection(&self, key: Key, connection: &Connection<L::App>) -> bool {
        self.rearm(key, connection.socket())
    }

    /// Rearms the socket: the poll reports again that it is writable, behind the events of other connections.
    pub(crate) fn rearm(&self, key: Key, socket: BorrowedFd<'_>) -> bool {
        self.poll.modify(socket, &mut Self::interest(key)).is_ok()
    }

    fn interest(key: Key) -> EpollEvent {
        EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET, key.0)
    }

    pub(crate) fn register(&self, key: Key, connection: &mut Connection<L::App>) -> bool {
        match self.poll.add(connection.socket(), Self::interest(key)) {
            Ok(()) => {
                connection.is_polled = true;
                true
            }
            Err(errno) => {
                complain(self.worker.number, &format!("closing a connection that can't be added to epoll: {errno}"));
                false
            }
        }
    }

    pub(crate) fn run_signal_handlers(&self, app: &mut AppThread<L::App>) {
        if app.enter().interrupted() == ControlFlow::Break(()) {
            self.worker.availability.ask_to_leave();
        }
    }

    /// Runs signal handlers in the middle of the loop, like a call, with the state unlocked: a handler that blocks or waits for
    /// the language does not keep other threads from the lead, and one that forks does not wait for the companion.
    fn run_signal_handlers_unlocked<'a>(
        &'a self,
        guard: Guard<'a, L>,
        app: &mut AppThread<L::App>,
        alone: bool,
    ) -> (Guard<'a, L>, bool) {
        drop(guard);
        let inside = (!alone).then(|| self.leadership.enter_call());
        self.run_signal_handlers(app);
        let (mut guard, still_leads) = self.come_back(inside);
        if !still_leads {
            self.wake_leader(&mut guard);
        }
        (guard, still_leads)
    }

    /// No thread of the worker is in the application, by the scoreboard, so taking the language waits for none of them.
    fn is_calm(&self) -> bool {
        self.worker.slots.iter().all(|slot| slot.began_ms.load(Relaxed) == 0)
    }

    /// Handles time limits, `max-requests`, and an exit that the application has requested.
    pub(crate) fn run_timers(&self, state: &mut LeaderState<L::App>, thread: &mut ThreadContext) {
        if !state.housekeeping.pauses.is_empty() {
            end_pauses(self, &mut state.connections, &mut state.housekeeping, thread);
        }
        let leaves = self.worker.availability.is_asked_to_leave();
        if leaves && !self.worker.is_draining() {
            begin_drain(self, state, if self.has_other_workers() { End::Replaced } else { End::Alone });
        }
        move_rest(self, state, thread.clock.now_ms);
        end_shortage_if_due(self, state, thread.clock.now_ms);
        census::take_if_due(self, state, thread.clock.now_ms);
        give_left_permits(self, state, thread.clock.now_ms);
        let LeaderState { connections, housekeeping, .. } = state;
        let now = thread.clock.now_ms;
        // A worker that leaves by itself finishes its requests, as at a retirement, and its replacement starts in the meantime.
        let are_lost = housekeeping.descriptors.are_lost(connections.population().all(), now);
        if (leaves || self.is_worn() || are_lost) && !housekeeping.worn_reported {
            housekeeping.worn_reported = true;
            if are_lost {
                log_lost_descriptors(self.worker.number);
            }
            self.report(|row, pid| Report::Worn { row, pid });
        }
        if !housekeeping.mercy_is_over && self.worker.availability.mercy_ends_ms() <= now {
            housekeeping.mercy_is_over = true;
            log_mercy_end(self, connections);
        }
        if !housekeeping.streams_have_ended && self.worker.availability.streams_end_ms() <= now {
            housekeeping.streams_have_ended = true;
            log_stream_end(self, connections);
        }
        housekeeping.memory_trim.note(connections.population().all(), self.worker.row.requests.load(Relaxed), now);
        if housekeeping.memory_trim.is_due(now) {
            self.trim_memory(connections, housekeeping, now);
        }
        if let Some(files) = self.worker.files
            && now.saturating_sub(housekeeping.tidied_ms) >= TIDY_MS
        {
            housekeeping.tidied_ms = now;
            files.tidy(now);
        }
        self.worker.peer_warnings.log_due(self.worker.number, now);
        let is_paused = self.worker.is_paused();
        connections.look(now, |connection| match is_paused && connection.awaits_request() {
            // The end of the pause sets its time limit again.
            true => Due::At(NEVER_MS),
            false => connection.look(now),
        });
    }

    /// Returns memory of clients that have left and of large requests to the system. It takes milliseconds, so it is done only
    /// when the worker is calm.
    fn trim_memory(&self, connections: &ConnectionTable<Connection<L::App>>, housekeeping: &mut Housekeeping, now: u64) {
        if connections.has_ready() || !self.is_calm() || socket::has_events(self.poll.0.as_fd()) {
            return housekeeping.memory_trim.put_off(now);
        }
        let reasons = (connections.population().all(), self.worker.row.requests.load(Relaxed), now);
        housekeeping.memory_trim.look(reasons, crate::allocator::own_bytes, crate::allocator::trim);
    }

    pub(crate) fn is_worn(&self) -> bool {
        self.worn_after.is_some_and(|most| self.worker.row.requests.load(Relaxed) >= most)
    }
}
