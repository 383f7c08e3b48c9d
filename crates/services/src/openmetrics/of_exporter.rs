//! The families of uwsgi-exporter, with its names, labels and units, so that dashboards and alerts made for it work. Its label
//! `stats_uri` is missing: Prometheus adds `instance`. The master runs it.

use bolide_scoreboard::Work;

use super::family::FamilyKind::{Counter, Gauge, Unknown};
use super::family::{Facts, Family, Number, Samples, families, of_sockets, one, seconds};
use crate::statistics::{CacheFacts, WorkerFacts};

const WORKER: &[&str] = &["worker_id"];
const APPLICATION: &[&str] = &["worker_id", "app_id", "mountpoint", "chdir"];
const CORE: &[&str] = &["worker_id", "core_id"];
const SOCKET: &[&str] = &["name", "proto"];
const CACHE: &[&str] = &["name"];

pub const FAMILIES: &[Family] = families![
    /// Connections in the fullest accept queue.
    ("uwsgi_listen_queue_length", Gauge, &[], one, |facts| facts.snapshot.queue().into()),
    /// Checks that found an accept queue full.
    ("uwsgi_listen_queue_errors", Unknown, &[], one, |facts| facts.snapshot.queue_errors.into()),
    /// Signals of uWSGI's that wait for any worker.
    ("uwsgi_signal_queue_length", Gauge, &[], one, |facts| facts.snapshot.signal_queue.into()),
    /// Workers of the configuration.
    ("uwsgi_workers", Gauge, &[], one, |facts| (facts.snapshot.workers.len() as u64).into()),
    /// Connections in the accept queue of a socket.
    ("uwsgi_socket_queue_length", Gauge, SOCKET, of_sockets, |socket| socket.queue),
    /// Connections that the accept queue of a socket holds.
    ("uwsgi_socket_max_queue_length", Gauge, SOCKET, of_sockets, |socket| socket.queue_most),
    /// Always 0.
    ("uwsgi_socket_shared", Gauge, SOCKET, of_sockets, |_| 0),
    /// Always 0.
    ("uwsgi_socket_can_offload", Gauge, SOCKET, of_sockets, |_| 0),
    /// Whether the worker accepts connections.
    ("uwsgi_worker_accepting", Gauge, WORKER, of_workers, |worker| worker.is_accepting.into()),
    /// Requests of the present process of the worker.
    ("uwsgi_worker_delta_requests", Gauge, WORKER, of_workers, |worker| worker.requests_since_spawn.into()),
    /// Signals of uWSGI's that wait for this worker.
    ("uwsgi_worker_signal_queue_length", Gauge, WORKER, of_workers, |worker| worker.signal_queue.into()),
    /// Resident memory of the worker; pages that workers share count in each.
    ("uwsgi_worker_rss_bytes", Gauge, WORKER, of_workers, |worker| worker.resident_bytes.into()),
    /// Address space of the worker.
    ("uwsgi_worker_vsz_bytes", Gauge, WORKER, of_workers, |worker| worker.address_space_bytes.into()),
    /// Time that the worker's requests took, added up.
    ("uwsgi_worker_running_time_seconds", Gauge, WORKER, of_workers, |worker| seconds(worker.work().busy_us).into()),
    /// Start of the worker's present process, in seconds since 1970.
    ("uwsgi_worker_last_spawn_time_seconds", Gauge, WORKER, of_workers, |worker| worker.last_spawn_s.into()),
    /// Moving average of the response time, in which the last request counts one half.
    ("uwsgi_worker_average_response_time_seconds", Gauge, WORKER, of_workers, |worker| seconds(worker.average_us).into()),
    /// Applications of the worker.
    ("uwsgi_worker_apps", Gauge, WORKER, |facts, samples| {
        of_workers(facts, samples, |_| (facts.snapshot.applications.len() as u64).into());
    }),
    /// Threads of the worker.
    ("uwsgi_worker_cores", Gauge, WORKER, of_workers, |worker| (worker.cores.len() as u64).into()),
    /// Requests that the worker has answered.
    ("uwsgi_worker_requests_total", Counter, WORKER, of_workers, |worker| worker.work().requests.into()),
    /// Uncaught exceptions of applications.
    ("uwsgi_worker_exceptions_total", Counter, WORKER, of_workers, |worker| worker.work().exceptions().into()),
    /// Processes of the worker that harakiri has killed.
    ("uwsgi_worker_harakiri_count_total", Counter, WORKER, of_workers, |worker| worker.harakiri_count.into()),
    /// Calls of handlers of uWSGI's signals.
    ("uwsgi_worker_signals_total", Counter, WORKER, of_workers, |worker| worker.signals.into()),
    /// Processes that have had this worker's number.
    ("uwsgi_worker_respawn_count_total", Counter, WORKER, of_workers, |worker| worker.spawn_count.into()),
    /// Bytes of responses.
    ("uwsgi_worker_transmitted_bytes_total", Counter, WORKER, of_workers, |worker| worker.work().sent_bytes.into()),
    /// Whether the worker serves a request.
    ("uwsgi_worker_busy", Gauge, WORKER, of_workers, |worker| (worker.status() == "busy").into()),
    /// Whether the worker waits for requests.
    ("uwsgi_worker_idle", Gauge, WORKER, of_workers, |worker| (worker.status() == "idle").into()),
    /// Whether the worker has no process at present.
    ("uwsgi_worker_cheap", Gauge, WORKER, of_workers, |worker| (worker.status() == "cheap").into()),
    /// Time that the application took to load, in whole seconds.
    ("uwsgi_worker_app_startup_time_seconds", Gauge, APPLICATION, of_applications, |worker, _, _| worker.load_s),
    /// Requests of an application; those of the eighth and further ones are counted together.
    ("uwsgi_worker_app_requests_total", Counter, APPLICATION,
        of_applications, |_, work, place| work.applications[place].requests),
    /// Uncaught exceptions of an application.
    ("uwsgi_worker_app_exceptions_total", Counter, APPLICATION,
        of_applications, |_, work, place| work.applications[place].exceptions),
    /// Requests that the thread serves.
    ("uwsgi_worker_core_busy", Gauge, CORE, of_cores, |_, busy| busy),
    /// Requests of the thread.
    ("uwsgi_worker_core_requests_total", Counter, CORE, of_cores, |work, _| work.requests),
    /// Requests that were answered with a file.
    ("uwsgi_worker_core_static_requests_total", Counter, CORE, of_cores, |work, _| work.static_requests),
    /// Requests that a route has answered.
    ("uwsgi_worker_core_routed_requests_total", Counter, CORE, of_cores, |work, _| work.routed_requests),
    /// Always 0.
    ("uwsgi_worker_core_offloaded_requests_total", Counter, CORE, of_cores, |_, _| 0),
    /// Clients that have disconnected, or not read their response in time.
    ("uwsgi_worker_core_write_errors_total", Counter, CORE, of_cores, |work, _| work.write_errors),
    /// Request bodies that were incomplete.
    ("uwsgi_worker_core_read_errors_total", Counter, CORE, of_cores, |work, _| work.read_errors),
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

fn of_workers(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&WorkerFacts) -> Number<'static>) {
    for worker in &facts.snapshot.workers {
        samples(&[&worker.number.to_string()], number(worker));
    }
}

fn of_cores(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&Work, u64) -> u64) {
    for worker in &facts.snapshot.workers {
        for (place, core) in worker.cores.iter().enumerate() {
            samples(&[&worker.number.to_string(), &place.to_string()], number(&core.work, core.in_request()).into());
        }
    }
}

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
