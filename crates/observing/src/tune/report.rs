//! The report of `bolide tune`, for people and as JSON.

use std::fmt::Write as _;

use bolide_services::tuning::Shape;
use bolide_services::tuning::proposal::{Comparison, Proposal, time};
use bolide_services::tuning::simulation::Expected;
use bolide_supervision::text::counted;
use serde_json::{Value, json};

use crate::tune::recording::Record;

/// What was recorded, and under which settings.
pub fn heading(record: &Record) -> String {
    let recorded = &record.recorded;
    let mut text = format!(
        "master {}: {} in {:.0} s ({} a second), p50 {}, p99 {}; a request needs {} of CPU\n",
        record.master,
        counted(recorded.requests(), "request"),
        recorded.seconds,
        rate(recorded.rate()),
        time(recorded.quantile_us(0.5)),
        time(recorded.quantile_us(0.99)),
        time(recorded.cpu_us()),
    );
    let memory = record.machine.memory_bytes / (1 << 20);
    // Writing to a String can't fail.
    let _ = writeln!(text, "now: {}; the machine has {:.0} CPUs and {memory} MiB", shape(recorded.shape), record.machine.cpus);
    text
}

/// The proposed lines, for configurations that are not changed here.
pub fn lines(proposal: &Proposal) -> String {
    proposal.lines.iter().fold("\n".to_owned(), |mut text, line| {
        let _ = writeln!(text, "{} = {}\n    {}", line.option, line.value, line.reason);
        text
    })
}

/// What clients will see, and the notes.
pub fn expectations(proposal: &Proposal) -> String {
    let mut text = format!("\n{:<24}  {:<26}  {}\n", "expected", "now", "proposed");
    for Comparison { rate: load, present, proposed } in &proposal.comparisons {
        let load = format!("{} requests a second", rate(*load));
        let _ = writeln!(text, "{load:<24}  {:<26}  {}", seen(present), seen(proposed));
    }
    let [now, then] = proposal.capacities.map(|capacity| format!("{} a second", rate(capacity)));
    let _ = writeln!(text, "{:<24}  {now:<26}  {then}", "at most");
    for note in &proposal.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The two records of a trial.
pub fn trial(before: &Record, after: &Record) -> String {
    let one = |name: &str, record: &Record| {
        let recorded = &record.recorded;
        format!(
            "{name:<8}  {} a second, p50 {}, p99 {}, {} of CPU a request, {}\n",
            rate(recorded.rate()),
            time(recorded.quantile_us(0.5)),
            time(recorded.quantile_us(0.99)),
            time(recorded.cpu_us()),
            counted(record.errors, "error"),
        )
    };
    one("before", before) + &one("after", after)
}

/// The whole as one object.
pub fn as_json(record: &Record, proposal: &Proposal) -> Value {
    let recorded = &record.recorded;
    let comparison = |comparison: &Comparison| json!({"rate": comparison.rate, "present": expected(&comparison.present), "proposed": expected(&comparison.proposed)});
    json!({
        "requests": recorded.requests(),
        "seconds": recorded.seconds,
        "p50_us": recorded.quantile_us(0.5),
        "p99_us": recorded.quantile_us(0.99),
        "cpu_us": recorded.cpu_us(),
        "errors": record.errors,
        "processes": recorded.shape.workers,
        "threads": recorded.shape.threads,
        "lines": proposal.lines.iter().map(|line| json!({"option": line.option, "value": line.value, "reason": line.reason})).collect::<Vec<_>>(),
        "expected": proposal.comparisons.iter().map(comparison).collect::<Vec<_>>(),
        "most": {"present": proposal.capacities[0], "proposed": proposal.capacities[1]},
        "notes": proposal.notes,
    })
}

fn expected(expected: &Expected) -> Value {
    match expected.is_overloaded {
        true => json!({"overloaded": true}),
        false => json!({"overloaded": false, "p50_us": expected.p50_us, "p99_us": expected.p99_us}),
    }
}

fn seen(expected: &Expected) -> String {
    match expected.is_overloaded {
        true => "overloaded".to_owned(),
        false => format!("p50 {}, p99 {}", time(expected.p50_us), time(expected.p99_us)),
    }
}

fn shape(shape: Shape) -> String {
    let workers = counted(u64::from(shape.workers), "worker");
    match shape.threads {
        1 => format!("{workers} with one thread"),
        threads => format!("{workers}, each with {threads} requests at a time"),
    }
}

fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}
