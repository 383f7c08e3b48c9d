//! `bolide top` in lines, where the output is not a terminal. Pure functions of a sample. The command-line process runs it.

use std::fmt::Write as _;

use crate::answer::ServiceCounts;
pub use crate::answer::age;
use crate::top::numbers::{self, Forms};
use crate::top::sample::Sample;
use bolide_supervision::text::counted;

const MEBIBYTE: u64 = 1 << 20;

/// Returns a look as lines.
pub fn lines(sample: &Sample) -> String {
    let mut said = format!("{}\n{}\n", title(sample), rates(sample));
    for service in &sample.services {
        // Writing to a String can't fail.
        let _ = writeln!(said, "{}", service.in_words());
    }
    for row in &sample.generations {
        let _ = writeln!(said, "{}", row.in_words());
    }
    if let Some(why) = &sample.failure {
        let _ = writeln!(said, "the last reload has failed: {why}");
    }
    if let Some(why) = cheap(sample) {
        let _ = writeln!(said, "{why}");
    }
    for row in &sample.processes {
        let name = if row.is_worker { format!("worker {}", row.name) } else { row.name.clone() };
        // The attendant belongs to no generation.
        let generation = if row.generation == 0 { String::new() } else { format!(" of generation {}", row.generation) };
        let _ = writeln!(
            said,
            "{name} (pid {}){generation}: {}, up {}, CPU {:.0} %, {} MiB, {:.1} requests/s, {} errors, {} in progress",
            row.pid,
            row.state,
            age(row.age_ms),
            row.cpu_percent,
            row.resident_bytes / MEBIBYTE,
            row.requests_per_second,
            row.errors,
            row.busy,
        );
    }
    for request in &sample.requests {
        let who = if request.process.bytes().all(|byte| byte.is_ascii_digit()) { "worker " } else { "" };
        let _ = writeln!(said, "{who}{}: {}", request.process, request.in_words());
    }
    for error in &sample.errors {
        let _ = writeln!(said, "error: {} in worker {}, {} ago: {}", error.status, error.worker, age(error.ago_ms), error.text);
    }
    said
}

/// The instance in a line.
pub fn title(sample: &Sample) -> String {
    title_parts(sample, &sample.phase).join(", ")
}

/// What a title has to tell, the most important first.
pub fn title_parts(sample: &Sample, phase: &str) -> Vec<String> {
    let generation = sample.generation.map_or("none".to_owned(), |generation| generation.to_string());
    let mut parts = vec![format!("master {}: {phase}", sample.pid), format!("generation {generation}")];
    match (sample.reloads, sample.failed_reloads) {
        (0, 0) => {}
        (done, 0) => parts.push(counted(done, "reload")),
        (done, failed) => parts.extend([counted(done, "reload"), format!("{failed} failed")]),
    }
    parts.push(format!("version {}", sample.version));
    parts
}

/// Rates, latencies and the queue in a line.
pub fn rates(sample: &Sample) -> String {
    rates_parts(sample).into_iter().map(|part| part.long).collect::<Vec<_>>().join(", ")
}

/// What the line of rates has to tell, each part also in a short form.
pub fn rates_parts(sample: &Sample) -> Vec<Forms> {
    let both = |long: String, short: String| Forms { long, short };
    let (requests, errors) = (numbers::rate(sample.requests_per_second), numbers::rate(sample.errors_per_second));
    let mut parts = vec![
        both(format!("{} requests/s", requests.long), format!("{} req/s", requests.short)),
        both(format!("{} errors/s", errors.long), format!("{} err/s", errors.short)),
    ];
    match sample.latency_s {
        Some([p50, p90, p99]) => {
            let named = [("p50", p50), ("p90", p90), ("p99", p99)];
            parts.extend(named.map(|(name, value)| Forms::text(format!("{name} {}", seconds(value)))));
        }
        None => parts.push(Forms::text("no latencies")),
    }
    let (waiting, most) = (sample.waiting, sample.queue_most);
    parts.push(both(format!("queue {waiting} of {most}"), format!("q {waiting}/{most}")));
    parts
}

/// What the line of a service has to tell, each part also in a short form.
pub fn service_parts(service: &ServiceCounts) -> Vec<Forms> {
    let titles = std::iter::once([service.title.as_str(), &service.short_title]).chain(std::iter::repeat([""; 2]));
    let part = |((number, word), titles): (&(u64, String), [&str; 2])| {
        let [long, short] = titles.map(|title| if title.is_empty() { String::new() } else { format!("{title}: ") });
        let count = numbers::count(*number);
        Forms { long: format!("{long}{} {word}", count.long), short: format!("{short}{} {word}", count.short) }
    };
    service.counts.iter().zip(titles).map(part).collect()
}

/// What stands in place of the workers where `cheap` has stopped them all.
pub fn cheap(sample: &Sample) -> Option<&'static str> {
    let has_none = sample.is_cheap && !sample.processes.iter().any(|process| process.is_worker);
    has_none.then_some("no worker is running (cheap): the first connection starts them")
}

/// A duration with three digits: `87 µs`, `3.21 ms`, `1.20 s`.
pub fn seconds(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 0.001 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let decimals = if unit == "µs" || number >= 100.0 {
        0
    } else if number >= 10.0 {
        1
    } else {
        2
    };
    format!("{number:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::GenerationRow;
    use crate::top::sample::{Looks, ProcessRow, RequestRow};
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn a_look_is_readable_lines() {
        let sample = Sample {
            version: "0.1.0".into(),
            pid: 1,
            phase: "serving".into(),
            generation: Some(2),
            reloads: 1,
            failed_reloads: 1,
            waiting: 3,
            queue_most: 100,
            requests_per_second: 12.34,
            latency_s: Some([0.000_087, 0.003_214, 1.2]),
            services: ServiceCounts::all_of(&json!({"sticky": {"here": 12, "moved": 3, "relayed": 5, "learned": 4}})),
            generations: vec![GenerationRow {
                number: 2,
                state: "forming".into(),
                age_ms: 2500,
                members: "0 of 1 worker".into(),
                step: "loads the application".into(),
            }],
            failure: Some("no module named shop".into()),
            processes: vec![ProcessRow {
                name: "1".into(),
                is_worker: true,
                pid: 7,
                state: "serving".into(),
                ..ProcessRow::default()
            }],
            requests: vec![RequestRow {
                process: "1".into(),
                age_ms: 1500,
                phase: "application".into(),
                state: "waits",
                text: "GET /".into(),
                ..RequestRow::default()
            }],
            ..Sample::default()
        };
        let expected = "master 1: serving, generation 2, 1 reload, 1 failed, version 0.1.0\n\
            12.3 requests/s, 0.0 errors/s, p50 87 µs, p90 3.21 ms, p99 1.20 s, queue 3 of 100\n\
            sticky: 12 here, 3 moved, 5 relayed, 4 learned, 0 not moved\n\
            generation 2: forming, age 2 s, 0 of 1 worker, loads the application\n\
            the last reload has failed: no module named shop\n\
            worker 1 (pid 7): serving, up 0 s, CPU 0 %, 0 MiB, 0.0 requests/s, 0 errors, 0 in progress\n\
            worker 1: GET / (for 1.5 s, application, waits)\n";
        assert_eq!(lines(&sample), expected);
    }

    #[test]
    fn an_instance_without_workers_says_what_cheap_means() {
        let answer = json!({"phase": "serving", "generations": [{"number": 1, "state": "serving", "workers": 0, "wanted": 0}]});
        let said = lines(&Looks::default().sample(&answer, &BTreeSet::new()));
        assert!(said.contains("\n0.0 requests/s, 0.0 errors/s, no latencies, "), "{said}");
        assert!(said.contains("\nno worker is running (cheap): the first connection starts them\n"), "{said}");
        assert_eq!(cheap(&Sample::default()), None);
    }
}
