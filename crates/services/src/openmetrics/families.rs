//! The families that uwsgi-exporter does not have: what Bolide knows of its requests and of itself. The master runs it.

use bolide_scoreboard::bulkheads::BulkheadCounts;
use bolide_scoreboard::census::{ConnectionKind, STATES};
use bolide_scoreboard::histogram::Distribution;
use bolide_scoreboard::meters::{GroupWork, MAX_GROUPS, TlsFailure};
use bolide_scoreboard::{Cancelled, SessionResult, Work};

use crate::family::FamilyKind::{Counter, Gauge, Histogram};
use crate::family::{Facts, Family, Number, Samples, families, of_sockets, one};

use crate::statistics::{AdmissionFacts, CoreFacts, LogFacts, SpanCounts, WorkerFacts};

/// The names of the classes of statuses.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

pub const FAMILIES: &[Family] = families![
    /// Always 1, with the version as its label.
    ("bolide_info", Gauge, &["version"], |facts, samples| samples(&[&facts.snapshot.version], true.into())),
    /// Requests by the class of their status, where `none` had no response.
    ("bolide_requests_total", Counter, &["status"], requests),
    /// Time from the head of a request to the end of its response, except for WebSockets.
    ("bolide_request_duration_seconds", Histogram, &[], one, |facts| Number::Durations(&facts.measured.latency)),
    /// Time from the reverse proxy's receipt of a request, by its header X-Request-Start, to its head here. Of HTTP peers,
    /// `trusted-proxies` count.
    ("bolide_request_waiting_seconds", Histogram, &[], if_any, |facts| &facts.measured.waiting),
    /// Waits of a thread for the GIL before it began or went on with a request. Waits within the application are not in it.
    ("bolide_gil_wait_seconds", Histogram, &[], one, |facts| Number::Durations(&facts.measured.language_waits)),
    /// Collections of CPython's garbage collector, in which a worker can't serve.
    ("bolide_gc_pause_seconds", Histogram, &[], one, |facts| Number::Durations(&facts.measured.collections)),
    /// Collections by generation.
    ("bolide_gc_collections_total", Counter, &["generation"], |facts, samples| {
        for (generation, count) in facts.measured.collected.into_iter().enumerate() {
            samples(&[&generation.to_string()], count.into());
        }
    }),
    /// Complete TLS handshakes.
    ("bolide_tls_handshakes_total", Counter, &[],
        |facts, samples| if has_tls(facts) { samples(&[], facts.measured.tls_handshakes.into()) }),
    /// Failed TLS handshakes: the client speaks `plain_http`, or something that is `not_tls`; it `left` before the end, or took
    /// too long (`timeout`); `nothing_in_common` is a version, cipher suite, key exchange, signature or ALPN protocol; the
    /// `client_certificate` is missing or refused; the client refuses the `server_certificate`; or `other`.
    ("bolide_tls_handshake_failures_total", Counter, &["reason"], tls_failures),
    /// Requests of each `route-group`, by the class of their status.
    ("bolide_route_requests_total", Counter, &["route", "status"], routes),
    /// Time that the requests of each `route-group` took, added up.
    ("bolide_route_seconds_total", Counter, &["route"],
        |facts, samples| of_routes(facts, |_, name, work| samples(&[name], Number::Microseconds(work.busy_us)))),
    /// Time from the head of a request to the end of its response in each `route-group`, except for WebSockets. Natively it has
    /// two buckets for each doubling.
    ("bolide_route_duration_seconds", Histogram, &["route"], |facts, samples| {
        let durations = &facts.measured.group_durations;
        of_routes(facts, |place, name, work| {
            durations.get(place).iter().for_each(|counts| samples(&[name], Number::CoarseDurations(counts, work.busy_us)));
        });
    }),
    /// Delay of the event loop of an asynchronous application, measured four times per `loop-stall`.
    ("bolide_loop_lag_seconds", Histogram, &[], if_any, |facts| &facts.measured.loop_lag),
    /// Time that connections have waited in the accept queue for a worker, or the first data of their request if it came later.
    /// TCP alone, in ticks of the kernel, usually 4 ms.
    ("bolide_accept_wait_seconds", Histogram, &[], if_any, |facts| &facts.measured.accept_waits),
    /// Requests that are served at present, WebSockets included.
    ("bolide_requests_in_progress", Gauge, &[], one, |facts| cores(facts).map(CoreFacts::in_request).sum::<u64>().into()),
    /// Uncaught exceptions of applications.
    ("bolide_exceptions_total", Counter, &[], one, |facts| sum(facts, |work| work.exceptions()).into()),
    /// Requests with a status of 500 and above, or whose response was aborted by an exception.
    ("bolide_failed_requests_total", Counter, &[], one, |facts| sum(facts, |work| work.errors).into()),
    /// Clients that have left or were too slow: `read` while they sent a request, `write` before they had read the response.
    ("bolide_client_errors_total", Counter, &["direction"], client_errors),
    /// Bytes of responses, with their heads.
    ("bolide_sent_bytes_total", Counter, &[], one, |facts| sum(facts, |work| work.sent_bytes).into()),
    /// Requests with `sticky`: served `here` by the worker that has their session, `moved` to it with their connection, `relayed`
    /// to it, by the worker that has `learned` their session from them, or `not_moved` to the worker that has it because that
    /// was not possible.
    ("bolide_sticky_requests_total", Counter, &["result"], sticky),
    /// Requests of each `bulkhead` that the application has at present.
    ("bolide_bulkhead_requests_in_flight", Gauge, &["name"],
        |facts, samples| of_bulkheads(facts, |name, counts| samples(&[name], counts.in_flight.into()))),
    /// Requests of each `bulkhead` that wait for others to end.
    ("bolide_bulkhead_requests_waiting", Gauge, &["name"],
        |facts, samples| of_bulkheads(facts, |name, counts| samples(&[name], counts.waiting.into()))),
    /// Requests of each `bulkhead` that were handed to the application.
    ("bolide_bulkhead_passed_total", Counter, &["name"],
        |facts, samples| of_bulkheads(facts, |name, counts| samples(&[name], counts.passed.into()))),
    /// Requests of each `bulkhead` that got 503: the `queue` was full, or they had waited for as long as `wait` allows.
    ("bolide_bulkhead_rejected_total", Counter, &["name", "reason"], |facts, samples| {
        of_bulkheads(facts, |name, counts| {
            samples(&[name, "queue"], counts.refused_at_once.into());
            samples(&[name, "wait"], counts.refused_later.into());
        });
    }),
    /// Requests with `cancel-on-disconnect` whose clients had left before the response was complete: `running` in the
    /// application, which was cancelled, or `waiting`, and never begun.
    ("bolide_cancelled_requests_total", Counter, &["state"], cancelled),
    /// Requests that `admission` has refused because they had waited too long, or too many waited. They are not among
    /// `bolide_requests_total`.
    ("bolide_admission_rejected_total", Counter, &[],
        |facts, samples| of_admission(facts, samples, |admission| Some(admission.rejected.into()))),
    /// Requests that may wait for a thread with `admission`, so that the last one begins in time. Absent while the capacity is
    /// not known.
    ("bolide_admission_limit_requests", Gauge, &[],
        |facts, samples| of_admission(facts, samples, |admission| admission.limit.map(Number::from))),
    /// Requests that wait for a thread: connections in the accept queues, and with a request on a connection of a busy worker.
    ("bolide_admission_waiting_requests", Gauge, &[],
        |facts, samples| of_admission(facts, samples, |admission| Some(admission.waiting.into()))),
    /// How long a request keeps a thread or greenlet, as the moving average by which `admission` computes its limit.
    ("bolide_admission_service_seconds", Gauge, &[],
        |facts, samples| of_admission(facts, samples, |admission| admission.service_us.map(Number::Microseconds))),
    /// Workers by state, where `cheap` ones have no process at present.
    ("bolide_workers", Gauge, &["state"], workers),
    /// Threads of workers by state.
    ("bolide_threads", Gauge, &["state"], threads),
    /// Connections that a worker holds open.
    ("bolide_connections", Gauge, &["worker"], of_living, |worker| Some(worker.connections.into())),
    /// Connections of a worker: `new` ones have sent nothing of a request yet, `reading` is for the rest of one, in `request` the
    /// application has it, `writing` waits for the client to read, `idle` is kept alive, `closing` awaits the client's end.
    /// Counted at most once a second.
    ("bolide_connections_by_state", Gauge, &["worker", "state", "protocol", "tls"], by_state),
    /// Connections in the accept queue of a socket, for which no worker was free yet.
    ("bolide_backlog_connections", Gauge, &["socket", "protocol"], of_sockets, |socket| socket.queue.into()),
    /// Connections that the accept queue of a socket holds.
    ("bolide_backlog_limit_connections", Gauge, &["socket", "protocol"], of_sockets, |socket| socket.queue_most.into()),
    /// Checks that found an accept queue full.
    ("bolide_backlog_full_total", Counter, &[], one, |facts| facts.snapshot.queue_errors.into()),
    /// Resident memory of a worker. Pages that workers share count in each.
    ("bolide_worker_resident_memory_bytes", Gauge, &["worker"], of_living, |worker| Some(worker.resident_bytes.into())),
    /// Memory of a worker, with shared pages divided by the number of processes that share them (PSS). The sum over the workers
    /// is what they need together. Measured at most every 15 s.
    ("bolide_worker_proportional_memory_bytes", Gauge, &["worker"],
        of_living, |worker| worker.proportional_bytes.map(Number::from)),
    /// Memory of a worker that no other process shares (USS). Measured at most every 15 s.
    ("bolide_worker_private_memory_bytes", Gauge, &["worker"],
        of_living, |worker| worker.private_bytes.map(Number::from)),
    /// Workers that were to become the prototype of their generation (`refork-after`): `done`, or `failed`, mostly because their
    /// application held what processes can't share.
    ("bolide_reforks_total", Counter, &["result"], reforks),
    /// Exited workers: `ordered` by a reload, a limit of requests or fewer workers, `harakiri`, `memory` (a limit),
    /// `late` (not begun or ended in time), `signal`, `exit` (by themselves), `other`.
    ("bolide_worker_ends_total", Counter, &["cause"],
        |facts, samples| facts.snapshot.worker_ends.iter().for_each(|(cause, count)| samples(&[cause], (*count).into()))),
    /// Workers that have started.
    ("bolide_worker_starts_total", Counter, &[],
        one, |facts| facts.snapshot.workers.iter().map(|worker| worker.spawn_count).sum::<u64>().into()),
    /// Reloads that have ended: `done`, or `failed`, after which the old code serves. The cause is a `signal`, a `command` such
    /// as `bolide reload`, the master's `fifo`, a file of a `touch-` option, a `change` of the code or of a watched file, the
    /// `application` by uwsgi.reload(), or an `upgrade`, which the new master counts if it is done.
    ("bolide_reloads_total", Counter, &["cause", "outcome"], reloads),
    /// End of the last reload, in seconds since 1970.
    ("bolide_last_reload_timestamp_seconds", Gauge, &[],
        |facts, samples| facts.snapshot.reloads.last.iter().for_each(|last| samples(&[], last.at_s.into()))),
    /// 1 while the instance waits for load balancers before it stops (`drain-delay`), else 0.
    ("bolide_leaving", Gauge, &[], one, |facts| facts.snapshot.is_leaving.into()),
    /// Spans of `otlp`: `exported` ones are at the collector, it did not take `failed` ones, and `dropped` ones were never sent
    /// because too many waited.
    ("bolide_spans_total", Counter, &["result"], |facts, samples| {
        let counts = facts.snapshot.spans.into_iter().flat_map(SpanCounts::by_result);
        counts.for_each(|(result, count)| samples(&[result], count.into()));
    }),
    /// Lines that a log did not receive: it did not take them, or was out of reach for too long.
    ("bolide_log_lost_lines_total", Counter, &["log"], of_logs, |log| log.lost),
    /// 1 if lines arrive at a log, 0 if they wait because it is out of reach.
    ("bolide_log_reachable", Gauge, &["log"], of_logs, |log| log.absence.is_none().into()),
    /// Messages of channels: `published` ones, those that were `delivered` to the inbox of a process that listens, which count
    /// for each process, and those that a process `missed` because its inbox was full. If `publish` has an `engine`, also those
    /// that were `sent` to its server, `unsent` ones, which did not reach it, and those that were `received` from other
    /// instances, which count for each process.
    ("bolide_publish_messages_total", Counter, &["result"], |facts, samples| {
        if let Some(counts) = facts.snapshot.messages {
            let by_result = [("published", counts.published), ("delivered", counts.delivered), ("missed", counts.missed)];
            by_result.into_iter().for_each(|(result, count)| samples(&[result], count.into()));
            if let Some(remote) = counts.remote {
                let by_result = [("sent", remote.sent), ("unsent", remote.unsent), ("received", remote.received)];
                by_result.into_iter().for_each(|(result, count)| samples(&[result], count.into()));
            }
        }
    }),
    /// How often a process that listens has lost its connection to the server of `publish` with `engine`.
    ("bolide_publish_interruptions_total", Counter, &[], |facts, samples| {
        let remote = facts.snapshot.messages.and_then(|counts| counts.remote);
        remote.into_iter().for_each(|remote| samples(&[], remote.interruptions.into()));
    }),
    /// Processes that listen to channels.
    ("bolide_publish_listeners", Gauge, &[],
        |facts, samples| facts.snapshot.messages.iter().for_each(|counts| samples(&[], counts.listeners.into()))),
    /// Reads of a cache that processes share.
    ("bolide_cache_requests_total", Counter, &["cache", "result"], caches),
    /// Items in a cache.
    ("bolide_cache_items", Gauge, &["cache"],
        |facts, samples| facts.snapshot.caches.iter().for_each(|cache| samples(&[&cache.name], cache.items.into()))),
    /// Requests that a rate limit has refused (429), or has let pass uncounted because its table was full of clients that have
    /// reached the limit.
    ("bolide_rate_limit_requests_total", Counter, &["limit", "result"], |facts, samples| {
        for limit in &facts.snapshot.rate_limits {
            samples(&[&limit.name, "refused"], limit.refused.into());
            samples(&[&limit.name, "uncounted"], limit.uncounted.into());
        }
    }),
];

/// Writes a histogram that has counted something.
fn if_any(facts: &Facts, samples: &mut Samples<'_>, durations: impl Fn(&Facts) -> &Distribution) {
    if durations(facts).count() > 0 {
        samples(&[], Number::Durations(durations(facts)));
    }
}

fn of_logs(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&LogFacts) -> u64) {
    facts.snapshot.logs.iter().for_each(|log| samples(&[&log.name], number(log).into()));
}

fn cores(facts: &Facts) -> impl Iterator<Item = &CoreFacts> {
    facts.snapshot.workers.iter().flat_map(|worker| &worker.cores)
}

fn sum(facts: &Facts, number: impl Fn(&Work) -> u64) -> u64 {
    cores(facts).map(|core| number(&core.work)).sum()
}

fn requests(facts: &Facts, samples: &mut Samples<'_>) {
    let mut classes = [0; CLASSES.len()];
    for core in cores(facts) {
        for (sum, count) in classes.iter_mut().zip(core.work.by_class()) {
            *sum += count;
        }
    }
    for (class, count) in CLASSES.iter().zip(classes) {
        samples(&[class], count.into());
    }
}

/// Most instances have no listener with TLS, and do not get its series.
fn has_tls(facts: &Facts) -> bool {
    facts.snapshot.sockets.iter().any(|socket| matches!(socket.protocol.as_str(), "https" | "suwsgi"))
}

fn tls_failures(facts: &Facts, samples: &mut Samples<'_>) {
    if has_tls(facts) {
        let counts = TlsFailure::ALL.iter().zip(facts.measured.tls_failures);
        counts.for_each(|(reason, count)| samples(&[reason.name()], count.into()));
    }
}

/// Calls the function for each group of routes, if there are any.
fn of_routes(facts: &Facts, mut take: impl FnMut(usize, &str, &GroupWork)) {
    if facts.groups.is_empty() {
        return;
    }
    let (named, other) = facts.measured.groups.split_at(MAX_GROUPS);
    for (place, (name, work)) in facts.groups.iter().zip(named).enumerate() {
        take(place, name, work);
    }
    other.iter().for_each(|work| take(MAX_GROUPS, "other", work));
}

fn routes(facts: &Facts, samples: &mut Samples<'_>) {
    of_routes(facts, |_, name, work| {
        for (class, count) in CLASSES.iter().zip(work.classes) {
            samples(&[name, class], count.into());
        }
    });
}

/// Most instances do not have `cancel-on-disconnect`, and do not get its series.
fn cancelled(facts: &Facts, samples: &mut Samples<'_>) {
    let counts = Cancelled::ALL.map(|state| (state, sum(facts, |work| work.cancelled[state as usize])));
    if counts.iter().any(|(_, count)| *count > 0) {
        counts.into_iter().for_each(|(state, count)| samples(&[state.name()], count.into()));
    }
}

/// Most instances do not have `sticky`, and do not get its series.
fn sticky(facts: &Facts, samples: &mut Samples<'_>) {
    let counts = SessionResult::ALL.map(|result| (result, sum(facts, |work| work.sessions[result as usize])));
    if counts.iter().any(|(_, count)| *count > 0) {
        counts.into_iter().for_each(|(result, count)| samples(&[result.name()], count.into()));
    }
}

fn of_bulkheads(facts: &Facts, mut take: impl FnMut(&str, &BulkheadCounts)) {
    facts.bulkheads.iter().for_each(|(name, counts)| take(name, counts));
}

/// Writes a number of `admission`, if the instance has the option.
fn of_admission(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&AdmissionFacts) -> Option<Number<'static>>) {
    if let Some(number) = facts.snapshot.admission.as_ref().and_then(number) {
        samples(&[], number);
    }
}

fn client_errors(facts: &Facts, samples: &mut Samples<'_>) {
    samples(&["read"], sum(facts, |work| work.read_errors).into());
    samples(&["write"], sum(facts, |work| work.write_errors).into());
}

fn workers(facts: &Facts, samples: &mut Samples<'_>) {
    for state in ["busy", "idle", "pause", "cheap"] {
        let count = facts.snapshot.workers.iter().filter(|worker| worker.status() == state).count();
        samples(&[state], (count as u64).into());
    }
}

fn threads(facts: &Facts, samples: &mut Samples<'_>) {
    let living = || facts.snapshot.workers.iter().filter(|worker| worker.pid > 0).flat_map(|worker| &worker.cores);
    let busy = living().filter(|core| core.in_request() > 0).count() as u64;
    samples(&["busy"], busy.into());
    samples(&["idle"], (living().count() as u64 - busy).into());
}

/// A sample for each worker that has a process and a number.
fn of_living(facts: &Facts, samples: &mut Samples<'_>, number: impl Fn(&WorkerFacts) -> Option<Number<'static>>) {
    for worker in facts.snapshot.workers.iter().filter(|worker| worker.pid > 0) {
        if let Some(number) = number(worker) {
            samples(&[&worker.number.to_string()], number);
        }
    }
}

/// Kinds are those of the addresses, and others that some connection has.
fn by_state(facts: &Facts, samples: &mut Samples<'_>) {
    let snapshot = &facts.snapshot;
    let is_expected = |kind: ConnectionKind| {
        snapshot.sockets.iter().any(|socket| match (socket.protocol.as_str(), kind.is_tls()) {
            ("http", false) => kind.protocol() == "http/1.1",
            ("https", true) => matches!(kind.protocol(), "http/1.1" | "h2"),
            ("uwsgi" | "puwsgi", false) | ("suwsgi", true) => kind.protocol() == "uwsgi",
            (word, false) => word == kind.protocol(),
            _ => false,
        })
    };
    let living = || snapshot.workers.iter().filter(|worker| worker.pid > 0);
    let has_some = |kind| living().any(|worker| worker.census.of_kind(kind).iter().any(|count| *count > 0));
    for kind in ConnectionKind::all().filter(|kind| is_expected(*kind) || has_some(*kind)) {
        let tls = if kind.is_tls() { "yes" } else { "no" };
        for worker in living() {
            for (state, count) in STATES.iter().zip(worker.census.of_kind(kind)) {
                samples(&[&worker.number.to_string(), state, kind.protocol(), tls], count.into());
            }
        }
    }
}

fn reforks(facts: &Facts, samples: &mut Samples<'_>) {
    if let Some(counts) = facts.snapshot.reforks {
        samples(&["done"], counts.done.into());
        samples(&["failed"], counts.failed.into());
    }
}

fn reloads(facts: &Facts, samples: &mut Samples<'_>) {
    for (cause, [done, failed]) in facts.snapshot.reloads.by_cause() {
        samples(&[cause, "done"], done.into());
        samples(&[cause, "failed"], failed.into());
    }
}

fn caches(facts: &Facts, samples: &mut Samples<'_>) {
    for cache in &facts.snapshot.caches {
        samples(&[&cache.name, "hit"], cache.hits.into());
        samples(&[&cache.name, "miss"], cache.misses.into());
    }
}
