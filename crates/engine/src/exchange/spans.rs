//! The span of a request that has ended, for a collector of OpenTelemetry (`otlp`): made from its log entry and the times of its
//! phases, and given to the process that sends it.
//!
//! It never waits: a socket without room is a span less, which the next one reports. It does not know about collectors. Worker
//! threads run it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use bolide_contract::statistics::RouteGroup;
use bolide_scoreboard::meters::OTHER_GROUP;
use bolide_services::route_names::masked;
use bolide_services::spans::{Method, Span, Value, packet};
use nix::sys::socket::{MsgFlags, send};

use super::log_entry::LogEntry;
use crate::logging::counting::FAILED_STATUS;
use crate::logging::identity::{Identity, SpanFacts, Trace};
use crate::logging::route_groups::RouteGroups;
use crate::scheduling::clock::precise_us;
use crate::scheduling::phases::Times;

/// Exceptions of a thread whose requests have not ended: more of them replace the oldest.
const MAX_EXCEPTIONS: usize = 64;

/// The process has a [`SpanSender`].
static IS_ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The identifiers of requests that have ended with an exception, and its type.
    static EXCEPTIONS: RefCell<VecDeque<(String, String)>> = const { RefCell::new(VecDeque::new()) };
}

/// Whether [`note_exception`] is needed.
pub fn wants_exceptions() -> bool {
    IS_ON.load(Relaxed)
}

/// Notes the type of the exception that ends the request with this identifier, on the thread that ends it.
pub fn note_exception(request: &str, kind: &str) {
    EXCEPTIONS.with_borrow_mut(|noted| {
        if noted.len() >= MAX_EXCEPTIONS {
            noted.pop_front();
        }
        noted.push_back((request.to_owned(), kind.to_owned()));
    });
}

fn take_exception(request: &str) -> Option<String> {
    EXCEPTIONS.with_borrow_mut(|noted| {
        let place = noted.iter().position(|(id, _)| id == request)?;
        noted.remove(place).map(|(_, kind)| kind)
    })
}

/// The way of a worker's spans to the process that sends them.
pub struct SpanSender {
    socket: OwnedFd,
    /// Spans that the socket had no room for since the last one that it took.
    lost: AtomicU32,
}

/// What a response says of itself.
#[derive(Clone, Copy)]
pub struct Answered {
    pub status: u16,
    pub body_bytes: u64,
}

impl SpanSender {
    pub fn new(socket: OwnedFd) -> SpanSender {
        IS_ON.store(true, Relaxed);
        SpanSender { socket, lost: AtomicU32::new(0) }
    }

    /// Sends the span of a request, if it has one.
    #[cold]
    pub fn finish(
        &self,
        entry: &LogEntry<'_>,
        (groups, group_list): (Option<&RouteGroups>, &[RouteGroup]),
        times: &Times,
        answered: Answered,
    ) {
        let Some(Identity { trace: Some(trace), span: Some(facts), id }) = entry.identity.as_deref() else { return };
        let exception = take_exception(id);
        let number = groups.map_or(OTHER_GROUP, |groups| groups.group_of(entry.uri));
        let route = group_list.get(number as usize).filter(|_| number != OTHER_GROUP).map(|group| group.name.as_str());
        let lost = self.lost.swap(0, Relaxed);
        let message = packet(lost, &encoded(entry, (trace, facts), route, times, (answered, exception.as_deref())));
        if send(self.socket.as_raw_fd(), &message, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_err() {
            self.lost.fetch_add(lost.saturating_add(1), Relaxed);
        }
    }
}

/// What of a request its span has, beside the texts of the log entry.
fn encoded(
    entry: &LogEntry<'_>,
    (trace, facts): (&Trace, &SpanFacts),
    route: Option<&str>,
    times: &Times,
    (answered, exception): (Answered, Option<&str>),
) -> Vec<u8> {
    let text = String::from_utf8_lossy;
    let (method, uri, version) = (text(entry.method), masked(&text(entry.uri)), text(protocol_version(entry.protocol)));
    let (host, agent, client) = (text(&facts.host), text(&facts.agent), text(&facts.client));
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let method = Method::of(&method);
    let (address, port) = host_and_port(&host);
    let status = answered.status.to_string();
    let is_failed = answered.status >= FAILED_STATUS || exception.is_some();
    let error = if is_failed { exception.unwrap_or(&status) } else { "" };
    let texts = [
        ("http.request.method", method.word),
        ("http.request.method_original", method.original),
        ("url.scheme", if facts.is_https { "https" } else { "http" }),
        ("url.path", path),
        ("http.route", route.unwrap_or_default()),
        ("server.address", address),
        ("network.protocol.version", &version),
        ("client.address", &client),
        ("error.type", error),
    ];
    let number = |name, value: Option<i64>| value.map(|value| (name, Value::Whole(value)));
    let named = |(name, value): (&'static str, _)| (name, Value::Text(value));
    let numbers = [
        number("http.response.status_code", Some(answered.status.into()).filter(|status| *status > 0)),
        number("server.port", port.map(i64::from)),
        number("http.response.body.size", i64::try_from(answered.body_bytes).ok()),
    ];
    // The last ones are left out of a span that is too long.
    let long = [("user_agent.original", &*agent), ("url.query", query)];
    let is_known = |(_, value): &(&str, &str)| !value.is_empty();
    let attributes: Vec<(&'static str, Value<'_>)> = texts
        .into_iter()
        .filter(is_known)
        .map(named)
        .chain(numbers.into_iter().flatten())
        .chain(long.into_iter().filter(is_known).map(named))
        .collect();
    let name = route.map_or_else(|| method.name.to_owned(), |route| format!("{} {route}", method.name));
    let (begin_us, events) = phases(times);
    // The wall-clock time at the monotonic time 0: a span has no step in it if the clock is set in the meantime.
    let since_1970_us = bolide_log::dates::now_us().saturating_sub(precise_us());
    let ns = |monotonic_us: u64| since_1970_us.saturating_add(monotonic_us).saturating_mul(1000);
    let events: Vec<(&'static str, u64)> = events.into_iter().map(|(at_us, name)| (name, ns(at_us))).collect();
    Span {
        trace: trace.context.trace,
        span: trace.context.span,
        parent: trace.parent,
        state: &trace.state,
        name: &name,
        begin_ns: ns(begin_us),
        end_ns: ns(times.ended_us),
        attributes: &attributes,
        events: &events,
        error: is_failed.then_some(""),
    }
    .encoded()
}

/// The begin of the span, and its events in the order of time, in monotonic microseconds. A request begins when its reverse proxy
/// has received it, if that is known.
fn phases(times: &Times) -> (u64, Vec<(u64, &'static str)>) {
    let begin_us = times.head_us.saturating_sub(times.waited_us);
    let waited_us = if times.waited_us > 0 { begin_us } else { 0 };
    let mut events = vec![
        (waited_us, "queue"),
        (times.head_us, "head"),
        (times.body_us, "body"),
        (times.called_us, "application"),
        (times.first_byte_us, "write"),
        (times.returned_us, "returned"),
    ];
    // An answer without the application has no return.
    events.retain(|(at_us, name)| *at_us > 0 && (*name != "returned" || times.called_us > 0));
    events.sort_by_key(|(at_us, _)| *at_us);
    (begin_us, events)
}

/// `HTTP/1.1` is `1.1`, and `HTTP/2.0` is `2`.
fn protocol_version(protocol: &[u8]) -> &[u8] {
    let version = protocol.strip_prefix(b"HTTP/").unwrap_or_default();
    if version.starts_with(b"1.") { version } else { version.strip_suffix(b".0").unwrap_or(version) }
}

fn host_and_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((address, port)) if !port.ends_with(']') => (address.trim_matches(['[', ']']), port.parse().ok()),
        _ => (host.trim_matches(['[', ']']), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_stand_in_the_order_of_time_and_those_that_did_not_come_are_left_out() {
        let times =
            Times { waited_us: 5, head_us: 10, body_us: 30, called_us: 20, returned_us: 40, ended_us: 50, ..Times::default() };
        let expected = vec![(5, "queue"), (10, "head"), (20, "application"), (30, "body"), (40, "returned")];
        assert_eq!(phases(&times), (5, expected));
        let file = Times { head_us: 10, first_byte_us: 12, returned_us: 20, ended_us: 20, ..Times::default() };
        assert_eq!(phases(&file), (10, vec![(10, "head"), (12, "write")]));
    }

    #[test]
    fn an_exception_belongs_to_its_request_and_the_oldest_are_forgotten() {
        note_exception("a", "ValueError");
        note_exception("b", "KeyError");
        assert_eq!((take_exception("b").as_deref(), take_exception("b")), (Some("KeyError"), None));
        for number in 0..MAX_EXCEPTIONS {
            note_exception(&number.to_string(), "OSError");
        }
        assert_eq!((take_exception("a"), take_exception("0").as_deref()), (None, Some("OSError")));
    }

    #[test]
    fn hosts_and_versions_are_those_of_the_conventions() {
        for (host, found) in [
            ("shop.example", ("shop.example", None)),
            ("shop.example:8000", ("shop.example", Some(8000))),
            ("[::1]:80", ("::1", Some(80))),
            ("[::1]", ("::1", None)),
            ("", ("", None)),
        ] {
            assert_eq!(host_and_port(host), found);
        }
        for (protocol, version) in [("HTTP/1.1", "1.1"), ("HTTP/1.0", "1.0"), ("HTTP/2.0", "2"), ("HTTP/2", "2"), ("", "")] {
            assert_eq!(protocol_version(protocol.as_bytes()), version.as_bytes());
        }
    }
}
