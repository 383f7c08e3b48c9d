//! Workers that come and go: `cheaper`, `cheap`, `idle`, and the commands that add and remove one. A worker that goes finishes what it
//! has; one that comes is forked from what is loaded. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::message::Order;
use bolide_services::cheaper::{Decision, Seen, WorkerLoad};
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::memory_watch::usage_of;
use bolide_supervision::text::{duration, workers_in_words};

use crate::children::child::{Child, State};
use crate::control::commands::Command;
use crate::supervisor::Supervisor;
use crate::token::Token;

impl Supervisor {
    /// The listening sockets, where a connection that waits is news.
    pub(crate) fn listening_sources(&self, now_ms: u64) -> Vec<Source<'_, Token>> {
        // Who waits in a pause is not waiting for a worker.
        let may_add = !self.is_stopping() && !self.fleet.is_paused;
        let Some(serving) = self.serving.as_ref().filter(|_| may_add) else { return Vec::new() };
        let is_news = serving.is_empty() || serving.has_room() && self.elasticity.listens(now_ms);
        if is_news { self.fleet.listeners.sources(Token::Listeners).collect() } else { Vec::new() }
    }

    /// A connection waits to be accepted.
    pub(crate) fn connection_waits(&mut self, now_ms: u64) {
        let may_add = !self.is_stopping() && !self.fleet.is_paused;
        let Some(serving) = self.serving.as_ref().filter(|_| may_add) else { return };
        if serving.is_empty() {
            let elastic = &self.fleet.settings.elastic;
            let count = elastic.cheaper.as_ref().map_or(self.fleet.settings.workers.processes, |cheaper| cheaper.least);
            self.elasticity.wake_up(now_ms);
            return self.add_workers(count, "a connection has come");
        }
        let waiting = self.fleet.waiting_connections();
        let loads = self.loads();
        let is_everybody_at_work = self.is_everybody_at_work();
        let seen = Seen { workers: &loads, waiting, resident: 0, now_ms };
        let decision = self.elasticity.look(is_everybody_at_work, &seen);
        self.follow(decision, now_ms);
    }

    /// Looks whether there should be more or fewer workers, if it is time.
    pub(crate) fn scale(&mut self, now_ms: u64) {
        // The turn is taken also where nobody serves: one that stays due would have the master wake again and again.
        if !self.elasticity.is_due(now_ms) || self.serving.as_ref().is_none_or(|serving| serving.is_empty()) {
            return;
        }
        // Load says nothing in a pause: as many workers are to be there when it ends as were when it began.
        if self.fleet.is_paused {
            return;
        }
        let waiting = self.fleet.waiting_connections();
        let loads = self.loads();
        if self.forming.is_none() && self.elasticity.is_idle(self.requests(), self.is_anybody_busy(), now_ms) {
            return self.fall_asleep(now_ms);
        }
        let resident = if self.elasticity.weighs_memory { self.resident_bytes() } else { 0 };
        let seen = Seen { workers: &loads, waiting, resident, now_ms };
        let decision = self.elasticity.turn(&seen);
        self.follow(decision, now_ms);
    }

    /// `SIGTTIN` and its like: one more worker.
    ///
    /// # Errors
    /// There are as many as there may be; the log says so too.
    pub(crate) fn add_worker(&mut self, by: &str) -> Result<(), String> {
        if self.serving.as_ref().is_some_and(|serving| serving.has_room()) {
            self.add_workers(1, by);
            return Ok(());
        }
        let most = workers_in_words(self.fleet.settings.workers.processes);
        let why = format!("no worker is added: there are never more than {most} (processes)");
        log_sink::line(&format!("{by}: {why}"));
        Err(why)
    }

    /// `SIGTTOU` and its like: one worker less.
    ///
    /// # Errors
    /// None can go; the log says so too.
    pub(crate) fn remove_worker(&mut self, by: &str, now_ms: u64) -> Result<(), String> {
        if self.fleet.is_paused {
            let why = "no worker is removed: it is paused, and clients wait on the connections of each";
            log_sink::line(&format!("{by}: {why}"));
            return Err(why.to_owned());
        }
        let count = self.serving.as_ref().map_or(0, |serving| serving.wanted_count());
        let victim = self.oldest_worker(true).or_else(|| self.oldest_worker(false)).filter(|_| count > 1);
        let Some(id) = victim else {
            let why = "no worker is removed: the last one stays, and one that is replaced does until then";
            log_sink::line(&format!("{by}: {why}"));
            return Err(why.to_owned());
        };
        self.let_go(id, by, now_ms);
        Ok(())
    }

    fn follow(&mut self, decision: Decision, now_ms: u64) {
        let why = decision.words.unwrap_or_default();
        match decision.change {
            0 if !why.is_empty() => log_sink::line(&format!("cheaper: {why}")),
            0 => {}
            count if count > 0 => self.add_workers(count.unsigned_abs(), &why),
            // Workers go when the reload that is under way has ended, and while nobody waits for them.
            _ if self.forming.is_some() => {}
            _ => {
                if let Some(id) = self.oldest_worker(true) {
                    self.let_go(id, &why, now_ms);
                }
            }
        }
    }

    /// Wants so many workers more; they are forked in this very turn. Those of a generation that forms as well.
    fn add_workers(&mut self, count: u32, why: &str) {
        let Some(serving) = &mut self.serving else { return };
        let missing: Vec<usize> = serving.missing_numbers().take(count as usize).collect();
        let forming = self.forming.as_mut().map(|forming| &mut forming.generation);
        for generation in forming.into_iter().chain([&mut *serving]) {
            for (index, wanted) in generation.wanted.iter_mut().enumerate() {
                *wanted |= missing.contains(&index);
            }
        }
        let (added, of) = (workers_in_words(missing.len() as u32), serving.wanted.len());
        log_sink::line(&format!("{why}: {added} more, {} of {of}", serving.wanted_count()));
    }

    /// A worker is not needed any more: it finishes what it has.
    fn let_go(&mut self, id: u64, why: &str, now_ms: u64) {
        let Some(worker) = self.fleet.find(id) else { return };
        let (said, number) = (worker.to_string(), worker.worker_number().unwrap_or(0));
        let Some(serving) = &mut self.serving else { return };
        if let Some(wanted) = serving.wanted.get_mut((number as usize).wrapping_sub(1)) {
            *wanted = false;
        }
        log_sink::line(&format!("{why}: {said} ends, {} of {} stay", serving.wanted_count(), serving.wanted.len()));
        self.drain(id, true, now_ms);
    }

    /// `idle`: all workers end, or the instance.
    fn fall_asleep(&mut self, now_ms: u64) {
        let elastic = &self.fleet.settings.elastic;
        let most = duration(elastic.idle_ms.unwrap_or(0));
        if elastic.dies_idle {
            log_sink::line(&format!("nothing was asked for {most} (idle, die-on-idle)"));
            return self.obey(Command::Stop, "die-on-idle", now_ms);
        }
        log_sink::line(&format!("nothing was asked for {most} (idle): all workers end, and the next connection starts some"));
        let Some(serving) = &mut self.serving else { return };
        serving.wanted.fill(false);
        let number = serving.number;
        let ids: Vec<u64> = self.fleet.active_workers(number).map(|worker| worker.id).collect();
        for id in ids {
            self.drain(id, false, now_ms);
        }
    }

    fn drain(&mut self, id: u64, has_successors: bool, now_ms: u64) {
        let mercy_ms = self.fleet.settings.lifecycle.reload_mercy_ms;
        self.fleet.order_end(id, Order::Drain { has_successors }, now_ms.saturating_add(mercy_ms));
    }

    /// The workers that serve or soon will, which nobody has told to end.
    fn workers(&self) -> impl Iterator<Item = &Child> {
        let number = self.serving.as_ref().map_or(0, |serving| serving.number);
        self.fleet.active_workers(number)
    }

    fn loads(&self) -> Vec<WorkerLoad> {
        let load = |worker: &Child| WorkerLoad {
            number: worker.worker_number().unwrap_or(0),
            is_busy: self.is_busy(worker),
            busy_ms: worker.row().map_or(0, |row| self.fleet.scoreboard.work(row).map(|work| work.busy_us).sum::<u64>() / 1000),
        };
        self.workers().map(load).collect()
    }

    /// The longest-serving worker; only one without a request, where `is_free` asks for that. Nobody who is being replaced.
    fn oldest_worker(&self, is_free: bool) -> Option<u64> {
        let replaced = self.recycling.and_then(|id| self.fleet.find(id)).and_then(Child::worker_number);
        let may_go = |worker: &&Child| {
            worker.state == State::Serving && worker.worker_number() != replaced && !(is_free && self.is_busy(worker))
        };
        self.workers().filter(may_go).min_by_key(|worker| worker.ready_ms).map(|worker| worker.id)
    }

    fn is_busy(&self, worker: &Child) -> bool {
        worker.row().is_some_and(|row| self.fleet.scoreboard.slots(row).iter().any(|slot| slot.began_ms.load(Relaxed) > 0))
    }

    fn is_anybody_busy(&self) -> bool {
        self.fleet.children.iter().any(|child| self.is_busy(child))
    }

    /// No worker sleeps, and none is on its way.
    fn is_everybody_at_work(&self) -> bool {
        let is_at_work = |worker: &Child| {
            let row = worker.row().and_then(|row| self.fleet.scoreboard.row(row));
            worker.state.is_serving() && row.is_some_and(|row| row.waiting.load(Relaxed) == 0)
        };
        self.workers().all(is_at_work)
    }

    fn requests(&self) -> u64 {
        let rows = self.fleet.children.iter().filter_map(|child| self.fleet.scoreboard.row(child.row()?));
        rows.map(|row| row.requests.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    fn resident_bytes(&self) -> u64 {
        let usages = self.workers().filter_map(|worker| usage_of(worker.pid?, false));
        usages.map(|usage| usage.resident).fold(0, u64::saturating_add)
    }
}
