//! `bolide top` in lines, where the output is not a terminal. Pure functions of a sample. The command-line process runs it.

use std::fmt::Write as _;

use bolide_supervision::text::duration;

use crate::top::sample::Sample;

const MEBIBYTE: u64 = 1 << 20;

/// Returns a look as lines.
pub fn lines(sample: &Sample) -> String {
    let mut said = format!("{}\n{}\n", title(sample), rates(sample));
    for row in &sample.processes {
        let name = if row.is_worker { format!("worker {}", row.name) } else { row.name.clone() };
        // Writing to a String can't fail.
        let _ = writeln!(
            said,
            "{name} (pid {}) of generation {}: {}, up {}, CPU {:.0} %, {} MiB, {:.1} requests/s, {} errors, {} in progress",
            row.pid,
            row.generation,
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
        let phase = if request.phase.is_empty() { String::new() } else { format!(", {}", request.phase) };
        let who = if request.process.bytes().all(|byte| byte.is_ascii_digit()) { "worker " } else { "" };
        let _ = writeln!(said, "{who}{}: {} (for {}{phase})", request.process, request.text, duration(request.age_ms));
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

/// A long duration in whole seconds.
pub fn age(milliseconds: u64) -> String {
    duration(milliseconds / 1000 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
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
                phase: "waits",
                text: "GET /".into(),
                ..RequestRow::default()
            }],
            ..Sample::default()
        };
        let expected = "master 1: serving, generation 2, 1 reloads, 1 failed, version 0.1.0\n\
            12.3 requests/s, 0.0 errors/s, p50 87 µs, p90 3.21 ms, p99 1.20 s, queue 3 of 100\n\
            worker 1 (pid 7) of generation 0: serving, up 0 ms, CPU 0 %, 0 MiB, 0.0 requests/s, 0 errors, 0 in progress\n\
            worker 1: GET / (for 1.5 s, waits)\n";
        assert_eq!(lines(&sample), expected);
    }
}
