//! The number of workers: `cheaper`, `cheap`, `idle`, and the commands that add and remove a worker. A worker that is removed
//! finishes its requests; one that is added is forked from the loaded application. The number is checked once a second, and when
//! a connection is pending. It does not know the algorithm, which is in `bolide_services::cheaper`. The master runs it.
//!
//! A burst is detected without polling: the master waits on the listening sockets like a worker, and after each pending
//! connection it ignores the sockets for a moment.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::message::Order;
use bolide_contract::settings::Settings;
use bolide_services::cheaper::{Decision, Regulator, Seen, WorkerLoad};
use bolide_supervision::log_sink;
use bolide_supervision::processes::memory_watch::usage_of;
use bolide_supervision::text::{duration, workers_in_words};

use crate::children::Children;
use crate::children::child::{Child, State};
use crate::generations::Generations;
use crate::owner::{Owner, Turn, Waits};
use crate::provision::Provision;
use crate::workers::recycling::Recycling;

/// Interval between two turns, in milliseconds, as in uWSGI.
const TURN_MS: u64 = 1000;
/// How long the sockets are ignored after a pending connection, in milliseconds.
const PAUSE_MS: u64 = 30;
/// The same, if all workers were busy while it was pending.
const SUSPECT_PAUSE_MS: u64 = 15;
/// A check that is older than this, in milliseconds, does not count towards a burst any more.
const FORGET_MS: u64 = 200;

/// The times of checks, and the observations so far.
#[derive(Debug)]
pub struct Scaling {
    regulator: Option<Regulator>,
    /// The memory of workers counts too.
    pub weighs_memory: bool,
    idle: Option<IdleWatch>,
    turn_ms: u64,
    /// The sockets are ignored until this time.
    look_ms: u64,
    checked_ms: u64,
}

/// The state of `idle`.
#[derive(Debug)]
struct IdleWatch {
    limit_ms: u64,
    since_ms: u64,
    requests: u64,
}

impl Scaling {
    pub fn new(settings: &Settings, now_ms: u64) -> Scaling {
        let scaling = &settings.scaling;
        let cheaper = scaling.cheaper.as_ref();
        Scaling {
            regulator: cheaper.map(|cheaper| Regulator::new(cheaper, settings.workers.processes)),
            weighs_memory: cheaper.is_some_and(|cheaper| cheaper.resident_soft.or(cheaper.resident_hard).is_some()),
            idle: scaling.idle_ms.map(|limit_ms| IdleWatch { limit_ms, since_ms: now_ms, requests: 0 }),
            turn_ms: now_ms + TURN_MS,
            look_ms: 0,
            checked_ms: 0,
        }
    }

    /// Returns whether the loop waits for pending connections: if workers may be added.
    pub fn listens(&self, now_ms: u64) -> bool {
        self.regulator.is_some() && now_ms >= self.look_ms
    }

    /// Returns whether the check of this second is due.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = (self.regulator.is_some() || self.idle.is_some()) && now_ms >= self.turn_ms;
        if is_due {
            self.turn_ms = now_ms + TURN_MS;
        }
        is_due
    }

    pub fn turn(&mut self, seen: &Seen<'_>) -> Decision {
        self.regulator.as_mut().map_or_else(Decision::default, |regulator| regulator.turn(seen))
    }

    /// Checks for a burst when a connection is pending.
    pub fn check_burst(&mut self, all_busy: bool, seen: &Seen<'_>) -> Decision {
        let Some(regulator) = &mut self.regulator else { return Decision::default() };
        if seen.now_ms.saturating_sub(self.checked_ms) > FORGET_MS {
            regulator.forget_burst();
        }
        let decision = regulator.look_for_burst(all_busy, seen);
        self.checked_ms = seen.now_ms;
        self.look_ms = seen.now_ms + if regulator.suspects_burst() { SUSPECT_PAUSE_MS } else { PAUSE_MS };
        decision
    }

    /// Returns whether there was no request for so long that all workers may end. `requests` is the total of all workers; a
    /// different total means that there were requests.
    pub fn is_idle(&mut self, requests: u64, is_busy: bool, now_ms: u64) -> bool {
        let Some(idle) = &mut self.idle else { return false };
        if is_busy || idle.requests != requests {
            (idle.requests, idle.since_ms) = (requests, now_ms);
        }
        now_ms.saturating_sub(idle.since_ms) >= idle.limit_ms
    }

    /// Restarts the idle time when workers start after a time without any.
    pub fn wake_up(&mut self, now_ms: u64) {
        if let Some(idle) = &mut self.idle {
            idle.since_ms = now_ms;
        }
    }
}

/// The parts that scaling uses and changes.
pub struct Scaled<'a> {
    pub scaling: &'a mut Scaling,
    pub generations: &'a mut Generations,
    pub children: &'a mut Children,
    pub provision: &'a mut Provision,
    pub recycling: &'a Recycling,
}

impl Scaled<'_> {
    /// Handles a pending connection.
    pub fn connection_arrived(&mut self, now_ms: u64) {
        let Some(serving) = self.generations.serving().filter(|_| !self.children.is_paused()) else { return };
        if serving.is_empty() {
            let settings = self.provision.settings();
            let count = settings.scaling.cheaper.as_ref().map_or(settings.workers.processes, |cheaper| cheaper.least);
            self.scaling.wake_up(now_ms);
            return self.add_workers(count, "a connection arrived");
        }
        let waiting = self.provision.waiting_connections();
        let loads = self.loads();
        let all_busy = self.all_busy();
        let seen = Seen { workers: &loads, waiting, resident: 0, now_ms };
        let decision = self.scaling.check_burst(all_busy, &seen);
        self.follow(decision, now_ms);
    }

    /// Checks whether there should be more or fewer workers, if that is due. Returns whether the instance is to end
    /// (`die-on-idle`).
    pub fn scale(&mut self, now_ms: u64) -> bool {
        // The turn is consumed even if no worker serves: otherwise it would stay due, and the master would wake repeatedly.
        if !self.scaling.is_due(now_ms) || self.generations.serving().is_none_or(|serving| serving.is_empty()) {
            return false;
        }
        // Load means nothing in a pause: the number of workers stays the same until its end.
        if self.children.is_paused() {
            return false;
        }
        let waiting = self.provision.waiting_connections();
        let loads = self.loads();
        let (requests, any_busy) = (self.requests(), self.children.iter().any(|child| self.is_busy(child)));
        if !self.generations.is_forming() && self.scaling.is_idle(requests, any_busy, now_ms) {
            return self.end_idle(now_ms);
        }
        let resident = if self.scaling.weighs_memory { self.resident_bytes() } else { 0 };
        let seen = Seen { workers: &loads, waiting, resident, now_ms };
        let decision = self.scaling.turn(&seen);
        self.follow(decision, now_ms);
        false
    }

    /// `SIGTTIN` and the related commands: adds a worker.
    ///
    /// # Errors
    /// The maximum is reached; the error is logged too.
    pub fn add_worker(&mut self, by: &str) -> Result<(), String> {
        if self.generations.serving().is_some_and(|serving| serving.has_room()) {
            self.add_workers(1, by);
            return Ok(());
        }
        self.refuse_more(by)
    }

    fn refuse_more(&self, by: &str) -> Result<(), String> {
        let most = workers_in_words(self.provision.settings().workers.processes);
        let why = format!("no worker is added: the maximum is {most} (processes)");
        log_sink::line(&format!("{by}: {why}"));
        Err(why)
    }

    /// `SIGTTOU` and the related commands: removes a worker.
    ///
    /// # Errors
    /// No worker can be removed; the error is logged too.
    pub fn remove_worker(&mut self, by: &str, now_ms: u64) -> Result<(), String> {
        if self.children.is_paused() {
            let why = "no worker is removed: the instance is paused, and clients wait on the connections of each worker";
            log_sink::line(&format!("{by}: {why}"));
            return Err(why.to_owned());
        }
        let count = self.generations.serving().map_or(0, |serving| serving.wanted_count());
        let victim = self.oldest_worker(true).or_else(|| self.oldest_worker(false)).filter(|_| count > 1);
        let Some(id) = victim else {
            let why = "no worker is removed: the last one stays, and one that is being replaced stays until then";
            log_sink::line(&format!("{by}: {why}"));
            return Err(why.to_owned());
        };
        self.end_worker(id, by, now_ms);
        Ok(())
    }

    /// `bolide workers N`: adds or removes workers until this many are wanted.
    ///
    /// # Errors
    /// It is more than the maximum, or a worker can't be removed; the error is logged too.
    pub fn set_workers(&mut self, number: u32, by: &str, now_ms: u64) -> Result<(), String> {
        let count = self.generations.serving().map_or(0, |serving| serving.wanted_count());
        if number > self.provision.settings().workers.processes {
            return self.refuse_more(by);
        }
        if number > count {
            self.add_workers(number - count, by);
        }
        (number..count).try_for_each(|_| self.remove_worker(by, now_ms))
    }

    fn follow(&mut self, decision: Decision, now_ms: u64) {
        let why = decision.words.unwrap_or_default();
        match decision.change {
            0 if !why.is_empty() => log_sink::line(&format!("cheaper: {why}")),
            0 => {}
            count if count > 0 => self.add_workers(count.unsigned_abs(), &why),
            // Workers are removed only after the reload in progress, and only while they have no request.
            _ if self.generations.is_forming() => {}
            _ => {
                if let Some(id) = self.oldest_worker(true) {
                    self.end_worker(id, &why, now_ms);
                }
            }
        }
    }

    /// Requests `count` more workers, also in the forming generation. They are forked in this same turn.
    fn add_workers(&mut self, count: u32, why: &str) {
        let (Some(serving), forming) = self.generations.both_mut() else { return };
        let missing: Vec<usize> = serving.missing_numbers().take(count as usize).collect();
        for generation in forming.into_iter().chain([&mut *serving]) {
            for (index, wanted) in generation.wanted.iter_mut().enumerate() {
                *wanted |= missing.contains(&index);
            }
        }
        let (added, of) = (workers_in_words(missing.len() as u32), serving.wanted.len());
        log_sink::line(&format!("{why}: {added} more, {} of {of}", serving.wanted_count()));
    }

    /// Removes a worker that is not needed any more: it finishes its requests.
    fn end_worker(&mut self, id: u64, why: &str, now_ms: u64) {
        let Some(worker) = self.children.find(id) else { return };
        let (said, number) = (worker.to_string(), worker.worker_number().unwrap_or(0));
        let Some(serving) = self.generations.serving_mut() else { return };
        if let Some(wanted) = serving.wanted.get_mut((number as usize).wrapping_sub(1)) {
            *wanted = false;
        }
        log_sink::line(&format!("{why}: {said} ends, {} of {} stay", serving.wanted_count(), serving.wanted.len()));
        self.drain(id, true, now_ms);
    }

    /// `idle`: ends all workers. Returns true if the instance is to end instead.
    fn end_idle(&mut self, now_ms: u64) -> bool {
        let scaling = &self.provision.settings().scaling;
        let most = duration(scaling.idle_ms.unwrap_or(0));
        if scaling.dies_idle {
            log_sink::line(&format!("no request for {most} (idle, die-on-idle)"));
            return true;
        }
        log_sink::line(&format!("no request for {most} (idle): all workers exit, and the next connection starts them"));
        let Some(serving) = self.generations.serving_mut() else { return false };
        serving.wanted.fill(false);
        let number = serving.number;
        let ids: Vec<u64> = self.children.active_workers(number).map(|worker| worker.id).collect();
        for id in ids {
            self.drain(id, false, now_ms);
        }
        false
    }

    fn drain(&mut self, id: u64, has_successors: bool, now_ms: u64) {
        let mercy_ms = self.provision.settings().lifecycle.reload_mercy_ms;
        self.children.order_end(id, Order::Drain { has_successors }, now_ms.saturating_add(mercy_ms));
    }

    /// Returns the workers that serve or soon will, and have no order to end.
    fn workers(&self) -> impl Iterator<Item = &Child> {
        let number = self.generations.serving_number().unwrap_or(0);
        self.children.active_workers(number)
    }

    fn loads(&self) -> Vec<WorkerLoad> {
        let load = |worker: &Child| WorkerLoad {
            number: worker.worker_number().unwrap_or(0),
            is_busy: self.is_busy(worker),
            busy_ms: worker
                .row()
                .map_or(0, |row| self.children.scoreboard().work(row).map(|work| work.busy_us).sum::<u64>() / 1000),
        };
        self.workers().map(load).collect()
    }

    /// Returns the worker that has served longest, except one that is being replaced; with `is_free`, only one without a request.
    fn oldest_worker(&self, is_free: bool) -> Option<u64> {
        let replaced = self.recycling.current(self.children).and_then(Child::worker_number);
        let may_go = |worker: &&Child| {
            worker.state == State::Serving && worker.worker_number() != replaced && !(is_free && self.is_busy(worker))
        };
        self.workers().filter(may_go).min_by_key(|worker| worker.ready_ms).map(|worker| worker.id)
    }

    fn is_busy(&self, worker: &Child) -> bool {
        worker.row().is_some_and(|row| self.children.scoreboard().slots(row).iter().any(|slot| slot.began_ms.load(Relaxed) > 0))
    }

    /// Returns whether every worker is busy, and none is starting.
    fn all_busy(&self) -> bool {
        let is_at_work = |worker: &Child| {
            let row = worker.row().and_then(|row| self.children.scoreboard().row(row));
            worker.state.is_serving() && row.is_some_and(|row| row.waiting.load(Relaxed) == 0)
        };
        self.workers().all(is_at_work)
    }

    fn requests(&self) -> u64 {
        let rows = self.children.iter().filter_map(|child| self.children.scoreboard().row(child.row()?));
        rows.map(|row| row.requests.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    fn resident_bytes(&self) -> u64 {
        let usages = self.workers().filter_map(|worker| usage_of(worker.pid?, false));
        usages.map(|usage| usage.resident).fold(0, u64::saturating_add)
    }
}

impl Owner for Scaling {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let turn_ms = (self.regulator.is_some() || self.idle.is_some()).then_some(self.turn_ms);
        let look_ms = (self.look_ms > turn.now_ms).then_some(self.look_ms);
        Waits::until(turn_ms.into_iter().chain(look_ms).min().filter(|_| !turn.is_stopping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_idle_after_its_limit_without_requests() {
        let mut settings = bolide_supervision::testing::settings();
        settings.scaling.idle_ms = Some(5000);
        let mut scaling = Scaling::new(&settings, 0);
        assert!(!scaling.is_idle(0, false, 4999));
        assert!(!scaling.is_idle(1, false, 5000), "a request");
        assert!(!scaling.is_idle(1, true, 9000), "one is in flight");
        assert!(!scaling.is_idle(1, false, 13_999) && scaling.is_idle(1, false, 14_000));
        scaling.wake_up(20_000);
        assert!(!scaling.is_idle(1, false, 24_000));
    }

    #[test]
    fn a_fixed_number_of_workers_needs_no_wake_up() {
        let scaling = Scaling::new(&bolide_supervision::testing::settings(), 0);
        assert!(scaling.waits(&Turn::at(1)).wake_ms.is_none() && !scaling.listens(1));
    }
}
