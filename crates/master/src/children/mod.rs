//! The children that exist, and the operations on them: start, fork, notify, kill. It decides nothing. The master runs it.

pub mod child;
mod endings;
pub mod handovers;
pub mod ledger;
pub mod reports;
pub mod single_signals;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::children::{ChildKind, Helper};
use bolide_contract::clock::now_ms;
use bolide_contract::message::{self, INTERPRETER_END_MS, Order, order_pair};
use bolide_scoreboard::{Remembered, Scoreboard};
use bolide_supervision::polling::Source;
use bolide_supervision::process_state::{parent_of, users_of};
use bolide_supervision::processes::process_attributes::with_descriptors_in_flight;
use bolide_supervision::processes::{exit_report, signals};
use bolide_supervision::text::{counted, duration};
use bolide_supervision::{log_sink, system};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::children::child::{Child, Event, KillReason, Origin, Progress, Role, State};
use crate::children::ledger::{EndKind, Ledger};
use crate::owner::{Owner, Turn, Waits};
use crate::provision::error_report::ErrorReport;
use crate::provision::{Executed, Provision};
use crate::token::Token;

/// Delay before a worker whose socket was full is notified again of a pause, in milliseconds.
const PAUSE_RETRY_MS: u64 = 100;
/// Time after which a helper that has not read its orders is woken again, in milliseconds.
const WAKE_AGAIN_MS: u64 = 500;
/// How long a killed child may take to exit before the log reports it, in milliseconds.
pub const KILL_WAIT_MS: u64 = 5000;
/// How long a prototype without remaining work may take to end, in milliseconds.
pub const GRACE_MS: u64 = 2000;

/// How long a worker that has drained may take to become a prototype, in milliseconds: it runs code of the application, and
/// collects garbage.
const SUCCESSION_MS: u64 = 10_000;

/// How long a worker may live after its order socket was closed, in milliseconds.
pub const LOST_MS: u64 = 2000;

/// All children of an instance.
#[derive(Debug)]
pub struct Children {
    list: Vec<Child>,
    scoreboard: Scoreboard,
    ledger: Ledger,
    /// Workers begin no request, including those forked later.
    is_paused: bool,
    /// The instance leaves its load balancer: it serves, and will be stopped.
    is_leaving: bool,
    /// The last arrival at a worker that has exited since then, in monotonic milliseconds; 0 if there was none.
    arrived_ms: u64,
    next_id: u64,
}

/// How a worker is to begin.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForkTerms {
    /// It must be admitted before it serves, because its generation was not admitted yet.
    pub is_on_trial: bool,
    /// It does not replace another one of its generation.
    pub is_first: bool,
}

/// Why no process was forked.
#[derive(Debug)]
pub enum ForkError {
    /// The generation has no prototype that can fork.
    NoPrototype,
    /// Every row of the scoreboard is in use, also by workers and helpers that are still ending.
    NoRow,
    /// The order could not be sent; the caller may try again.
    Failed(io::Error),
}

impl Children {
    /// Returns an empty list.
    pub fn new(scoreboard: Scoreboard) -> Children {
        Children {
            list: Vec::new(),
            scoreboard,
            ledger: Ledger::default(),
            is_paused: false,
            is_leaving: false,
            arrived_ms: 0,
            next_id: 1,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Child> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.list.iter_mut()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn scoreboard(&self) -> &Scoreboard {
        &self.scoreboard
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the number of messages for mules that found their queue full, of all processes so far.
    pub fn refused_messages(&self) -> u64 {
        let present = self.scoreboard.rows().iter().map(|row| row.refused_messages.load(Relaxed));
        present.fold(self.ledger.refused_messages(), u64::saturating_add)
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Extends the master's view of the scoreboard to all rows that generations of the current settings and of the plan use.
    pub fn widen_scoreboard(&mut self, provision: &Provision) {
        // Workers that are still ending may have more threads than either.
        let threads = provision.threads_in_use().max(self.scoreboard.slots(0).len() as u32);
        self.scoreboard = self.scoreboard.within(provision.rows_in_use(), threads);
    }

    /// Adds a prototype. Returns the file in which it and its workers report why they cannot load the application.
    pub fn add_prototype(&mut self, generation: u32, executed: Executed) -> ErrorReport {
        self.add(Role::Prototype, generation, Some(executed.pid), executed.channel, State::Starting);
        executed.note
    }

    /// Removes an exited child.
    pub fn remove(&mut self, id: u64) -> Option<Child> {
        let position = self.list.iter().position(|child| child.id == id)?;
        let child = self.list.remove(position);
        if let Some(number) = child.helper_number() {
            self.ledger.note_end_of_helper(number);
        }
        Some(child)
    }

    /// Counts an exited worker, by cause.
    pub fn count_end(&mut self, kind: EndKind) {
        self.ledger.count_end(kind);
    }

    /// Closes the row of an exited worker: adds its work to the account of its number and frees the row.
    pub fn close_row(&mut self, row: u32, number: Option<u32>) {
        if let Some(number) = number {
            let signals = self.scoreboard.row(row).map_or(0, |row| row.signals.load(Relaxed));
            self.ledger.note_end(number, self.scoreboard.work(row), signals);
            self.ledger.note_measured(&self.scoreboard.measured(row));
        }
        let refused = self.scoreboard.row(row).map_or(0, |row| row.refused_messages.load(Relaxed));
        self.ledger.note_refused_messages(refused);
        self.arrived_ms = self.last_arrival_ms();
        self.scoreboard.clear(row);
    }

    /// Orders the prototype of a generation to fork the worker or helper with this number.
    ///
    /// # Errors
    /// See [`ForkError`].
    pub fn fork(
        &mut self,
        generation: u32,
        kind: ChildKind,
        number: u32,
        terms: ForkTerms,
        provision: &Provision,
    ) -> Result<&mut Child, ForkError> {
        let row = self.free_row(kind, provision).ok_or(ForkError::NoRow)?;
        let prototype =
            self.prototype(generation).filter(|prototype| prototype.state == State::Serving).ok_or(ForkError::NoPrototype)?;
        let channel = prototype.channel.as_ref().ok_or(ForkError::NoPrototype)?;
        let (near, far) = order_pair().map_err(ForkError::Failed)?;
        if self.is_paused && kind == ChildKind::RequestWorker {
            // The order waits in the socket before the worker is born, and a worker reads orders before it accepts connections.
            message::send(near.as_fd(), &Order::Pause, None).map_err(ForkError::Failed)?;
        }
        if self.is_leaving && kind == ChildKind::RequestWorker {
            message::send(near.as_fd(), &Order::LeaveBalancer, None).map_err(ForkError::Failed)?;
        }
        if let Some(found) = self.scoreboard.row(row) {
            found.kind.store(kind.code(), Relaxed);
        }
        let forker = prototype.pid;
        let ForkTerms { is_on_trial, is_first } = terms;
        let order = Order::Fork { row, kind, number, is_on_trial, is_first };
        let sent = with_descriptors_in_flight(|| message::send(channel.as_fd(), &order, Some(far.as_raw_fd())));
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ForkError::NoPrototype,
            _ => ForkError::Failed(error),
        })?;
        let (role, helper) = match kind {
            ChildKind::RequestWorker => (Role::Worker { row, number }, None),
            ChildKind::Helper => (Role::Helper { row, number }, provision.settings().helpers.get(number as usize - 1).cloned()),
        };
        let child = self.add(role, generation, None, near, State::Ordered);
        (child.helper, child.forker) = (helper, forker);
        Ok(child)
    }

    /// Returns the prototype of a generation, if it is alive. A worker may have become another one: the last one that takes
    /// orders forks from then on.
    pub fn prototype(&self, generation: u32) -> Option<&Child> {
        let its = || self.list.iter().filter(|child| child.is_prototype() && child.generation == generation);
        its().rfind(|child| child.state == State::Serving).or_else(|| its().next())
    }

    /// Returns the prototype that has forked a worker or helper, if it is alive.
    pub fn forker_of(&self, child: &Child) -> Option<&Child> {
        self.with_pid(child.forker?).filter(|forker| forker.is_prototype())
    }

    /// Returns whether a helper of any generation is alive.
    pub fn has_helpers(&self) -> bool {
        self.list.iter().any(|child| child.helper_number().is_some())
    }

    /// Returns the request workers of a generation that serve or soon will.
    pub fn active_workers(&self, generation: u32) -> impl Iterator<Item = &Child> {
        self.list
            .iter()
            .filter(move |child| child.is_request_worker() && child.generation == generation && child.state.is_active())
    }

    pub fn find(&self, id: u64) -> Option<&Child> {
        self.list.iter().find(|child| child.id == id)
    }

    pub fn find_mut(&mut self, id: u64) -> Option<&mut Child> {
        self.list.iter_mut().find(|child| child.id == id)
    }

    pub fn with_pid(&self, pid: Pid) -> Option<&Child> {
        self.list.iter().find(|child| child.pid == Some(pid))
    }

    pub fn with_row(&self, generation: u32, row: u32) -> Option<&Child> {
        self.list.iter().find(|child| child.generation == generation && child.row() == Some(row))
    }

    /// Returns the ids of the children that match a condition, so that each can be changed in turn.
    pub fn ids(&self, condition: impl Fn(&Child) -> bool) -> Vec<u64> {
        self.list.iter().filter(|child| condition(child)).map(|child| child.id).collect()
    }

    /// Orders a child to end when its work is done, and sets its deadline.
    pub fn order_end(&mut self, id: u64, order: Order, deadline_ms: u64) {
        self.note_order_to_end(id, &order, deadline_ms);
        let Some(child) = self.find(id) else { return };
        let Some(channel) = &child.channel else { return };
        if let Err(error) = message::send(channel.as_fd(), &order, None)
            && !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        {
            // The deadline stands: if the order could not be sent, the child is killed then.
            log_sink::line(&format!("{child} could not be told to exit: {error}"));
        }
        self.wake_helper(child);
    }

    fn note_order_to_end(&mut self, id: u64, order: &Order, deadline_ms: u64) {
        let Some(child) = self.find_mut(id) else { return };
        child.apply(Event::ToldToEnd);
        child.shorten_deadline(deadline_ms, KillReason::Mercy);
        let row = child.row().and_then(|row| self.scoreboard.row(row));
        match (row, order) {
            (Some(row), Order::Stop) => row.stopped_ms.store(now_ms(), Relaxed),
            (Some(row), Order::Drain { .. } | Order::Succeed) => row.drained_ms.store(now_ms(), Relaxed),
            _ => {}
        }
    }

    /// Has a helper read its orders, whatever code it executes. Other children wait at their order socket.
    pub fn wake_helper(&self, child: &Child) {
        // A helper that has not begun has no handler for the signal yet, and reads its orders when it begins.
        if child.helper_number().is_some() && self.has_begun(child) {
            // If its pid is not known, the report with it is on its way, and the signal follows then.
            send_signal(child, message::helper_signal());
            child.wake_again_ms.set(Some(now_ms() + WAKE_AGAIN_MS));
        }
    }

    /// Wakes helpers again that have not read their orders. A signal that arrives just before a system call does not interrupt
    /// that, and the interpreter has noted it only.
    pub fn wake_again(&self, now_ms: u64) {
        for child in self.list.iter().filter(|child| child.wake_again_ms.get().is_some_and(|time| now_ms >= time)) {
            child.wake_again_ms.set(None);
            if child.channel.as_ref().is_some_and(system::has_unread) {
                self.wake_helper(child);
            }
        }
    }

    /// Returns whether a child has begun its work, or is about to. Its report that it serves may not be read yet, but it writes
    /// its pid into its row before.
    fn has_begun(&self, child: &Child) -> bool {
        let has_pid = |row| self.scoreboard.row(row).is_some_and(|row| row.pid.load(Relaxed) != 0);
        child.state.is_serving() || child.row().is_some_and(has_pid)
    }

    /// Orders a helper to end when its work in progress is done, within its own time.
    pub fn order_end_of_helper(&mut self, id: u64, order: Order, provision: &Provision, now_ms: u64) {
        if let Some((mercy_ms, _)) = self.find(id).map(|helper| mercy_of(helper, provision)) {
            self.order_end(id, order, now_ms.saturating_add(mercy_ms));
        }
    }

    /// Kills a child. A child that is not forked yet is killed as soon as its pid is known.
    pub fn kill(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        let Some(child) = self.find_mut(id) else { return };
        if child.state != State::Killed {
            child.apply(Event::KillSent);
            child.kill_reason.get_or_insert(kill_reason);
            child.deadline_ms = Some(now_ms + KILL_WAIT_MS);
            if let Some(number) = child.worker_number().filter(|_| kill_reason == KillReason::Harakiri) {
                self.ledger.note_harakiri(number);
            }
        }
        if let Some(child) = self.find(id) {
            send_signal(child, libc::SIGKILL);
        }
    }

    /// Kills a child and logs which one, why, and which requests are lost.
    pub fn kill_and_log(&mut self, id: u64, kill_reason: KillReason, provision: &Provision, now_ms: u64) {
        let Some(child) = self.find(id) else { return };
        let remembered = child.row().map(|row| self.scoreboard.remembered(row)).unwrap_or_default();
        let in_flight = exit_report::open(&remembered);
        let served = exit_report::while_serving(&in_flight, now_ms).replace(" while it served", " while it serves");
        let served = served + &lost_beside(child, in_flight.len(), &self.scoreboard);
        let (mercy_ms, mercy_option) = mercy_of(child, provision);
        let mercy = duration(mercy_ms);
        let line = match kill_reason {
            KillReason::Mercy if child.is_prototype() => format!("{child} did not exit in time: killing it"),
            KillReason::Mercy if child.ready_ms.is_none() => {
                format!("{child} is not ready and does not follow orders: killing it")
            }
            KillReason::Mercy => format!("{child} did not finish within {mercy} ({mercy_option}): killing it{served}"),
            KillReason::Harakiri => format!("harakiri: killing {child}{served}"),
            KillReason::Memory => format!("killing {child} because of its memory use{served}"),
            KillReason::Unreachable => format!("{child} can no longer be reached: killing it{served}"),
            KillReason::StopNow | KillReason::Signaled => format!("killing {child}{served}"),
            KillReason::GivenUp => format!("killing {child}: its generation is abandoned"),
            KillReason::Late => format!("{child} was not ready in time (load-timeout): killing it"),
            KillReason::NoRoom => format!("{child} did not make room for a newer generation: killing it{served}"),
            KillReason::InterpreterStays => {
                let most = duration(INTERPRETER_END_MS);
                format!(
                    "{child} has answered everything, but its interpreter did not exit within {most}: killing it; a non-daemon \
                        thread or an exit handler keeps it alive"
                )
            }
            KillReason::Stopped => format!("{child} is still stopped: killing it"),
        };
        // Killing an idle child in an immediate stop is not worth a line, and a signal has its own.
        if !matches!(kill_reason, KillReason::StopNow | KillReason::Signaled) || !in_flight.is_empty() {
            log_sink::line(&line);
        }
        if matches!(kill_reason, KillReason::Harakiri | KillReason::Memory) {
            log_last_requests(child, &remembered, now_ms);
        }
        self.kill(id, kill_reason, now_ms);
    }

    /// Orders a worker that has passed its trial to serve.
    pub fn admit(&mut self, id: u64) {
        let Some(worker) = self.find_mut(id) else { return };
        let sent = worker.channel.as_ref().map(|channel| message::send(channel.as_fd(), &Order::Admit, None));
        // If the worker has exited, its end is reported; if its socket is full, the next turn tries again.
        worker.waits_for_admission = matches!(sent, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
    }

    /// Begins or ends a pause. Returns whether the state changed; workers are notified of a change.
    pub fn pause(&mut self, is_paused: bool) -> bool {
        let is_change = std::mem::replace(&mut self.is_paused, is_paused) != is_paused;
        if is_change {
            self.send_pause_orders();
        }
        is_change
    }

    /// Notifies workers of the pause state if they do not know it yet. A worker that is ending gets no such order.
    pub fn send_pause_orders(&mut self) {
        let is_paused = self.is_paused;
        let order = if is_paused { Order::Pause } else { Order::Resume };
        for worker in self.list.iter_mut().filter(|child| child.needs_pause_order(is_paused)) {
            let sent = worker.channel.as_ref().map(|channel| message::send(channel.as_fd(), &order, None));
            // If the worker has exited, its end is reported; if its socket is full, a later turn tries again.
            let is_full = matches!(sent, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
            worker.notified_pause = is_paused != is_full;
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// From now on, workers close their connections with the next answer, and serve the connections that still arrive.
    pub fn leave_balancer(&mut self) {
        self.is_leaving = true;
        self.send_departure_orders();
    }

    /// Notifies workers that the instance leaves its load balancer, if it does.
    pub fn send_departure_orders(&mut self) {
        if !self.is_leaving {
            return;
        }
        for worker in self.list.iter_mut().filter(|child| child.needs_departure_order()) {
            let sent = worker.channel.as_ref().map(|channel| message::send(channel.as_fd(), &Order::LeaveBalancer, None));
            // See `send_pause_orders`.
            worker.notified_departure = !matches!(sent, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
        }
    }

    /// Returns when the last connection arrived at a worker that leaves its load balancer, in monotonic milliseconds; 0 if none
    /// has.
    pub fn last_arrival_ms(&self) -> u64 {
        let of_rows = self.scoreboard.rows().iter().map(|row| row.arrived_ms.load(Relaxed));
        of_rows.fold(self.arrived_ms, u64::max)
    }

    /// Sends a child a signal other than an immediate kill.
    pub fn signal(&self, id: u64, signal: i32) {
        if let Some(child) = self.find(id) {
            send_signal(child, signal);
        }
    }

    /// Kills a prototype and its process group: its workers, and processes that the application forked while it was loaded.
    pub fn kill_group(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        self.kill(id, kill_reason, now_ms);
        self.end_group(id, kill_reason, now_ms);
    }

    /// Kills the rest of a prototype's process group. The group's number stays reserved until the prototype is reaped. Each of
    /// its workers and helpers is noted as killed, because the signal also reaches those that have begun. Otherwise the log would
    /// report an end that the master has caused as an unexpected one.
    pub fn end_group(&mut self, id: u64, kill_reason: KillReason, now_ms: u64) {
        let Some(prototype) = self.find(id).filter(|child| child.is_prototype()) else { return };
        let group = prototype.pid;
        for id in self.ids(|child| !child.is_prototype() && child.forker == group) {
            self.kill(id, kill_reason, now_ms);
        }
        // The call fails if the group is empty.
        let _ = group.map(|pid| killpg(pid, Signal::SIGKILL));
    }

    /// Hands connections that were not accepted yet to serving workers, preferring those without a request in flight. With
    /// `generation`, only to workers of that generation, because others may know other sockets.
    pub fn hand_over_waiting(&mut self, waiting: Vec<(u32, OwnedFd)>, generation: Option<u32>) {
        let serving: Vec<&Child> =
            self.list.iter().filter(|child| child.is_request_worker() && child.state.is_serving()).collect();
        let serving: Vec<&Child> =
            serving.into_iter().filter(|child| generation.is_none_or(|number| child.generation == number)).collect();
        let is_free = |worker: &&&Child| worker.row().is_some_and(|row| self.scoreboard.in_flight(row).is_empty());
        let free: Vec<&Child> = serving.iter().filter(is_free).copied().collect();
        let candidates = if free.is_empty() { serving } else { free };
        let channels: Vec<&OwnedFd> = candidates.iter().filter_map(|worker| worker.channel.as_ref()).collect();
        let mut lost = 0;
        for (number, (listener, connection)) in waiting.into_iter().enumerate() {
            let order = Order::Serve { listener };
            let taken = (0..channels.len()).any(|further| {
                let channel = channels[(number + further) % channels.len()];
                with_descriptors_in_flight(|| message::send(channel.as_fd(), &order, Some(connection.as_raw_fd()))).is_ok()
            });
            lost += u32::from(!taken);
        }
        if lost > 0 {
            let lost = counted(u64::from(lost), "waiting connection");
            log_sink::line(&format!("closing {lost}: no worker could take them"));
        }
    }

    /// Records the pid from a worker's report, if it passes the check. The reporting process may run as another user than the
    /// master and must not be able to choose the process that the master kills. Returns whether the worker's pid is known now.
    pub fn note_pid(&mut self, id: u64, pid: u32) -> bool {
        let Some(child) = self.find(id) else { return false };
        if let Some(known) = child.pid {
            return known.as_raw() as u32 == pid;
        }
        let Ok(number) = i32::try_from(pid) else { return false };
        // The pidfd is opened before the pid is checked, so that the check holds for the process that the pidfd names.
        let handle = system::process_descriptor(Pid::from_raw(number)).ok();
        if !child.forker.is_some_and(|forker| self.is_forked_by(number, forker)) {
            return false;
        }
        let Some(child) = self.find_mut(id) else { return false };
        child.pid = Some(Pid::from_raw(number));
        child.handle = handle;
        child.apply(Event::Born);
        if child.state == State::Killed {
            send_signal(child, libc::SIGKILL);
        } else if child.wake_again_ms.get().is_some() {
            send_signal(child, message::helper_signal());
        }
        if let Some(number) = child.worker_number() {
            self.ledger.note_spawn(number);
        }
        true
    }

    /// Orders a worker to become another prototype of its generation. Returns the number of the prototype's record, which has no
    /// process yet.
    pub fn order_succession(&mut self, worker: u64, deadline_ms: u64) -> io::Result<u64> {
        let (near, far) = order_pair()?;
        let found = self.find(worker).and_then(|worker| {
            let (number, pid) = (worker.worker_number()?, worker.pid?);
            let origin = Origin { number, pid, users: users_of(pid.as_raw())? };
            Some((worker.generation, origin, worker.channel.as_ref()?))
        });
        let (generation, origin, channel) = found.ok_or(io::ErrorKind::NotFound)?;
        with_descriptors_in_flight(|| message::send(channel.as_fd(), &Order::Succeed, Some(far.as_raw_fd())))?;
        self.note_order_to_end(worker, &Order::Succeed, deadline_ms);
        let prototype = self.add(Role::Prototype, generation, None, near, State::Ordered);
        prototype.origin = Some(origin);
        prototype.deadline_ms = Some(deadline_ms.saturating_add(SUCCESSION_MS));
        Ok(prototype.id)
    }

    /// Records the pid of a prototype that a worker has become, if it passes the check: like in [`Children::note_pid`], the
    /// reporting process must not be able to choose a process of another user that the master kills. Returns whether it does.
    pub fn note_succession(&mut self, id: u64, pid: u32) -> bool {
        let Ok(number) = i32::try_from(pid) else { return false };
        let own = Pid::from_raw(number);
        let handle = system::process_descriptor(own).ok();
        let Some(origin) = self.find(id).filter(|child| child.pid.is_none()).and_then(|child| child.origin) else { return false };
        // The worker may have exited, and then we are its parent. It leads a group of its own.
        let is_child = parent_of(number).is_some_and(|parent| [origin.pid, Pid::this()].contains(&Pid::from_raw(parent)));
        let is_its = is_child && nix::unistd::getpgid(Some(own)) == Ok(own) && users_of(number) == Some(origin.users);
        if number <= 1 || !is_its || self.with_pid(own).is_some() {
            return false;
        }
        let Some(child) = self.find_mut(id) else { return false };
        (child.pid, child.handle) = (Some(own), handle);
        child.apply(Event::Born);
        if child.state == State::Killed {
            send_signal(child, libc::SIGKILL);
        } else if child.state != State::Ending {
            child.deadline_ms = None;
        }
        true
    }

    /// Returns whether a process with this pid exists.
    pub fn exists(pid: u32) -> bool {
        i32::try_from(pid).is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
    }

    /// Returns whether a worker has certainly exited without a report: its channel is closed, its prototype has exited, and its
    /// pid is free.
    pub fn has_exited_unreported(&self, child: &Child) -> bool {
        let is_pid_free = match (&child.handle, child.pid) {
            (Some(handle), _) => system::signal_process(handle, 0) == Err(Errno::ESRCH),
            (None, Some(pid)) => kill(pid, None) == Err(Errno::ESRCH),
            (None, None) => true,
        };
        !child.is_prototype() && child.channel.is_none() && self.forker_of(child).is_none() && is_pid_free
    }

    /// Returns whether this prototype forked this process, which is nothing else that we know. The workers of an exited prototype
    /// are children of the master, as the attendant, the exporter, a successor and others are. Only the workers are in
    /// the prototype's process group, which no process can enter from outside, and whose number is taken as long as one is in it.
    fn is_forked_by(&self, pid: i32, prototype: Pid) -> bool {
        let parent = parent_of(pid);
        let is_of_group = nix::unistd::getpgid(Some(Pid::from_raw(pid))) == Ok(prototype);
        let is_forked = match self.with_pid(prototype) {
            Some(_) => is_of_group || parent == Some(prototype.as_raw()),
            None => is_of_group && parent == Some(Pid::this().as_raw()),
        };
        pid > 1 && is_forked && self.with_pid(Pid::from_raw(pid)).is_none()
    }

    /// Helpers use the last rows, so that workers that are still ending never block a helper.
    fn free_row(&self, kind: ChildKind, provision: &Provision) -> Option<u32> {
        let (worker_rows, rows) = provision.row_counts();
        let is_free = |row: &u32| self.list.iter().all(|child| child.row() != Some(*row));
        match kind {
            ChildKind::RequestWorker => (0..worker_rows).find(is_free),
            ChildKind::Helper => (0..rows).rev().find(is_free),
        }
    }

    fn add(&mut self, role: Role, generation: u32, pid: Option<Pid>, channel: OwnedFd, state: State) -> &mut Child {
        let id = self.next_id;
        self.next_id += 1;
        let place = self.list.len();
        self.list.push(Child {
            id,
            role,
            generation,
            pid,
            forker: None,
            handle: pid.and_then(|pid| system::process_descriptor(pid).ok()),
            channel: Some(channel),
            state,
            progress: Progress::AtWork,
            born_ms: now_ms(),
            waits_for_admission: false,
            stopped_accepting: false,
            notified_pause: self.is_paused,
            notified_departure: self.is_leaving,
            ready_ms: None,
            expires_ms: None,
            deadline_ms: None,
            deadline_reason: KillReason::Mercy,
            origin: None,
            has_served: false,
            stopped_until_ms: None,
            wake_again_ms: Cell::new(None),
            helper: None,
            is_halted: false,
            has_debugger_port: false,
            kill_reason: None,
            handover: None,
            ready_by_ms: None,
            state_at_fault: None,
        });
        &mut self.list[place]
    }
}

impl Owner for Children {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let channels = self.list.iter().filter_map(|child| child.channel.as_ref().map(|channel| (child.id, channel)));
        let times = |child: &Child| {
            [child.deadline_ms, child.expires_ms, child.stopped_until_ms, child.late_ms(), child.wake_again_ms.get()]
        };
        let children = self.list.iter().flat_map(times);
        let is_unaware =
            |child: &Child| child.needs_pause_order(self.is_paused) || self.is_leaving && child.needs_departure_order();
        let retry_ms = self.list.iter().any(is_unaware).then_some(turn.now_ms + PAUSE_RETRY_MS);
        Waits::on(
            channels.map(|(id, channel)| Source::readable(Token::Child(id), channel.as_fd())),
            children.chain([retry_ms, self.wake_for_handovers(turn.now_ms)]).flatten().min(),
        )
    }
}

/// Returns the time that a child has for its work in progress at its end, and the option that sets it.
fn mercy_of(child: &Child, provision: &Provision) -> (u64, &'static str) {
    let of_workers = provision.settings().lifecycle.reload_mercy_ms;
    let helper = child.helper.as_ref();
    (helper.and_then(|helper| helper.reload_mercy_ms).unwrap_or(of_workers), helper.map_or("reload-mercy", Helper::mercy_option))
}

/// Says what a worker could not hand over: requests that wait within TLS or at shutdown, or all that rests if it has not reported
/// in time.
fn lost_beside(worker: &Child, in_flight: usize, board: &Scoreboard) -> String {
    let Some(handover) = worker.handover else { return String::new() };
    let open = worker.row().and_then(|row| board.row(row)).map_or(0, |row| row.connections.load(Relaxed) as usize);
    match (handover.waiting, open.saturating_sub(in_flight)) {
        (Some(0), _) | (None, 0) => String::new(),
        (Some(1), _) => "; a request that was waiting on another connection is lost".to_owned(),
        (Some(count), _) => format!("; {count} requests that were waiting on other connections are lost"),
        (None, count) => format!("; {} could not be handed over in time", counted(count as u64, "other connection")),
    }
}

fn send_signal(child: &Child, signal: i32) {
    let Some(pid) = child.pid else { return };
    let sent = match &child.handle {
        Some(handle) => system::signal_process(handle, signal),
        // The pidfd could not be opened when the child was added.
        None => Signal::try_from(signal).and_then(|signal| kill(pid, signal)),
    };
    match sent {
        // The process has exited already; its end will be reported.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => log_sink::line(&format!("{child} can't be sent {}: {error}", signals::name(signal))),
    }
}

/// Logs the requests that a worker has answered before its unexpected end.
pub fn log_last_requests(worker: &Child, remembered: &[(u32, Remembered)], now: u64) {
    if let Some(last) = exit_report::last_requests(remembered, now) {
        log_sink::line(&format!("{worker} had answered, latest first: {last}"));
    }
}
