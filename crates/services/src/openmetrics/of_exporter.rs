//! The families of uwsgi-exporter, with its names, labels and units, so that dashboards and alerts made for it work. Its label
//! `stats_uri` is missing: Prometheus adds `instance`. The master runs it.

use bolide_scoreboard::Work;

use super::family::FamilyKind::{Counter, Gauge, Unknown};
use super::family::{Facts, Family, Number, Samples, seconds};
use crate::statistics::{CacheFacts, SocketFacts, WorkerFacts};

const WORKER: &[&str] = &["worker_id"];
const APPLICATION: &[&str] = &["worker_id", "app_id", "mountpoint", "chdir"];
const CORE: &[&str] = &["worker_id", "core_id"];
const SOCKET: &[&str] = &["name", "proto"];
const CACHE: &[&str] = &["name"];

/// A row.
macro_rules! family {
    ($name:literal, $kind:ident, $labels:expr, $help:literal, $write:expr) => {
        Family { name: $name, kind: $kind, labels: $labels, help: $help, write: $write }
    };
}

#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    family!("uwsgi_listen_queue_length", Gauge, &[], "Connections in the fullest accept queue.", |facts, samples| samples(&[], facts.snapshot.queue().into())),
    family!("uwsgi_listen_queue_errors", Unknown, &[], "Checks that found an accept queue full.", |facts, samples| samples(&[], facts.snapshot.queue_errors.into())),
    family!("uwsgi_signal_queue_length", Gauge, &[], "Signals of uWSGI's that wait for any worker.", |facts, samples| samples(&[], facts.snapshot.signal_queue.into())),
    family!("uwsgi_workers", Gauge, &[], "Workers of the configuration.", |facts, samples| samples(&[], (facts.snapshot.workers.len() as u64).into())),
    family!("uwsgi_socket_queue_length", Gauge, SOCKET, "Connections in the accept queue of a socket.", |facts, samples| of_sockets(facts, samples, |socket| socket.queue)),
    family!("uwsgi_socket_max_queue_length", Gauge, SOCKET, "Connections that the accept queue of a socket holds.", |facts, samples| of_sockets(facts, samples, |socket| socket.queue_most)),
    family!("uwsgi_socket_shared", Gauge, SOCKET, "Always 0.", |facts, samples| of_sockets(facts, samples, |_| 0)),
    family!("uwsgi_socket_can_offload", Gauge, SOCKET, "Always 0.", |facts, samples| of_sockets(facts, samples, |_| 0)),
    family!("uwsgi_worker_accepting", Gauge, WORKER, "Whether the worker accepts connections.", |facts, samples| of_workers(facts, samples, |worker| worker.is_accepting.into())),
    family!("uwsgi_worker_delta_requests", Gauge, WORKER, "Requests of the present process of the worker.", |facts, samples| of_workers(facts, samples, |worker| worker.requests_since_spawn.into())),
    family!("uwsgi_worker_signal_queue_length", Gauge, WORKER, "Signals of uWSGI's that wait for this worker.", |facts, samples| of_workers(facts, samples, |worker| worker.signal_queue.into())),
    family!("uwsgi_worker_rss_bytes", Gauge, WORKER, "Resident memory of the worker; pages that workers share count in each.", |facts, samples| of_workers(facts, samples, |worker| worker.resident_bytes.into())),
    family!("uwsgi_worker_vsz_bytes", Gauge, WORKER, "Address space of the worker.", |facts, samples| of_workers(facts, samples, |worker| worker.address_space_bytes.into())),
    family!("uwsgi_worker_running_time_seconds", Gauge, WORKER, "Time that the worker's requests took, added up.", |facts, samples| of_workers(facts, samples, |worker| seconds(worker.work().busy_us).into())),
    family!("uwsgi_worker_last_spawn_time_seconds", Gauge, WORKER, "Start of the worker's present process, in seconds since 1970.", |facts, samples| of_workers(facts, samples, |worker| worker.last_spawn_s.into())),
    family!("uwsgi_worker_average_response_time_seconds", Gauge, WORKER, "Moving average of the response time, in which the last request counts one half.", |facts, samples| of_workers(facts, samples, |worker| seconds(worker.average_us).into())),
    family!("uwsgi_worker_apps", Gauge, WORKER, "Applications of the worker.", |facts, samples| of_workers(facts, samples, |_| (facts.snapshot.applications.len() as u64).into())),
    family!("uwsgi_worker_cores", Gauge, WORKER, "Threads of the worker.", |facts, samples| of_workers(facts, samples, |worker| (worker.cores.len() as u64).into())),
    family!("uwsgi_worker_requests_total", Counter, WORKER, "Requests that the worker has answered.", |facts, samples| of_workers(facts, samples, |worker| worker.work().requests.into())),
    family!("uwsgi_worker_exceptions_total", Counter, WORKER, "Uncaught exceptions of applications.", |facts, samples| of_workers(facts, samples, |worker| worker.work().exceptions().into())),
    family!("uwsgi_worker_harakiri_count_total", Counter, WORKER, "Processes of the worker that harakiri has killed.", |facts, samples| of_workers(facts, samples, |worker| worker.harakiri_count.into())),
    family!("uwsgi_worker_signals_total", Counter, WORKER, "Calls of handlers of uWSGI's signals.", |facts, samples| of_workers(facts, samples, |worker| worker.signals.into())),
    family!("uwsgi_worker_respawn_count_total", Counter, WORKER, "Processes that have had this worker's number.", |facts, samples| of_workers(facts, samples, |worker| worker.spawn_count.into())),
    family!("uwsgi_worker_transmitted_bytes_total", Counter, WORKER, "Bytes of responses.", |facts, samples| of_workers(facts, samples, |worker| worker.work().sent_bytes.into())),
    family!("uwsgi_worker_busy", Gauge, WORKER, "Whether the worker serves a request.", |facts, samples| of_workers(facts, samples, |worker| (worker.status() == "busy").into())),
    family!("uwsgi_worker_idle", Gauge, WORKER, "Whether the worker waits for requests.", |facts, samples| of_workers(facts, samples, |worker| (worker.status() == "idle").into())),
    family!("uwsgi_worker_cheap", Gauge, WORKER, "Whether the worker has no process at present.", |facts, samples| of_workers(facts, samples, |worker| (worker.status() == "cheap").into())),
    family!("uwsgi_worker_app_startup_time_seconds", Gauge, APPLICATION, "Time that the application took to load, in whole seconds.", |facts, samples| of_applications(facts, samples, |worker, _, _| worker.load_s)),
    family!("uwsgi_worker_app_requests_total", Counter, APPLICATION, "Requests of an application; those of the eighth and further ones are counted together.", |facts, samples| of_applications(facts, samples, |_, work, place| work.applications[place].requests)),
    family!("uwsgi_worker_app_exceptions_total", Counter, APPLICATION, "Uncaught exceptions of an application.", |facts, samples| of_applications(facts, samples, |_, work, place| work.applications[place].exceptions)),
    family!("uwsgi_worker_core_busy", Gauge, CORE, "Requests that the thread serves.", |facts, samples| of_cores(facts, samples, |_, busy| busy)),
    family!("uwsgi_worker_core_requests_total", Counter, CORE, "Requests of the thread.", |facts, samples| of_cores(facts, samples, |work, _| work.requests)),
    family!("uwsgi_worker_core_static_requests_total", Counter, CORE, "Requests that were answered with a file.", |facts, samples| of_cores(facts, samples, |work, _| work.static_requests)),
    family!("uwsgi_worker_core_routed_requests_total", Counter, CORE, "Requests that a route has answered.", |facts, samples| of_cores(facts, samples, |work, _| work.routed_requests)),
    family!("uwsgi_worker_core_offloaded_requests_total", Counter, CORE, "Always 0.", |facts, samples| of_cores(facts, samples, |_, _| 0)),
    family!("uwsgi_worker_core_write_errors_total", Counter, CORE, "Clients that have disconnected, or not read their response in time.", |facts, samples| of_cores(facts, samples, |work, _| work.write_errors)),
    family!("uwsgi_worker_core_read_errors_total", Counter, CORE, "Request bodies that were incomplete.", |facts, samples| of_cores(facts, samples, |work, _| work.read_errors)),
    family!("uwsgi_cache_hits", Unknown, CACHE, "Reads of a cache that found their item.", |facts, samples| of_caches(facts, samples, |cache| cache.hits)),
    family!("uwsgi_cache_misses", Unknown, CACHE, "Reads of a cache that found nothing.", |facts, samples| of_caches(facts, samples, |cache| cache.misses)),
    family!("uwsgi_cache_full", Unknown, CACHE, "Items that found a cache full.", |facts, samples| of_caches(facts, samples, |cache| cache.full)),
    family!("uwsgi_cache_items", Gauge, CACHE, "Items in a cache.", |facts, samples| of_caches(facts, samples, |cache| cache.items)),
    family!("uwsgi_cache_max_items", Gauge, CACHE, "Items that a cache holds.", |facts, samples| of_caches(facts, samples, |cache| cache.items_most)),
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

fn of_sockets(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&SocketFacts) -> u32) {
    let sockets = &facts.snapshot.sockets;
    for (place, socket) in sockets.iter().enumerate() {
        // A series must not appear twice. As in the exporter, the first socket of a name counts.
        let is_again = sockets[..place].iter().any(|other| (&other.name, &other.protocol) == (&socket.name, &socket.protocol));
        if !is_again {
            samples(&[&socket.name, &socket.protocol], number(socket).into());
        }
    }
}

fn of_caches(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&CacheFacts) -> u64) {
    for cache in &facts.snapshot.caches {
        samples(&[&cache.name], number(cache).into());
    }
}
