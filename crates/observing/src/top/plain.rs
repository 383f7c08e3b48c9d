//! `bolide top` in lines, where the output is not a terminal. Pure functions of a sample. The command-line process runs it.

use std::fmt::Write as _;

pub use crate::answer::age;
use crate::top::sample::Sample;

const MEBIBYTE: u64 = 1 << 20;

/// Returns a look as lines.
pub fn lines(sample: &Sample) -> String {
    let mut said = format!("{}\n{}\n", title(sample), rates(sample));
    for row in &sample.generations {
        // Writing to a String can't fail.
        let _ = writeln!(said, "{}", row.in_words());
    }
    if let Some(why) = &sample.failure {
        let _ = writeln!(said, "the last reload has failed: {why}");
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
    let generation = sample.generation.map_or("none".to_owned(), |generation| generation.to_string());
    let reloads = match (sample.reloads, sample.failed_reloads) {
        (0, 0) => String::new(),
        (done, 0) => format!(", {done} reloads"),
        (done, failed) => format!(", {done} reloads, {failed} failed"),
    };
    format!("master {}: {}, generation {generation}{reloads}, version {}", sample.pid, sample.phase, sample.version)
}

/// Rates, latencies and the queue in a line.
pub fn rates(sample: &Sample) -> String {
    let latency = match sample.latency_s {
        Some([p50, p90, p99]) => format!("p50 {}, p90 {}, p99 {}", seconds(p50), seconds(p90), seconds(p99)),
        None => "no latencies".to_owned(),
    };
    format!(
        "{:.1} requests/s, {:.1} errors/s, {latency}, queue {} of {}",
        sample.requests_per_second, sample.errors_per_second, sample.waiting, sample.queue_most
    )
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
    use crate::top::sample::{ProcessRow, RequestRow};

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
        let expected = "master 1: serving, generation 2, 1 reloads, 1 failed, version 0.1.0\n\
            12.3 requests/s, 0.0 errors/s, p50 87 µs, p90 3.21 ms, p99 1.20 s, queue 3 of 100\n\
            generation 2: forming, age 2 s, 0 of 1 worker, loads the application\n\
            the last reload has failed: no module named shop\n\
            worker 1 (pid 7): serving, up 0 s, CPU 0 %, 0 MiB, 0.0 requests/s, 0 errors, 0 in progress\n\
            worker 1: GET / (for 1.5 s, application, waits)\n";
        assert_eq!(lines(&sample), expected);
    }
}
