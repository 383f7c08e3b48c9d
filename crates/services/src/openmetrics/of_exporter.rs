//! The families of uwsgi-exporter, with its names, labels and units, so that dashboards and alerts made for it work. Its label
//! `stats_uri` is missing: Prometheus adds `instance`. Most are rows of `uwsgi_numbers`; the others, which no other output has,
//! are here. The master runs it.

use bolide_scoreboard::Work;

use crate::family::FamilyKind::{Counter, Gauge, Unknown};
use crate::family::{Facts, Family, Samples, families};
use crate::statistics::{CacheFacts, WorkerFacts};
use crate::uwsgi_numbers::{CORE, INSTANCE, Row, SOCKET, WORKER, WORKER_LABELS, of_workers};

const APPLICATION: &[&str] = &["worker_id", "app_id", "mountpoint", "chdir"];
const CACHE: &[&str] = &["name"];

/// All families, in the order of the page: of each thing, gauges come first.
pub fn families() -> impl Iterator<Item = &'static Family> {
    let of_instance = gauges(INSTANCE).chain(gauges(SOCKET));
    let of_workers = gauges(WORKER).chain(PARTS).chain(counters(WORKER)).chain(STATES_AND_APPLICATIONS);
    of_instance.chain(of_workers).chain(gauges(CORE)).chain(counters(CORE)).chain(CACHES)
}

fn gauges<T>(rows: &'static [Row<T>]) -> impl Iterator<Item = &'static Family> {
    rows.iter().filter_map(|row| row.family.as_ref()).filter(|family| family.kind != Counter)
}

fn counters<T>(rows: &'static [Row<T>]) -> impl Iterator<Item = &'static Family> {
    rows.iter().filter_map(|row| row.family.as_ref()).filter(|family| family.kind == Counter)
}

const PARTS: &[Family] = families![
    /// Applications of the worker.
    ("uwsgi_worker_apps", Gauge, WORKER_LABELS, |facts, samples| {
        of_workers(facts, samples, |_| (facts.snapshot.applications.len() as u64).into());
    }),
    /// Threads of the worker.
    ("uwsgi_worker_cores", Gauge, WORKER_LABELS, of_workers, |worker| (worker.cores.len() as u64).into()),
];

const STATES_AND_APPLICATIONS: &[Family] = families![
    /// Whether the worker serves a request.
    ("uwsgi_worker_busy", Gauge, WORKER_LABELS, of_workers, |worker| (worker.status() == "busy").into()),
    /// Whether the worker waits for requests.
    ("uwsgi_worker_idle", Gauge, WORKER_LABELS, of_workers, |worker| (worker.status() == "idle").into()),
    /// Whether the worker has no process at present.
    ("uwsgi_worker_cheap", Gauge, WORKER_LABELS, of_workers, |worker| (worker.status() == "cheap").into()),
    /// Time that the application took to load, in whole seconds.
    ("uwsgi_worker_app_startup_time_seconds", Gauge, APPLICATION, of_applications, |worker, _, _| worker.load_s),
    /// Requests of an application. Those of the eighth and others are counted together.
    ("uwsgi_worker_app_requests_total", Counter, APPLICATION,
        of_applications, |_, work, place| work.applications[place].requests),
    /// Uncaught exceptions of an application.
    ("uwsgi_worker_app_exceptions_total", Counter, APPLICATION,
        of_applications, |_, work, place| work.applications[place].exceptions),
];

const CACHES: &[Family] = families![
    /// Reads of a cache that found their item.
    ("uwsgi_cache_hits", Unknown, CACHE, of_caches, |cache| cache.hits),
    /// Reads of a cache that found nothing.
    ("uwsgi_cache_misses", Unknown, CACHE, of_caches, |cache| cache.misses),
    /// Items that found a cache full.
    ("uwsgi_cache_full", Unknown, CACHE, of_caches, |cache| cache.full),
    /// Items in a cache.
    ("uwsgi_cache_items", Gauge, CACHE, of_caches, |cache| cache.items),
    /// Items that a cache holds.
    ("uwsgi_cache_max_items", Gauge, CACHE, of_caches, |cache| cache.items_most),
];

fn of_applications(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&WorkerFacts, &Work, usize) -> u64) {
    for worker in &facts.snapshot.workers {
        let work = worker.work();
        for (place, application) in facts.snapshot.applications.iter().enumerate().take(work.applications.len()) {
            let labels = [&worker.number.to_string(), &place.to_string(), application.mount.as_str(), ""];
            samples(&labels, number(worker, &work, place).into());
        }
    }
}

fn of_caches(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&CacheFacts) -> u64) {
    for cache in &facts.snapshot.caches {
        samples(&[&cache.name], number(cache).into());
    }
}
