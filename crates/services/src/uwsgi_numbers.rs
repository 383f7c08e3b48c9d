//! uWSGI's numbers. Each is a row: its key in the JSON of `stats`, its name for the pushers, its family in uwsgi-exporter, and
//! its value. A dash says that an output does not have it. The tables have the order of the JSON. It does not know the formats
//! of outputs. The master runs it.

use bolide_comments::texts;

use crate::family::FamilyKind::{Counter, Gauge, Unknown};
use crate::family::{Facts, Family, Number, Samples, of_sockets};
use crate::statistics::{CoreFacts, Snapshot, SocketFacts, WorkerFacts};

pub const WORKER_LABELS: &[&str] = &["worker_id"];
const CORE_LABELS: &[&str] = &["worker_id", "core_id"];
const SOCKET_LABELS: &[&str] = &["name", "proto"];

/// A number or a text of a thing that an instance has.
pub struct Row<T: 'static> {
    pub key: Option<&'static str>,
    /// `bolide_contract::metric_list` has its kind.
    pub metric: Option<&'static str>,
    pub family: Option<Family>,
    pub value: Source<T>,
}

/// Where the value of a row comes from.
pub enum Source<T: 'static> {
    Number(fn(&T) -> Number<'static>),
    /// Only the JSON has texts.
    Text(fn(&T) -> &str),
}

/// A table of rows, after the function that writes a sample for each thing, and the labels of these. The comment above a row is
/// the help of its family.
macro_rules! rows {
    ($each:ident, $labels:expr; $($(#[doc = $line:literal])* ($key:tt, $metric:tt, $family:tt, $value:expr)),* $(,)?) => {
        &[$(Row {
            key: rows!(@name $key),
            metric: rows!(@name $metric),
            family: rows!(@family $family, $each, $labels, $value, texts!($(#[doc = $line])*).help),
            value: rows!(@value $metric, $value),
        }),*]
    };
    (@name -) => { None };
    (@name text) => { None };
    (@name $name:literal) => { Some($name) };
    (@family -, $($rest:tt)*) => { None };
    (@family ($kind:ident, $name:literal), $each:ident, $labels:expr, $value:expr, $help:expr) => {
        Some(Family {
            name: $name,
            kind: $kind,
            labels: $labels,
            help: $help,
            write: |facts, samples| $each(facts, samples, $value),
        })
    };
    (@value text, $value:expr) => { Source::Text($value) };
    (@value $metric:tt, $value:expr) => { Source::Number($value) };
}

pub const INSTANCE: &[Row<Snapshot>] = rows![of_instance, &[];
    ("version", text, -, |instance| &instance.version),
    /// Connections in the fullest accept queue.
    ("listen_queue", -, (Gauge, "uwsgi_listen_queue_length"), |instance| instance.queue().into()),
    /// Checks that found an accept queue full.
    ("listen_queue_errors", -, (Unknown, "uwsgi_listen_queue_errors"), |instance| instance.queue_errors.into()),
    /// Signals of uWSGI's that wait for any worker.
    ("signal_queue", -, (Gauge, "uwsgi_signal_queue_length"), |instance| instance.signal_queue.into()),
    ("load", -, -, |instance| instance.queue().into()),
    ("pid", -, -, |instance| instance.pid.into()),
    ("uid", -, -, |instance| instance.uid.into()),
    ("gid", -, -, |instance| instance.gid.into()),
    ("cwd", text, -, |instance| &instance.cwd),
    /// Workers of the configuration.
    (-, -, (Gauge, "uwsgi_workers"), |instance| (instance.workers.len() as u64).into()),
];

pub const SOCKET: &[Row<SocketFacts>] = rows![of_sockets, SOCKET_LABELS;
    ("name", text, -, |socket| &socket.name),
    ("proto", text, -, |socket| &socket.protocol),
    /// Connections in the accept queue of a socket.
    ("queue", "listen_queue", (Gauge, "uwsgi_socket_queue_length"), |socket| socket.queue.into()),
    /// Connections that the accept queue of a socket holds.
    ("max_queue", -, (Gauge, "uwsgi_socket_max_queue_length"), |socket| socket.queue_most.into()),
    /// Always 0.
    ("shared", -, (Gauge, "uwsgi_socket_shared"), |_| 0u64.into()),
    /// Always 0.
    ("can_offload", -, (Gauge, "uwsgi_socket_can_offload"), |_| 0u64.into()),
];

pub const WORKER: &[Row<WorkerFacts>] = rows![of_workers, WORKER_LABELS;
    ("id", -, -, |worker| worker.number.into()),
    ("pid", -, -, |worker| worker.pid.into()),
    /// Whether the worker accepts connections.
    ("accepting", -, (Gauge, "uwsgi_worker_accepting"), |worker| worker.is_accepting.into()),
    /// Requests that the worker has answered.
    ("requests", "requests", (Counter, "uwsgi_worker_requests_total"), |worker| worker.work().requests.into()),
    /// Requests of the present process of the worker.
    ("delta_requests", "delta_requests", (Gauge, "uwsgi_worker_delta_requests"), |worker| worker.requests_since_spawn.into()),
    /// Uncaught exceptions of applications.
    ("exceptions", -, (Counter, "uwsgi_worker_exceptions_total"), |worker| worker.work().exceptions().into()),
    /// Processes of the worker that harakiri has killed.
    ("harakiri_count", -, (Counter, "uwsgi_worker_harakiri_count_total"), |worker| worker.harakiri_count.into()),
    /// Calls of handlers of uWSGI's signals.
    ("signals", -, (Counter, "uwsgi_worker_signals_total"), |worker| worker.signals.into()),
    /// Signals of uWSGI's that wait for this worker.
    ("signal_queue", -, (Gauge, "uwsgi_worker_signal_queue_length"), |worker| worker.signal_queue.into()),
    ("status", text, -, |worker| worker.status()),
    /// Resident memory of the worker. Pages that workers share count in each.
    ("rss", "rss_size", (Gauge, "uwsgi_worker_rss_bytes"), |worker| worker.resident_bytes.into()),
    /// Address space of the worker.
    ("vsz", "vsz_size", (Gauge, "uwsgi_worker_vsz_bytes"), |worker| worker.address_space_bytes.into()),
    /// Time that the worker's requests took, added up.
    ("running_time", "running_time", (Gauge, "uwsgi_worker_running_time_seconds"),
        |worker| Number::Microseconds(worker.work().busy_us)),
    /// Start of the worker's present process, in seconds since 1970.
    ("last_spawn", -, (Gauge, "uwsgi_worker_last_spawn_time_seconds"), |worker| worker.last_spawn_s.into()),
    /// Processes that have had this worker's number.
    ("respawn_count", "respawns", (Counter, "uwsgi_worker_respawn_count_total"), |worker| worker.spawn_count.into()),
    /// Bytes of responses.
    ("tx", "total_tx", (Counter, "uwsgi_worker_transmitted_bytes_total"), |worker| worker.work().sent_bytes.into()),
    /// Moving average of the response time, in which the last request counts one half.
    ("avg_rt", "avg_response_time", (Gauge, "uwsgi_worker_average_response_time_seconds"),
        |worker| Number::Microseconds(worker.average_us)),
];

pub const CORE: &[Row<CoreFacts>] = rows![of_cores, CORE_LABELS;
    /// Requests of the thread.
    ("requests", "requests", (Counter, "uwsgi_worker_core_requests_total"), |core| core.work.requests.into()),
    /// Requests that were answered with a file.
    ("static_requests", "static_requests", (Counter, "uwsgi_worker_core_static_requests_total"),
        |core| core.work.static_requests.into()),
    /// Requests that a route has answered.
    ("routed_requests", "routed_requests", (Counter, "uwsgi_worker_core_routed_requests_total"),
        |core| core.work.routed_requests.into()),
    /// Always 0.
    ("offloaded_requests", "offloaded_requests", (Counter, "uwsgi_worker_core_offloaded_requests_total"), |_| 0u64.into()),
    /// Clients that have disconnected, or not read their response in time.
    ("write_errors", "write_errors", (Counter, "uwsgi_worker_core_write_errors_total"), |core| core.work.write_errors.into()),
    /// Request bodies that were incomplete.
    ("read_errors", "read_errors", (Counter, "uwsgi_worker_core_read_errors_total"), |core| core.work.read_errors.into()),
    (-, "exceptions", -, |core| core.work.exceptions().into()),
    /// Requests that the thread serves.
    ("in_request", -, (Gauge, "uwsgi_worker_core_busy"), |core| core.in_request().into()),
];

/// The value of the row with this name for the pushers. `None`: there is no such row.
pub fn metric<T>(rows: &[Row<T>], name: &str, of: &T) -> Option<u64> {
    match rows.iter().find(|row| row.metric == Some(name))?.value {
        Source::Number(number) => Some(number(of).whole()),
        Source::Text(_) => None,
    }
}

fn of_instance(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&Snapshot) -> Number<'static>) {
    samples(&[], number(&facts.snapshot));
}

pub fn of_workers(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&WorkerFacts) -> Number<'static>) {
    for worker in &facts.snapshot.workers {
        samples(&[&worker.number.to_string()], number(worker));
    }
}

fn of_cores(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&CoreFacts) -> Number<'static>) {
    for worker in &facts.snapshot.workers {
        for (place, core) in worker.cores.iter().enumerate() {
            samples(&[&worker.number.to_string(), &place.to_string()], number(core));
        }
    }
}
