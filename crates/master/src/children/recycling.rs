//! Recycling: a worker that is worn out, by `max-requests`, `max-worker-lifetime` or its memory, gets its replacement first and ends
//! when that serves; never are two of them replaced at once. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::message::Order;

use crate::children::child::{Event, State};
use crate::supervisor::Supervisor;

impl Supervisor {
    /// A worker says that it is worn out: it is replaced, once it has served for `min-worker-lifetime`. One that ends by itself (it was
    /// sent SIGTERM) does not wait for that.
    pub(crate) fn take_worn(&mut self, id: u64, now_ms: u64) {
        let least_ms = self.fleet.settings.recycling.min_lifetime_ms;
        let Some(worker) = self.fleet.find(id) else { return };
        let row = worker.row().and_then(|row| self.fleet.scoreboard.row(row));
        let leaves = row.is_some_and(|row| row.accepting.load(Relaxed) == 0);
        match worker.ready_ms.map(|ready| ready.saturating_add(least_ms)) {
            Some(due_ms) if due_ms > now_ms && !leaves => {
                if let Some(worker) = self.fleet.find_mut(id) {
                    worker.expires_ms = Some(worker.expires_ms.map_or(due_ms, |earlier| earlier.min(due_ms)));
                }
            }
            _ => self.queue_for_recycling(id),
        }
    }

    /// Puts a worker into the queue of those to be replaced.
    pub(crate) fn queue_for_recycling(&mut self, id: u64) {
        let Some(worker) = self.fleet.find_mut(id) else { return };
        worker.expires_ms = None;
        if worker.state != State::Serving {
            return;
        }
        worker.apply(Event::WornOut);
        self.recycling_queue.push_back(id);
    }

    /// Puts those past their lifetime into the queue.
    pub(crate) fn queue_expired_workers(&mut self, now_ms: u64) {
        for id in self.fleet.ids(|child| child.expires_ms.is_some_and(|time| now_ms >= time)) {
            self.queue_for_recycling(id);
        }
    }

    /// Takes the replacement of one worker a step further: chooses the next, or ends the one whose replacement serves.
    pub(crate) fn advance_recycling(&mut self, now_ms: u64) {
        if self.recycling.is_some_and(|id| self.fleet.find(id).is_none()) {
            self.recycling = None;
        }
        // A reload replaces every worker: nobody is replaced just before it.
        while self.recycling.is_none() && self.forming.is_none() {
            let Some(id) = self.recycling_queue.pop_front() else { return };
            self.recycling = self.fleet.find(id).filter(|worker| worker.state == State::Worn).map(|worker| worker.id);
        }
        let Some(old) = self.recycling.and_then(|id| self.fleet.find(id)).filter(|worker| worker.state == State::Worn) else {
            return;
        };
        let replaced = self
            .fleet
            .active_workers(old.generation)
            .any(|worker| worker.id != old.id && worker.worker_number() == old.worker_number() && worker.state.is_serving());
        // In a pause clients wait on its connections: they are not to be served by its end.
        if replaced && !self.fleet.is_paused {
            let (id, mercy_ms) = (old.id, self.fleet.settings.lifecycle.reload_mercy_ms);
            self.fleet.order_end(id, Order::Drain { has_successors: true }, now_ms.saturating_add(mercy_ms));
        }
    }
}
