//! The status of a running instance: for the log (SIGUSR1), for clients of the control socket (`bolide status`), and the identity
//! by which such a client finds the instance. It changes nothing. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::distributed::EngineSettings;
use bolide_contract::engine_row::{EngineRow, EngineState};
use bolide_contract::settings::Settings;
use bolide_scoreboard::bulkheads::BulkheadCounts;
use bolide_scoreboard::histogram::Distribution;
use bolide_scoreboard::{Cancelled, InFlight, Row, SessionResult};
use bolide_services::statistics::{AdmissionFacts, CacheFacts, LogFacts, RateLimitFacts, Snapshot};
use bolide_supervision::log_sink;
use bolide_supervision::processes::exit_report;
use bolide_supervision::sockets::listen_queue::{ListenQueue, QueueAlarm};
use bolide_supervision::sockets::listeners::Listeners;
use bolide_supervision::sockets::sessions::needs_sessions;
use bolide_supervision::text::counted;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::children::child::Child;
use crate::statistics::generations;
use crate::statistics::view::View;

/// Writes the numbers of each child to the log.
pub fn write(view: View<'_>, snapshot: &Snapshot, now_ms: u64) {
    let serving = view.generations.serving_number().map_or("none".to_owned(), |number| number.to_string());
    let queue = snapshot.queue();
    let children = view.children.iter().count();
    log_sink::line(&format!("status: generation in service: {serving}, children: {children}, waiting connections: {queue}"));
    if view.children.is_paused() {
        log_sink::line("status: paused: new requests wait");
    }
    if let Some(canary) = view.generations.canary_in_words(view.children, now_ms) {
        log_sink::line(&format!("status: canary: {canary}"));
    }
    for child in view.children.iter() {
        let Some((row, number)) = child.row().zip(child.worker_number()) else {
            let work = child.row().map_or(String::new(), |row| {
                let in_flight = view.children.scoreboard().in_flight(row);
                if in_flight.is_empty() { String::new() } else { format!(", {}", exit_report::requests(&in_flight, now_ms)) }
            });
            log_sink::line(&format!("status: {child}: {:?}{work}", child.state));
            continue;
        };
        let in_flight = view.children.scoreboard().in_flight(row);
        let now_serving = if in_flight.is_empty() { "idle".to_owned() } else { exit_report::requests(&in_flight, now_ms) };
        let facts = snapshot
            .workers
            .iter()
            .find(|worker| worker.number == number)
            .filter(|worker| worker.pid > 0 && child.pid.is_some_and(|pid| pid.as_raw() as u32 == worker.pid));
        let requests = view.children.scoreboard().row(row).map_or(0, |row| row.requests.load(Relaxed));
        let more = facts.map_or(String::new(), |facts| {
            format!("; {}, {} MiB", counted(facts.work().exceptions(), "exception"), facts.resident_bytes / (1024 * 1024))
        });
        let (generation, requests) = (child.generation, counted(requests, "request"));
        log_sink::line(&format!("status: {child}: {:?}, generation {generation}, {requests}, {now_serving}{more}", child.state));
    }
}

/// Returns the identity, for clients that look for their instance.
pub fn identity(settings: &Settings, listeners: &Listeners) -> Value {
    let pidfiles: Vec<String> =
        bolide_supervision::files::pidfile::all(settings).map(|path| path.display().to_string()).collect();
    json!({
        "ok": true,
        "pid": Pid::this().as_raw(),
        "version": env!("CARGO_PKG_VERSION"),
        "configurations": settings.control.origin.configurations,
        "pidfiles": pidfiles,
        "fifos": settings.control.fifos,
        "directory": settings.control.origin.directory,
        "addresses": addresses(listeners),
    })
}

fn addresses(listeners: &Listeners) -> Vec<String> {
    listeners.endpoints().iter().map(|endpoint| endpoint.to_open()).collect()
}

/// Returns the answer to `bolide status`.
pub fn status(view: View<'_>, queues: &mut QueueAlarm, is_stopping: bool, now_ms: u64) -> Value {
    let phase = match (view.generations.serving(), view.generations.forming()) {
        _ if is_stopping => "stopping",
        _ if view.children.is_leaving() => "leaving",
        (None, _) => "starting",
        (Some(_), Some(_)) => "reloading",
        (Some(_), None) if view.children.is_paused() => "paused",
        (Some(_), None) => "serving",
    };
    let most_greenlets = view.provision.settings().language.greenlets();
    let mut workers: Vec<&Child> = view.children.iter().filter(|child| child.is_request_worker()).collect();
    workers.sort_by_key(|worker| (worker.worker_number(), worker.id));
    let workers: Vec<Value> = workers.into_iter().map(|child| worker(view, child, most_greenlets, now_ms)).collect();
    queues.refresh(view.provision.listeners());
    let [waiting, room] = [|queue: &ListenQueue| queue.length, |queue: &ListenQueue| queue.most]
        .map(|of| queues.queues().iter().map(|queue| u64::from(of(queue))).sum::<u64>());
    let helpers: Vec<Value> = view.children.iter().filter_map(|child| helper(view, child, now_ms)).collect();
    let attendant = |name: &'static str, (pid, born_ms, is_ending): (Pid, u64, bool)| {
        let state = if is_ending { "ending" } else { "serving" };
        json!({"name": name, "pid": pid.as_raw(), "state": state, "age_ms": now_ms.saturating_sub(born_ms)})
    };
    let exporters = view.exporters.processes().map(|process| attendant("exporter", process));
    let attendants: Vec<Value> =
        view.attendants.processes().map(|process| attendant("attendant", process)).chain(exporters).collect();
    let spans = view.exporters.counts(view.provision.settings());
    let spans = spans.map(|spans| Value::from_iter(spans.by_result()));
    let reloads = view.outcomes.reloads();
    let last_reload = reloads.last.as_ref().map(|last| json!({"at": last.at_s, "outcome": last.outcome(), "why": last.failure}));
    json!({
        "ok": true,
        "pid": Pid::this().as_raw(),
        "version": env!("CARGO_PKG_VERSION"),
        "phase": phase,
        "paused": view.children.is_paused(),
        "generation": view.generations.serving_number(),
        "addresses": addresses(view.provision.listeners()),
        "queue": {"waiting": waiting, "most": room},
        "reloads": reloads.done,
        "failed_reloads": reloads.failed,
        "last_reload": last_reload,
        "latency_seconds": quantiles(&view.measured().latency),
        "canary": view.generations.canary_in_words(view.children, now_ms),
        "generations": generations::entries(view, now_ms),
        "prototypes": prototypes(view, now_ms),
        "workers": workers,
        "helpers": helpers,
        "attendants": attendants,
        "spans": spans,
        "refused_messages": view.children.refused_messages(),
        "logs": logs(view, now_ms),
        "caches": caches(view),
        "rate_limits": rate_limits(view),
        "engines": engines(view, now_ms),
        "publish": publish(view),
        "sticky": sticky(view),
        "bulkheads": bulkheads(view),
        "cancelled": cancelled(view),
        "admission": admission(view, waiting),
        "signals": view.signaling.described(now_ms),
    })
}

/// Returns an entry for each log; `out_of_reach` says why lines wait for it, and is null if they do not.
fn logs(view: View<'_>, now_ms: u64) -> Vec<Value> {
    let facts = view.logs.facts(&view.provision.settings().logging, now_ms);
    let entry = |log: LogFacts| {
        let LogFacts { name, lost, absence, absent_ms } = log;
        json!({"name": name, "lost_lines": lost, "out_of_reach": absence, "out_of_reach_ms": absent_ms})
    };
    facts.into_iter().map(entry).collect()
}

/// Returns quantiles of durations in seconds, null if nothing was measured.
fn quantiles(latency: &Distribution) -> Value {
    json!({"p50": latency.quantile_s(0.5), "p90": latency.quantile_s(0.9), "p99": latency.quantile_s(0.99)})
}

/// Returns an entry for each prototype; `worker` is null unless a worker has become it.
fn prototypes(view: View<'_>, now_ms: u64) -> Vec<Value> {
    let entry = |prototype: &Child| {
        let origin = prototype.origin.map(|worker| json!({"number": worker.number, "pid": worker.pid.as_raw()}));
        json!({
            "pid": prototype.pid.map(Pid::as_raw),
            "generation": prototype.generation,
            "state": format!("{:?}", prototype.state).to_lowercase(),
            "age_ms": now_ms.saturating_sub(prototype.born_ms),
            "worker": origin,
        })
    };
    view.children.iter().filter(|child| child.is_prototype()).map(entry).collect()
}

/// Returns the entry of a request worker.
fn worker(view: View<'_>, worker: &Child, most_greenlets: Option<u32>, now_ms: u64) -> Value {
    let place = worker.row();
    let row = place.and_then(|place| view.children.scoreboard().row(place));
    let is_paused = worker.state.is_serving() && row.is_some_and(|row| row.paused.load(Relaxed) == 1);
    let slots = place.map(|place| view.children.scoreboard().slots(place)).unwrap_or_default();
    json!({
        "number": worker.worker_number(),
        "pid": worker.pid.map(Pid::as_raw),
        "prototype": worker.forker.map(Pid::as_raw),
        "generation": worker.generation,
        "state": if is_paused { "paused".to_owned() } else { format!("{:?}", worker.state).to_lowercase() },
        "age_ms": age_ms(row, now_ms),
        "requests": row.map_or(0, |row| row.requests.load(Relaxed)),
        "errors": slots.iter().map(|slot| slot.tally.errors.load(Relaxed)).sum::<u64>(),
        "threads": slots.iter().filter(|slot| slot.thread.load(Relaxed) > 0).count(),
        "connections": row.map_or(0, |row| row.connections.load(Relaxed)),
        "in_flight": in_flight_of(view, worker, "request", now_ms),
        "ongoing": place.map_or(0, |place| ongoing_of(view, place)),
        "greenlets": most_greenlets.map(|most| json!({"busy": row.map_or(0, |row| row.greenlets.load(Relaxed)), "most": most})),
    })
}

/// Returns the time since a child's start. `None`: it has not started yet.
fn age_ms(row: Option<&Row>, now_ms: u64) -> Option<u64> {
    let started_ms = row.map(|row| row.started_ms.load(Relaxed)).filter(|started_ms| *started_ms > 0);
    started_ms.map(|started_ms| now_ms.saturating_sub(started_ms))
}

/// Returns an entry for each cache that processes share.
fn caches(view: View<'_>) -> Vec<Value> {
    let entry = |cache: CacheFacts| {
        json!({
            "name": cache.name,
            "items": cache.items,
            "items_most": cache.items_most,
            "hits": cache.hits,
            "misses": cache.misses,
            "full": cache.full,
            "refused": cache.refused,
        })
    };
    view.provision.memories_in_force().caches().into_iter().map(entry).collect()
}

/// Returns an entry for each rate limit.
fn rate_limits(view: View<'_>) -> Vec<Value> {
    let entry = |limit: RateLimitFacts| {
        let RateLimitFacts { name, rate, burst, refused, uncounted } = limit;
        json!({"name": name, "rate": rate, "burst": burst, "refused": refused, "uncounted": uncounted})
    };
    view.provision.memories_in_force().rate_limits().into_iter().map(entry).collect()
}

/// Returns an entry for each Redis or Valkey server of the configuration.
fn engines(view: View<'_>, now_ms: u64) -> Vec<Value> {
    let entry = |(engine, row): (&EngineSettings, &EngineRow)| {
        let (state, away_ms) = match row.state(now_ms) {
            EngineState::Unused => ("unused", None),
            EngineState::Connected => ("connected", None),
            EngineState::Away { for_ms } => ("away", Some(for_ms)),
        };
        json!({
            "address": engine.shown,
            "state": state,
            "away_milliseconds": away_ms,
            "calls": row.calls.load(Relaxed),
            "failed": row.failed.load(Relaxed),
            "refused": row.refused.load(Relaxed),
        })
    };
    view.provision.memories_in_force().engines().map(entry).collect()
}

/// Returns the numbers of the messages of channels, and of those for each process that listens; null without `publish`.
fn publish(view: View<'_>) -> Value {
    let Some(inboxes) = view.provision.memories_in_force().inboxes() else { return Value::Null };
    let totals = inboxes.totals();
    let listener = |(pid, received): (u32, u64)| json!({"pid": pid, "received": received});
    let remote = view.provision.settings().services.distributed.publish_engine.map(|_| {
        json!({
            "sent": totals.sent,
            "unsent": totals.unsent,
            "received": totals.received,
            "interruptions": totals.interruptions,
        })
    });
    json!({
        "published": totals.published,
        "delivered": totals.delivered,
        "missed": totals.missed,
        "remote": remote,
        "inboxes": inboxes.count(),
        "listeners": inboxes.holders().map(listener).collect::<Vec<Value>>(),
    })
}

/// Returns the requests by where `sticky` had them served; null without the option, and if there is one worker.
fn sticky(view: View<'_>) -> Value {
    if !needs_sessions(view.provision.settings()) {
        return Value::Null;
    }
    let work = view.total_work();
    Value::from_iter(SessionResult::ALL.map(|result| (result.name(), work.sessions[result as usize])))
}

/// Returns the numbers of `admission`, with this many connections in the accept queues; null without the option.
fn admission(view: View<'_>, queued: u64) -> Value {
    view.admission(queued).map_or(Value::Null, |facts| {
        let AdmissionFacts { rejected, waiting, limit, service_us } = facts;
        json!({"rejected": rejected, "waiting": waiting, "limit": limit, "service_us": service_us})
    })
}

/// Returns an entry for each bulkhead.
fn bulkheads(view: View<'_>) -> Vec<Value> {
    let entry = |(name, counts): (String, BulkheadCounts)| {
        let BulkheadCounts { in_flight, waiting, passed, refused_at_once, refused_later } = counts;
        json!({
            "name": name,
            "in_flight": in_flight,
            "waiting": waiting,
            "passed": passed,
            "refused_by_queue": refused_at_once,
            "refused_by_wait": refused_later,
        })
    };
    view.provision.bulkheads().counts(view.provision.settings()).into_iter().map(entry).collect()
}

/// Returns the requests whose clients had left; null without `cancel-on-disconnect`.
fn cancelled(view: View<'_>) -> Value {
    if !view.provision.settings().answering.may_cancel() {
        return Value::Null;
    }
    let work = view.total_work();
    Value::from_iter(Cancelled::ALL.map(|state| (state.name(), work.cancelled[state as usize])))
}

/// Returns the entry of a helper, `None` for other children.
fn helper(view: View<'_>, child: &Child, now_ms: u64) -> Option<Value> {
    let name = child.helper_name()?;
    let row = child.row().and_then(|row| view.children.scoreboard().row(row));
    Some(json!({
        "name": name,
        "pid": child.pid.map(Pid::as_raw),
        "prototype": child.forker.map(Pid::as_raw),
        "generation": child.generation,
        "state": format!("{:?}", child.state).to_lowercase(),
        "age_ms": age_ms(row, now_ms),
        "done": row.map_or(0, |row| row.requests.load(Relaxed)),
        "in_flight": in_flight_of(view, child, "work", now_ms),
    }))
}

/// Returns the number of requests that applications keep while the worker serves others.
fn ongoing_of(view: View<'_>, row: u32) -> u64 {
    view.children.scoreboard().slots(row).iter().map(|slot| slot.tally.ongoing.load(Relaxed)).sum()
}

/// Returns what a child is working on, under this key.
fn in_flight_of(view: View<'_>, child: &Child, key: &str, now_ms: u64) -> Vec<Value> {
    let in_flight = child.row().map(|row| view.children.scoreboard().in_flight(row)).unwrap_or_default();
    let entry = |request: &InFlight| {
        let milliseconds = now_ms.saturating_sub(request.began_ms);
        json!({key: request.text, "milliseconds": milliseconds, "thread": request.thread})
    };
    in_flight.iter().map(entry).collect()
}
