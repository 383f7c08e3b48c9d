//! The ordered ends of whole generations: who is told to finish, who is told to stop, and who is killed, with the time that each
//! one has. The master runs it.

use bolide_contract::message::{INTERPRETER_END_MS, Order};

use crate::children::child::{Child, KillReason, Role, State};
use crate::children::{Children, GRACE_MS};
use crate::provision::Provision;

impl Children {
    /// Ends generations: workers and helpers that have begun finish their work; those that have not are killed.
    /// `continues_elsewhere`: the workers of another master take their connections over.
    pub fn end_generations(
        &mut self,
        which: impl Fn(u32) -> bool,
        continues_elsewhere: bool,
        provision: &Provision,
        now_ms: u64,
    ) {
        self.end_children(|child| which(child.generation), continues_elsewhere, provision, now_ms);
    }

    /// Ends a generation that was still forming. If it is the first one, its workers that serve already continue: clients have
    /// only them until those of the next one serve.
    pub fn end_abandoned(&mut self, number: u32, is_first: bool, provision: &Provision, now_ms: u64) {
        let serves =
            |child: &Child| is_first && child.generation == number && child.is_request_worker() && child.state.is_serving();
        let has_serving = self.iter().any(serves);
        let ends = |child: &Child| child.generation == number && !serves(child) && !(has_serving && child.is_prototype());
        self.end_children(ends, false, provision, now_ms);
    }

    fn end_children(&mut self, which: impl Fn(&Child) -> bool, continues_elsewhere: bool, provision: &Provision, now_ms: u64) {
        let mercy_ms = now_ms.saturating_add(provision.settings().lifecycle.reload_mercy_ms);
        let longest_ms = now_ms.saturating_add(provision.longest_mercy_ms());
        let is_developed = provision.is_developed();
        let succeeds = |child: &Child| child.is_request_worker() && child.state.is_serving() && !which(child);
        let has_successors = continues_elsewhere || self.iter().any(succeeds);
        for id in self.ids(|child| which(child) && child.state.is_active()) {
            let Some((role, has_begun)) = self.find(id).map(|child| (child.role, self.has_begun(child))) else { continue };
            match (role, has_begun) {
                (Role::Prototype, true) => self.order_end(id, Order::Retire, longest_ms.saturating_add(GRACE_MS)),
                // The prototype may be exiting already, with its error half written to the log.
                (Role::Prototype, false) => self.order_end(id, Order::Retire, now_ms + GRACE_MS),
                (Role::Helper { .. }, true) => self.order_end_of_helper(id, Order::Drain { has_successors }, provision, now_ms),
                // In development, an open page must not continue with old code. Connections with a request that waited for
                // the new code move to its worker.
                (Role::Worker { .. }, true) if is_developed && !(has_successors && self.is_paused) => {
                    self.order_end(id, Order::Stop, mercy_ms);
                }
                (Role::Worker { .. }, true) => self.order_end(id, Order::Drain { has_successors }, mercy_ms),
                (Role::Worker { .. } | Role::Helper { .. }, false) => self.kill(id, KillReason::GivenUp, now_ms),
            }
        }
    }

    /// Shortens the deadline of prototypes that were ordered to end and have no worker or helper left. Only the end of the
    /// interpreter remains, and it has a time limit of its own.
    pub fn shorten_prototype_deadlines(&mut self, now_ms: u64) {
        let has_children = |pid| self.list.iter().any(|child| !child.is_prototype() && child.forker == pid);
        let is_done = |child: &Child| child.is_prototype() && child.state == State::Ending && !has_children(child.pid);
        for id in self.ids(is_done) {
            if let Some(prototype) = self.find_mut(id) {
                prototype.shorten_deadline(now_ms + INTERPRETER_END_MS, KillReason::Mercy);
            }
        }
    }
}
