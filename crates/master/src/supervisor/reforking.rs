//! A worker that becomes the prototype of its generation (`refork-after`): its success and its failure. It continues the
//! supervisor; [`crate::workers::refork`] decides. The master runs it.

use bolide_contract::message::Order;
use bolide_supervision::log_sink;

use crate::children::GRACE_MS;
use crate::children::child::{Event, KillReason};
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Handles the report that a process, which a worker has forked, takes orders.
    pub(super) fn prototype_succeeded(&mut self, id: u64, pid: u32, now_ms: u64) {
        if !self.children.note_succession(id, pid) {
            log_sink::line(&format!("a process claims pid {pid} as a prototype, which it is not: it is ignored"));
            return self.succession_failed(id, now_ms);
        }
        let Some(prototype) = self.children.find_mut(id) else { return };
        let generation = prototype.generation;
        (prototype.born_ms, prototype.ready_ms) = (now_ms, Some(now_ms));
        // If it dies before it has forked, it leaves nothing behind: what the application has started is not in its group.
        prototype.has_served = true;
        if !self.recycling.refork().awaits(id) {
            // A reload or a shutdown came first.
            return self.children.order_end(id, Order::Retire, now_ms + GRACE_MS);
        }
        let former = self.children.prototype(generation).map(|prototype| prototype.id).filter(|former| *former != id);
        let Some(prototype) = self.children.find_mut(id) else { return };
        prototype.apply(Event::Ready);
        let pid = prototype.pid;
        log_sink::line(&format!("refork-after: {prototype} forks workers from now on"));
        self.recycling.begin_refork(former, pid, &mut self.children);
    }

    /// A worker that was ordered to become a prototype has exited without one, or has refused.
    pub(super) fn succession_failed(&mut self, id: u64, now_ms: u64) {
        if self.recycling.refork().awaits(id) {
            self.recycling.refork_mut().note_failure();
        }
        match self.is_awaited_prototype(id) {
            true => _ = self.children.remove(id),
            false => self.children.kill(id, KillReason::Unreachable, now_ms),
        }
    }

    /// Returns whether this child is a prototype that no worker has become yet.
    pub(super) fn is_awaited_prototype(&self, id: u64) -> bool {
        self.children.find(id).is_some_and(|child| child.is_prototype() && child.pid.is_none())
    }
}
