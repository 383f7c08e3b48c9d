//! Chooses the settings for a recorded mix, with the reason of each line. `simulation` says what each shape would do.

use crate::tuning::simulation::{Expected, Mix};
use crate::tuning::{Kind, Machine, Recorded, Shape};

/// Requests that a record needs: below it the 99th percentile is made of a few single requests.
pub const MIN_REQUESTS: u64 = 500;
/// The proposal has room for this many times the recorded load, or for what the machine can do if that is less.
const ROOM: f64 = 10.0;
/// Share of the best capacity that a shape must have.
const CAPACITY_SHARE: f64 = 0.95;
/// Share of the wanted capacity at which shapes are compared: above it every queue is long.
const COMPARED_LOAD: f64 = 0.7;
/// Shapes whose 99th percentile is this close to the best one are equally good, and the smallest of them is taken.
const EQUALLY_GOOD: f64 = 1.05;
/// Workers of a proposal: with one, a restart of the worker is an outage.
const MIN_WORKERS: u32 = 2;
const THREADS: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
/// For applications whose code must not run in two threads.
const WORKERS: [u32; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
/// Share of the machine's memory that workers may have.
const MEMORY_SHARE: f64 = 0.7;
/// Time in which no connection is taken, in seconds, that the kernel's queue shall bear.
const STALL_SECONDS: f64 = 1.0;
const MIN_LISTEN: u32 = 128;
/// `harakiri` is this multiple of the longest requests, and at least `MIN_HARAKIRI` seconds.
const HARAKIRI_FACTOR: f64 = 10.0;
const MIN_HARAKIRI: u32 = 30;
/// Differences between two records that mean nothing.
const NOISE: f64 = 0.1;
/// More failed requests than before, as a share of all, from which on a change counts as a fault.
const FAILED_MORE: f64 = 0.005;
/// Time without a CPU that is worth a note, as a share of a request's time.
const DELAYED_SHARE: f64 = 0.1;
/// Time without a CPU from which on it can't be told from waits, as a share of the time in which a request does not compute, and
/// the share of a request's time from which on that matters.
const UNKNOWN_SHARE: f64 = 0.5;
const IDLE_SHARE: f64 = 0.2;
const MEBIBYTE: u64 = 1 << 20;
/// Step of a memory limit, in MiB.
const LIMIT_STEP: u64 = 32;

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Present {
    /// Whether the code of the application may run in several threads at the same time: it does already, or its user allows it.
    pub may_use_threads: bool,
    pub listen: u32,
    /// Seconds.
    pub harakiri: Option<u32>,
    pub cheaper: Option<u32>,
    /// MiB.
    pub reload_on_rss: Option<u64>,
}

/// A line of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub option: &'static str,
    pub value: String,
    pub reason: String,
}

/// What clients see at a load: with the present settings, and with the proposed ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Requests a second.
    pub rate: f64,
    pub present: Expected,
    pub proposed: Expected,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub shape: Shape,
    /// Only lines that change something.
    pub lines: Vec<Line>,
    /// At the recorded load, and at twice that.
    pub comparisons: [Comparison; 2],
    /// Requests a second that the present and the proposed settings can serve.
    pub capacities: [f64; 2],
    /// What the lines can't say.
    pub notes: Vec<String>,
}

/// Proposes settings.
///
/// # Errors
/// The record is too short; in words.
pub fn propose(recorded: &Recorded, machine: Machine, present: &Present) -> Result<Proposal, String> {
    let requests = recorded.requests();
    if requests < MIN_REQUESTS {
        return Err(format!(
            "{requests} requests were recorded, and a proposal needs {MIN_REQUESTS}: record longer, or under load"
        ));
    }
    let (mean, delayed) = (recorded.mean_us(), recorded.delayed_us(machine.cpus));
    let idle = mean - recorded.cpu_us();
    if idle > IDLE_SHARE * mean && delayed > UNKNOWN_SHARE * idle {
        return Err(format!(
            "{}: how much of it is waiting that other threads could use is unknown; record when the machine is less busy",
            no_cpu(mean, delayed)
        ));
    }
    let work = Work { recorded, machine, mix: Mix::of(recorded, machine.cpus) };
    let wanted = work.wanted_capacity(present);
    let shape = work.best(present, wanted);
    let comparisons = [1.0, 2.0].map(|times| {
        let rate = recorded.rate() * times;
        let [present, proposed] = [recorded.shape, shape].map(|shape| work.mix.play(shape, machine.cpus, rate));
        Comparison { rate, present, proposed }
    });
    let capacities = [recorded.shape, shape].map(|shape| work.capacity(shape));
    let mut proposal = Proposal { shape, lines: Vec::new(), comparisons, capacities, notes: Vec::new() };
    work.shape_lines(&mut proposal);
    work.cheaper_line(&mut proposal, present);
    work.listen_line(&mut proposal, present);
    work.harakiri_line(&mut proposal, present);
    work.memory_line(&mut proposal, present);
    work.notes(&mut proposal, present, wanted);
    Ok(proposal)
}

/// Whether settings are better than those before, by the records of the same time under each of them.
///
/// # Errors
/// They are not; with the reason in words.
pub fn judge(before: &Recorded, errors_before: u64, after: &Recorded, errors_after: u64) -> Result<String, String> {
    let share = |errors: u64, recorded: &Recorded| errors as f64 / recorded.requests().max(1) as f64;
    let (failed_before, failed_after) = (share(errors_before, before), share(errors_after, after));
    let [p99_before, p99_after] = [before, after].map(|recorded| recorded.quantile_us(0.99));
    let [cpu_before, cpu_after] = [before, after].map(Recorded::cpu_us);
    if after.requests() < MIN_REQUESTS {
        return Err(format!("only {} requests came after the change", after.requests()));
    }
    if failed_after > failed_before + FAILED_MORE {
        return Err(format!("{:.1} % of the requests failed, and {:.1} % before", failed_after * 100.0, failed_before * 100.0));
    }
    if after.rate() < before.rate() * (1.0 - NOISE) {
        return Err(format!("{:.0} requests a second were served, and {:.0} before", after.rate(), before.rate()));
    }
    if p99_after > p99_before * (1.0 + NOISE) {
        return Err(format!("the 99th percentile is {}, and was {} before", time(p99_after), time(p99_before)));
    }
    if cpu_after > cpu_before * (1.0 + NOISE) {
        return Err(format!("a request needs {} of CPU, and needed {} before", time(cpu_after), time(cpu_before)));
    }
    Ok(format!(
        "p99 {} (before {}), {:.0} requests a second (before {:.0})",
        time(p99_after),
        time(p99_before),
        after.rate(),
        before.rate()
    ))
}

struct Work<'a> {
    recorded: &'a Recorded,
    machine: Machine,
    mix: Mix,
}

impl Work<'_> {
    /// Requests a second that a shape can serve.
    fn capacity(&self, shape: Shape) -> f64 {
        let (cpu, alone) = (self.mix.cpu_us(self.recorded).max(0.1), self.mix.alone_us(self.recorded).max(0.1));
        let by_cpu = f64::from(shape.workers).min(self.machine.cpus) * 1e6 / cpu;
        by_cpu.min(f64::from(shape.most()) * 1e6 / alone)
    }

    fn candidates(&self, present: &Present) -> Vec<Shape> {
        let Shape { workers, threads, kind } = self.recorded.shape;
        let by_memory = match self.recorded.worker_bytes {
            0 => u32::MAX,
            _ if self.machine.memory_bytes == 0 => u32::MAX,
            bytes => (self.machine.memory_bytes as f64 * MEMORY_SHARE / bytes as f64) as u32,
        };
        let least = MIN_WORKERS.min(by_memory).max(1);
        let few = (self.machine.cpus.ceil() as u32 * 2).max(least).min(by_memory.max(1));
        let can_thread = kind == Kind::Threads && present.may_use_threads;
        let mut found = Vec::new();
        match can_thread {
            true => found.extend((least..=few).flat_map(|workers| THREADS.map(|threads| Shape { workers, threads, kind }))),
            false => {
                let most = if kind == Kind::Loop { few } else { by_memory };
                let workers = WORKERS.into_iter().filter(|workers| (least..=most.max(least)).contains(workers));
                found.extend(workers.map(|workers| Shape { workers, threads, kind }));
            }
        }
        if found.is_empty() {
            found.push(Shape { workers: workers.max(1), threads, kind });
        }
        found
    }

    fn wanted_capacity(&self, present: &Present) -> f64 {
        let best = self.candidates(present).into_iter().map(|shape| self.capacity(shape)).fold(0.0, f64::max);
        best.min(self.recorded.rate() * ROOM)
    }

    /// The smallest of the shapes that are as good as the best one.
    fn best(&self, present: &Present, wanted: f64) -> Shape {
        let able = self.candidates(present).into_iter().filter(|shape| self.capacity(*shape) >= wanted * CAPACITY_SHARE);
        let played: Vec<(Shape, f64)> = able
            .map(|shape| (shape, self.mix.play(shape, self.machine.cpus, wanted * COMPARED_LOAD)))
            .map(|(shape, expected)| (shape, if expected.is_overloaded { f64::INFINITY } else { expected.p99_us }))
            .collect();
        let best = played.iter().map(|(_, p99)| *p99).fold(f64::INFINITY, f64::min);
        let good = played.into_iter().filter(|(_, p99)| *p99 <= best * EQUALLY_GOOD);
        good.map(|(shape, _)| shape).min().unwrap_or(self.recorded.shape)
    }

    fn shape_lines(&self, proposal: &mut Proposal) {
        let (now, then) = (self.recorded.shape, proposal.shape);
        let (cpu, alone) = (self.mix.cpu_us(self.recorded), self.mix.alone_us(self.recorded));
        let cpus = cpus_in_words(self.machine.cpus);
        if then.workers != now.workers {
            let reason = match then.kind {
                _ if then.threads == 1 && f64::from(then.workers) > self.machine.cpus => format!(
                    "a request needs {} of CPU and waits {}; each worker serves one at a time, so there are more of them than \
                    the {cpus}",
                    time(cpu),
                    time(alone - cpu)
                ),
                _ if f64::from(then.workers) < self.machine.cpus => format!(
                    "a request needs {} of CPU: {} workers are enough for {:.0} requests a second, {ROOM} times the recorded \
                    load",
                    time(cpu),
                    then.workers,
                    proposal.capacities[1].min(self.recorded.rate() * ROOM)
                ),
                _ => format!(
                    "a request needs {} of CPU, and one worker uses one CPU at a time: more workers than the {cpus} add memory \
                    and no requests",
                    time(cpu)
                ),
            };
            proposal.lines.push(Line { option: "processes", value: then.workers.to_string(), reason });
        }
        if then.threads != now.threads {
            let waits = (100.0 * (1.0 - cpu / alone.max(1.0))).clamp(0.0, 100.0);
            let (takes, most) = (time(alone), then.most());
            let reason = match then.most() > now.most() {
                true => format!(
                    "a request takes {takes} and waits {waits:.0} % of that, while other threads can use the CPU: {most} at the \
                    same time keep it busy"
                ),
                false => format!(
                    "a request takes {takes} and waits {waits:.0} % of that: {most} at the same time keep the CPU busy, and \
                    more threads would only take turns"
                ),
            };
            proposal.lines.push(Line { option: "threads", value: then.threads.to_string(), reason });
        }
    }

    fn cheaper_line(&self, proposal: &mut Proposal, present: &Present) {
        let Shape { workers, .. } = proposal.shape;
        if present.cheaper.is_some_and(|cheaper| cheaper >= workers) {
            let reason = format!("`cheaper` must be below the {workers} workers");
            proposal.lines.push(Line { option: "cheaper", value: (workers - 1).max(1).to_string(), reason });
            return;
        }
        // Half the capacity is in use at most, so that a worker that is added has time to start.
        let needed = (f64::from(workers) * self.recorded.rate() / (0.5 * proposal.capacities[1]).max(1e-9)).ceil() as u32;
        let needed = needed.clamp(MIN_WORKERS, workers);
        if present.cheaper.is_none() && self.recorded.worker_bytes > 0 && needed * 2 <= workers {
            let saved = u64::from(workers - needed) * self.recorded.worker_bytes / MEBIBYTE;
            let reason = format!(
                "the recorded load needs {needed} of the {workers} workers; the others come with the load, and {saved} MiB are \
                free until then"
            );
            proposal.lines.push(Line { option: "cheaper", value: needed.to_string(), reason });
        }
    }

    fn listen_line(&self, proposal: &mut Proposal, present: &Present) {
        let twice = proposal.comparisons[1];
        let needed = (twice.rate * STALL_SECONDS).max(twice.proposed.queue as f64).min(f64::from(u32::MAX / 2)) as u32;
        let value = needed.max(MIN_LISTEN).next_power_of_two().min(self.machine.listen_most.max(1));
        if needed > present.listen && value > present.listen {
            let reason = format!(
                "at twice the load {:.0} connections arrive in the second that a restart of all workers may take",
                twice.rate
            );
            proposal.lines.push(Line { option: "listen", value: value.to_string(), reason });
        }
        if needed > self.machine.listen_most {
            proposal.notes.push(format!(
                "the kernel allows a listen queue of {} (net.core.somaxconn), and {needed} would be needed: raise it",
                self.machine.listen_most
            ));
        }
    }

    fn harakiri_line(&self, proposal: &mut Proposal, present: &Present) {
        let long_s = self.recorded.quantile_us(0.999) / 1e6;
        match present.harakiri {
            None => {
                let seconds = ((long_s * HARAKIRI_FACTOR / 10.0).ceil() as u32 * 10).max(MIN_HARAKIRI);
                let reason = format!(
                    "999 of 1,000 requests took less than {}; one that takes {seconds} s is probably stuck, and occupies a \
                    worker",
                    time(long_s * 1e6)
                );
                proposal.lines.push(Line { option: "harakiri", value: seconds.to_string(), reason });
            }
            Some(seconds) if f64::from(seconds) < 2.0 * long_s => proposal.notes.push(format!(
                "`harakiri = {seconds}` is close to the longest requests ({}): under load it kills requests that would have \
                completed",
                time(long_s * 1e6)
            )),
            Some(_) => {}
        }
    }

    fn memory_line(&self, proposal: &mut Proposal, present: &Present) {
        let bytes = self.recorded.worker_bytes;
        if bytes == 0 || present.reload_on_rss.is_some() {
            return;
        }
        let workers = u64::from(proposal.shape.workers.max(1));
        let wanted = (2 * bytes).div_ceil(MEBIBYTE).next_multiple_of(LIMIT_STEP);
        let share = (self.machine.memory_bytes as f64 * 0.8) as u64 / workers / MEBIBYTE;
        let value = if self.machine.memory_bytes == 0 { wanted } else { wanted.min(share / LIMIT_STEP * LIMIT_STEP) };
        let used = bytes.div_ceil(MEBIBYTE);
        if value * 4 < used * 5 {
            proposal
                .notes
                .push(format!("{workers} workers of {used} MiB do not leave room for growth in the memory of this machine"));
            return;
        }
        let reason = format!(
            "a worker uses {used} MiB; at {value} MiB it is replaced between requests, before the kernel kills it during one"
        );
        proposal.lines.push(Line { option: "reload-on-rss", value: value.to_string(), reason });
    }

    fn notes(&self, proposal: &mut Proposal, present: &Present, wanted: f64) {
        let (cpu, alone) = (self.mix.cpu_us(self.recorded), self.mix.alone_us(self.recorded));
        let (delayed, mean) = (self.recorded.delayed_us(self.machine.cpus), self.recorded.mean_us());
        if delayed > DELAYED_SHARE * mean {
            proposal.notes.push(format!("{}, which is not counted as a wait", no_cpu(mean, delayed)));
        }
        if self.recorded.delayed_seconds.is_none() {
            proposal.notes.push(
                "this kernel does not count how long a process waits for a CPU (/proc/PID/schedstat): if other programs are \
                busy on the machine, requests seem to wait longer than they do, and the proposal has too many threads"
                    .to_owned(),
            );
        }
        if self.recorded.shape.kind == Kind::Threads && !present.may_use_threads && cpu < 0.5 * alone {
            proposal.notes.push(
                "the requests mostly wait: if the application's code may run in several threads at the same time, `bolide tune \
                --threads` proposes fewer workers with threads, which need less memory"
                    .to_owned(),
            );
        }
        if self.recorded.shape.kind == Kind::Threads && alone * self.machine.cpus > cpu * 150.0 {
            proposal.notes.push(
                "the requests wait so much that threads in the hundreds would be needed to use the CPU: `gevent` or an ASGI \
                application serves them with less memory"
                    .to_owned(),
            );
        }
        if self.recorded.rate() > 0.8 * proposal.capacities[1] {
            proposal.notes.push(format!(
                "the recorded load ({:.0} requests a second) is near what this machine can do with any settings ({:.0})",
                self.recorded.rate(),
                proposal.capacities[1].max(wanted)
            ));
        }
    }
}

/// Words about requests that other programs have kept from computing.
fn no_cpu(mean_us: f64, delayed_us: f64) -> String {
    format!(
        "the CPUs were busy with other programs, or the container was throttled: a request took {} and had no CPU for up to {} \
        of that",
        time(mean_us),
        time(delayed_us.min(mean_us))
    )
}

fn cpus_in_words(cpus: f64) -> String {
    if (cpus - 1.0).abs() < 0.01 {
        "one CPU".to_owned()
    } else if cpus.fract() < 0.01 {
        format!("{cpus:.0} CPUs")
    } else {
        format!("{cpus:.1} CPUs")
    }
}

/// A time for people.
pub fn time(microseconds: f64) -> String {
    match microseconds.max(0.0) {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.1} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
#[path = "proposal_tests.rs"]
mod tests;
