//! The report of `bolide tune`, for people and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use bolide_services::tuning::Shape;
use bolide_services::tuning::changes::Changed;
use bolide_services::tuning::proposal::{Comparison, Proposal, time};
use bolide_services::tuning::simulation::Expected;
use bolide_supervision::text::counted;
use serde_json::{Value, json};

use crate::tune::recording::Record;

/// The report for people. `path` is the configuration, and `changed` what would become of it if it can be changed here.
pub fn whole(record: &Record, proposal: &Proposal, path: &Path, changed: Option<&Changed>) -> String {
    let changes = match changed {
        _ if proposal.lines.is_empty() => "\nnothing to change: the settings suit the recorded requests\n".to_owned(),
        Some(changed) => format!("\n--- {0}\n+++ {0} (proposed)\n{1}", path.display(), changed.diff),
        None => lines(proposal),
    };
    heading(record) + &changes + &expectations(proposal)
}

/// What was recorded, and under which settings.
fn heading(record: &Record) -> String {
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
fn lines(proposal: &Proposal) -> String {
    proposal.lines.iter().fold("\n".to_owned(), |mut text, line| {
        let _ = writeln!(text, "{} = {}\n    {}", line.option, line.value, line.reason);
        text
    })
}

/// What clients will see, and the notes.
fn expectations(proposal: &Proposal) -> String {
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
    let comparison = |comparison: &Comparison| {
        let (present, proposed) = (expected(&comparison.present), expected(&comparison.proposed));
        json!({"rate": comparison.rate, "present": present, "proposed": proposed})
    };
    let lines = proposal.lines.iter().map(|line| json!({"option": line.option, "value": line.value, "reason": line.reason}));
    json!({
        "requests": recorded.requests(),
        "seconds": recorded.seconds,
        "p50_us": recorded.quantile_us(0.5),
        "p99_us": recorded.quantile_us(0.99),
        "cpu_us": recorded.cpu_us(),
        "errors": record.errors,
        "processes": recorded.shape.workers,
        "threads": recorded.shape.threads,
        "lines": lines.collect::<Vec<_>>(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture;
    use bolide_services::tuning::proposal::propose;
    use bolide_services::tuning::{Durations, Kind, Machine, Recorded, changes};

    const CONFIGURATION: &str = "[uwsgi]\nhttp-socket = 127.0.0.1:8000\nmodule = shop\nmaster = true\nprocesses = 4\n\
        threads = 2\nenable-threads = true\ndisable-logging = true\n";

    #[test]
    fn the_picture_of_the_documentation_is_this_report() {
        // Requests that wait for a database for 8 ms, and compute for 0.6 ms.
        let durations = Durations::from_iter([(6880, 0), (7504, 300), (8184, 1400), (8928, 900), (9736, 200), (10616, 36)]);
        let shape = Shape { workers: 4, threads: 2, kind: Kind::Threads };
        let record = Record {
            master: 4127,
            recorded: Recorded {
                seconds: 4.3,
                durations,
                cpu_seconds: 1.82,
                delayed_seconds: Some(0.0),
                shape,
                worker_bytes: 19 << 20,
            },
            machine: Machine { cpus: 2.0, memory_bytes: 8 << 30, listen_most: 4096 },
            configurations: Vec::new(),
            errors: 0,
            settings: json!({"listen": 100}),
        };
        let proposal = propose(&record.recorded, record.machine, &record.present(false)).expect("proposed");
        let changed = changes::apply(CONFIGURATION, &proposal.lines);
        let told = whole(&record, &proposal, Path::new("/srv/shop/uwsgi.ini"), changed.as_ref());
        let title = "bolide tune proposes a change of the configuration, with the reason of each line and what to expect";
        picture::compare("tune.svg", &picture::lines(title, &format!("$ bolide tune uwsgi.ini\n{told}")));
    }
}
