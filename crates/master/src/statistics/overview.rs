//! What `bolide top` and the page show: the status of the instance and its histogram of latencies since startup. It is
//! collected at most once a second, and all readers of that second get the same one, so that many readers cost no more than one.
//! The master runs it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::{Phase, Remembered};
use bolide_services::route_names::masked;
use bolide_supervision::sockets::listen_queue::QueueAlarm;
use serde_json::{Value, json};

use crate::children::child::Child;
use crate::statistics::status;
use crate::statistics::view::View;

/// The time for which an overview is current, in milliseconds.
pub const CURRENT_MS: u64 = 1000;

/// Errors of an overview.
const MAX_ERRORS: usize = 20;
/// Requests of a worker that wait for their client, or in an asynchronous application.
const MAX_WAITING: usize = 100;
/// Threads of an overview, of all workers together.
const MAX_THREADS: usize = 1024;
/// Answers from this status on are errors.
const ERROR_STATUS: u16 = 500;

/// The last overview. Nothing is collected before the first reader asks.
#[derive(Debug, Default)]
pub struct Overview {
    made: Option<(u64, Value)>,
}

impl Overview {
    /// Returns the overview of this second.
    pub fn current(&mut self, view: View<'_>, queues: &mut QueueAlarm, is_stopping: bool, now_ms: u64) -> &Value {
        let (made_ms, overview) = self.made.get_or_insert_with(|| (now_ms, collected(view, queues, is_stopping, now_ms)));
        if now_ms.saturating_sub(*made_ms) >= CURRENT_MS {
            (*made_ms, *overview) = (now_ms, collected(view, queues, is_stopping, now_ms));
        }
        overview
    }
}

fn collected(view: View<'_>, queues: &mut QueueAlarm, is_stopping: bool, now_ms: u64) -> Value {
    let mut overview = status::status(view, queues, is_stopping, now_ms);
    overview["now_ms"] = json!(now_ms);
    overview["latency_us"] = json!(view.measured().latency.filled().collect::<Vec<_>>());
    let mut errors: Vec<(u64, Value)> = Vec::new();
    let mut room = MAX_THREADS;
    for child in view.children.iter().filter(|child| child.is_request_worker()) {
        let Some((row, pid)) = child.row().zip(child.pid) else { continue };
        let remembered = view.children.scoreboard().remembered(row);
        errors.extend(remembered.iter().filter_map(|(_, request)| error(child, request, now_ms)));
        let waiting: Vec<Value> = remembered
            .iter()
            .filter(|(_, request)| request.end.is_none() && !request.is_called)
            .take(MAX_WAITING)
            .map(|(_, request)| {
                let milliseconds = now_ms.saturating_sub(request.began_ms);
                json!({"request": request.text, "milliseconds": milliseconds, "phase": request.phase.name()})
            })
            .collect();
        let pid = json!(pid.as_raw());
        let entry = overview["workers"].as_array_mut().into_iter().flatten().find(|entry| entry["pid"] == pid);
        let Some(entry) = entry else { continue };
        if let Some(in_flight) = entry["in_flight"].as_array_mut() {
            for request in in_flight.iter_mut() {
                let thread = &request["thread"];
                let called = remembered.iter().find(|(id, called)| called.is_called && thread == &json!(id));
                request["phase"] = json!(called.map_or(Phase::default(), |(_, called)| called.phase).name());
            }
            in_flight.extend(waiting);
        }
        let threads = threads(view, row, room);
        room -= threads.len();
        entry["by_thread"] = json!(threads);
    }
    errors.sort_by_key(|(ago_ms, _)| *ago_ms);
    errors.truncate(MAX_ERRORS);
    overview["recent_errors"] = errors.into_iter().map(|(_, error)| error).collect();
    mask(&mut overview);
    overview
}

/// Returns the counters of the threads of a worker that serve requests.
fn threads(view: View<'_>, row: u32, most: usize) -> Vec<Value> {
    let slots = view.children.scoreboard().slots(row).iter().filter(|slot| slot.thread.load(Relaxed) > 0);
    let entry = |slot: &bolide_scoreboard::Slot| {
        json!({
            "thread": slot.thread.load(Relaxed),
            "requests": slot.tally.requests.load(Relaxed),
            "errors": slot.tally.errors.load(Relaxed),
        })
    };
    slots.take(most).map(entry).collect()
}

/// Returns an error with the time since its end, in milliseconds. `None`: the request has ended well, or not yet.
fn error(child: &Child, request: &Remembered, now_ms: u64) -> Option<(u64, Value)> {
    let end = request.end.filter(|end| end.status >= ERROR_STATUS)?;
    let ago_ms = now_ms.saturating_sub(request.began_ms.saturating_add(end.microseconds / 1000));
    let error = json!({
        "worker": child.worker_number(),
        "status": end.status,
        "request": request.text,
        "ago_ms": ago_ms,
        "microseconds": end.microseconds,
        "trace": request.trace.map(|trace| trace[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    });
    Some((ago_ms, error))
}

/// Values of query strings may be secrets, and a screen is easily shared.
fn mask(overview: &mut Value) {
    let mask = |request: &mut Value| {
        if let Some(text) = request["request"].as_str() {
            request["request"] = masked(text).into();
        }
    };
    overview["recent_errors"].as_array_mut().into_iter().flatten().for_each(mask);
    for worker in overview["workers"].as_array_mut().into_iter().flatten() {
        worker["in_flight"].as_array_mut().into_iter().flatten().for_each(mask);
    }
}
