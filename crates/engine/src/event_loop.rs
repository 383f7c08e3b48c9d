//! The worker's loop: poll, take what has news, attend to it, look after time. One thread leads it at a time
//! ([`crate::scheduling::leadership`]). Its state is unlocked while a connection is attended to, as that may take as long as the application likes.
//!
//! The poll is edge-triggered: a connection is told to the kernel once in its life, and read until it is empty.

mod accepting;
mod allocator;
mod companion;
pub mod draining;
pub mod embedded;
mod lookout;
mod moving;
mod multiplexing;
pub mod panics;
mod pausing;
mod threads;
pub mod worker_state;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::message::{self, Order, Received, Report};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use crate::app::{App, Language};
use crate::app_thread::AppThread;
use crate::connection::{Connection, Link, NextAction};
use crate::event_loop::accepting::{
    accept, end_pauses, let_in_handed, listen, listen_or_leave, look_at_listeners, shut_listeners,
};
use crate::event_loop::draining::End;
use crate::event_loop::draining::{begin_to_drain, begin_to_hand_all_over, tell_of_mercy, tell_of_streams};
use crate::event_loop::moving::Move;
use crate::event_loop::moving::{drop_put_down, move_away, move_rest, take_moved};
use crate::event_loop::multiplexing::{let_streams_in, place_stream_back};
use crate::event_loop::panics::end_worker_at_a_panic;
use crate::event_loop::pausing::{begin_pause, check_in, end_pause};
use crate::event_loop::worker_state::{Assignment, Guard, Housekeeping, LeadEnd, LeaderState, Shared};
use crate::exchange::thread_context::ThreadContext;
use crate::forks;
use crate::logging::access_log::complain;
use crate::scheduling::connections::{ConnectionTable, Due, EventSource, Key};
use crate::scheduling::deadlines::{CLOCK_TICK_MS, NEVER_MS};
use crate::sockets::socket;

/// Events that one poll fetches.
pub(crate) const EVENTS: usize = 256;

/// How often the cache of files is looked at, in milliseconds, at the most.
const TIDY_MS: u64 = 500;

/// A peer that sends no more, or is gone. An edge-triggered poll tells it once, perhaps in one event with the last bytes.
const PEER_HAS_ENDED: EpollFlags = EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// Serves until an order to drain has been carried out. The calling thread runs the language and becomes the
/// worker's first thread.
///
/// # Errors
/// The poll can't be made, or a further thread; or the language refuses the calling thread.
pub fn serve<L: Language>(language: &'static L, assignment: Assignment) -> io::Result<()> {
    let shared = prepare(language, assignment)?;
    if shared.worker.has_one_thread {
        forks::set_fork_hooks(shared.clone());
    }
    threads::run(&shared)?;
    shared.report(|row, pid| Report::Leaving { row, pid });
    Ok(())
}

/// Makes what the threads share, and a poll that knows the sockets.
pub(crate) fn prepare<L: Language>(language: &'static L, assignment: Assignment) -> io::Result<Arc<Shared<L>>> {
    end_worker_at_a_panic(assignment.worker);
    let shared = Arc::new(Shared::new(language, assignment)?);
    if !shared.is_held.load(Relaxed) {
        for number in 0..shared.worker.listeners.len() {
            listen(&shared, number)?;
        }
        shared.watch_queue();
    }
    shared.poll.add(&shared.control, EpollEvent::new(EpollFlags::EPOLLIN, Key::CONTROL.0))?;
    if let Some(bell) = &shared.bell {
        // Edge-triggered: each ring is told once, and nobody needs to read it.
        shared.poll.add(bell, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, Key::BELL.0))?;
    }
    Ok(shared)
}

impl<L: Language> Shared<L> {
    /// Tells the master and the other workers that this one serves, or could. Its first poll follows at once.
    pub fn announce(&self) {
        let row = self.worker.row;
        row.pid.store(std::process::id(), Relaxed);
        row.worker.store(self.worker.number, Relaxed);
        row.started_ms.store(now_ms(), Relaxed);
        self.lock_state().housekeeping.giving_back.note_beginning(allocator::own_bytes());
        if self.is_held.load(Relaxed) {
            return self.report(|row, pid| Report::Passed { row, pid });
        }
        self.say_that_it_serves();
    }

    /// The generation is let in: this worker takes connections from now on.
    fn admit(&self) {
        if !self.is_held.swap(false, Relaxed) || self.worker.is_draining() {
            return;
        }
        if !self.worker.is_paused() {
            self.listen_to_all();
        }
        self.say_that_it_serves();
    }

    /// Tells the poll of every listening socket.
    pub(crate) fn listen_to_all(&self) {
        for number in 0..self.worker.listeners.len() {
            listen_or_leave(self, number);
        }
        self.watch_queue();
    }

    fn say_that_it_serves(&self) {
        let row = self.worker.row;
        // The others are not to take it for busy before its first poll: a burst right after the start is shared too.
        row.turned_ms.store(now_ms(), Relaxed);
        row.accepting.store(1, Relaxed);
        self.report(|row, pid| Report::Serving { row, pid });
    }

    /// Leads until the lead is lost or the worker has drained. The calling thread is one that runs the language.
    pub fn lead(self: &Arc<Self>, thread: &mut ThreadContext, app: &mut AppThread<L::App>, alone: bool) -> LeadEnd {
        // A signal that came since this thread last ran the language (at its start, or while it followed) interrupts no wait any more.
        // One that takes the language late does so for this when nobody is busy with it; handlers run on the first thread alone.
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
            self.look_after_time(&mut guard, thread);
            if self.worker.is_draining() && guard.connections.population().all() == 0 {
                return LeadEnd::Drained;
            }
            (guard, is_interrupted) = self.poll(guard, thread, app, &mut events);
            is_interrupted &= app.is_held() || thread.core == 0;
            guard.housekeeping.corking.begin_turn();
        }
    }

    /// Attends to what has news, one after the other, until none is left or a time is over, in monotonic milliseconds: then the poll is asked
    /// who else has news, so that whoever comes during slow calls has its place behind those that came before, and not behind all that these
    /// still ask. False: the lead is lost.
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
                EventSource::Control => self.take_orders(&mut guard),
                EventSource::Listener(number) => accept(self, number, &mut guard, thread),
                EventSource::Queue => take_moved(self, &mut guard.connections),
                EventSource::Heartbeat => answer_heartbeat(),
                EventSource::Bell => {}
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

    /// The connection is away meanwhile, and the state unlocked. With other threads about, the lead may be lost: false.
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
        let corking = &guard.housekeeping.corking;
        let may_cork = alone && corking.is_on() && guard.connections.has_ready() && self.worker.is_tcp(connection.listener());
        // Nothing is held that nobody would push in time.
        thread.may_cork = may_cork && self.begin_companion();
        self.wake_companion(thread.clock.now_ms, &mut guard);
        drop_put_down(&mut guard, app);
        drop(guard);
        let inside = (!alone).then(|| self.leadership.enter_call());
        let after = connection.attend(thread, app, &self.worker);
        let held = connection.take_corked();
        let (mut guard, still_leads) = self.come_back(inside);
        self.place_back(key, connection, after, &mut guard, app);
        self.note_wanted_watch(&mut guard);
        if !still_leads {
            self.tell_leader(&guard);
        } else if alone && guard.housekeeping.corking.attended(key, held) {
            Self::push_corked(&mut guard);
        } else if held && guard.housekeeping.corking.holds_first() {
            self.guard_corked();
        }
        (guard, still_leads)
    }

    /// Whether there is something to do at once: news of connections, or the end.
    pub(crate) fn has_news(&self, state: &LeaderState<L::App>) -> bool {
        state.connections.has_ready() || self.worker.is_draining() && state.connections.population().all() == 0
    }

    /// For a thread that has lost the lead: what it leaves behind may be the leader's business, which sleeps in the poll (or the
    /// standby's, which waits there while the leader is in a call) and would find it at the next time limit only, or that limit would
    /// come too late.
    fn tell_leader(&self, state: &LeaderState<L::App>) {
        // Written under the lock that we hold: a leader that is on its way to sleep has said so already.
        let sleeps = self.worker.row.waiting.load(Relaxed) == 1;
        let is_late = Self::must_look_before(&state.connections, state.housekeeping.sleeps_until_ms);
        if sleeps
            && (is_late || self.needs_leader(state))
            && let Some(bell) = &self.bell
        {
            // A counter that is full has rung.
            let _ = bell.write(1);
        }
    }

    pub(crate) fn place_back(
        &self,
        key: Key,
        mut connection: Box<Connection<L::App>>,
        after: NextAction,
        state: &mut LeaderState<L::App>,
        app: &mut AppThread<L::App>,
    ) {
        let LeaderState { connections, housekeeping, .. } = &mut *state;
        match connection.link() {
            Link::Socket { .. } => {}
            Link::Multiplexed(multiplexer) => let_streams_in(self, &connection, multiplexer, connections),
            Link::Stream { multiplexer, number } => {
                let link = (multiplexer.clone(), *number);
                return place_stream_back(self, key, connection, link, after, state, app);
            }
        }
        let is_known = connection.is_polled;
        let stays = after != NextAction::Close && (is_known || self.tell_poll(key, &mut connection));
        let stays = stays && (after != NextAction::Again || !is_known || self.ask_again(key, &connection));
        if stays {
            self.limit_time(&mut connection, housekeeping);
            let goes_on_elsewhere = self.worker.hands_over() || housekeeping.is_doomed();
            let may_go = goes_on_elsewhere && connection.is_idle();
            check_in(self, key, connection, after == NextAction::Rest, connections);
            if may_go && move_away(self, key, false, state) == Move::NoRoom {
                state.housekeeping.moves_at_ms.get_or_insert(now_ms());
            }
        } else {
            self.end_for_others(&connection);
            if !app.is_held() {
                app.discard(connection.leftover());
            }
            connections.remove(key);
            self.worker.row.connections.store(connections.population().all() as u32, Relaxed);
        }
    }

    /// What is kept by a worker that drains is not kept for long.
    pub(crate) fn limit_time(&self, connection: &mut Connection<L::App>, housekeeping: &mut Housekeeping) {
        if self.worker.is_draining() && connection.is_idle() {
            connection.deadline_ms = connection.deadline_ms.min(housekeeping.idle_until_ms(connection.has_served()));
        } else if self.worker.is_draining() {
            connection.arrive_by(housekeeping.arrivals_end_ms, &self.worker, now_ms());
        }
    }

    /// What others have open too does not end by our closing it.
    fn end_for_others(&self, connection: &Connection<L::App>) {
        if connection.is_given_away() {
            // The poll would go on to tell of it, as long as its new owner has it open.
            let _known_to_the_poll = self.poll.delete(connection.socket());
        } else if connection.is_shared || forks::has_forked() {
            socket::end_sending(connection.socket());
        }
    }

    fn ask_again(&self, key: Key, connection: &Connection<L::App>) -> bool {
        self.tell_again(key, connection.socket())
    }

    /// The poll tells anew what it has told already: the socket has room. What it tells now comes after the news of others.
    pub(crate) fn tell_again(&self, key: Key, socket: BorrowedFd<'_>) -> bool {
        self.poll.modify(socket, &mut Self::interest(key)).is_ok()
    }

    fn interest(key: Key) -> EpollEvent {
        EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET, key.0)
    }

    pub(crate) fn tell_poll(&self, key: Key, connection: &mut Connection<L::App>) -> bool {
        match self.poll.add(connection.socket(), Self::interest(key)) {
            Ok(()) => {
                connection.is_polled = true;
                true
            }
            Err(errno) => {
                complain(self.worker.number, &format!("a connection is closed because it can't be watched: {errno}"));
                false
            }
        }
    }

    /// Fetches news: what is there already with the language in hand (if it is), and only then, if there is none, waits
    /// without it. The second part says whether a signal interrupted it.
    fn poll<'a>(
        &'a self,
        mut guard: Guard<'a, L>,
        thread: &mut ThreadContext,
        app: &mut AppThread<L::App>,
        events: &mut [EpollEvent],
    ) -> (Guard<'a, L>, bool) {
        let mut found = self.poll.wait(events, EpollTimeout::ZERO);
        let slept_from_ms = thread.clock.now_ms;
        let mut has_slept = false;
        if matches!(found, Ok(0)) && !guard.connections.has_ready() {
            has_slept = true;
            let timeout = self.longest_wait(&mut guard, thread.clock.now_ms);
            // From before the state is unlocked until it is locked again: see `tell_leader`.
            self.worker.row.waiting.store(1, Relaxed);
            drop(guard);
            app.let_go();
            found = self.poll.wait(events, timeout);
            app.come_back();
            guard = self.lock_state();
            self.worker.row.waiting.store(0, Relaxed);
            if found == Ok(0) && self.has_news(&guard) {
                found = self.poll.wait(events, EpollTimeout::ZERO);
                if found == Ok(0) {
                    self.complain_of_lost_news();
                }
            }
        }
        let is_interrupted = self.take_news(found, events, &mut guard.connections, thread);
        let slept_ms = if has_slept { thread.clock.now_ms - slept_from_ms } else { 0 };
        guard.housekeeping.work.note_sleep(slept_ms, thread.clock.now_ms, self.worker.row);
        (guard, is_interrupted)
    }

    /// The look at the clock has found news that should have woken the loop. They are attended to now, late: that must not stay
    /// unseen (the tests take this line for a failure).
    pub(crate) fn complain_of_lost_news(&self) {
        complain(
            self.worker.number,
            "internal error: a connection had an event of which the loop was not told; its time limit \
            revealed it",
        );
    }

    /// Queues what the poll has found. True: a signal interrupted it.
    pub(crate) fn take_news(
        &self,
        found: Result<usize, Errno>,
        events: &[EpollEvent],
        connections: &mut ConnectionTable<Connection<L::App>>,
        thread: &mut ThreadContext,
    ) -> bool {
        thread.clock.tick();
        self.worker.row.turned_ms.store(thread.clock.now_ms, Relaxed);
        if self.worker.settings.logging.may_log_requests() {
            self.count_elsewhere();
        }
        match found {
            Ok(count) => {
                for event in &events[..count] {
                    Self::take_event(event, connections);
                }
            }
            Err(Errno::EINTR) => {}
            // Every other error of epoll_wait(2) is a mistake of ours; the master replaces a worker that makes one.
            Err(errno) => {
                complain(self.worker.number, &format!("the poll failed, the worker ends: {errno}"));
                std::process::abort();
            }
        }
        found == Err(Errno::EINTR)
    }

    pub(crate) fn take_event(event: &EpollEvent, connections: &mut ConnectionTable<Connection<L::App>>) {
        let key = Key(event.data());
        if event.events().intersects(PEER_HAS_ENDED) {
            connections.note_end(key);
        }
        connections.news(key);
    }

    pub(crate) fn run_signal_handlers(&self, app: &mut AppThread<L::App>) {
        if app.enter().interrupted() == ControlFlow::Break(()) {
            self.worker.leaving.store(true, Relaxed);
        }
    }

    /// The same in the middle of the loop. A handler is the application's code and runs as a call does, with the state unlocked: one that
    /// blocks, or waits for the language, keeps no thread from the lead, and one that forks does not wait for the companion.
    fn run_signal_handlers_unlocked<'a>(
        &'a self,
        guard: Guard<'a, L>,
        app: &mut AppThread<L::App>,
        alone: bool,
    ) -> (Guard<'a, L>, bool) {
        drop(guard);
        let inside = (!alone).then(|| self.leadership.enter_call());
        self.run_signal_handlers(app);
        let (guard, still_leads) = self.come_back(inside);
        if !still_leads {
            self.tell_leader(&guard);
        }
        (guard, still_leads)
    }

    /// No thread of the worker is in the application, as far as the scoreboard knows: whoever takes the language waits for nobody of them.
    fn is_calm(&self) -> bool {
        self.worker.slots.iter().all(|slot| slot.began_ms.load(Relaxed) == 0)
    }

    pub(crate) fn longest_wait(&self, state: &mut LeaderState<L::App>, now: u64) -> EpollTimeout {
        let wait_ms = self.longest_wait_ms(state, now);
        state.housekeeping.sleeps_until_ms = wait_ms.map_or(NEVER_MS, |wait_ms| now + wait_ms);
        match wait_ms {
            Some(milliseconds) => EpollTimeout::try_from(milliseconds).unwrap_or(EpollTimeout::MAX),
            None => EpollTimeout::NONE,
        }
    }

    /// Milliseconds until something is to be looked after, whatever the sockets do.
    pub(crate) fn longest_wait_ms(&self, state: &LeaderState<L::App>, now: u64) -> Option<u64> {
        let pause = state.housekeeping.pauses.iter().map(|pause| pause.until_ms.saturating_sub(now).max(1)).min();
        let next_look_ms = state.connections.next_look_ms();
        let look = (next_look_ms != NEVER_MS).then(|| (next_look_ms + CLOCK_TICK_MS).saturating_sub(now));
        let tidy = self.worker.files.and_then(|files| files.tidy_within_ms(now));
        let tidy = tidy.map(|milliseconds| milliseconds.max(TIDY_MS));
        let mercy_ends_ms = self.worker.mercy_ends_ms.load(Relaxed);
        let mercy =
            (mercy_ends_ms != u64::MAX && !state.housekeeping.mercy_is_over).then(|| mercy_ends_ms.saturating_sub(now).max(1));
        let log = bolide_log::is_waiting().then_some(bolide_log::RETRY_MS);
        let streams_end_ms = self.worker.streams_end_ms.load(Relaxed);
        let streams = (streams_end_ms != u64::MAX && !state.housekeeping.streams_have_ended)
            .then(|| streams_end_ms.saturating_sub(now).max(1));
        let memory = state.housekeeping.giving_back.within_ms(now);
        let moves = state.housekeeping.moves_at_ms.map(|when_ms| when_ms.saturating_sub(now).max(1));
        [pause, look, tidy, mercy, streams, log, moves, memory].into_iter().flatten().min()
    }

    /// A connection's limit is over before a wait that ends then.
    pub(crate) fn must_look_before(connections: &ConnectionTable<Connection<L::App>>, until_ms: u64) -> bool {
        connections.next_look_ms().saturating_add(CLOCK_TICK_MS) < until_ms
    }

    /// Time limits, `max-requests`, and the end that the application may have asked for.
    pub(crate) fn look_after_time(&self, state: &mut LeaderState<L::App>, thread: &mut ThreadContext) {
        if !state.housekeeping.pauses.is_empty() {
            end_pauses(self, &mut state.connections, &mut state.housekeeping, thread);
        }
        let leaves = self.worker.leaving.load(Relaxed);
        if leaves && !self.worker.is_draining() {
            begin_to_drain(self, state, if self.has_company() { End::Replaced } else { End::Alone });
        }
        move_rest(self, state, thread.clock.now_ms);
        let LeaderState { connections, housekeeping, .. } = state;
        // One that leaves by itself finishes what others sent it, as at a retirement, and its replacement starts meanwhile.
        if (leaves || self.is_worn()) && !housekeeping.worn_reported {
            housekeeping.worn_reported = true;
            self.report(|row, pid| Report::Worn { row, pid });
        }
        let now = thread.clock.now_ms;
        if !housekeeping.mercy_is_over && self.worker.mercy_ends_ms.load(Relaxed) <= now {
            housekeeping.mercy_is_over = true;
            tell_of_mercy(self, connections);
        }
        if !housekeeping.streams_have_ended && self.worker.streams_end_ms.load(Relaxed) <= now {
            housekeeping.streams_have_ended = true;
            tell_of_streams(self, connections);
        }
        housekeeping.giving_back.note(connections.population().all(), now);
        if housekeeping.giving_back.is_due(now) {
            self.give_memory_back(connections, housekeeping, now);
        }
        if let Some(files) = self.worker.files
            && now.saturating_sub(housekeeping.tidied_ms) >= TIDY_MS
        {
            housekeeping.tidied_ms = now;
            files.tidy(now);
        }
        let is_paused = self.worker.is_paused();
        connections.look(now, |connection| match is_paused && connection.awaits_request() {
            // The pause's end sets its time anew.
            true => Due::At(NEVER_MS),
            false => connection.look(now),
        });
    }

    /// Clients have left: what they needed of memory is the system's again. Nobody is to wait for that, so it is done while nothing is under way.
    fn give_memory_back(&self, connections: &ConnectionTable<Connection<L::App>>, housekeeping: &mut Housekeeping, now: u64) {
        if connections.has_ready() || !self.is_calm() || socket::has_news(self.poll.0.as_fd()) {
            return housekeeping.giving_back.put_off(now);
        }
        housekeeping.giving_back.look((connections.population().all(), now), allocator::own_bytes, allocator::give_back);
    }

    pub(crate) fn is_worn(&self) -> bool {
        self.worn_after.is_some_and(|most| self.worker.row.requests.load(Relaxed) >= most)
    }

    pub(crate) fn take_orders(&self, state: &mut LeaderState<L::App>) {
        loop {
            let LeaderState { connections, housekeeping, .. } = &mut *state;
            match message::receive::<Order>(self.control.as_fd()) {
                Ok(Received::Message(Order::Drain { has_successors }, _)) => {
                    begin_to_drain(self, state, if has_successors { End::Replaced } else { End::Alone });
                }
                Ok(Received::Message(Order::Stop, _)) => begin_to_drain(self, state, End::AtOnce),
                Ok(Received::Message(Order::Admit, _)) => self.admit(),
                Ok(Received::Message(Order::Pause, _)) => begin_pause(self, housekeeping),
                Ok(Received::Message(Order::Resume, _)) => end_pause(self, connections, housekeeping),
                Ok(Received::Message(Order::Look, _)) => look_at_listeners(self, connections, housekeeping),
                Ok(Received::Message(Order::HandOver, _)) => begin_to_hand_all_over(self, state),
                Ok(Received::Message(Order::Serve { listener }, Some(socket))) => {
                    let_in_handed(self, listener, socket, connections, housekeeping);
                }
                Ok(Received::Message(Order::TakeLog { log }, Some(file))) => {
                    if let Err(error) = bolide_log::replace(log as usize, &file) {
                        complain(self.worker.number, &format!("the log {log} can't be replaced: {error}"));
                    }
                }
                Ok(Received::Message(order, _)) => {
                    complain(self.worker.number, &format!("ignoring the order {order:?}, which can't be carried out here"));
                }
                Ok(Received::Nothing) => return,
                // The master is gone. Whoever is left finishes what is in flight and ends.
                Ok(Received::End) | Err(_) => {
                    let _known_to_be_there = self.poll.delete(&self.control);
                    // One that drains has successors who serve there, perhaps those of another master.
                    if !self.worker.is_draining() {
                        shut_listeners(self, connections, housekeeping);
                    }
                    return begin_to_drain(self, state, End::AtOnce);
                }
            }
        }
    }

    fn count_elsewhere(&self) {
        let own = self.worker.row;
        let elsewhere: u64 =
            self.scoreboard.rows().iter().filter(|row| !std::ptr::eq(*row, own)).map(|row| row.requests.load(Relaxed)).sum();
        self.worker.requests_elsewhere.store(elsewhere, Relaxed);
    }
}
