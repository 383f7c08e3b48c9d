//! The list of all metrics of an instance: those of the server with uWSGI's names and numbers (oids), then those of the
//! configuration. Their places in the memory follow from it. Pure data: it does not know values.

use crate::sharing::{MetricKind, MetricSource, Metrics};

/// A metric of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMetric {
    pub name: String,
    /// uWSGI's number for SNMP, which is shown and has no other use here.
    pub oid: String,
    pub kind: MetricKind,
    pub initial: i64,
    /// The application may change it.
    pub is_open: bool,
    /// The place of its value: its own, or that of the metric that it is another name for.
    pub place: usize,
}

/// Names of a worker's numbers, with the last part of their oids and their kinds.
pub const OF_WORKER: [(&str, u32, MetricKind); 9] = [
    ("requests", 1, MetricKind::Counter),
    ("delta_requests", 2, MetricKind::Absolute),
    ("failed_requests", 13, MetricKind::Counter),
    ("respawns", 14, MetricKind::Counter),
    ("avg_response_time", 8, MetricKind::Gauge),
    ("total_tx", 9, MetricKind::Counter),
    ("rss_size", 11, MetricKind::Gauge),
    ("vsz_size", 12, MetricKind::Gauge),
    ("running_time", 13, MetricKind::Counter),
];

/// The same of a thread.
pub const OF_CORE: [(&str, u32); 7] = [
    ("requests", 1),
    ("write_errors", 3),
    ("routed_requests", 4),
    ("static_requests", 5),
    ("offloaded_requests", 6),
    ("exceptions", 7),
    ("read_errors", 8),
];

/// Numbers of the instance before those of its workers.
const OF_CORE_FIRST: [(&str, u32, MetricKind); 5] = [
    ("core.routed_signals", 1, MetricKind::Counter),
    ("core.unrouted_signals", 2, MetricKind::Counter),
    ("core.busy_workers", 3, MetricKind::Gauge),
    ("core.idle_workers", 4, MetricKind::Gauge),
    ("core.overloaded", 5, MetricKind::Counter),
];

/// Numbers of the instance after those of its workers.
const OF_CORE_LAST: [(&str, u32, MetricKind); 5] = [
    ("core.total_tx", 100, MetricKind::Counter),
    ("core.total_rss", 101, MetricKind::Gauge),
    ("core.total_vsz", 102, MetricKind::Gauge),
    ("core.avg_response_time", 103, MetricKind::Gauge),
    ("core.total_running_time", 104, MetricKind::Counter),
];

/// uWSGI's second names.
const ALIASES: [(&str, &str); 2] = [("rss_size", "core.total_rss"), ("vsz_size", "core.total_vsz")];

/// Returns all metrics of these settings.
pub fn listed(metrics: &Metrics) -> Vec<ListedMetric> {
    let mut list: Vec<ListedMetric> = Vec::new();
    let server = |list: &mut Vec<ListedMetric>, name: String, oid: String, kind| {
        let place = list.len();
        list.push(ListedMetric { name, oid, kind, initial: 0, is_open: false, place });
    };
    for (name, number, kind) in OF_CORE_FIRST {
        server(&mut list, name.to_owned(), format!("5.{number}"), kind);
    }
    for worker in 0..=metrics.workers {
        for (name, number, kind) in OF_WORKER {
            server(&mut list, format!("worker.{worker}.{name}"), format!("3.{worker}.{number}"), kind);
        }
        // As in uWSGI, worker 0 has no threads.
        for core in (0..metrics.cores).filter(|_| worker > 0) {
            for (name, number) in OF_CORE {
                let oid = format!("3.{worker}.2.{core}.{number}");
                server(&mut list, format!("worker.{worker}.core.{core}.{name}"), oid, MetricKind::Counter);
            }
        }
    }
    for (name, number, kind) in OF_CORE_LAST {
        server(&mut list, name.to_owned(), format!("5.{number}"), kind);
    }
    for socket in 0..metrics.sockets {
        server(&mut list, format!("socket.{socket}.listen_queue"), format!("7.{socket}.1"), MetricKind::Gauge);
    }
    let place_of = |list: &[ListedMetric], name: &str| list.iter().find(|metric| metric.name == name).map(|metric| metric.place);
    for (name, of) in ALIASES {
        let place = place_of(&list, of).unwrap_or(list.len());
        let (name, oid) = (name.to_owned(), String::new());
        list.push(ListedMetric { name, oid, kind: MetricKind::Alias, initial: 0, is_open: false, place });
    }
    for own in &metrics.own {
        let place = match &own.source {
            MetricSource::Alias(of) => place_of(&list, of).unwrap_or(list.len()),
            _ => list.len(),
        };
        list.push(ListedMetric {
            name: own.name.clone(),
            oid: own.oid.clone(),
            kind: own.kind,
            initial: own.initial,
            is_open: own.source == MetricSource::Application,
            place,
        });
    }
    list
}

/// The number of metrics of these settings, without making the list.
pub fn count(metrics: &Metrics) -> usize {
    let of_worker = OF_WORKER.len().saturating_add((metrics.cores as usize).saturating_mul(OF_CORE.len()));
    let of_workers = (metrics.workers as usize).saturating_mul(of_worker).saturating_add(OF_WORKER.len());
    let fixed = OF_CORE_FIRST.len() + OF_CORE_LAST.len() + ALIASES.len();
    of_workers.saturating_add(fixed).saturating_add(metrics.sockets as usize).saturating_add(metrics.own.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::OwnMetric;

    #[test]
    fn names_places_and_the_number_are_those_of_uwsgi() {
        let own = |name: &str, source| OwnMetric {
            name: name.to_owned(),
            oid: String::new(),
            kind: MetricKind::Counter,
            source,
            initial: 7,
            every_s: 1,
            resets_after_push: false,
            origin: String::new(),
        };
        let metrics = Metrics {
            own: vec![own("mine", MetricSource::Application), own("other", MetricSource::Alias("mine".to_owned()))],
            workers: 1,
            sockets: 1,
            cores: 1,
            ..Metrics::default()
        };
        let list = listed(&metrics);
        assert_eq!(list.len(), 40, "uWSGI has 42 with four of its own");
        assert_eq!(count(&metrics), list.len());
        let named = |name: &str| list.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(named("worker.1.requests").oid, "3.1.1");
        assert_eq!(named("worker.1.core.0.read_errors").oid, "3.1.2.0.8");
        assert_eq!(named("rss_size").place, named("core.total_rss").place);
        assert_eq!(named("other").place, named("mine").place);
        assert!(named("mine").is_open && !named("other").is_open && !named("core.overloaded").is_open);
    }
}
