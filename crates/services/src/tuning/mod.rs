//! `bolide tune`: from the recorded mix of an instance to the settings that suit it. `simulation` plays the recorded requests
//! through an instance of another shape, `proposal` chooses a shape and gives the reason of each line, `changes` writes the lines
//! into an ini. Pure functions: no I/O, no clock. The process of the command runs them, never the master.

pub mod changes;
pub mod proposal;
pub mod simulation;

/// Share of the CPUs up to which an instance does not keep its own workers waiting for one.
const OWN_SHARE: f64 = 0.7;

/// Durations of requests: the upper bound of a bucket in microseconds, and the number of requests in it. Buckets are in
/// ascending order.
pub type Durations = Vec<(u64, u64)>;

/// What an instance did in a window of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Length of the window, in seconds.
    pub seconds: f64,
    /// Time from the head of a request to the end of its answer.
    pub durations: Durations,
    /// CPU time of all request workers in the window, in seconds.
    pub cpu_seconds: f64,
    /// Time in which threads of request workers could have run and had no CPU, in seconds: other processes and workers had it, or
    /// the container had used up its share. `None`: the kernel does not count it.
    pub delayed_seconds: Option<f64>,
    /// The shape under which it was recorded.
    pub shape: Shape,
    /// The largest memory of a worker, in bytes; 0 if it is not known.
    pub worker_bytes: u64,
}

impl Recorded {
    pub fn requests(&self) -> u64 {
        self.durations.iter().map(|(_, count)| count).sum()
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests() as f64 / self.seconds } else { 0.0 }
    }

    /// CPU time of a request, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / (self.requests().max(1)) as f64
    }

    /// Time for a request in which other programs kept the CPUs from its worker, in microseconds, at most: some of it may lie
    /// between two requests. 0 if the instance has used the CPUs itself: `simulation` plays that.
    pub fn delayed_us(&self, cpus: f64) -> f64 {
        let used_cpus = if self.seconds > 0.0 { self.cpu_seconds / self.seconds } else { 0.0 };
        let delayed_seconds = self.delayed_seconds.filter(|_| used_cpus < OWN_SHARE * cpus).unwrap_or(0.0);
        delayed_seconds * 1e6 / (self.requests().max(1)) as f64
    }

    /// The mean duration, in microseconds.
    pub fn mean_us(&self) -> f64 {
        let total: f64 =
            (0..self.durations.len()).map(|place| middle(&self.durations, place) * self.durations[place].1 as f64).sum();
        total / self.requests().max(1) as f64
    }

    /// The duration that this share of the requests does not exceed, in microseconds, interpolated within its bucket.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = share * self.requests() as f64;
        let mut before = 0.0;
        for (place, (upper, count)) in self.durations.iter().enumerate() {
            let count = *count as f64;
            if count > 0.0 && before + count >= wanted {
                let lower = lower(&self.durations, place);
                return lower + (*upper as f64 - lower) * ((wanted - before) / count).clamp(0.0, 1.0);
            }
            before += count;
        }
        self.durations.last().map_or(0.0, |(upper, _)| *upper as f64)
    }
}

/// The number of workers, and how many requests each of them serves at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub workers: u32,
    pub threads: u32,
    pub kind: Kind,
}

impl Shape {
    /// Requests that are served at the same time.
    pub fn most(&self) -> u32 {
        self.workers.saturating_mul(self.threads)
    }
}

/// How a worker serves several requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Each has a thread, and the threads take turns by the interpreter's lock.
    Threads,
    /// An event loop or a hub: a request keeps the worker until it waits.
    Loop,
}

/// What the machine, or the container, gives the instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    pub cpus: f64,
    /// 0 if it is not known.
    pub memory_bytes: u64,
    /// The kernel's limit of `listen` (`net.core.somaxconn`).
    pub listen_most: u32,
}

fn lower(durations: &[(u64, u64)], place: usize) -> f64 {
    place.checked_sub(1).map_or(0.0, |before| durations[before].0 as f64)
}

/// The middle of a bucket, in microseconds.
fn middle(durations: &[(u64, u64)], place: usize) -> f64 {
    f64::midpoint(lower(durations, place), durations[place].0 as f64)
}
