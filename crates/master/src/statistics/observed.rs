//! The answers to observers at the control socket. `bolide tune` gets the settings that matter for capacity, and counters of
//! each worker since its start. `bolide trace` and `bolide profile` get the processes of the instance that run Python, and the
//! requests that their threads serve. Observers measure processes and read their memory themselves; the master never does, and
//! does not read files. The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::settings::{Settings, Threads};
use bolide_scoreboard::{InFlight, Work};
use bolide_supervision::log_sink;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::children::child::{Child, Role};
use crate::statistics::view::View;

/// Requests at a time of a worker whose application has no limit: an event loop takes all that come.
const UNLIMITED: u32 = 1000;
const MEBIBYTE: u64 = 1 << 20;

/// Returns the answer to `bolide tune`.
pub fn observed(view: View<'_>, now_ms: u64) -> Value {
    let workers: Vec<&Child> =
        view.children.iter().filter(|child| child.is_request_worker() && child.state.is_serving()).collect();
    let rows = workers.iter().filter_map(|worker| view.children.scoreboard().row(worker.row()?));
    let is_embedded = rows.map(|row| row.is_embedded.load(Relaxed)).any(|embedded| embedded == 1);
    json!({
        "ok": true,
        "pid": Pid::this().as_raw(),
        "version": env!("CARGO_PKG_VERSION"),
        "now_ms": now_ms,
        "configurations": view.provision.settings().control.origin.configurations,
        "settings": settings(view.provision.settings(), is_embedded),
        "workers": workers.iter().map(|worker| worker_entry(view, worker)).collect::<Vec<_>>(),
    })
}

/// Returns the answer to `bolide trace` and `bolide profile`.
pub fn traced(view: View<'_>, now_ms: u64) -> Value {
    let processes: Vec<Value> = view.children.iter().filter_map(|child| process_entry(view, child, now_ms)).collect();
    json!({
        "ok": true,
        "pid": Pid::this().as_raw(),
        "version": env!("CARGO_PKG_VERSION"),
        "scoreboard": view.provision.scoreboard_place(),
        "processes": processes,
    })
}

/// Asks the processes to let this one read their memory, where the kernel wants their permission.
pub fn allow_reader(view: View<'_>, reader: i32) {
    let permit = view.provision.reader_permit();
    let asked = view.children.iter().filter_map(|child| child.handle.as_ref().zip(child.pid));
    let count = asked.filter(|(handle, pid)| permit.ask(handle, *pid, reader)).count();
    log_sink::line(&format!("control socket: process {reader} may read the memory of workers and mules ({count} asked)"));
}

fn settings(settings: &Settings, is_embedded: bool) -> Value {
    let greenlets = settings.language.greenlets();
    let at_a_time = match is_embedded {
        true => greenlets.or(settings.asynchronous.concurrency).unwrap_or(UNLIMITED),
        false => settings.workers.threads.most(),
    };
    let measures_time = settings.logging.may_log_requests() || settings.statistics.has_reader() || settings.scaling.weighs_time();
    json!({
        "cpus": settings.workers.cpus,
        "processes": settings.workers.processes,
        "threads": at_a_time,
        "threads_vary": settings.workers.threads == Threads::Auto,
        "has_event_loop": is_embedded,
        "listen": settings.listeners.iter().map(|listener| listener.backlog).min(),
        "harakiri_ms": settings.lifecycle.harakiri_ms,
        "cheaper": settings.scaling.cheaper.as_ref().map(|cheaper| cheaper.least),
        "measures_time": measures_time,
        "reload_on_rss_mib": settings.recycling.memory.resident.map(|bytes| bytes / MEBIBYTE),
    })
}

fn worker_entry(view: View<'_>, worker: &Child) -> Value {
    let scoreboard = view.children.scoreboard();
    let row = worker.row().and_then(|row| scoreboard.row(row));
    let work: Work = worker.row().map(|row| scoreboard.work(row).sum()).unwrap_or_default();
    json!({
        "number": worker.worker_number(),
        "pid": worker.pid.map(Pid::as_raw),
        "generation": worker.generation,
        "started_ms": row.map(|row| row.started_ms.load(Relaxed)),
        "requests": work.requests,
        "errors": work.errors,
        "durations_us": worker.row().map(|row| scoreboard.measured(row).latency.filled().collect::<Vec<_>>()).unwrap_or_default(),
    })
}

/// Returns the entry of a child, `None` if it has no process yet.
fn process_entry(view: View<'_>, child: &Child, now_ms: u64) -> Option<Value> {
    let pid = child.pid?;
    let name = match child.role {
        Role::Worker { number, .. } => format!("worker {number}"),
        Role::Helper { .. } => child.helper_name()?,
        Role::Prototype => "prototype".to_owned(),
    };
    let in_flight = child.row().map(|row| view.children.scoreboard().in_flight(row)).unwrap_or_default();
    let request = |request: &InFlight| {
        json!({
            "thread": request.thread,
            "text": request.text,
            "milliseconds": now_ms.saturating_sub(request.began_ms),
        })
    };
    Some(json!({
        "name": name,
        "pid": pid.as_raw(),
        "row": child.row(),
        "generation": child.generation,
        "state": format!("{:?}", child.state).to_lowercase(),
        "in_flight": in_flight.iter().map(request).collect::<Vec<_>>(),
    }))
}
