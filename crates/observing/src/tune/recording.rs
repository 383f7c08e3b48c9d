//! The record of an instance: its answers at the beginning and at the end of a time, and the CPU time of its workers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bolide_configuration::instance_commands::EXIT_REFUSED;
use bolide_services::tuning::proposal::Present;
use bolide_services::tuning::{Durations, Kind, Machine, Recorded, Shape};
use bolide_supervision::process_state::{cpu_ms_of, delayed_ns_of};
use bolide_supervision::processes::memory_watch::usage_of;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::instances::{Refusal, ask_about};
use crate::machine;

/// The bounds of a bucket of the workers' histograms: eight buckets for each doubling (`bolide_scoreboard::histogram`).
const BUCKET_FACTOR: f64 = 1.090_507_732_665_257_7;
/// The first bucket begins at 0 and ends here, in microseconds.
const FIRST_BUCKET_US: u64 = 16;
/// Longer requests are in one bucket without an end; they count as if it ended here, in microseconds.
const LONGEST_US: u64 = 256_000_000;

/// What was recorded, and under which settings.
pub struct Record {
    pub master: i32,
    pub recorded: Recorded,
    pub machine: Machine,
    pub configurations: Vec<PathBuf>,
    /// Requests that ended with 500 and above, or with an exception.
    pub errors: u64,
    pub settings: Value,
}

/// Counters of a worker.
#[derive(Default, Clone)]
struct Counters {
    durations: BTreeMap<u64, u64>,
    errors: u64,
    cpu_seconds: f64,
    /// `None`: the kernel does not count it.
    delayed_seconds: Option<f64>,
    age_s: f64,
}

impl Record {
    /// Records for this time, or what the workers have counted since their start.
    pub fn make(instance: Option<&str>, seconds: Option<u32>) -> Result<Record, Refusal> {
        let question = json!({"ask": "observe"});
        let before = match seconds {
            None => BTreeMap::new(),
            Some(seconds) => {
                let before = counters(&ask_about(instance, &question)?.1);
                std::thread::sleep(Duration::from_secs(u64::from(seconds)));
                before
            }
        };
        let (master, answer) = ask_about(instance, &question)?;
        let mut record = Record::of(master, &answer);
        let mut durations = BTreeMap::new();
        let (mut rate, mut requests) = (0.0, 0);
        for (pid, now) in counters(&answer) {
            let then = before.get(&pid).cloned().unwrap_or_default();
            let mut of_worker = 0;
            for (upper, count) in now.durations {
                let more = count.saturating_sub(then.durations.get(&upper).copied().unwrap_or(0));
                *durations.entry(upper).or_insert(0) += more;
                of_worker += more;
            }
            let age_s = (now.age_s - then.age_s).max(0.001);
            rate += of_worker as f64 / age_s;
            requests += of_worker;
            record.errors += now.errors.saturating_sub(then.errors);
            record.recorded.cpu_seconds += (now.cpu_seconds - then.cpu_seconds).max(0.0);
            // A thread that has ended takes its time with it.
            let delayed = now.delayed_seconds.map(|now| (now - then.delayed_seconds.unwrap_or(0.0)).max(0.0));
            record.recorded.delayed_seconds = record.recorded.delayed_seconds.zip(delayed).map(|(sum, more)| sum + more);
        }
        record.recorded.durations = with_lower_bounds(durations);
        record.recorded.seconds = if rate > 0.0 { requests as f64 / rate } else { f64::from(seconds.unwrap_or(0)) };
        if requests == 0 {
            let why = match record.settings["measures_time"] == false {
                true => {
                    "its workers do not measure durations, since neither a log line nor statistics need them: set `metrics` or \
                    `stats`"
                }
                false => "its workers have measured no request in this time: let them handle some, or record under load",
            };
            return Err((EXIT_REFUSED, format!("master {master}: {why}")));
        }
        Ok(record)
    }

    fn of(master: i32, answer: &Value) -> Record {
        let settings = answer["settings"].clone();
        let number = |key: &str| settings[key].as_u64().unwrap_or(1) as u32;
        let kind = if settings["has_event_loop"] == true { Kind::Loop } else { Kind::Threads };
        let shape = Shape { workers: number("processes").max(1), threads: number("threads").max(1), kind };
        let pids = workers(answer).filter_map(|worker| pid_of(&worker["pid"]));
        let worker_bytes =
            pids.filter_map(|pid| usage_of(Pid::from_raw(pid), false)).map(|usage| usage.resident).max().unwrap_or(0);
        let paths = answer["configurations"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Record {
            master,
            recorded: Recorded {
                seconds: 0.0,
                durations: Vec::new(),
                cpu_seconds: 0.0,
                delayed_seconds: Some(0.0),
                shape,
                worker_bytes,
            },
            machine: Machine {
                cpus: f64::from(number("cpus").max(1)),
                memory_bytes: machine::memory_bytes(master),
                listen_most: machine::listen_most(),
            },
            configurations: paths.map(PathBuf::from).collect(),
            errors: 0,
            settings,
        }
    }

    /// The settings in force. `threads_are_safe`: the user asked for it.
    pub fn present(&self, threads_are_safe: bool) -> Present {
        let number = |key: &str| self.settings[key].as_u64();
        Present {
            may_use_threads: threads_are_safe || self.recorded.shape.threads > 1,
            // 0 is the kernel's own limit.
            listen: number("listen").filter(|listen| *listen > 0).map_or(self.machine.listen_most, |listen| listen as u32),
            harakiri: number("harakiri_ms").map(|milliseconds| (milliseconds / 1000) as u32),
            cheaper: number("cheaper").map(|cheaper| cheaper as u32),
            reload_on_rss: number("reload_on_rss_mib"),
        }
    }
}

/// The answers leave out empty buckets, but where a bucket begins is where the one before it ends.
fn with_lower_bounds(filled: BTreeMap<u64, u64>) -> Durations {
    let mut durations = BTreeMap::new();
    for (upper, count) in filled {
        let upper = upper.min(LONGEST_US);
        let lower = if upper <= FIRST_BUCKET_US { 0 } else { (upper as f64 / BUCKET_FACTOR).round() as u64 };
        durations.entry(lower).or_insert(0);
        *durations.entry(upper).or_insert(0) += count;
    }
    Durations::from_iter(durations)
}

/// `None`: the kernel does not count it.
fn delayed_seconds_of(pid: i32) -> Option<f64> {
    // Tests of proposals run beside other tests, on CPUs that are always busy.
    if std::env::var_os("BOLIDE_TEST_QUIET_CPUS").is_some() {
        return Some(0.0);
    }
    delayed_ns_of(pid).map(|nanoseconds| nanoseconds as f64 / 1e9)
}

fn workers(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["workers"].as_array().into_iter().flatten()
}

fn pid_of(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|pid| i32::try_from(pid).ok())
}

/// The counters of each worker, by its pid.
fn counters(answer: &Value) -> BTreeMap<i32, Counters> {
    let now_ms = answer["now_ms"].as_u64().unwrap_or(0);
    let of_worker = |worker: &Value| {
        let pid = pid_of(&worker["pid"])?;
        let pair = |pair: &Value| Some((pair[0].as_u64()?, pair[1].as_u64()?));
        let counters = Counters {
            durations: worker["durations_us"].as_array().into_iter().flatten().filter_map(pair).collect(),
            errors: worker["errors"].as_u64().unwrap_or(0),
            cpu_seconds: cpu_ms_of(pid).unwrap_or(0) as f64 / 1000.0,
            delayed_seconds: delayed_seconds_of(pid),
            age_s: now_ms.saturating_sub(worker["started_ms"].as_u64().unwrap_or(now_ms)) as f64 / 1000.0,
        };
        Some((pid, counters))
    };
    workers(answer).filter_map(of_worker).collect()
}
