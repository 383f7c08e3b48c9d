//! One look at an instance for `bolide top`: its answer and the measurements of its processes as rows, with the rates since the
//! look before. Text of clients is printable and its query values are masked. It draws nothing. The command-line process runs it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bolide_services::route_names::masked;
use bolide_supervision::process_state::{state_in_words, thread_state};
use bolide_supervision::text::{duration, printable};
use serde_json::Value;

use crate::answer::{GenerationRow, ServiceCounts, list, number, text};
use crate::top::threads::{ThreadRow, Threads};

/// Looks over which latencies are counted, so that quantiles do not jump at each look.
const LATENCY_LOOKS: usize = 10;
/// The ratio of a bucket's bounds: eight buckets double.
const BUCKET_RATIO: f64 = 1.090_507_732_665_257_7;

/// Everything that the screen shows of one look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// It is a look at an emperor, which has vassals and nothing else.
    pub is_of_emperor: bool,
    pub vassals: Vec<VassalRow>,
    pub version: String,
    pub pid: i64,
    pub phase: String,
    /// The time of the answer, on the instance's clock.
    pub now_ms: u64,
    /// `cheap`: no worker should exist until a connection comes.
    pub is_cheap: bool,
    /// The generation in service.
    pub generation: Option<u64>,
    pub reloads: u64,
    pub failed_reloads: u64,
    pub waiting: u64,
    pub queue_most: u64,
    pub requests_per_second: f64,
    pub errors_per_second: f64,
    /// p50, p90 and p99 in seconds, of about the last ten looks.
    pub latency_s: Option<[f64; 3]>,
    /// Of `sticky`, `cancel-on-disconnect` and `publish`, if the instance uses them.
    pub services: Vec<ServiceCounts>,
    /// The newest first.
    pub generations: Vec<GenerationRow>,
    /// Why the last reload has failed, if it has.
    pub failure: Option<String>,
    pub processes: Vec<ProcessRow>,
    /// The threads of the unfolded processes, by pid.
    pub threads: HashMap<i64, Vec<ThreadRow>>,
    pub requests: Vec<RequestRow>,
    /// The last answers with 500 and above, the newest first.
    pub errors: Vec<ErrorRow>,
}

/// A request that has failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ErrorRow {
    pub worker: u64,
    pub status: u64,
    pub ago_ms: u64,
    pub text: String,
}

/// A worker or a helper.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessRow {
    /// `1` for worker 1, `mule 1`.
    pub name: String,
    pub number: u64,
    pub is_worker: bool,
    pub pid: i64,
    pub generation: u64,
    pub state: String,
    pub age_ms: u64,
    pub cpu_percent: f64,
    pub resident_bytes: u64,
    pub requests: u64,
    pub requests_per_second: f64,
    pub errors: u64,
    pub connections: u64,
    pub threads: u64,
    /// Requests that it works on, also those that an asynchronous application has kept.
    pub busy: u64,
}

/// A vassal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VassalRow {
    pub name: String,
    /// Its place among those of the emperor.
    pub number: u64,
    /// `serving`, `paused` and others, as the emperor tells it.
    pub state: String,
    /// `None`: it does not run.
    pub pid: Option<i64>,
    pub age_ms: u64,
    /// `None`: it has not answered, or only once.
    pub requests_per_second: Option<f64>,
    /// Of all its processes. `None`: they were seen only once, or not at all.
    pub cpu_percent: Option<f64>,
    pub memory_bytes: Option<u64>,
    /// Failures in a row.
    pub failures: u64,
    pub reloads: u64,
}

impl VassalRow {
    /// What names it on the screen: its pid, or a number below 0.
    pub fn id(&self) -> i64 {
        self.pid.unwrap_or_else(|| -1 - i64::try_from(self.number).unwrap_or(i64::MAX - 1))
    }
}

/// A request in flight.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestRow {
    pub process: String,
    pub pid: i64,
    pub thread: u64,
    pub age_ms: u64,
    /// What it waits for: its body, the application, or the client that reads the answer. Empty for the work of helpers.
    pub phase: String,
    /// What its thread does, by the kernel.
    pub state: &'static str,
    pub text: String,
}

/// What must be kept from one look to the next.
#[derive(Debug, Default)]
pub struct Looks {
    last_ms: u64,
    errors: HashMap<i64, u64>,
    histograms: VecDeque<BTreeMap<u64, u64>>,
    threads: Threads,
}

impl Looks {
    /// Whether this answer is the one that was seen already: the master answers all readers of a second alike.
    pub fn has_seen(&self, answer: &Value) -> bool {
        self.last_ms == number(&answer["now_ms"])
    }

    /// Makes the sample of an answer to which the measurements were added. `unfolded` are the pids whose threads are wanted.
    pub fn sample(&mut self, answer: &Value, unfolded: &BTreeSet<i64>) -> Sample {
        let now_ms = number(&answer["now_ms"]);
        let passed_s = now_ms.saturating_sub(self.last_ms).max(1) as f64 / 1000.0;
        let is_first = std::mem::replace(&mut self.last_ms, now_ms) == 0;
        let workers = list(answer, "workers").map(|worker| process(worker, true));
        let helpers = list(answer, "helpers").chain(list(answer, "attendants"));
        let others = helpers.map(|helper| process(helper, false)).chain(list(answer, "prototypes").filter_map(former_worker));
        let processes: Vec<ProcessRow> = workers.chain(others).collect();
        let errors: HashMap<i64, u64> = processes.iter().map(|process| (process.pid, process.errors)).collect();
        let new = |(pid, count): (&i64, &u64)| count.saturating_sub(self.errors.get(pid).copied().unwrap_or(0));
        let errors_per_second = if is_first { 0.0 } else { errors.iter().map(new).sum::<u64>() as f64 / passed_s };
        self.errors = errors;
        let mut requests: Vec<RequestRow> = Vec::new();
        for (child, key) in
            list(answer, "workers").map(|one| (one, "request")).chain(list(answer, "helpers").map(|one| (one, "work")))
        {
            requests.extend(list(child, "in_flight").map(|one| request(child, one, key)));
        }
        requests.sort_by_key(|request| std::cmp::Reverse(request.age_ms));
        let threads = self.threads.rows(answer, unfolded, |pid, thread| work_of(&requests, pid, thread), passed_s);
        Sample {
            is_of_emperor: false,
            vassals: Vec::new(),
            version: text(&answer["version"]),
            pid: answer["pid"].as_i64().unwrap_or(0),
            phase: text(&answer["phase"]),
            now_ms,
            is_cheap: list(answer, "generations").any(|one| one["state"] == "serving" && one["wanted"] == 0),
            generation: answer["generation"].as_u64(),
            reloads: number(&answer["reloads"]),
            failed_reloads: number(&answer["failed_reloads"]),
            waiting: number(&answer["queue"]["waiting"]),
            queue_most: number(&answer["queue"]["most"]),
            // The sum of nothing is -0.0.
            requests_per_second: processes.iter().fold(0.0, |sum, process| sum + process.requests_per_second),
            errors_per_second,
            latency_s: self.latency(answer),
            services: ServiceCounts::all_of(answer),
            generations: list(answer, "generations").map(GenerationRow::of).collect(),
            failure: answer["last_reload"]["why"].as_str().map(printable),
            processes,
            threads,
            requests,
            errors: list(answer, "recent_errors").map(error).collect(),
        }
    }

    fn latency(&mut self, answer: &Value) -> Option<[f64; 3]> {
        let pair = |pair: &Value| Some((pair[0].as_u64()?, pair[1].as_u64()?));
        let now: BTreeMap<u64, u64> = list(answer, "latency_us").filter_map(pair).collect();
        let window = self.histograms.front().map_or_else(
            || now.clone(),
            |before| {
                now.iter().map(|(upper, count)| (*upper, count.saturating_sub(before.get(upper).copied().unwrap_or(0)))).collect()
            },
        );
        self.histograms.push_back(now);
        if self.histograms.len() > LATENCY_LOOKS {
            self.histograms.pop_front();
        }
        Some([quantile_s(&window, 0.5)?, quantile_s(&window, 0.9)?, quantile_s(&window, 0.99)?])
    }
}

/// Returns a quantile of a histogram, in seconds: the geometric middle of its bucket, at most 4.5 % from the truth.
fn quantile_s(histogram: &BTreeMap<u64, u64>, share: f64) -> Option<f64> {
    let count: u64 = histogram.values().sum();
    let rank = share * count as f64;
    let mut up_to = 0;
    let mut filled = histogram.iter().filter(|(_, count)| **count > 0);
    let (upper_us, _) = filled.find(|(_, count)| {
        up_to += **count;
        up_to as f64 >= rank
    })?;
    Some(*upper_us as f64 / BUCKET_RATIO.sqrt() / 1e6)
}

fn process(child: &Value, is_worker: bool) -> ProcessRow {
    let in_flight = list(child, "in_flight").count() as u64;
    ProcessRow {
        name: if is_worker { number(&child["number"]).to_string() } else { text(&child["name"]) },
        number: number(&child["number"]),
        is_worker,
        pid: child["pid"].as_i64().unwrap_or(0),
        generation: number(&child["generation"]),
        state: text(&child["state"]),
        age_ms: number(&child["age_ms"]),
        cpu_percent: child["cpu_percent"].as_f64().unwrap_or(0.0),
        resident_bytes: number(&child["resident_bytes"]),
        requests: number(if is_worker { &child["requests"] } else { &child["done"] }),
        requests_per_second: child["requests_per_second"].as_f64().unwrap_or(0.0),
        errors: number(&child["errors"]),
        connections: number(&child["connections"]),
        threads: number(&child["threads"]),
        busy: in_flight.max(number(&child["ongoing"])),
    }
}

/// Returns the row of a prototype that was a worker (`refork-after`), and `None` for one that was executed.
fn former_worker(prototype: &Value) -> Option<ProcessRow> {
    let number = prototype["worker"]["number"].as_u64()?;
    Some(ProcessRow { name: format!("prototype (was {number})"), ..process(prototype, false) })
}

/// What a thread works on.
fn work_of(requests: &[RequestRow], pid: i64, thread: u32) -> String {
    let own = requests.iter().find(|request| request.pid == pid && request.thread == u64::from(thread));
    own.map_or(String::new(), |request| format!("{} {}", duration(request.age_ms), request.text))
}

fn request(child: &Value, one: &Value, key: &str) -> RequestRow {
    let pid = child["pid"].as_i64().unwrap_or(0);
    let thread = number(&one["thread"]);
    let state = u32::try_from(thread).ok().zip(i32::try_from(pid).ok()).and_then(|(thread, pid)| thread_state(pid, thread));
    RequestRow {
        process: if child["name"].is_string() { text(&child["name"]) } else { number(&child["number"]).to_string() },
        pid,
        thread,
        age_ms: number(&one["milliseconds"]),
        phase: text(&one["phase"]),
        state: state.map_or("", state_in_words),
        text: printable(&masked(one[key].as_str().unwrap_or_default())),
    }
}

impl RequestRow {
    /// `GET /path (for 2 s, application, waits)`.
    pub fn in_words(&self) -> String {
        let parts = [self.phase.as_str(), self.state].into_iter().filter(|part| !part.is_empty());
        parts.fold(format!("{} (for {}", self.text, duration(self.age_ms)), |words, part| words + ", " + part) + ")"
    }
}

fn error(one: &Value) -> ErrorRow {
    ErrorRow {
        worker: number(&one["worker"]),
        status: number(&one["status"]),
        ago_ms: number(&one["ago_ms"]),
        text: printable(&masked(one["request"].as_str().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prototype_has_a_row_if_it_was_a_worker() {
        let prototypes = json!([
            {"pid": 5, "generation": 1, "state": "serving", "worker": null},
            {"pid": 6, "generation": 1, "state": "serving", "worker": {"number": 2, "pid": 4}},
        ]);
        let sample = Looks::default().sample(&json!({"now_ms": 1, "prototypes": prototypes}), &BTreeSet::new());
        let rows: Vec<(&str, i64)> = sample.processes.iter().map(|row| (row.name.as_str(), row.pid)).collect();
        assert_eq!(rows, [("prototype (was 2)", 6)]);
    }

    fn answer(now_ms: u64, errors: u64, latency: &[(u64, u64)]) -> Value {
        json!({
            "pid": 1, "version": "0.1.0", "phase": "serving", "generation": 2, "now_ms": now_ms, "latency_us": latency,
            "workers": [{
                "number": 1, "pid": 7, "generation": 2, "state": "serving", "age_ms": 5000, "errors": errors,
                "requests_per_second": 3.0,
                "in_flight": [
                    {"request": "GET /a?token=secret", "milliseconds": 5, "thread": 0},
                    {"request": "GET /b\u{1b}[2J", "milliseconds": 90, "thread": 0},
                ],
            }],
            "helpers": [{"name": "mule 1", "pid": 8, "state": "serving", "done": 4, "in_flight": []}],
        })
    }

    #[test]
    fn query_values_and_control_characters_of_clients_are_not_shown() {
        let sample = Looks::default().sample(&answer(1000, 0, &[]), &BTreeSet::new());
        let texts: Vec<&str> = sample.requests.iter().map(|request| request.text.as_str()).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("GET /b\\u{1b}"), "{texts:?}");
        assert!(texts[1].starts_with("GET /a?token=") && !texts[1].contains("secret"), "{texts:?}");
        assert_eq!((sample.processes[0].busy, sample.processes[1].name.as_str()), (2, "mule 1"));
    }

    #[test]
    fn errors_and_latencies_are_those_since_the_looks_before() {
        let mut looks = Looks::default();
        let first = looks.sample(&answer(1000, 5, &[(1000, 100)]), &BTreeSet::new());
        assert_eq!((first.errors_per_second, looks.has_seen(&answer(1000, 5, &[]))), (0.0, true));
        let second = looks.sample(&answer(3000, 9, &[(1000, 100), (64_000, 10)]), &BTreeSet::new());
        assert_eq!(second.errors_per_second, 2.0);
        let [p50, _, p99] = second.latency_s.expect("measured");
        assert!(p50 > 0.058 && p99 <= 0.064, "{p50} {p99}");
        // Nothing was answered since the first look.
        let mut quiet = Looks::default();
        quiet.sample(&answer(1000, 0, &[(1000, 100)]), &BTreeSet::new());
        assert_eq!(quiet.sample(&answer(2000, 0, &[(1000, 100)]), &BTreeSet::new()).latency_s, None);
    }
}
