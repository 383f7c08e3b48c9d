//! The present numbers of the instance, from the scoreboard, the children, the listening sockets and the kernel. It does not know
//! their format; the crate `services` does. The master runs it on request.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::children::{Helper, Task};
use bolide_contract::clock::now_ms;
use bolide_memory::inboxes::{InboxTable, InboxTotals};
use bolide_scoreboard::census::Counted;
use bolide_scoreboard::{InFlight, Measured, Slot, Work};
use bolide_services::statistics::{
    AdmissionFacts, ApplicationFacts, CoreFacts, HelperFacts, MessageCounts, RemoteMessageCounts, RequestFacts, Snapshot,
    SocketFacts, WorkerFacts,
};
use bolide_supervision::processes::memory_watch::usage_of;
use bolide_supervision::sockets::listen_queue::QueueAlarm;
use bolide_supervision::system::seconds_since_1970;

use crate::children::Children;
use crate::children::child::{Child, State};
use crate::daemons::attendants::Attendants;
use crate::generations::Generations;
use crate::log_keeping::LogKeeping;
use crate::outcomes::Outcomes;
use crate::provision::Provision;
use crate::signaling::Signaling;
use crate::spans::exporters::Exporters;
use crate::statistics::admission;
use crate::workers::refork::Refork;

/// The parts of the instance from which its statistics and its status are collected. Nothing can be changed through it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub children: &'a Children,
    pub generations: &'a Generations,
    pub provision: &'a Provision,
    pub attendants: &'a Attendants,
    pub exporters: &'a Exporters,
    pub outcomes: &'a Outcomes,
    pub signaling: &'a Signaling,
    pub logs: &'a LogKeeping,
    pub refork: &'a Refork,
    pub is_stopping: bool,
}

impl View<'_> {
    /// Collects the numbers.
    pub fn snapshot(&self, queues: &mut QueueAlarm) -> Snapshot {
        queues.refresh(self.provision.listeners());
        let applications = self.provision.settings().applications.iter();
        let (daemons, jobs) = self.attendants.facts(self.provision.settings());
        let endpoints = self.provision.listeners().endpoints().iter().zip(queues.queues());
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            cwd: std::env::current_dir().map(|directory| directory.to_string_lossy().into_owned()).unwrap_or_default(),
            queue_errors: queues.errors(),
            signal_queue: self.signaling.waiting_for_any_worker(),
            daemons,
            sockets: endpoints
                .map(|(endpoint, queue)| SocketFacts {
                    name: endpoint.bound.clone(),
                    protocol: endpoint.protocol_word().to_owned(),
                    queue: queue.length,
                    queue_most: queue.most,
                })
                .collect(),
            applications: applications.map(|application| ApplicationFacts { mount: application.mount.clone() }).collect(),
            reloads: self.outcomes.reloads().clone(),
            is_leaving: self.children.is_leaving() && !self.is_stopping,
            worker_ends: self.children.ledger().ends(),
            workers: (1..=self.provision.settings().workers.processes).map(|number| self.worker_facts(number)).collect(),
            helpers: self.helper_facts(),
            refused_messages: self.children.refused_messages(),
            logs: self.logs.facts(&self.provision.settings().logging, now_ms()),
            locks: self.provision.memories_in_force().locks(),
            caches: self.provision.memories_in_force().caches(),
            rate_limits: self.provision.memories_in_force().rate_limits(),
            metrics: Vec::new(),
            jobs,
            spans: self.exporters.counts(self.provision.settings()),
            admission: self.admission(queues.queues().iter().map(|queue| u64::from(queue.length)).sum()),
            reforks: self.provision.settings().recycling.refork_after.map(|_| self.refork.counts()),
            messages: self.provision.memories_in_force().inboxes().map(|inboxes| self.message_counts(inboxes)),
        }
    }

    /// The numbers of `admission`, with this many connections in the accept queues.
    pub fn admission(&self, queued: u64) -> Option<AdmissionFacts> {
        admission::facts(self.children, self.provision.settings(), self.total_work().late_requests, queued)
    }

    fn message_counts(&self, inboxes: InboxTable<'_>) -> MessageCounts {
        let InboxTotals { published, delivered, missed, listeners, sent, unsent, received, interruptions } = inboxes.totals();
        let has_engine = self.provision.settings().services.distributed.publish_engine.is_some();
        let remote = has_engine.then_some(RemoteMessageCounts { sent, unsent, received, interruptions });
        MessageCounts { published, delivered, missed, listeners, remote }
    }

    /// Returns what all workers have measured, with those that have ended.
    pub fn measured(&self) -> Measured {
        let mut sum = self.children.ledger().measured().clone();
        for row in self.children.iter().filter(|child| child.is_request_worker()).filter_map(Child::row) {
            sum += &self.children.scoreboard().measured(row);
        }
        sum
    }

    /// Returns the work of all request workers since startup, with that of those that have ended.
    pub fn total_work(&self) -> Work {
        let rows = self.children.iter().filter(|child| child.is_request_worker()).filter_map(Child::row);
        let present: Work = rows.flat_map(|row| self.children.scoreboard().work(row)).sum();
        [self.children.ledger().past_work(), present].into_iter().sum()
    }

    /// Returns an entry for each helper of the settings in force.
    fn helper_facts(&self) -> Vec<HelperFacts> {
        let facts = |(place, helper): (u32, &Helper)| {
            let (kind, number) = helper.kind(place);
            let mut facts = HelperFacts { kind, number, ..HelperFacts::default() };
            facts.respawns = self.children.ledger().ended_helpers(place);
            if let Task::Spooler { directory, .. } = &helper.task {
                facts.directory = directory.display().to_string();
            }
            let present = self.children.iter().filter(|child| child.helper_number() == Some(place)).max_by_key(|child| child.id);
            let Some((pid, row)) = present.and_then(|child| child.pid.zip(child.row())) else { return facts };
            facts.pid = pid.as_raw() as u32;
            let memory = usage_of(pid, false).unwrap_or_default();
            (facts.address_space_bytes, facts.resident_bytes) = (memory.address_space, memory.resident);
            if let Some(row) = self.children.scoreboard().row(row) {
                facts.done = row.requests.load(Relaxed);
                let age_s = now_ms().saturating_sub(row.started_ms.load(Relaxed)) / 1000;
                facts.last_spawn_s = seconds_since_1970().saturating_sub(age_s);
            }
            facts.in_flight = self.children.scoreboard().in_flight(row).first().map(request_facts);
            facts
        };
        (1u32..).zip(&self.provision.settings().helpers).map(facts).collect()
    }

    fn worker_facts(&self, number: u32) -> WorkerFacts {
        let mut account = self.children.ledger().account(number);
        let of_number = |child: &&Child| child.worker_number() == Some(number);
        let processes: Vec<&Child> = self.children.iter().filter(of_number).collect();
        for row in processes.iter().filter_map(|child| child.row()) {
            account.add(self.children.scoreboard().work(row));
        }
        let works = account.past;
        let present = processes.into_iter().max_by_key(|child| self.precedence(child));
        let mut facts = WorkerFacts {
            number,
            harakiri_count: account.harakiri_count,
            last_spawn_s: account.last_spawn_s,
            spawn_count: account.spawn_count,
            signals: account.signals,
            signal_queue: self.signaling.waiting_for_worker(number),
            ..WorkerFacts::default()
        };
        let Some(child) = present else {
            facts.cores = cores_of(works, 0);
            return facts;
        };
        facts.load_s = self.load_seconds(child);
        if let Some(pid) = child.pid {
            facts.pid = pid.as_raw() as u32;
            let memory = usage_of(pid, false).unwrap_or_default();
            (facts.address_space_bytes, facts.resident_bytes) = (memory.address_space, memory.resident);
        }
        let Some((number, row)) = child.row().and_then(|row| Some((row, self.children.scoreboard().row(row)?))) else {
            return facts;
        };
        facts.connections = row.connections.load(Relaxed);
        facts.is_paused = row.paused.load(Relaxed) == 1;
        facts.is_accepting = row.is_accepting();
        facts.requests_since_spawn = row.requests.load(Relaxed);
        facts.signals += row.signals.load(Relaxed);
        facts.average_us = row.average_us.load(Relaxed);
        facts.census = self.census(number, facts.connections);
        let slots = self.children.scoreboard().slots(number);
        // With threads that start on demand, threads that never started do not count.
        let threads = slots.iter().filter(|slot| slot.thread.load(Relaxed) > 0).count();
        facts.cores = cores_of(works, threads);
        for (core, slot) in facts.cores.iter_mut().zip(slots) {
            core.ongoing = slot.tally.ongoing.load(Relaxed);
        }
        for request in self.children.scoreboard().in_flight(number) {
            if let Some(core) = facts.cores.get_mut(request.slot as usize) {
                core.in_flight = Some(request_facts(&request));
            }
        }
        facts
    }

    /// Returns the connections of the worker in a row by state and kind. The memory of a worker that counts none is not touched.
    fn census(&self, row: u32, open: u32) -> Counted {
        let (slots, meters) = (self.children.scoreboard().slots(row), self.children.scoreboard().meters(row));
        let counts = slots.first().is_some_and(|slot| slot.measures.load(Relaxed) != 0);
        let Some(meters) = meters.first().filter(|_| counts) else { return Counted::default() };
        let mut counted = Counted::of(&meters.census);
        counted.limit_new(open);
        let has_begun = |slot: &&Slot| slot.began_ms.load(Relaxed) >= counted.taken_ms.max(1);
        let calls = slots.iter().filter(has_begun).count();
        counted.note_calls(calls);
        counted
    }

    /// Returns the rank of a number's process for display: of two that serve, the newer generation and the replacement rank
    /// higher.
    fn precedence(&self, child: &Child) -> (bool, bool, u64) {
        let serves = child.state.is_serving();
        (serves && child.state != State::Worn, serves, child.id)
    }

    /// Returns how long the application of a worker took to load, in seconds.
    fn load_seconds(&self, worker: &Child) -> u64 {
        // Workers that are still ending use the flag of the serving generation.
        let forming = self.generations.forming().map(|forming| &forming.generation);
        let generation = forming.filter(|forming| forming.number == worker.generation);
        let is_lazy = generation.or(self.generations.serving()).is_some_and(|generation| generation.is_lazy);
        let loader = if is_lazy { Some(worker) } else { self.children.forker_of(worker) };
        let milliseconds = loader.and_then(|child| child.ready_ms.map(|ready| ready.saturating_sub(child.born_ms)));
        milliseconds.unwrap_or(0) / 1000
    }
}

/// Returns as many cores as there are threads, or were.
fn cores_of(mut works: Vec<Work>, threads: usize) -> Vec<CoreFacts> {
    let used = works.iter().rposition(|work| *work != Work::default()).map_or(0, |last| last + 1);
    works.resize(used.max(threads), Work::default());
    works.into_iter().map(|work| CoreFacts { work, ..CoreFacts::default() }).collect()
}

fn request_facts(request: &InFlight) -> RequestFacts {
    let age_s = now_ms().saturating_sub(request.began_ms) / 1000;
    RequestFacts { began_s: seconds_since_1970().saturating_sub(age_s), line: request.text.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_cores_as_threads_and_those_that_have_worked_stay() {
        let work = |requests| Work { requests, ..Work::default() };
        assert_eq!(cores_of(vec![work(1), work(0), work(0)], 2).len(), 2);
        assert_eq!(cores_of(vec![work(1), work(0), work(2)], 1).len(), 3);
        assert_eq!(cores_of(Vec::new(), 3).len(), 3);
    }
}
