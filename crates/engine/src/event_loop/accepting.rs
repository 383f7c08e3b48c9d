//! Letting connections in: how many at once, when to leave them to other workers, and what to do when no descriptor is left.
//!
//! Workers share the listening sockets. The kernel wakes one of those that wait for a connection (EPOLLEXCLUSIVE), not the one that
//! has the least to do; so a worker that is ahead of the others takes its hands off the socket until it no longer is.
//!
//! Where connections come one by one, that is the worker that began to wait first, each time anew. While the master has something to find
//! out by what each of them answers (`reload-canary`), one that has accepted goes to the end of the queue. Workers within somebody else's
//! loop are all woken, since the kernel does not see who waits for their poll: those that have had their turn stand back there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::message::LATE_DRAIN_MS;
use bolide_contract::scoreboard::Slot;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::app::{App, Language};
use crate::connection::Connection;
use crate::connection::beginning;
use crate::event_loop::worker_state::{Housekeeping, LeaderState, Pause, Shared};
use crate::exchange::thread_context::ThreadContext;
use crate::logging::access_log::complain;
use crate::scheduling::connections::{ConnectionTable, Key};
use crate::scheduling::fairness::{has_had_its_turn, is_ahead};
use crate::sockets::listener::Accepted;

/// Connections that a worker alone accepts from one socket in a turn, so that those that are open have their turn too. Where there are
/// others, or may be, one accepts only what its free threads can begin to serve at once: what waits in the listen queue is served by
/// whichever worker is free first, and is not lost with one that is killed for a call that is stuck.
const ACCEPTED_TURN_MOST: usize = 64;

/// A worker that is ahead looks after this time, in milliseconds, whether a connection was left waiting: the kernel may
/// have told nobody but us of it.
const STAND_BACK_MS: u64 = 2;

/// The time doubles while nothing waits, up to this many milliseconds.
const STAND_BACK_MOST_MS: u64 = 64;

/// Milliseconds for which a socket is not accepted from when no descriptor was left.
const EXHAUSTED_MS: u64 = 100;

/// A complaint about missing descriptors comes at most this often, in milliseconds.
const EXHAUSTED_REPORT_MS: u64 = 1_000;

/// What stands for the queue of connections where listening sockets have numbers.
const QUEUE: usize = usize::MAX;

/// Connections that are taken from one listening socket before it is shut for want of a master.
const LAST_ACCEPTS_MOST: usize = 4096;

impl<L: Language> Shared<L> {
    /// Tells the poll of a listening socket.
    pub(crate) fn listen(&self, number: usize) -> io::Result<()> {
        let Some(listener) = self.worker.listeners.get(number) else { return Ok(()) };
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE, Key::listener(number).0);
        Ok(self.poll.add(&listener.descriptor, event)?)
    }

    /// The same where one that can't be waited for is the end of the worker: another may do better.
    pub(crate) fn listen_or_leave(&self, number: usize) {
        if let Err(error) = self.listen(number) {
            complain(self.worker.number, &format!("a listening socket can't be waited for, the worker ends: {error}"));
            self.worker.leaving.store(true, Relaxed);
        }
    }

    /// A listening socket has news. What it leaves waiting, the level-triggered poll tells again.
    pub(crate) fn accept(&self, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) {
        // The order to drain may not be read yet: connections that could get the new code are not accepted any more.
        if self.worker.is_told_to_drain()
            || self.worker.is_paused()
            || state.housekeeping.pauses.iter().any(|pause| pause.listener == number)
        {
            return;
        }
        let has_accepted = self.accept_some(number, state, thread);
        if has_accepted && self.takes_turns() {
            self.let_others_go_first(number, &state.housekeeping);
        }
    }

    /// Others who wait for this socket are woken before us from here on. One who comes in between is told of at once.
    fn let_others_go_first(&self, number: usize, housekeeping: &Housekeeping) {
        if housekeeping.pauses.iter().any(|pause| pause.listener == number) {
            // It is not waited for at present, and will be behind the others.
            return;
        }
        if let Some(listener) = self.worker.listeners.get(number) {
            let _known_to_be_there = self.poll.delete(&listener.descriptor);
            self.listen_or_leave(number);
        }
    }

    /// `true`: a connection has entered.
    fn accept_some(&self, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) -> bool {
        let most = match self.has_company() {
            // The first is taken in any case: the kernel may have told nobody else of it.
            true => self.free_threads().saturating_sub(state.connections.ready_count()).max(1),
            false => ACCEPTED_TURN_MOST,
        };
        let mut accepted = 0;
        while accepted < most {
            if self.is_ahead(thread) {
                self.leave_to_others(number, state, thread);
                break;
            }
            let LeaderState { connections, housekeeping, .. } = &mut *state;
            match self.let_in(number, connections, housekeeping, thread) {
                Entered::One => accepted += 1,
                Entered::Nobody => break,
                Entered::Exhausted => {
                    self.pause(number, EXHAUSTED_MS, housekeeping, thread);
                    break;
                }
            }
        }
        // Their turn is the listening socket's: in the listen queue they have waited as long as others in ours.
        state.connections.bring_forward(accepted);
        accepted > 0
    }

    /// The next connection is for another worker, which may not have been told of it: the kernel wakes one of those that wait. So it is
    /// accepted and handed on, where its kind can be; else others have a moment for it.
    fn leave_to_others(&self, number: usize, state: &mut LeaderState<L::App>, thread: &ThreadContext) {
        let LeaderState { connections, housekeeping, .. } = &mut *state;
        let Some(listener) = self.worker.listeners.get(number).filter(|_| self.may_move()) else {
            return self.pause(number, STAND_BACK_MS, housekeeping, thread);
        };
        let now_ms = thread.clock.now_ms;
        match listener.accept() {
            Accepted::Connection(socket, peer) if self.pass_on(&socket, &peer, listener, now_ms) => {
                // This worker is awake, and would be the first to take it back.
                self.pause_queue(now_ms + STAND_BACK_MS, housekeeping);
            }
            // What can't be passed on is served here.
            accepted => {
                if matches!(self.enter(accepted, number, connections, housekeeping, now_ms), Entered::Exhausted) {
                    self.pause(number, EXHAUSTED_MS, housekeeping, thread);
                }
            }
        }
    }

    /// Another worker accepts connections too, or may be added (`cheaper`).
    pub(crate) fn has_company(&self) -> bool {
        let own = self.worker.row;
        self.worker.settings.elastic.cheaper.is_some()
            || self.scoreboard.rows().iter().any(|row| row.accepting.load(Relaxed) == 1 && !std::ptr::eq(row, own))
    }

    /// Looks after the pauses that are over. One that is still ahead takes what was left waiting: better uneven than late.
    pub(crate) fn end_pauses(
        &self,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
        thread: &ThreadContext,
    ) {
        let now = thread.clock.now_ms;
        for mut pause in std::mem::take(&mut housekeeping.pauses) {
            if self.worker.is_told_to_drain() {
                continue;
            }
            if pause.until_ms > now {
                housekeeping.pauses.push(pause);
                continue;
            }
            if pause.listener == QUEUE {
                self.watch_queue();
            } else if self.is_ahead(thread) {
                pause.length_ms = match self.let_in(pause.listener, connections, housekeeping, thread) {
                    Entered::One => STAND_BACK_MS,
                    Entered::Nobody => (pause.length_ms * 2).min(STAND_BACK_MOST_MS),
                    Entered::Exhausted => EXHAUSTED_MS,
                };
                pause.until_ms = now + pause.length_ms;
                housekeeping.pauses.push(pause);
            } else {
                self.listen_or_leave(pause.listener);
            }
        }
    }

    /// Threads that could begin a request, the calling one included.
    pub(crate) fn free_threads(&self) -> usize {
        let is_free = |slot: &&Slot| slot.thread.load(Relaxed) != 0 && slot.began_ms.load(Relaxed) == 0;
        self.worker.slots.iter().filter(is_free).count().max(1)
    }

    fn is_ahead(&self, thread: &ThreadContext) -> bool {
        let (own, rows, now) = (self.worker.row, self.scoreboard.rows(), thread.clock.now_ms);
        is_ahead(own, rows, now) || L::App::KEEPS_EXCHANGES && self.takes_turns() && has_had_its_turn(own, rows, now)
    }

    pub(crate) fn takes_turns(&self) -> bool {
        self.worker.row.takes_turns.load(Relaxed) == 1
    }

    fn pause(&self, number: usize, length_ms: u64, housekeeping: &mut Housekeeping, thread: &ThreadContext) {
        if let Some(listener) = self.worker.listeners.get(number) {
            let _known_to_be_there = self.poll.delete(&listener.descriptor);
            housekeeping.pauses.push(Pause { listener: number, until_ms: thread.clock.now_ms + length_ms, length_ms });
        }
    }

    /// Leaves a listening socket to others until then.
    pub(crate) fn pause_until(&self, number: usize, until_ms: u64, housekeeping: &mut Housekeeping) {
        if let Some(listener) = self.worker.listeners.get(number) {
            let _may_be_paused = self.poll.delete(&listener.descriptor);
            housekeeping.pauses.retain(|pause| pause.listener != number);
            housekeeping.pauses.push(Pause { listener: number, until_ms, length_ms: STAND_BACK_MS });
        }
    }

    /// The same of the queue of connections.
    pub(crate) fn pause_queue(&self, until_ms: u64, housekeeping: &mut Housekeeping) {
        self.leave_queue();
        housekeeping.pauses.retain(|pause| pause.listener != QUEUE);
        housekeeping.pauses.push(Pause { listener: QUEUE, until_ms, length_ms: STAND_BACK_MS });
    }

    /// The master has accepted a connection before it closed its sockets, and hands it over.
    pub(crate) fn let_in_handed(
        &self,
        number: u32,
        socket: OwnedFd,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
    ) {
        if let Some(listener) = self.worker.listeners.get(number as usize) {
            self.enter(listener.take(socket), number as usize, connections, housekeeping, now_ms());
        }
    }

    /// Listens no more. Who waits for us is let in first: the kernel wakes one worker for a connection, and if that was this one, no
    /// other knows of it. One that is late leaves them to others. Gives whether somebody was left waiting.
    pub(crate) fn leave_listeners(
        &self,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
    ) -> bool {
        housekeeping.pauses.clear();
        self.leave_queue();
        if self.is_held.load(Relaxed) {
            // Nobody waits for one that has never listened.
            return false;
        }
        let told_ms = self.worker.row.drained_ms.load(Relaxed);
        let is_late = told_ms != 0 && now_ms() >= told_ms + LATE_DRAIN_MS;
        let mut somebody_waits = false;
        for (number, listener) in self.worker.listeners.iter().enumerate() {
            // From here on the kernel wakes others.
            let _may_be_paused = self.poll.delete(&listener.descriptor);
            if is_late {
                somebody_waits |= listener.is_waited_at();
            } else {
                self.let_in_waiting(ACCEPTED_TURN_MOST, number, connections, housekeeping);
            }
        }
        somebody_waits
    }

    /// Accepts connections that the kernel announced only to a worker that has left the listeners.
    pub(crate) fn look_at_listeners(
        &self,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
    ) {
        if self.worker.is_paused() || self.is_held.load(Relaxed) {
            return;
        }
        for number in 0..self.worker.listeners.len() {
            if self.worker.is_draining() {
                // The master may know of no other worker that could serve them.
                self.let_in_waiting(ACCEPTED_TURN_MOST, number, connections, housekeeping);
            } else {
                // A socket that is added to the poll is looked at (epoll_ctl(2)).
                self.let_others_go_first(number, housekeeping);
            }
        }
    }

    fn let_in_waiting(
        &self,
        most: usize,
        number: usize,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
    ) {
        let Some(listener) = self.worker.listeners.get(number) else { return };
        for _ in 0..most {
            if !matches!(self.enter(listener.accept(), number, connections, housekeeping, now_ms()), Entered::One) {
                return;
            }
        }
    }

    /// The master is gone, and nobody takes over: who waits is let in, whoever comes later is refused at once, and the address is free.
    pub(crate) fn shut_listeners(&self, connections: &mut ConnectionTable<Connection<L::App>>, housekeeping: &mut Housekeeping) {
        if self.is_held.load(Relaxed) {
            return;
        }
        for (number, listener) in self.worker.listeners.iter().enumerate().filter(|(_, listener)| listener.is_ours) {
            self.let_in_waiting(LAST_ACCEPTS_MOST, number, connections, housekeeping);
            listener.shut();
        }
    }

    fn let_in(
        &self,
        number: usize,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
        thread: &ThreadContext,
    ) -> Entered {
        let Some(listener) = self.worker.listeners.get(number) else { return Entered::Nobody };
        self.enter(listener.accept(), number, connections, housekeeping, thread.clock.now_ms)
    }

    fn enter(
        &self,
        accepted: Accepted,
        number: usize,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
        now_ms: u64,
    ) -> Entered {
        match accepted {
            Accepted::Connection(socket, peer) => {
                let connection = Box::new(beginning::accepted(socket, peer, number, &self.worker, now_ms));
                let due_ms = connection.due_ms();
                connections.insert(connection, due_ms);
                self.worker.row.connections.store(connections.population().all() as u32, Relaxed);
                if self.takes_turns() {
                    self.worker.row.turns.fetch_add(1, Relaxed);
                }
                Entered::One
            }
            Accepted::Nobody => Entered::Nobody,
            Accepted::Exhausted(error) => {
                if now_ms.saturating_sub(housekeeping.exhausted_reported_ms) > EXHAUSTED_REPORT_MS {
                    housekeeping.exhausted_reported_ms = now_ms;
                    let open = connections.population().all();
                    let advice = "raise the limit of open files (ulimit -n, LimitNOFILE)";
                    complain(self.worker.number, &format!("can't accept a connection, {open} are open: {error}; {advice}"));
                }
                Entered::Exhausted
            }
        }
    }
}

enum Entered {
    One,
    Nobody,
    Exhausted,
}
