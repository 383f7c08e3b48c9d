//! Adaptive admission (`admission`) while all threads of the worker are in calls. The companion refuses requests that have waited
//! too long, and the oldest ones if more wait than may: their clients have waited longest, and leave next.
//!
//! Those on open connections of this worker come first. If none waits there, the companion accepts one connection, so that it
//! learns how long the first one in the accept queue has waited. More are accepted only to be refused. So connections that a
//! worker can serve stay in the queue for the first free one, except for that one, which moves like any other.
//!
//! It does not know about protocols or the application. The companion runs it with the table locked.

use std::collections::HashMap;
use std::os::fd::AsFd;

use crate::app::Language;
use crate::connection::admission::AfterRefusal;
use crate::event_loop::accepting::MAX_CHECKED;
use crate::event_loop::worker_state::{LeaderState, Shared};
use crate::exchange::admission::{Admission, RefusalCause, WaitLimits};
use crate::exchange::availability::Service;
use crate::scheduling::clock::Clock;
use crate::scheduling::connections::{EventSource, Key};
use crate::sockets::socket;

/// Maximum number of waiting connections that a look goes through.
const MAX_SEEN: usize = 1024;

/// Maximum number of them that the kernel is asked about in a look, and of connections that are accepted in one.
const MAX_LOOKS: usize = 256;

/// The companion's view of the requests that wait.
pub(crate) struct Waits {
    clock: Clock,
    /// When the next look is due, in monotonic milliseconds.
    next_ms: u64,
    /// The connections that waited at the last look.
    seen: HashMap<u64, SeenWaiting>,
    /// The calls during which it looks.
    calls: Option<u64>,
    /// Connections that it has accepted or refused during these calls, and that need a thread now.
    left: usize,
}

/// A connection with an event.
#[derive(Debug, Clone, Copy)]
struct SeenWaiting {
    /// When its request may be late, in monotonic milliseconds.
    due_ms: u64,
    /// It has a request that can be refused, which has come through this socket.
    listener: Option<usize>,
}

/// A request that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// It waits on, or can't be seen.
    Stays,
    Refused,
}

impl Waits {
    pub fn new() -> Waits {
        Waits { clock: Clock::new(), next_ms: 0, seen: HashMap::new(), calls: None, left: 0 }
    }

    /// The next looks are during these calls.
    pub fn note_calls(&mut self, calls: Option<u64>) {
        if self.calls != calls {
            (self.calls, self.left) = (calls, 0);
        }
    }

    /// Requests that can be refused, and wait on.
    fn waiting(&self) -> usize {
        self.seen.values().filter(|seen| seen.listener.is_some()).count()
    }

    fn sees_request_of(&self, listener: usize) -> bool {
        self.seen.values().any(|seen| seen.listener == Some(listener))
    }
}

impl<L: Language> Shared<L> {
    /// Refuses what has waited too long, if it is time to look.
    pub(crate) fn refuse_waiting(&self, waits: &mut Waits, state: &mut LeaderState<L::App>) {
        let Some(admission) = &self.worker.admission else { return };
        waits.clock.tick();
        let now_ms = waits.clock.now_ms;
        let service = self.worker.availability.service();
        let is_in_service = matches!(service, Service::Serves | Service::LeavesBalancer);
        if now_ms < waits.next_ms || !is_in_service || state.housekeeping.doom.is_at_work() {
            return;
        }
        waits.next_ms = now_ms + admission.look_ms();
        let limits = admission.limits(now_ms);
        self.refuse_on_connections(admission, limits, waits, state);
        for number in 0..self.worker.listeners.len() {
            self.refuse_in_queue(number, admission, limits, waits, state);
        }
        admission.note_waiting(waits.waiting());
    }

    /// Looks at the connections of this worker that wait for a thread, in the order in which they came.
    fn refuse_on_connections(
        &self,
        admission: &Admission,
        limits: WaitLimits,
        waits: &mut Waits,
        state: &mut LeaderState<L::App>,
    ) {
        let now_ms = waits.clock.now_ms;
        let ready = state.connections.ready().filter(|key| matches!(key.source(), EventSource::Connection(_)));
        let ready: Vec<Key> = ready.take(MAX_SEEN).collect();
        let before = std::mem::take(&mut waits.seen);
        let mut looks = MAX_LOOKS;
        for key in &ready {
            match before.get(&key.0) {
                // A connection may have several events.
                _ if waits.seen.contains_key(&key.0) => {}
                Some(seen) if seen.due_ms > now_ms || looks == 0 => _ = waits.seen.insert(key.0, *seen),
                None if looks == 0 => {}
                _ => {
                    looks -= 1;
                    self.look_at(*key, admission, None, waits, state);
                }
            }
        }
        // The accept queue of the only worker holds younger requests than its connections do.
        let queued = if self.has_other_workers() { 0 } else { self.queued() };
        let mut waiting = waits.waiting() + queued;
        for key in ready {
            let Some(most) = limits.own.filter(|most| waiting > *most as usize && looks > 0) else { return };
            if waits.seen.get(&key.0).is_none_or(|seen| seen.listener.is_none()) {
                continue;
            }
            looks -= 1;
            let crowd = Some(RefusalCause::Crowded { waiting, most });
            waiting -= usize::from(self.look_at(key, admission, crowd, waits, state) == Looked::Refused);
        }
    }

    /// Connections in the accept queues whose requests can be refused.
    fn queued(&self) -> usize {
        let listeners = self.worker.listeners.iter().filter(|listener| listener.is_tcp && listener.shows_requests());
        listeners.filter_map(|listener| socket::queue_length(listener.descriptor.as_fd())).map(|length| length as usize).sum()
    }

    /// Looks at the accept queue of a socket: accepts those that are refused, and one more if none of its requests waits on a
    /// connection.
    fn refuse_in_queue(
        &self,
        number: usize,
        admission: &Admission,
        limits: WaitLimits,
        waits: &mut Waits,
        state: &mut LeaderState<L::App>,
    ) {
        let Some(listener) = self.worker.listeners.get(number) else { return };
        if !listener.shows_requests() || !self.may_accept_in_calls(number, &state.housekeeping) {
            return;
        }
        let on_connections = waits.waiting();
        for _ in 0..MAX_LOOKS {
            let crowd = limits.all.filter(|_| listener.is_tcp).and_then(|most| {
                let waiting = socket::queue_length(listener.descriptor.as_fd())? as usize + on_connections;
                (waiting > most as usize).then_some(RefusalCause::Crowded { waiting, most })
            });
            if waits.left >= MAX_CHECKED || crowd.is_none() && waits.sees_request_of(number) {
                return;
            }
            let Some(key) = self.accept_unread(number, state) else { return };
            if self.look_at(key, admission, crowd, waits, state) == Looked::Stays {
                waits.left += 1;
            }
        }
    }

    /// Refuses the request of a connection if it has waited too long, or if too many wait.
    fn look_at(
        &self,
        key: Key,
        admission: &Admission,
        crowd: Option<RefusalCause>,
        waits: &mut Waits,
        state: &mut LeaderState<L::App>,
    ) -> Looked {
        let now_ms = waits.clock.now_ms;
        let Some(connection) = state.connections.peek(key) else { return Looked::Stays };
        let request = connection.waiting_request(&self.worker);
        let waited_ms = connection.input_waited_ms(&self.worker, now_ms);
        let waited_ms = waited_ms.or(request.as_ref().and_then(|request| request.said_ms));
        let late = waited_ms.and_then(|waited_ms| admission.judge(waited_ms, now_ms));
        let may_answer = waits.left < MAX_CHECKED;
        let (Some(request), Some(cause), true) = (&request, late.or(crowd), may_answer) else {
            let due_ms = (now_ms + admission.patience_ms()).saturating_sub(waited_ms.unwrap_or(0)).max(now_ms + 1);
            waits.seen.insert(key.0, SeenWaiting { due_ms, listener: request.map(|_| connection.listener()) });
            return Looked::Stays;
        };
        waits.seen.remove(&key.0);
        let Some(mut connection) = state.connections.check_out(key) else { return Looked::Stays };
        if !request.is_check {
            admission.note_refusal(&self.worker.peer_warnings, cause, now_ms);
        }
        let after = connection.refuse_unread(request, admission, &self.worker, &waits.clock);
        if after == AfterRefusal::Ends {
            self.close_checked(key, &mut connection, state);
            return Looked::Refused;
        }
        waits.left += usize::from(after == AfterRefusal::Lingers);
        let due_ms = connection.due_ms();
        let has_rest = after == AfterRefusal::Lingers || !request.is_alone || state.connections.has_ended(key);
        state.connections.check_in(key, connection, due_ms);
        if !has_rest {
            // Nothing is left to read, and the poll reports what comes next.
            state.connections.forget_events(key);
        }
        Looked::Refused
    }
}
