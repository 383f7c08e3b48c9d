//! The families that uwsgi-exporter does not have: what Bolide knows of its requests and of itself. The master runs it.

use super::family::FamilyKind::{Counter, Gauge, Histogram};
use super::family::{Facts, Family, Number, Samples};

/// The names of the classes of statuses.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// A row.
macro_rules! family {
    ($name:literal, $kind:ident, $labels:expr, $help:literal, $write:expr) => {
        Family { name: $name, kind: $kind, labels: $labels, help: $help, write: $write }
    };
}

#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    family!("bolide_info", Gauge, &["version"], "Always 1; its label is the version.", |facts, samples| samples(&[&facts.snapshot.version], true.into())),
    family!("bolide_requests_total", Counter, &["status"], "Requests by the class of their status; `none` had no answer.", requests),
    family!("bolide_request_duration_seconds", Histogram, &[], "Time from the head of a request to the end of its answer, except for WebSockets.", |facts, samples| samples(&[], Number::Durations(&facts.measured.latency))),
];

fn requests(facts: &Facts, samples: &mut Samples<'_>) {
    let mut classes = [0; CLASSES.len()];
    for worker in &facts.snapshot.workers {
        for (sum, count) in classes.iter_mut().zip(worker.work().by_class()) {
            *sum += count;
        }
    }
    for (class, count) in CLASSES.iter().zip(classes) {
        samples(&[class], count.into());
    }
}
