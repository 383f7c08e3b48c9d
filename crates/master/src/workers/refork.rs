//! Refork (`refork-after`): a worker that has served becomes the prototype of its generation, and the other workers are replaced
//! by its forks, one after the other. They share what the application has loaded and cached while it served.
//!
//! It chooses the worker, follows the change, and returns the workers that [`crate::workers::recycling`] is to replace. The
//! master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::children::Task;
use bolide_contract::message::Order;
use bolide_services::statistics::ReforkCounts;
use bolide_supervision::log_sink;
use bolide_supervision::processes::memory_watch::usage_of;
use bolide_supervision::text::{counted, workers_in_words};
use nix::unistd::Pid;

use crate::children::child::{Child, State};
use crate::children::{Children, GRACE_MS};
use crate::generations::generation::Generation;
use crate::generations::helpers;
use crate::provision::Provision;

/// The time between two looks for a worker that may become the prototype, in milliseconds.
const LOOK_MS: u64 = 1_000;
/// Resident memory of a worker that becomes the prototype, in percent of the median of all: its forks would have what it has too
/// much.
const MAX_PERCENT: u64 = 125;

/// The change of a generation's prototype.
#[derive(Debug, Default)]
pub struct Refork {
    phase: Phase,
    /// The generation that it is about.
    generation: u32,
    /// Over all generations.
    counts: ReforkCounts,
    /// How often this generation has had a new prototype, or a worker that could not become one.
    count: u32,
    /// When to look for a worker next; `None` if none is looked for.
    next_look_ms: Option<u64>,
    /// Average private memory of the workers before the change, in bytes.
    before_bytes: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No worker is chosen.
    #[default]
    Looking,
    /// This worker is to become the prototype as soon as its replacement serves.
    Chosen { worker: u64 },
    /// A worker drains, and the prototype of this number is awaited.
    Awaited { prototype: u64 },
    /// The workers and helpers of this former prototype are replaced.
    Replacing { former: u64 },
}

impl Refork {
    /// Goes on with the change, or chooses a worker. `serving` is the generation in service, if no other one forms. Returns the
    /// workers that are to be replaced. `is_calm`: no worker is being replaced.
    pub fn advance(
        &mut self,
        serving: Option<&Generation>,
        is_calm: bool,
        children: &mut Children,
        provision: &Provision,
        now_ms: u64,
    ) -> Vec<u64> {
        let Some(serving) = serving else {
            // The next look is due when a generation serves alone again: until then, the loop would wake up for it without end.
            self.next_look_ms = None;
            return Vec::new();
        };
        if self.generation != serving.number {
            *self = Refork { generation: serving.number, counts: self.counts, ..Refork::default() };
        }
        match self.phase {
            Phase::Looking => {
                let limits = &provision.settings().recycling;
                let least = limits.refork_after.filter(|_| self.count < limits.refork_max && !serving.is_lazy);
                self.next_look_ms = least.map(|_| self.next_look_ms.unwrap_or(now_ms));
                let is_due = self.next_look_ms.is_some_and(|due_ms| now_ms >= due_ms);
                let Some(least) = least.filter(|_| is_due) else { return Vec::new() };
                self.next_look_ms = Some(now_ms + LOOK_MS);
                let is_calm = is_calm && !children.is_paused();
                is_calm.then(|| self.choose(least, children, now_ms)).flatten().into_iter().collect()
            }
            Phase::Chosen { worker } => {
                if children.find(worker).is_none_or(|worker| worker.state != State::Worn) {
                    self.phase = Phase::Looking;
                }
                Vec::new()
            }
            Phase::Awaited { .. } => Vec::new(),
            Phase::Replacing { former } => self.replace(former, children, provision, now_ms),
        }
    }

    /// Chooses a worker that has answered enough requests and whose memory is like that of its siblings.
    fn choose(&mut self, least: u64, children: &Children, now_ms: u64) -> Option<u64> {
        let requests = |worker: &Child| {
            let row = worker.row().and_then(|row| children.scoreboard().row(row));
            row.map_or(0, |row| row.requests.load(Relaxed))
        };
        if !children.active_workers(self.generation).any(|worker| requests(worker) >= least) {
            return None;
        }
        let is_free = |child: &&Child| child.state == State::Serving && child.expires_ms.is_none_or(|time| time > now_ms);
        let workers: Vec<(&Child, u64)> = children
            .active_workers(self.generation)
            .filter(is_free)
            .filter_map(|worker| Some((worker, usage_of(worker.pid?, false)?.resident)))
            .collect();
        if workers.len() < 2 {
            return None;
        }
        let mut sizes: Vec<u64> = workers.iter().map(|(_, bytes)| *bytes).collect();
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        let fits =
            |(worker, bytes): &&(&Child, u64)| requests(worker) >= least && *bytes <= median.saturating_mul(MAX_PERCENT) / 100;
        let (worker, _) = workers.iter().filter(fits).min_by_key(|(_, bytes)| bytes.abs_diff(median))?;
        log_sink::line(&format!(
            "refork-after: {worker} has answered {}: the other workers will be forked from it",
            counted(requests(worker), "request")
        ));
        self.before_bytes = average_private_bytes(children, self.generation);
        self.phase = Phase::Chosen { worker: worker.id };
        Some(worker.id)
    }

    pub fn counts(&self) -> ReforkCounts {
        self.counts
    }

    /// Returns when to look for a worker next.
    pub fn wake_ms(&self) -> Option<u64> {
        self.next_look_ms.filter(|_| self.phase == Phase::Looking)
    }

    /// Returns whether this worker is to become the prototype: its replacement serves.
    pub fn is_chosen(&self, worker: u64) -> bool {
        self.phase == Phase::Chosen { worker }
    }

    /// The chosen worker was ordered, and the new prototype is this child.
    pub fn note_ordered(&mut self, prototype: u64) {
        self.phase = Phase::Awaited { prototype };
    }

    /// Returns whether this prototype is awaited.
    pub fn awaits(&self, prototype: u64) -> bool {
        self.phase == Phase::Awaited { prototype }
    }

    /// The new prototype takes orders. Returns the workers of others, which are to be replaced.
    pub fn note_success(&mut self, former: Option<u64>, prototype: Option<Pid>, children: &Children) -> Vec<u64> {
        self.count += 1;
        self.counts.done += 1;
        self.phase = former.map_or(Phase::Looking, |former| Phase::Replacing { former });
        let of_others = children.active_workers(self.generation).filter(|worker| worker.forker != prototype);
        of_others.map(|worker| worker.id).collect()
    }

    /// The worker has not become a prototype, which it has logged, or which has another reason.
    pub fn note_failure(&mut self) {
        self.count += 1;
        self.counts.failed += 1;
        self.phase = Phase::Looking;
    }

    /// A reload has replaced all workers, or the instance exits.
    pub fn forget(&mut self) {
        (self.phase, self.next_look_ms) = (Phase::Looking, None);
    }

    /// Has the former prototype exit when its last child has been replaced: first the workers, then the helpers. Returns the
    /// workers that are to be replaced.
    fn replace(&mut self, former: u64, children: &mut Children, provision: &Provision, now_ms: u64) -> Vec<u64> {
        let Some(pid) = children.find(former).and_then(|prototype| prototype.pid) else {
            // It has died. Its workers serve on, and are replaced when they are worn out.
            self.phase = Phase::Looking;
            return Vec::new();
        };
        let is_its = |child: &Child| child.forker == Some(pid);
        if children.iter().any(|child| is_its(child) && child.is_request_worker()) {
            // Also one that began when the others were queued already, for a worker that had died.
            return children.ids(|child| is_its(child) && child.is_request_worker() && child.state == State::Serving);
        }
        if let Some(before) = self.before_bytes.take() {
            log_result(before, self.generation, children);
        }
        // A script is the work of the instance, and its end is the instance's.
        let is_script = |child: &Child| child.helper.as_ref().is_some_and(|helper| matches!(helper.task, Task::Script { .. }));
        for id in children.ids(|child| is_its(child) && child.state.is_serving() && !is_script(child)) {
            helpers::renew(id, children, provision, now_ms);
        }
        if !children.iter().any(is_its) {
            children.order_end(former, Order::Retire, now_ms + GRACE_MS);
            self.phase = Phase::Looking;
        }
        Vec::new()
    }
}

/// Private memory of a generation's workers on average, in bytes. `None` if the kernel does not tell.
fn average_private_bytes(children: &Children, generation: u32) -> Option<u64> {
    let workers = children.active_workers(generation).filter(|worker| worker.state.is_serving());
    let sizes: Vec<u64> = workers.filter_map(|worker| usage_of(worker.pid?, true)?.unique).collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum::<u64>() / sizes.len() as u64)
}

fn log_result(before: u64, generation: u32, children: &Children) {
    let count = children.active_workers(generation).count() as u32;
    let Some(after) = average_private_bytes(children, generation) else { return };
    let (before, after) = (megabytes(before), megabytes(after));
    log_sink::line(&format!(
        "refork-after: {} forked from one that has served: private memory of a worker was {before} on average, and begins with \
            {after}",
        workers_in_words(count)
    ));
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
