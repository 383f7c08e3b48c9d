//! How many workers there should be: uWSGI's algorithms for `cheaper`, each a function of the numbers of the scoreboard and the
//! sockets, evaluated once a second, and the detection of bursts, which runs more often. It knows neither processes nor clocks.

use bolide_contract::scaling::{Algorithm, Cheaper};

/// Looks in a row at which all workers are busy while a connection waits: this many are a burst, a single one is chance.
const BURST_LOOKS: u32 = 3;
/// `busyness`: turns in a row between both limits after which the wait for a removal starts over.
const TOLERATED_TURNS: u32 = 3;

/// The load of a worker that serves or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLoad {
    pub number: u32,
    /// It has a request in flight.
    pub is_busy: bool,
    /// Total time of its requests since its start, in milliseconds.
    pub busy_ms: u64,
}

/// The input of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub workers: &'a [WorkerLoad],
    /// Connections that are not accepted yet.
    pub waiting: u32,
    /// Memory of all workers, in bytes; 0 if no limit needs it.
    pub resident: u64,
    pub now_ms: u64,
}

impl Seen<'_> {
    fn active(&self) -> u32 {
        self.workers.len() as u32
    }

    fn free(&self) -> u32 {
        self.workers.iter().filter(|worker| !worker.is_busy).count() as u32
    }
}

/// The number of workers to add (or, if negative, to remove), and the log line about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub change: i32,
    pub words: Option<String>,
}

impl Decision {
    fn stay() -> Decision {
        Decision::default()
    }

    fn add(count: u32, words: String) -> Decision {
        Decision { change: i32::try_from(count).unwrap_or(i32::MAX), words: (count > 0).then_some(words) }
    }

    fn remove(words: String) -> Decision {
        Decision { change: -1, words: Some(words) }
    }
}

/// An algorithm, with its memory between two turns.
type Decide = fn(&mut Memory, &Rules, &Seen<'_>) -> Decision;

/// The table of algorithms: the value of `cheaper-algo`, and its function.
const ALGORITHMS: [(Algorithm, Decide); 5] = [
    (Algorithm::Spare, spare),
    (Algorithm::Spare2, spare2),
    (Algorithm::Backlog, backlog),
    (Algorithm::Busyness, busyness),
    (Algorithm::Manual, |_, _, _| Decision::stay()),
];

/// The settings of a turn.
#[derive(Debug)]
struct Rules {
    cheaper: Cheaper,
    /// `processes`.
    most: u32,
    /// If false, workers may be removed but not added.
    may_add: bool,
}

impl Rules {
    /// How many of the wanted workers may be added.
    fn addable(&self, seen: &Seen<'_>, wanted: u32) -> u32 {
        if self.may_add { wanted.min(self.most.saturating_sub(seen.active())) } else { 0 }
    }
}

/// State of the algorithms between turns.
#[derive(Debug, Default)]
struct Memory {
    overloaded_turns: u32,
    idle_turns: u32,
    busyness: BusynessMemory,
}

/// State of `busyness`. Times are in milliseconds.
#[derive(Debug, Default)]
struct BusynessMemory {
    began: bool,
    checked_ms: u64,
    may_remove_ms: u64,
    removed_ms: Option<u64>,
    /// Grows when a removal was too early.
    multiplier: u64,
    last_was_removal: bool,
    tolerated_turns: u32,
    /// Workers that were added because connections waited.
    emergencies: u32,
    waiting_since_ms: Option<u64>,
    /// Of each worker: number, busy time at the last check, looks since then at which it was busy.
    before: Vec<(u32, u64, u32)>,
}

/// Decides how many workers there should be.
#[derive(Debug)]
pub struct Regulator {
    rules: Rules,
    memory: Memory,
    burst_looks: u32,
}

impl Regulator {
    pub fn new(cheaper: &Cheaper, most: u32) -> Regulator {
        let rules = Rules { cheaper: cheaper.clone(), most, may_add: true };
        Regulator { rules, memory: Memory::default(), burst_looks: 0 }
    }

    /// Evaluates the algorithm; called once a second.
    pub fn turn(&mut self, seen: &Seen<'_>) -> Decision {
        let Cheaper { resident_soft, resident_hard, algorithm, .. } = self.rules.cheaper;
        let is_beyond = |limit: Option<u64>| limit.is_some_and(|limit| seen.resident >= limit);
        if is_beyond(resident_hard) && seen.active() > 1 {
            return Decision::remove("the workers' memory exceeds cheaper-rss-limit-hard".to_owned());
        }
        self.rules.may_add = !is_beyond(resident_soft) && !is_beyond(resident_hard);
        let decide = ALGORITHMS.iter().find(|(known, _)| *known == algorithm).map(|(_, decide)| decide);
        decide.map_or_else(Decision::stay, |decide| decide(&mut self.memory, &self.rules, seen))
    }

    /// A look between two turns: checks whether all workers are busy while connections wait. Returns how many workers to add.
    pub fn look_for_burst(&mut self, is_everybody_at_work: bool, seen: &Seen<'_>) -> Decision {
        if !is_everybody_at_work || seen.waiting == 0 || self.rules.cheaper.algorithm == Algorithm::Manual {
            self.burst_looks = 0;
            return Decision::stay();
        }
        self.burst_looks += 1;
        if self.burst_looks < BURST_LOOKS {
            return Decision::stay();
        }
        self.burst_looks = 0;
        self.memory.overloaded_turns = 0;
        self.memory.idle_turns = 0;
        let count = self.rules.addable(seen, self.rules.cheaper.step);
        Decision::add(count, "all workers are busy, and connections wait".to_owned())
    }

    /// Earlier looks say nothing about a burst any more.
    pub fn forget_burst(&mut self) {
        self.burst_looks = 0;
    }

    /// Whether a burst may be under way: then the next look should come soon.
    pub fn suspects_burst(&self) -> bool {
        self.burst_looks > 0
    }
}

/// `spare`: one worker should be free. After `cheaper-overload` turns without a free one, `cheaper-step` are added; after the
/// same number of turns with more than one, one is removed.
fn spare(memory: &mut Memory, rules: &Rules, seen: &Seen<'_>) -> Decision {
    let overload = rules.cheaper.overload;
    if seen.free() == 0 {
        memory.overloaded_turns = memory.overloaded_turns.saturating_add(1);
        memory.idle_turns = 0;
    } else {
        memory.overloaded_turns = memory.overloaded_turns.saturating_sub(1);
    }
    if rules.may_add && memory.overloaded_turns > overload {
        memory.overloaded_turns = 0;
        return Decision::add(
            rules.addable(seen, rules.cheaper.step),
            format!("all workers were busy for more than {overload} s"),
        );
    }
    if memory.overloaded_turns > 0 || seen.free() == 1 {
        return Decision::stay();
    }
    memory.idle_turns = memory.idle_turns.wrapping_add(1);
    if seen.active() > rules.cheaper.least && memory.idle_turns.is_multiple_of(overload.max(1)) {
        return Decision::remove(format!("{} workers are free", seen.free()));
    }
    Decision::stay()
}

/// `spare2`: `cheaper` workers should be free. Missing ones are added immediately, `cheaper-step` at most; after `cheaper-idle`
/// seconds with more, one is removed.
fn spare2(memory: &mut Memory, rules: &Rules, seen: &Seen<'_>) -> Decision {
    let Cheaper { least, step, idle_s, .. } = rules.cheaper;
    let free = seen.free();
    let count = rules.addable(seen, least.saturating_sub(free).min(step));
    if count > 0 {
        memory.idle_turns = 0;
        return Decision::add(count, format!("{free} workers are free, {least} are required"));
    }
    if free <= least || seen.active() <= least {
        memory.idle_turns = 0;
        return Decision::stay();
    }
    memory.idle_turns = memory.idle_turns.saturating_add(1);
    if memory.idle_turns < idle_s {
        return Decision::stay();
    }
    memory.idle_turns = 0;
    Decision::remove(format!("{free} workers are free for {idle_s} s"))
}

/// `backlog`: with more than `cheaper-overload` waiting connections, `cheaper-step` workers are added; with fewer, one is
/// removed.
fn backlog(_memory: &mut Memory, rules: &Rules, seen: &Seen<'_>) -> Decision {
    let overload = rules.cheaper.overload;
    let waits = || format!("{} connections wait", seen.waiting);
    if seen.waiting > overload {
        return Decision::add(rules.addable(seen, rules.cheaper.step), waits());
    }
    if seen.waiting < overload && seen.active() > rules.cheaper.least {
        return Decision::remove(waits());
    }
    Decision::stay()
}

/// `busyness`: the share of time that workers spend with requests should stay between two limits.
fn busyness(memory: &mut Memory, rules: &Rules, seen: &Seen<'_>) -> Decision {
    let state = &mut memory.busyness;
    let cheaper = &rules.cheaper;
    let turn_ms = u64::from(cheaper.overload.max(1)) * 1000;
    if !state.began {
        state.began = true;
        state.checked_ms = seen.now_ms;
        state.multiplier = u64::from(cheaper.busyness.multiplier);
        state.postpone(cheaper, seen.now_ms);
    }
    state.note_busy(seen);
    if let Some(emergency) = state.emergency(rules, seen) {
        return emergency;
    }
    if seen.now_ms.saturating_sub(state.checked_ms) < turn_ms {
        return Decision::stay();
    }
    state.checked_ms = seen.now_ms;
    let percent = state.average_percent(seen, turn_ms);
    let said = format!("the workers were busy for {percent} % of {} s", turn_ms / 1000);
    let decision = state.compare(rules, seen, percent, &said);
    match &decision.words {
        None if cheaper.busyness.is_verbose => Decision { words: Some(format!("{said}: nothing changes")), ..decision },
        _ => decision,
    }
}

impl BusynessMemory {
    /// No worker is removed before `cheaper-overload` times the multiplier.
    fn postpone(&mut self, cheaper: &Cheaper, now_ms: u64) {
        let multiplier = if self.emergencies > 0 { u64::from(cheaper.busyness.backlog_multiplier) } else { self.multiplier };
        self.may_remove_ms = now_ms.saturating_add(u64::from(cheaper.overload.max(1)) * 1000 * multiplier);
    }

    fn relax(&mut self, cheaper: &Cheaper) {
        if self.multiplier > u64::from(cheaper.busyness.multiplier) {
            self.multiplier -= 1;
        }
    }

    /// Counts the looks at which workers were busy, for requests that take longer than a turn.
    fn note_busy(&mut self, seen: &Seen<'_>) {
        let old = std::mem::take(&mut self.before);
        self.before = seen
            .workers
            .iter()
            .map(|worker| {
                let known = old.iter().find(|(number, busy_ms, _)| *number == worker.number && *busy_ms <= worker.busy_ms);
                // A new worker has been busy since its start at the longest.
                let (busy_ms, looks) = known.map_or((0, 0), |(_, busy_ms, looks)| (*busy_ms, *looks));
                (worker.number, busy_ms, looks + u32::from(worker.is_busy))
            })
            .collect();
    }

    /// Too many connections wait, or one waits for too long.
    fn emergency(&mut self, rules: &Rules, seen: &Seen<'_>) -> Option<Decision> {
        let busyness = &rules.cheaper.busyness;
        if seen.waiting == 0 {
            self.waiting_since_ms = None;
        } else if self.waiting_since_ms.is_none() {
            self.waiting_since_ms = Some(seen.now_ms);
        }
        let waits_ms = self.waiting_since_ms.map_or(0, |since_ms| seen.now_ms.saturating_sub(since_ms));
        let waits_long = waits_ms >= u64::from(busyness.backlog_nonzero_s) * 1000 && waits_ms > 0;
        let count = rules.addable(seen, busyness.backlog_step);
        if count == 0 || seen.waiting <= busyness.backlog_alert && !waits_long {
            return None;
        }
        self.waiting_since_ms = None;
        self.multiplier = u64::from(busyness.multiplier);
        self.last_was_removal = false;
        self.emergencies += count;
        self.postpone(&rules.cheaper, seen.now_ms);
        let why = if waits_long { format!(", for {} s", waits_ms / 1000) } else { String::new() };
        Some(Decision::add(count, format!("{} connections wait{why}", seen.waiting)))
    }

    /// The average share of the last turn for which workers were busy. The next turn counts from here.
    fn average_percent(&mut self, seen: &Seen<'_>, turn_ms: u64) -> u64 {
        let mut total = 0;
        for (worker, (_, before_ms, looks)) in seen.workers.iter().zip(&mut self.before) {
            let busy_ms = worker.busy_ms.saturating_sub(*before_ms);
            // If its requests take longer than a turn, none has ended in it.
            total += if busy_ms == 0 && *looks > 0 { 100 } else { (busy_ms * 100 / turn_ms).min(100) };
            (*before_ms, *looks) = (worker.busy_ms, 0);
        }
        total / (seen.workers.len() as u64).max(1)
    }

    fn compare(&mut self, rules: &Rules, seen: &Seen<'_>, percent: u64, said: &str) -> Decision {
        let Cheaper { least, step, busyness, .. } = &rules.cheaper;
        if percent > u64::from(busyness.most_percent) {
            self.tolerated_turns = 0;
            let count = rules.addable(seen, *step);
            if count == 0 {
                return Decision::stay();
            }
            self.last_was_removal = false;
            let turn_ms = u64::from(rules.cheaper.overload.max(1)) * 1000;
            let turns_since = self.removed_ms.map(|removed_ms| seen.now_ms.saturating_sub(removed_ms) / turn_ms);
            if turns_since.is_some_and(|turns| turns <= self.multiplier) {
                // The last removal was too early: the next one waits longer.
                self.multiplier += u64::from(busyness.penalty);
            } else {
                self.relax(&rules.cheaper);
            }
            self.postpone(&rules.cheaper, seen.now_ms);
            return Decision::add(count, said.to_owned());
        }
        if seen.active() <= 1 {
            return Decision::stay();
        }
        if percent < u64::from(busyness.least_percent) {
            self.tolerated_turns = 0;
            if seen.active() <= *least || seen.now_ms < self.may_remove_ms {
                return Decision::stay();
            }
            if self.last_was_removal {
                self.relax(&rules.cheaper);
            }
            self.postpone(&rules.cheaper, seen.now_ms);
            self.removed_ms = Some(seen.now_ms);
            self.last_was_removal = true;
            self.emergencies = self.emergencies.saturating_sub(1);
            return Decision::remove(said.to_owned());
        }
        self.emergencies = self.emergencies.saturating_sub(1);
        self.tolerated_turns += 1;
        if self.tolerated_turns >= TOLERATED_TURNS {
            self.postpone(&rules.cheaper, seen.now_ms);
        } else {
            // A turn that was not idle does not count.
            self.may_remove_ms = self.may_remove_ms.saturating_add(u64::from(rules.cheaper.overload.max(1)) * 1000);
        }
        Decision::stay()
    }
}

#[cfg(test)]
#[path = "cheaper_tests.rs"]
mod tests;
