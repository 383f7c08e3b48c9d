//! Recycling: workers that are worn out, by `max-requests` or `max-worker-lifetime`: each gets its replacement first and ends when that
//! serves, and never are two of them replaced at once. The master runs it.

use bolide_contract::message::Order;

use crate::child::{Event, State};
use crate::supervisor::Supervisor;

/// A lifetime is cut by up to this share of it, in thousandths, so that workers of one age do not end together.
const JITTER_THOUSANDTHS: u64 = 100;

/// Numbers without any claim to be secret: for jitter only.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Jitter {
        Jitter(seed | 1)
    }

    /// A lifetime, shortened by up to a tenth.
    pub fn shorten(&mut self, lifetime_ms: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let thousandths = (self.0 >> 32) % (JITTER_THOUSANDTHS + 1);
        lifetime_ms - (u128::from(lifetime_ms) * u128::from(thousandths) / 1000) as u64
    }
}

impl Supervisor {
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
        if replaced {
            let (id, mercy_ms) = (old.id, self.fleet.settings.lifecycle.reload_mercy_ms);
            self.fleet.order_end(id, Order::Drain, now_ms.saturating_add(mercy_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_cut_by_a_tenth_at_the_most_and_differs() {
        let mut jitter = Jitter::new(4242);
        let times: Vec<u64> = (0..100).map(|_| jitter.shorten(100_000)).collect();
        assert!(times.iter().all(|time| (90_000..=100_000).contains(time)));
        assert!(times.iter().collect::<std::collections::BTreeSet<_>>().len() > 30);
        assert!(Jitter::new(0).shorten(u64::MAX) >= u64::MAX / 10 * 9);
    }
}
