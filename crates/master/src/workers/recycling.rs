//! Recycling: a worker that is worn out, by `max-requests`, `max-worker-lifetime` or its memory, gets its replacement first and ends
//! when that serves; never are two of them replaced at once. The master runs it.
//!
//! A chain reload replaces all that serve in this way. With `lazy-apps` a replacement loads the application anew; one that can't ends the
//! chain, and the others go on with the code that they have.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use bolide_contract::message::{EXIT_LOAD_FAILED, Order};
use bolide_contract::recycling::Recycling as Limits;
use bolide_supervision::logs::log_sink;
use bolide_supervision::processes::backoff::Jitter;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::text::workers_in_words;
use nix::unistd::Pid;

use crate::children::Children;
use crate::children::child::{Child, Event, State};
use crate::generations::generation::Generation;
use crate::provision::Provision;

/// The worker that is being replaced, and those that wait for their turn.
#[derive(Debug)]
pub struct Recycling {
    current: Option<u64>,
    queue: VecDeque<u64>,
    /// Workers whose replacement a chain reload has asked for, and that have not ended yet.
    chain: Vec<u64>,
    jitter: Jitter,
}

impl Recycling {
    pub fn new() -> Recycling {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        let jitter = Jitter::new(u64::from(time) << 32 | Pid::this().as_raw() as u64);
        Recycling { current: None, queue: VecDeque::new(), chain: Vec::new(), jitter }
    }

    /// The worker that is being replaced.
    pub fn current<'a>(&self, children: &'a Children) -> Option<&'a Child> {
        self.current.and_then(|id| children.find(id))
    }

    pub fn current_id(&self) -> Option<u64> {
        self.current
    }

    /// One is being replaced, or is to be.
    pub fn is_at_work(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty()
    }

    /// Time that the worker of this number may serve, in milliseconds.
    pub fn lifetime_ms(&mut self, limits: &Limits, number: u32) -> Option<u64> {
        self.jitter.lifetime_ms(limits, number)
    }

    /// A worker says that it is worn out: it is replaced, once it has served for `min-worker-lifetime`. One that ends by itself (it was
    /// sent SIGTERM) does not wait for that.
    pub fn take_worn(&mut self, id: u64, children: &mut Children, provision: &Provision, now_ms: u64) {
        let least_ms = provision.settings().recycling.min_lifetime_ms;
        let Some(worker) = children.find(id) else { return };
        let row = worker.row().and_then(|row| children.scoreboard().row(row));
        let leaves = row.is_some_and(|row| row.accepting.load(Relaxed) == 0);
        match worker.ready_ms.map(|ready| ready.saturating_add(least_ms)) {
            Some(due_ms) if due_ms > now_ms && !leaves => {
                if let Some(worker) = children.find_mut(id) {
                    worker.expires_ms = Some(worker.expires_ms.map_or(due_ms, |earlier| earlier.min(due_ms)));
                }
            }
            _ => self.enqueue(id, children),
        }
    }

    /// Puts a worker into the queue of those to be replaced.
    pub fn enqueue(&mut self, id: u64, children: &mut Children) {
        let Some(worker) = children.find_mut(id) else { return };
        worker.expires_ms = None;
        if worker.state != State::Serving {
            return;
        }
        worker.apply(Event::WornOut);
        self.queue.push_back(id);
    }

    /// Puts those past their lifetime into the queue.
    pub fn enqueue_expired(&mut self, children: &mut Children, now_ms: u64) {
        for id in children.ids(|child| child.expires_ms.is_some_and(|time| now_ms >= time)) {
            self.enqueue(id, children);
        }
    }

    /// Takes the replacement of one worker a step further: chooses the next, or ends the one whose replacement serves.
    pub fn advance(&mut self, is_forming: bool, children: &mut Children, provision: &Provision, now_ms: u64) {
        if self.current(children).is_none() {
            self.current = None;
        }
        // A reload replaces every worker: nobody is replaced just before it.
        while self.current.is_none() && !is_forming {
            let Some(id) = self.queue.pop_front() else { return };
            self.current = children.find(id).filter(|worker| worker.state == State::Worn).map(|worker| worker.id);
        }
        let Some(old) = self.current(children).filter(|worker| worker.state == State::Worn) else { return };
        let replaced = children
            .active_workers(old.generation)
            .any(|worker| worker.id != old.id && worker.worker_number() == old.worker_number() && worker.state.is_serving());
        // In a pause clients wait on its connections: they are not to be served by its end.
        if replaced && !children.is_paused() {
            let (id, mercy_ms) = (old.id, provision.settings().lifecycle.reload_mercy_ms);
            children.order_end(id, Order::Drain { has_successors: true }, now_ms.saturating_add(mercy_ms));
        }
    }

    /// Replaces nobody any more: a reload has replaced all, or the instance ends.
    pub fn forget(&mut self) {
        self.current = None;
        self.queue.clear();
    }

    /// A chain reload goes on.
    pub fn has_chain(&self) -> bool {
        !self.chain.is_empty()
    }

    /// Begins a chain reload. `by` says who asked.
    pub fn begin_chain(&mut self, serving: &Generation, by: &str, children: &mut Children) {
        let number = serving.number;
        let is_its = |child: &&Child| child.is_request_worker() && child.generation == number && child.state.is_serving();
        let its = children.iter().filter(is_its).filter_map(|child| Some((child.worker_number()?, child.id)));
        let mut workers: Vec<(u32, u64)> = its.collect();
        workers.sort_unstable();
        self.chain = workers.into_iter().map(|(_, id)| id).collect();
        let code = if serving.is_lazy {
            "each loads the application again"
        } else {
            "with the loaded code, because lazy-apps is off; a reload (SIGHUP) loads it again"
        };
        let count = workers_in_words(self.chain.len() as u32);
        log_sink::line(&format!("chain reload ({by}): {count} of generation {number}, one after the other, {code}"));
        for id in self.chain.clone() {
            self.enqueue(id, children);
        }
    }

    /// A worker has ended: the chain is a link shorter, or at its end. A replacement that can't load the application is none, and the next
    /// would not be one either. Gives how the chain has ended, if it has.
    pub fn note_end(&mut self, worker: &Child, cause: &Cause, children: &mut Children) -> Option<Result<(), String>> {
        if self.chain.is_empty() {
            return None;
        }
        let before = self.chain.len();
        self.chain.retain(|id| *id != worker.id);
        if self.chain.is_empty() {
            log_sink::line("chain reload: all workers are replaced");
            Some(Ok(()))
        } else if before == self.chain.len() && worker.state.is_active() && *cause == Cause::Exited(EXIT_LOAD_FAILED) {
            let why = format!("{worker} can't load the application, see above");
            self.give_up_chain(&why, children);
            Some(Err(why))
        } else {
            None
        }
    }

    fn give_up_chain(&mut self, why: &str, children: &mut Children) {
        let chain = std::mem::take(&mut self.chain);
        self.queue.retain(|id| !chain.contains(id));
        self.current = self.current.filter(|id| !chain.contains(id));
        for id in chain {
            if let Some(spared) = children.find_mut(id).filter(|worker| worker.state == State::Worn) {
                spared.apply(Event::Spared);
            }
        }
        log_sink::line(&format!("chain reload: {why}: the workers that are not replaced yet continue with their code"));
    }
}
