//! The beginning of an answer: its terms, and the entry that becomes its log line.
//!
//! It does not know what answers the request. It runs on the worker thread that read the request.

use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::response::Wire;

use super::log_entry::LogEntry;
use crate::app::App;
use crate::exchange::context::ExchangeContext;
use crate::logging::counting::AnsweredBy;
use crate::request::LogFacts;
use crate::response::Terms;
use crate::scheduling::clock::precise_us;

/// Begins the response, unless the request was answered while it waited.
#[inline(always)]
pub fn begin_once<A: App>(context: &mut ExchangeContext<'_, A>, wire: Wire, head_only: bool, may_keep: bool) {
    match &context.passage {
        None => begin(context, wire, head_only, may_keep),
        Some(passage) if passage.is_answered() => {}
        Some(_) => begin_again(context, wire, head_only, may_keep),
    }
}

/// The answer of a request that has waited begins when it is called.
#[inline(never)]
fn begin_again<A: App>(context: &mut ExchangeContext<'_, A>, wire: Wire, head_only: bool, may_keep: bool) {
    begin(context, wire, head_only, may_keep);
}

/// Begins the response; `may_keep` is whether the client keeps the connection open.
#[inline(always)]
pub fn begin<A: App>(context: &mut ExchangeContext<'_, A>, wire: Wire, head_only: bool, may_keep: bool) {
    let keep_alive = may_go_on(context) && may_keep && context.worker.settings.limits.keepalive_ms > 0;
    let thread = &mut *context.thread;
    let terms = Terms {
        wire,
        head_only,
        keep_alive,
        client_keeps: may_keep,
        may_cork: match wire {
            Wire::Http11 | Wire::Http10 => thread.may_cork,
            // The HTTP/2 connection decides.
            Wire::Http2 => true,
            Wire::Uwsgi | Wire::Cgi | Wire::FastCgi { .. } => false,
        },
        date_line: thread.clock.date_line(),
    };
    context.writer.begin(terms, thread.buffers.lend());
    context.writer.notes.cancel_on_disconnect = context.worker.settings.answering.cancel_on_disconnect;
}

/// A log entry without the fields of its request.
#[inline(always)]
pub(super) fn log_entry<'a, A: App>(context: &ExchangeContext<'_, A>) -> LogEntry<'a> {
    // The time of the clock's last tick is precise enough if request lines are off: only an application may still request a line.
    let about_us = || context.thread.clock.now_ms * 1000;
    let began_us = if context.worker.measures_time { precise_us() } else { about_us() };
    let (log_facts, ctime) = (LogFacts::default(), context.thread.clock.ctime());
    LogEntry {
        method: b"",
        uri: b"",
        protocol: b"",
        address: b"",
        user: b"",
        log_facts,
        ctime,
        began_us,
        noted: None,
        identity: None,
        answered_by: AnsweredBy::Application,
        recorded: None,
    }
}

/// The connection may have another request: here, or, if the worker drains, at another worker that takes over the connection.
#[inline(always)]
fn may_go_on<A: App>(context: &ExchangeContext<'_, A>) -> bool {
    !context.is_last && (!context.worker.closes_connections() || goes_on_elsewhere(context))
}

/// The worker leaves. The master waits until no connection arrives at it any more (`drain-quiet`).
#[cold]
fn goes_on_elsewhere<A: App>(context: &ExchangeContext<'_, A>) -> bool {
    if context.is_first && context.worker.leaves_balancer() {
        context.worker.row.arrived_ms.store(context.thread.clock.now_ms, Relaxed);
    }
    context.worker.hands_over() && context.writer.transport.is_movable_kind()
}
