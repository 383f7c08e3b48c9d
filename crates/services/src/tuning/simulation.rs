//! Plays requests through an instance of some shape: arrivals at random (Poisson), a queue that all workers share, and in each
//! worker an interpreter that one thread uses at a time. Its result are the quantiles of what clients wait.
//!
//! What is modeled: a request uses the CPU, waits (for a database, for instance), and uses the CPU again. Threads of a worker
//! pass the interpreter's lock on after [`SWITCH_US`], as CPython does; a loop passes it on when a request waits. Workers that
//! use the CPU share the CPUs equally. What is not: caches of the CPU, locks of the application, other programs of the machine.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::tuning::{Kind, Recorded, Shape, lower};

/// Requests of a run. With this number, the 99th percentile of two runs with other random numbers differs by a few percent.
const REQUESTS: usize = 12_000;
/// Requests at the beginning that are not counted: the instance begins empty.
const WARM_UP: usize = 2_000;
/// `sys.getswitchinterval()`: how long a thread keeps the interpreter's lock while another one wants it, in microseconds.
const SWITCH_US: f64 = 5_000.0;
/// Requests in the system at which a run ends: it gets more than it can do.
const OVERLOAD: usize = 500;
/// Steps of the search for the time that a request waits.
const CALIBRATION_STEPS: u32 = 12;
/// Fixed, so that the same record always gives the same proposal.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// What clients would see. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    pub p50_us: f64,
    pub p99_us: f64,
    pub mean_us: f64,
    /// The longest queue of connections that no worker had taken.
    pub queue: usize,
    /// More requests came than could be served: the quantiles grow without end.
    pub is_overloaded: bool,
}

/// What a request needs: its CPU time, and the time that it waits for others.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Cumulative counts of the buckets, their lower and upper bound in microseconds.
    buckets: Vec<(u64, f64, f64)>,
    total: u64,
    /// CPU time by duration: the same share of each request.
    cpu_share: f64,
    /// Factor for the waiting time.
    wait_factor: f64,
}

impl Mix {
    /// Finds out what the requests need. The recorded durations contain what requests had to wait for each other; the search
    /// takes out so much of it that the present shape, played at the present rate, has the recorded mean. The time in which they
    /// had no CPU is taken out first.
    pub fn of(recorded: &Recorded, cpus: f64) -> Mix {
        let mut total = 0;
        let buckets = recorded.durations.iter().enumerate().filter(|(_, (_, count))| *count > 0);
        let buckets: Vec<_> = buckets
            .map(|(place, (upper, count))| {
                total += count;
                (total, lower(&recorded.durations, place), *upper as f64)
            })
            .collect();
        let mean = recorded.mean_us().max(1.0);
        let cpu_share = (recorded.cpu_us() / mean).clamp(0.0, 1.0);
        // The time in which a request had no CPU is not a wait for others: no thread can use it.
        let waits_most = (mean - recorded.cpu_us() - recorded.delayed_us(cpus)) / (mean - recorded.cpu_us()).max(1.0);
        let waits_most = waits_most.clamp(0.0, 1.0);
        let mut mix = Mix { buckets, total, cpu_share, wait_factor: waits_most };
        if mix.total == 0 || mix.expect(recorded.shape, cpus, recorded.rate()).served_mean_us <= mean {
            return mix;
        }
        let (mut low, mut high) = (0.0, waits_most);
        for _ in 0..CALIBRATION_STEPS {
            mix.wait_factor = f64::midpoint(low, high);
            match mix.expect(recorded.shape, cpus, recorded.rate()).served_mean_us > mean {
                true => high = mix.wait_factor,
                false => low = mix.wait_factor,
            }
        }
        mix
    }

    /// CPU time of a request, in microseconds.
    pub fn cpu_us(&self, recorded: &Recorded) -> f64 {
        recorded.mean_us() * self.cpu_share
    }

    /// Time of a request without any other request, in microseconds.
    pub fn alone_us(&self, recorded: &Recorded) -> f64 {
        recorded.mean_us() * (self.cpu_share + (1.0 - self.cpu_share) * self.wait_factor)
    }

    /// Plays requests at this rate through an instance of this shape.
    pub fn play(&self, shape: Shape, cpus: f64, rate: f64) -> Expected {
        self.expect(shape, cpus, rate).expected
    }

    fn expect(&self, shape: Shape, cpus: f64, rate: f64) -> Outcome {
        if self.total == 0 || rate <= 0.0 {
            let none = Expected { p50_us: 0.0, p99_us: 0.0, mean_us: 0.0, queue: 0, is_overloaded: false };
            return Outcome { expected: none, served_mean_us: 0.0 };
        }
        Run::new(self, shape, cpus).until_end(rate)
    }

    /// The CPU time and the waiting time of a random request.
    fn sample(&self, random: &mut Random) -> (f64, f64) {
        let wanted = (random.next() * self.total as f64) as u64;
        let place = self.buckets.partition_point(|(up_to, _, _)| *up_to <= wanted).min(self.buckets.len() - 1);
        let (_, low, high) = self.buckets[place];
        let duration = low + (high - low) * random.next();
        (duration * self.cpu_share, duration * (1.0 - self.cpu_share) * self.wait_factor)
    }
}

struct Outcome {
    expected: Expected,
    /// The mean from the moment at which a worker took the request, which is what an instance records.
    served_mean_us: f64,
}

/// A request on its way.
struct Request {
    arrived_us: f64,
    taken_us: f64,
    /// CPU time left in this part of it.
    cpu_us: f64,
    wait_us: f64,
    /// CPU time of the part after the wait.
    after_us: f64,
    worker: usize,
}

struct Worker {
    requests: u32,
    /// The one that has the interpreter; with the CPU clock at which its turn began.
    running: Option<(usize, f64)>,
    wanting: VecDeque<usize>,
    /// Counts turns, so that the end of a former turn is recognized.
    turn: u64,
}

struct Run<'a> {
    mix: &'a Mix,
    shape: Shape,
    cpus: f64,
    random: Random,
    now_us: f64,
    /// Time as the running threads see it: it advances more slowly than `now_us` while they share the CPUs.
    cpu_clock_us: f64,
    running: u32,
    requests: Vec<Request>,
    queue: VecDeque<usize>,
    workers: Vec<Worker>,
    /// Ends of turns by the CPU clock: time, worker, turn.
    turns: BinaryHeap<Reverse<(EndTime, usize, u64)>>,
    /// Ends of waits: time, request.
    waits: BinaryHeap<Reverse<(EndTime, usize)>>,
    done: Vec<f64>,
    served_us: f64,
    longest_queue: usize,
}

impl Run<'_> {
    fn new(mix: &Mix, shape: Shape, cpus: f64) -> Run<'_> {
        let worker = || Worker { requests: 0, running: None, wanting: VecDeque::new(), turn: 0 };
        Run {
            mix,
            shape,
            cpus: cpus.max(0.01),
            random: Random(SEED),
            now_us: 0.0,
            cpu_clock_us: 0.0,
            running: 0,
            requests: Vec::with_capacity(REQUESTS),
            queue: VecDeque::new(),
            workers: (0..shape.workers.max(1)).map(|_| worker()).collect(),
            turns: BinaryHeap::new(),
            waits: BinaryHeap::new(),
            done: Vec::with_capacity(REQUESTS),
            served_us: 0.0,
            longest_queue: 0,
        }
    }

    fn until_end(mut self, rate: f64) -> Outcome {
        let pause_us = 1e6 / rate;
        let mut next_us = self.random.exponential() * pause_us;
        let mut is_overloaded = false;
        while self.done.len() < REQUESTS {
            let speed = if f64::from(self.running) > self.cpus { self.cpus / f64::from(self.running) } else { 1.0 };
            let turn_us = self
                .turns
                .peek()
                .map_or(f64::INFINITY, |Reverse((at, ..))| self.now_us + (at.0 - self.cpu_clock_us).max(0.0) / speed);
            let wait_us = self.waits.peek().map_or(f64::INFINITY, |Reverse((at, _))| at.0);
            let at_us = turn_us.min(wait_us).min(next_us);
            self.cpu_clock_us += (at_us - self.now_us) * if self.running > 0 { speed } else { 0.0 };
            self.now_us = at_us;
            if turn_us <= at_us {
                self.end_turn();
            } else if wait_us <= at_us {
                self.end_wait();
            } else {
                self.arrive();
                next_us += self.random.exponential() * pause_us;
                if self.requests.len() - self.done.len() > OVERLOAD {
                    is_overloaded = true;
                    break;
                }
            }
        }
        self.outcome(is_overloaded)
    }

    fn arrive(&mut self) {
        let (cpu, wait_us) = self.mix.sample(&mut self.random);
        let (arrived_us, half) = (self.now_us, cpu / 2.0);
        self.requests.push(Request { arrived_us, taken_us: 0.0, cpu_us: half, wait_us, after_us: half, worker: 0 });
        self.queue.push_back(self.requests.len() - 1);
        self.take();
        self.longest_queue = self.longest_queue.max(self.queue.len());
    }

    /// Gives waiting requests to the workers that have the fewest.
    fn take(&mut self) {
        while !self.queue.is_empty() {
            let free = self.workers.iter().enumerate().filter(|(_, worker)| worker.requests < self.shape.threads.max(1));
            let Some((place, _)) = free.min_by_key(|(_, worker)| worker.requests) else { return };
            let Some(request) = self.queue.pop_front() else { return };
            self.workers[place].requests += 1;
            (self.requests[request].worker, self.requests[request].taken_us) = (place, self.now_us);
            self.want(request);
        }
    }

    /// The request wants the interpreter of its worker.
    fn want(&mut self, request: usize) {
        let place = self.requests[request].worker;
        self.workers[place].wanting.push_back(request);
        if self.workers[place].running.is_none() {
            self.running += 1;
            self.begin_turn(place);
        }
    }

    fn begin_turn(&mut self, place: usize) {
        let worker = &mut self.workers[place];
        worker.turn += 1;
        let Some(request) = worker.wanting.pop_front() else {
            worker.running = None;
            self.running -= 1;
            return;
        };
        worker.running = Some((request, self.cpu_clock_us));
        let left = self.requests[request].cpu_us;
        let most = if self.shape.kind == Kind::Threads { SWITCH_US } else { f64::INFINITY };
        self.turns.push(Reverse((EndTime(self.cpu_clock_us + left.min(most)), place, worker.turn)));
    }

    fn end_turn(&mut self) {
        let Some(Reverse((_, place, turn))) = self.turns.pop() else { return };
        if self.workers[place].turn != turn {
            return;
        }
        let Some((request, began)) = self.workers[place].running else { return };
        let used = self.cpu_clock_us - began;
        let left = self.requests[request].cpu_us - used;
        // A thousandth of a microsecond is the rounding of the clock, not work.
        if left > 0.001 {
            self.requests[request].cpu_us = left;
            self.workers[place].wanting.push_back(request);
        } else if self.requests[request].wait_us > 0.0 {
            let until = self.now_us + self.requests[request].wait_us;
            (self.requests[request].wait_us, self.requests[request].cpu_us) = (0.0, self.requests[request].after_us);
            self.requests[request].after_us = 0.0;
            self.waits.push(Reverse((EndTime(until), request)));
        } else if self.requests[request].after_us > 0.0 {
            (self.requests[request].cpu_us, self.requests[request].after_us) = (self.requests[request].after_us, 0.0);
            self.workers[place].wanting.push_front(request);
        } else {
            self.finish(request);
        }
        self.begin_turn(place);
        self.take();
    }

    fn end_wait(&mut self) {
        if let Some(Reverse((_, request))) = self.waits.pop() {
            self.want(request);
        }
    }

    fn finish(&mut self, request: usize) {
        let Request { arrived_us, taken_us, worker, .. } = self.requests[request];
        self.workers[worker].requests -= 1;
        if self.done.len() >= WARM_UP {
            self.served_us += self.now_us - taken_us;
        }
        self.done.push(self.now_us - arrived_us);
    }

    fn outcome(mut self, is_overloaded: bool) -> Outcome {
        let mut counted = self.done.split_off(WARM_UP.min(self.done.len()));
        counted.sort_unstable_by(f64::total_cmp);
        let quantile =
            |share: f64| counted.get(((counted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::INFINITY);
        let count = counted.len().max(1) as f64;
        let (p50_us, p99_us, mean_us) = (quantile(0.5), quantile(0.99), counted.iter().sum::<f64>() / count);
        let served_mean_us = if counted.is_empty() { f64::INFINITY } else { self.served_us / count };
        Outcome { expected: Expected { p50_us, p99_us, mean_us, queue: self.longest_queue, is_overloaded }, served_mean_us }
    }
}

/// A time that can be ordered: never NaN.
#[derive(PartialEq)]
struct EndTime(f64);

impl Eq for EndTime {}

impl PartialOrd for EndTime {
    fn partial_cmp(&self, other: &EndTime) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EndTime {
    fn cmp(&self, other: &EndTime) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Random numbers that are the same in each run (xorshift64*).
struct Random(u64);

impl Random {
    /// From 0 inclusive to 1 exclusive.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1: the time between two arrivals.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.next()).ln()
    }
}

#[cfg(test)]
#[path = "simulation_tests.rs"]
mod tests;
