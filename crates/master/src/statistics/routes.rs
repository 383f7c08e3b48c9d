//! The answers of the addresses of `stats` and `metrics`, by path: numbers for a scraper, the health of the instance, and uWSGI's
//! page. It changes nothing in the instance. The master runs it.

use bolide_supervision::sockets::stats_server::{Answer, Page, Request};
use serde_json::Value;

use crate::statistics::live;
use crate::statistics::view::View;

/// Where a request has come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The address of `stats`. Paths without an answer of their own get uWSGI's page.
    Statistics,
    /// The address of `metrics`.
    Metrics,
}

/// The index of the address of `metrics`.
const INDEX: &str = "/            the workers and their requests, live\n/metrics     the numbers, for Prometheus\n\
    /-/ready     whether requests are served\n/-/healthy   whether the master lives\n\
    /-/status    workers, reloads and addresses, as JSON\n";

/// The makers of the pages with numbers, which clients share.
pub trait Numbers {
    /// Returns uWSGI's page.
    fn page(&mut self, view: View<'_>) -> Page;

    /// Returns the answer to `bolide status`.
    fn status(&mut self, view: View<'_>, now_ms: u64) -> Value;

    /// Answers a scraper.
    fn metrics(&mut self, request: &Request, view: View<'_>, now_ms: u64) -> Answer;

    /// Begins a stream of events for the page.
    fn events(&mut self, view: View<'_>, now_ms: u64) -> Answer;
}

/// Answers a request.
pub fn answer(numbers: &mut impl Numbers, door: Door, request: Option<&Request>, view: View<'_>, now_ms: u64) -> Answer {
    let Some(request) = request else { return Answer::bare(numbers.page(view)) };
    let is_known = is_for_us(request, view);
    match request.path.as_str() {
        // A script of another site must not read by a name of its own. Probes come under any name, and learn one word.
        "/metrics" | "/-/status" if !request.may_read(&view.provision.settings().statistics.hosts) => request.refused_host(),
        "/-/healthy" | "/-/ready" if request.is_of_browser && !is_known => request.refused_host(),
        "/metrics" => numbers.metrics(request, view, now_ms),
        "/-/healthy" => Answer::text(200, "healthy\n"),
        "/-/ready" => match obstacle(view) {
            None => Answer::text(200, "ready\n"),
            Some(why) => Answer::text(503, &format!("not ready: {why}\n")),
        },
        "/-/status" => Answer::page(200, "application/json", short_status(numbers.status(view, now_ms), view)),
        _ if door == Door::Statistics => Answer::of_uwsgi(numbers.page(view)),
        _ if !is_known => request.refused_host(),
        "/-/events" => numbers.events(view, now_ms),
        "" => Answer::text(400, "This is not an HTTP request.\n"),
        path => {
            live::file(path).unwrap_or_else(|| Answer::text(404, &format!("There is nothing here. These paths exist:\n{INDEX}")))
        }
    }
}

/// Whether the request names this server, so that no page of another site can have sent it.
fn is_for_us(request: &Request, view: View<'_>) -> bool {
    request.is_for(&view.provision.settings().statistics.hosts)
}

/// Returns why the instance serves nothing, or soon won't; `None`: it serves.
pub fn obstacle(view: View<'_>) -> Option<&'static str> {
    let Some(serving) = view.generations.serving() else { return Some("no application is loaded") };
    let is_accepting = || {
        let rows = view.children.iter().filter(|child| child.is_request_worker()).filter_map(|child| child.row());
        rows.filter_map(|row| view.children.scoreboard().row(row)).any(|row| row.is_accepting())
    };
    match () {
        () if view.is_stopping || view.children.is_leaving() => Some("it is being stopped"),
        () if view.children.is_paused() => Some("it is paused"),
        // With `cheap`, the first connection starts workers.
        () if !serving.is_empty() && !is_accepting() => Some("no worker accepts connections"),
        () => None,
    }
}

/// The status without the requests in flight: their targets may hold what only `bolide status` may show.
fn short_status(mut status: Value, view: View<'_>) -> Page {
    for list in ["workers", "helpers"] {
        for child in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for busy in child.get_mut("in_flight").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(busy) = busy.as_object_mut() {
                    busy.retain(|key, _| key == "milliseconds");
                }
            }
        }
    }
    status["ready"] = Value::from(obstacle(view).is_none());
    Page::from(format!("{status}\n").into_bytes())
}
