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

use bolide_contract::message::LATE_DRAIN_MS;
use bolide_contract::scoreboard::{Slot, now_ms};
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::access_log::complain;
use crate::app::{App, Language};
use crate::connection::Connection;
use crate::connections::{ConnectionTable, Key};
use crate::fairness::{another_waits, has_had_its_turn, is_ahead};
use crate::listener::Accepted;
use crate::thread_context::ThreadContext;
use crate::worker_state::{Housekeeping, Pause, Shared};

/// Connections that one turn accepts from one socket, so that those that are open have their turn too. While another worker
/// sleeps, only as many as free threads of this one can begin to serve: what waits here behind a call that is stuck can't be
/// served by others, and is lost if the worker is killed for that call.
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
    pub(crate) fn accept(
        &self,
        number: usize,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
        thread: &ThreadContext,
    ) {
        // The order to drain may not be read yet: connections that could get the new code are not accepted any more.
        if self.worker.is_told_to_drain()
            || self.worker.is_paused()
            || housekeeping.pauses.iter().any(|pause| pause.listener == number)
        {
            return;
        }
        let has_accepted = self.accept_some(number, connections, housekeeping, thread);
        if has_accepted && self.takes_turns() {
            self.let_others_go_first(number, housekeeping);
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
    fn accept_some(
        &self,
        number: usize,
        connections: &mut ConnectionTable<Connection<L::App>>,
        housekeeping: &mut Housekeeping,
        thread: &ThreadContext,
    ) -> bool {
        for accepted in 0..ACCEPTED_TURN_MOST {
            if self.is_ahead(thread) {
                self.pause(number, STAND_BACK_MS, housekeeping, thread);
                return accepted > 0;
            }
            // The first is taken in any case: the kernel may have told nobody else of it.
            if accepted > 0
                && (self.may_have_company() || another_waits(self.worker.row, self.scoreboard.rows()))
                && connections.ready_count() >= self.free_threads()
            {
                return true;
            }
            match self.let_in(number, connections, housekeeping, thread) {
                Entered::One => {}
                Entered::Nobody => return accepted > 0,
                Entered::Exhausted => {
                    self.pause(number, EXHAUSTED_MS, housekeeping, thread);
                    return accepted > 0;
                }
            }
        }
        true
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
            if self.is_ahead(thread) {
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
    fn free_threads(&self) -> usize {
        let is_free = |slot: &&Slot| slot.thread.load(Relaxed) != 0 && slot.began_ms.load(Relaxed) == 0;
        self.worker.slots.iter().filter(is_free).count().max(1)
    }

    /// Who is left waiting may be served by a worker that the master adds (`cheaper`). An application that serves many at once needs none.
    fn may_have_company(&self) -> bool {
        self.worker.settings.elastic.cheaper.is_some() && !L::App::STREAMS
    }

    fn is_ahead(&self, thread: &ThreadContext) -> bool {
        let (own, rows, now) = (self.worker.row, self.scoreboard.rows(), thread.clock.now_ms);
        is_ahead(own, rows, now) || L::App::STREAMS && self.takes_turns() && has_had_its_turn(own, rows, now)
    }

    fn takes_turns(&self) -> bool {
        self.worker.row.takes_turns.load(Relaxed) == 1
    }

    fn pause(&self, number: usize, length_ms: u64, housekeeping: &mut Housekeeping, thread: &ThreadContext) {
        if let Some(listener) = self.worker.listeners.get(number) {
            let _known_to_be_there = self.poll.delete(&listener.descriptor);
            housekeeping.pauses.push(Pause { listener: number, until_ms: thread.clock.now_ms + length_ms, length_ms });
        }
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
                connections.insert(Box::new(Connection::new(socket, peer, number, &self.worker, now_ms)));
                self.worker.row.connections.store(connections.count() as u32, Relaxed);
                if self.takes_turns() {
                    self.worker.row.turns.fetch_add(1, Relaxed);
                }
                Entered::One
            }
            Accepted::Nobody => Entered::Nobody,
            Accepted::Exhausted(error) => {
                if now_ms.saturating_sub(housekeeping.exhausted_reported_ms) > EXHAUSTED_REPORT_MS {
                    housekeeping.exhausted_reported_ms = now_ms;
                    let open = connections.count();
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
