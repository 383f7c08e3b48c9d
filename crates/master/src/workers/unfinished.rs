//! The spans of requests that a worker had in flight when it ended: a killed worker can't send them, so the master makes them
//! from the flight recorder. It never waits: a socket without room is a span less. It does not know collectors. The master runs
//! it.

use bolide_scoreboard::{Remembered, TRACE_BYTES};
use bolide_services::route_names::masked;
use bolide_services::spans::{Method, Span, Value, packet};
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::signals;

use crate::children::ledger::EndKind;
use crate::spans::socket::SpanSocket;
use crate::workers::ends::WorkerEnd;

/// Sends the spans of an ended worker's requests in flight. Returns how many the socket had no room for.
pub fn send(end: &WorkerEnd<'_>, socket: &SpanSocket, now_ms: u64) -> u64 {
    let kind = error_type(end.kind(), end.cause);
    let words = format!("the worker {}", end.cause.words());
    // What the clock of the wall says at the monotonic time 0.
    let since_1970_ms = (bolide_log::dates::now_us() / 1000).saturating_sub(now_ms);
    let in_flight = end.remembered.iter().filter(|(_, request)| request.end.is_none());
    let spans = in_flight.filter_map(|(_, request)| {
        let trace = request.trace.as_ref()?;
        let ns = |monotonic_ms: u64| since_1970_ms.saturating_add(monotonic_ms).saturating_mul(1_000_000);
        Some(encoded(request, trace, (ns(request.began_ms), ns(now_ms)), (&kind, &words)))
    });
    spans.filter(|span| !socket.send(&packet(0, span))).count() as u64
}

/// What ended a worker, as `error.type`.
fn error_type(kind: EndKind, cause: &Cause) -> String {
    match (kind, cause) {
        (EndKind::Signal, Cause::Signaled { signal, .. }) => signals::name(*signal),
        _ => kind.name().to_owned(),
    }
}

fn encoded(
    request: &Remembered,
    trace: &[u8; TRACE_BYTES],
    (begin_ns, end_ns): (u64, u64),
    (kind, words): (&str, &str),
) -> Vec<u8> {
    let text = masked(&request.text);
    let (method, target) = text.split_once(' ').unwrap_or((&text, ""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let method = Method::of(method);
    let texts = [
        ("http.request.method", method.word),
        ("http.request.method_original", method.original),
        ("url.path", path),
        ("error.type", kind),
        ("url.query", query),
    ];
    let known = texts.into_iter().filter(|(_, value)| !value.is_empty());
    let attributes: Vec<(&'static str, Value<'_>)> = known.map(|(name, value)| (name, Value::Text(value))).collect();
    let (mut span, mut parent, mut trace_id) = ([0; 8], [0; 8], [0; 16]);
    trace_id.copy_from_slice(&trace[..16]);
    span.copy_from_slice(&trace[16..24]);
    parent.copy_from_slice(&trace[24..]);
    let parent = Some(parent).filter(|parent| *parent != [0; 8]);
    let name = method.name;
    let attributes = &attributes;
    Span { trace: trace_id, span, parent, name, begin_ns, end_ns, attributes, error: Some(words), ..Span::default() }.encoded()
}
