//! `health-path`: whether a request is a health check, and its answer, which says whether the worker serves. Neither the
//! application nor a route, a file or the check of hosts has a part in it.
//!
//! It does not know about sockets or readiness. The threads that serve requests run it, and so does the companion for checks
//! that can't wait for them.

use bolide_protocol::http1::head::Version;
use bolide_protocol::http1::target::split_target;
use bolide_protocol::response::Wire;
use bolide_protocol::session::RequestHead;
use bolide_protocol::variables::Variable;

use super::Served;
use super::beginning::begin;
use super::finishing::{finish_unnoted, keep_unnoted};
use crate::app::App;
use crate::exchange::availability::Service;
use crate::exchange::context::ExchangeContext;
use crate::exchange::worker::Worker;
use crate::logging::counting::AnsweredBy;
use crate::response::{Progress, ResponseWriter, reason_phrase};

/// The variable with a request's path in the protocols of reverse proxies.
const PATH: &[u8] = b"PATH_INFO";

/// Whether the request is a health check: GET or HEAD of exactly the path of `health-path`, whatever its query. `bytes` are
/// those of its head, `variables` those of a reverse proxy's request. Costs one branch without the option.
#[inline(always)]
pub fn is_check(worker: &Worker, head: &RequestHead, bytes: &[u8], variables: &[Variable]) -> bool {
    match &worker.settings.answering.health_path {
        None => false,
        Some(path) => asks_for(path.as_bytes(), head, bytes, variables),
    }
}

fn asks_for(wanted: &[u8], head: &RequestHead, bytes: &[u8], variables: &[Variable]) -> bool {
    let [method, target] = head.first_line(bytes);
    if !matches!(method, b"GET" | b"HEAD") {
        return false;
    }
    match head {
        RequestHead::Http { .. } => split_target(target, method).is_ok_and(|split| split.path.of(target) == wanted),
        RequestHead::Variables { .. } => {
            let path = variables.iter().rfind(|variable| variable.name.of(bytes) == PATH).map(|path| path.value.of(bytes));
            // PATH_INFO may be missing or empty, and the target is there.
            let of_target = || target.split(|byte| *byte == b'?').next().unwrap_or_default();
            path.filter(|path| !path.is_empty()).unwrap_or_else(of_target) == wanted
        }
    }
}

/// Answers a health check. It is neither logged nor counted.
pub fn answer_check<A: App>(
    context: &mut ExchangeContext<'_, A>,
    head: &RequestHead,
    bytes: &[u8],
    wire: Wire,
) -> Served<A::Pending> {
    let keep_alive = match head {
        RequestHead::Http { facts, .. } => facts.keep_alive,
        RequestHead::Variables { keep_alive, .. } => *keep_alive,
    };
    // A load balancer's check does not show that clients still come.
    context.is_first = false;
    begin(context, wire_of(head, wire), is_head(head, bytes), keep_alive);
    write(&mut context.writer, context.worker.availability.service());
    match context.writer.advance() {
        Progress::Done | Progress::Broken => finish_unnoted(context),
        Progress::Blocked => Served::Blocked(keep_unnoted(context, AnsweredBy::HealthCheck)),
    }
}

/// The encoding of the answer to a request of a session that encodes answers as `wire`.
pub fn wire_of(head: &RequestHead, wire: Wire) -> Wire {
    match head {
        RequestHead::Http { line, .. } if line.version == Version::Http10 => Wire::Http10,
        RequestHead::Http { .. } | RequestHead::Variables { .. } => wire,
    }
}

pub fn is_head(head: &RequestHead, bytes: &[u8]) -> bool {
    head.first_line(bytes)[0] == b"HEAD"
}

/// Writes the answer of a worker in this state. The address is public, so it is one word.
pub fn write(writer: &mut ResponseWriter<'_>, service: Service) {
    let (status, word) = said(service);
    writer.answer_with(status, reason_phrase(status), word, &[("Cache-Control", "no-store")]);
}

/// The status and the word of each state.
fn said(service: Service) -> (u16, &'static str) {
    match service {
        Service::Serves => (200, "ok"),
        Service::Paused => (503, "paused"),
        Service::LeavesBalancer | Service::HandsOver | Service::Drains | Service::Stops => (503, "draining"),
    }
}
