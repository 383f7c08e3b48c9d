//! The counters of the scoreboard, updated by a thread that has served a request: a few loads and stores in its own slot.
//!
//! It does not know about connections. Worker threads run it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::meters::class_of;
use bolide_scoreboard::{Cancelled, Meters, Tally, add};

use crate::logging::route_groups::RouteGroups;

/// What answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnsweredBy {
    #[default]
    Application,
    /// The application serves the request concurrently with other requests of the thread.
    AsynchronousApplication,
    File,
    Route,
    FileOfRoute,
    /// The server itself, at `health-path`: it is not counted.
    HealthCheck,
    /// The server itself, because the request has waited too long: it is counted as refused.
    Admission,
    /// The worker that has the request's session, which counts it.
    OtherWorker,
}

/// From this status on, an answer counts as a failure of the server.
pub const FAILED_STATUS: u16 = 500;

/// Counts a finished request, by the number of its application and the status of its answer, and whether its work has ended
/// because its client left.
#[inline(always)]
pub fn count(
    tally: &Tally,
    answered_by: AnsweredBy,
    application: u32,
    status: u16,
    cancelled: Option<Cancelled>,
    sent_bytes: u64,
) {
    add(&tally.requests, 1);
    add(&tally.sent_bytes, sent_bytes);
    if !(200..300).contains(&status) {
        count_class(tally, status, cancelled);
    }
    if answered_by == AnsweredBy::Application {
        add(&tally.application(application).requests, 1);
    } else {
        count_others(tally, answered_by, application);
    }
}

/// The duration of a WebSocket says nothing about answers.
#[inline(always)]
pub fn is_websocket(status: u16, method: &[u8]) -> bool {
    status == 101 || method == b"CONNECT"
}

/// Counts the duration of a finished request, also in its group of routes.
#[inline(always)]
pub fn count_duration(
    (meters, core): (&Meters, u32),
    groups: Option<&RouteGroups>,
    (uri, status): (&[u8], u16),
    microseconds: u64,
) {
    meters.latency.note(microseconds);
    if let Some(groups) = groups {
        let group = groups.group_of(uri);
        meters.group(group).note(status, microseconds);
        if let Some(durations) = groups.durations.get(core as usize) {
            durations.note(group, microseconds);
        }
    }
}

/// Counts a request that an asynchronous application keeps.
pub fn count_taken(tally: &Tally) {
    add(&tally.ongoing, 1);
}

/// Counts an uncaught exception of the application with this number.
#[cold]
pub fn count_exception(tally: &Tally, application: u32) {
    add(&tally.application(application).exceptions, 1);
}

/// Counts a failed request: by its status ([`count`]), or because its answer was aborted.
#[cold]
pub fn count_error(tally: &Tally) {
    add(&tally.errors, 1);
}

/// Counts a request whose status is not 2xx by its class, and as a failure if it is one.
#[cold]
fn count_class(tally: &Tally, status: u16, cancelled: Option<Cancelled>) {
    add(&tally.classes[class_of(status)], 1);
    if let Some(cancelled) = cancelled {
        add(&tally.cancelled[cancelled as usize], 1);
    }
    if status >= FAILED_STATUS {
        count_error(tally);
    }
}

#[cold]
fn count_others(tally: &Tally, answered_by: AnsweredBy, application: u32) {
    match answered_by {
        AnsweredBy::AsynchronousApplication => {
            add(&tally.application(application).requests, 1);
            tally.ongoing.store(tally.ongoing.load(Relaxed).saturating_sub(1), Relaxed);
        }
        AnsweredBy::File => add(&tally.static_requests, 1),
        AnsweredBy::Route => add(&tally.routed_requests, 1),
        AnsweredBy::FileOfRoute => {
            add(&tally.static_requests, 1);
            add(&tally.routed_requests, 1);
        }
        AnsweredBy::Application | AnsweredBy::HealthCheck | AnsweredBy::Admission | AnsweredBy::OtherWorker => {}
    }
}
