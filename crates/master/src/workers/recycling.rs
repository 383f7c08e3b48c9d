//! Recycling: a worker that is worn out, by `max-requests`, `max-worker-lifetime` or its memory, gets its replacement first and
//! ends when that serves. Two workers are never replaced at the same time. It measures no memory. The master runs it.
//!
//! A chain reload replaces all serving workers in this way. With `lazy-apps`, a replacement loads the application again; if that
//! fails, the chain ends, and the remaining workers continue with their code.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use bolide_contract::message::{EXIT_LOAD_FAILED, Order};
use bolide_contract::recycling::Recycling as Limits;
use bolide_services::reloads::ReloadCause;
use bolide_supervision::log_sink;
use bolide_supervision::processes::backoff::Jitter;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::text::workers_in_words;
use nix::unistd::Pid;

use crate::children::Children;
use crate::children::child::{Child, Event, State};
use crate::generations::generation::Generation;
use crate::owner::{Owner, Turn, Waits};
use crate::provision::Provision;
use crate::workers::refork::Refork;

/// A chain reload that begins when the replacement in progress has ended: workers that were replaced before its request may have
/// older code.
#[derive(Debug)]
pub struct FollowingChain {
    /// What asked for it last.
    pub by: String,
    pub cause: ReloadCause,
}

/// The worker that is being replaced, and the queue of those to be replaced.
#[derive(Debug)]
pub struct Recycling {
    current: Option<u64>,
    queue: VecDeque<u64>,
    /// Workers whose replacement a chain reload has requested, and that have not ended yet.
    chain: Vec<u64>,
    /// A chain reload that was requested while workers were being replaced. There is at most one, however many requests come.
    following: Option<FollowingChain>,
    /// A worker that becomes the prototype of the others.
    refork: Refork,
    jitter: Jitter,
}

impl Recycling {
    pub fn new() -> Recycling {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        let jitter = Jitter::new(u64::from(time) << 32 | Pid::this().as_raw() as u64);
        Recycling { current: None, queue: VecDeque::new(), chain: Vec::new(), following: None, refork: Refork::default(), jitter }
    }

    /// Returns the worker that is being replaced.
    pub fn current<'a>(&self, children: &'a Children) -> Option<&'a Child> {
        self.current.and_then(|id| children.find(id))
    }

    pub fn current_id(&self) -> Option<u64> {
        self.current
    }

    /// Returns whether a worker is being replaced, or is queued for it.
    pub fn is_at_work(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty()
    }

    /// Returns how long the worker with this number may serve, in milliseconds.
    pub fn lifetime_ms(&mut self, limits: &Limits, number: u32) -> Option<u64> {
        self.jitter.lifetime_ms(limits, number)
    }

    /// Handles the report that a worker is worn out: it is replaced once it has served for `min-worker-lifetime`. If it ends by
    /// itself (it was sent SIGTERM), it is replaced immediately.
    pub fn take_worn(&mut self, id: u64, children: &mut Children, provision: &Provision, now_ms: u64) {
        let least_ms = provision.settings().recycling.min_lifetime_ms;
        let Some(worker) = children.find(id) else { return };
        let row = worker.row().and_then(|row| children.scoreboard().row(row));
        let leaves = row.is_some_and(|row| !row.has_room());
        match worker.ready_ms.map(|ready| ready.saturating_add(least_ms)) {
            Some(due_ms) if due_ms > now_ms && !leaves => {
                if let Some(worker) = children.find_mut(id) {
                    worker.expires_ms = Some(worker.expires_ms.map_or(due_ms, |earlier| earlier.min(due_ms)));
                }
            }
            _ => self.enqueue(id, children),
        }
    }

    /// Adds a worker to the queue of those to be replaced.
    pub fn enqueue(&mut self, id: u64, children: &mut Children) {
        let Some(worker) = children.find_mut(id) else { return };
        worker.expires_ms = None;
        if worker.state != State::Serving {
            return;
        }
        worker.apply(Event::WornOut);
        self.queue.push_back(id);
    }

    /// Adds workers past their lifetime to the queue.
    pub fn enqueue_expired(&mut self, children: &mut Children, now_ms: u64) {
        for id in children.ids(|child| child.expires_ms.is_some_and(|time| now_ms >= time)) {
            self.enqueue(id, children);
        }
    }

    /// Returns the change of the prototype.
    pub fn refork(&self) -> &Refork {
        &self.refork
    }

    pub fn refork_mut(&mut self) -> &mut Refork {
        &mut self.refork
    }

    /// A worker has become the prototype with this pid: those of the former one are replaced.
    pub fn begin_refork(&mut self, former: Option<u64>, prototype: Option<Pid>, children: &mut Children) {
        for id in self.refork.note_success(former, prototype, children) {
            self.enqueue(id, children);
        }
    }

    /// Advances the replacement: chooses the next worker, or ends the one whose replacement serves. `serving` is the generation
    /// in service.
    pub fn advance(
        &mut self,
        serving: Option<&Generation>,
        is_forming: bool,
        children: &mut Children,
        provision: &Provision,
        now_ms: u64,
    ) {
        let (serving, is_calm) = (serving.filter(|_| !is_forming), !self.is_at_work());
        for id in self.refork.advance(serving, is_calm, children, provision, now_ms) {
            self.enqueue(id, children);
        }
        if self.current(children).is_none() {
            self.current = None;
        }
        // A reload replaces every worker, so no worker is replaced just before it.
        while self.current.is_none() && !is_forming {
            let Some(id) = self.queue.pop_front() else { return };
            self.current = children.find(id).filter(|worker| worker.state == State::Worn).map(|worker| worker.id);
        }
        let Some(old) = self.current(children).filter(|worker| worker.state == State::Worn) else { return };
        let replaced = children
            .active_workers(old.generation)
            .any(|worker| worker.id != old.id && worker.worker_number() == old.worker_number() && worker.state.is_serving());
        // In a pause, clients wait on the worker's connections, and its end would serve them.
        if replaced && !children.is_paused() {
            let (id, mercy_ms) = (old.id, provision.settings().lifecycle.reload_mercy_ms);
            let deadline_ms = now_ms.saturating_add(mercy_ms);
            if self.refork.is_chosen(id) {
                match children.order_succession(id, deadline_ms) {
                    Ok(prototype) => return self.refork.note_ordered(prototype),
                    Err(error) => {
                        log_sink::line(&format!("refork-after: a worker can't be told to become the prototype: {error}"));
                        self.refork.note_failure();
                    }
                }
            }
            children.order_end(id, Order::Drain { has_successors: true }, deadline_ms);
        }
    }

    /// Clears the queue: a reload has replaced all workers, or the instance exits.
    pub fn forget(&mut self) {
        self.current = None;
        self.queue.clear();
        self.refork.forget();
    }

    /// Returns whether a chain reload is in progress.
    pub fn has_chain(&self) -> bool {
        !self.chain.is_empty()
    }

    /// Lets a chain reload follow the replacement in progress. Returns whether it is the first.
    pub fn follow(&mut self, following: FollowingChain) -> bool {
        self.following.replace(following).is_none()
    }

    /// Returns the chain reload that follows, if no chain is in progress.
    pub fn take_following(&mut self) -> Option<FollowingChain> {
        self.following.take_if(|_| self.chain.is_empty())
    }

    /// Forgets the chain reload that follows: a generation with the newest code replaces all workers, or the instance exits.
    pub fn drop_following(&mut self) {
        self.following = None;
    }

    /// Begins a chain reload. `by` names the source of the request.
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
        log_sink::line(&format!("chain reload ({by}): {count} of generation {number}, one by one, {code}"));
        for id in self.chain.clone() {
            self.enqueue(id, children);
        }
    }

    /// Handles the end of a worker for the chain. A replacement that can't load the application ends the chain, because the next
    /// one would fail too. Returns the result of the chain, if it has ended.
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

impl Owner for Recycling {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        Waits::until(self.refork.wake_ms().filter(|_| !turn.is_stopping))
    }
}
