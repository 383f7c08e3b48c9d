//! The end of a request whose answer is complete or given up: counters, the recorder's entry, the log line.
//!
//! It does not know about readiness or protocols. It runs on the worker thread that served the request.

use std::sync::atomic::Ordering::Relaxed;

use bolide_scoreboard::{End, add};
use bolide_services::route_names::masked;

use super::beginning::log_entry;
use super::log_entry::LogEntry;
use super::spans::Answered;
use super::{Served, Suspended};
use crate::answer::Answer;
use crate::app::{App, EndedRequest};
use crate::exchange::context::ExchangeContext;
use crate::logging::counting::{self, AnsweredBy};
use crate::logging::log_line::{LogLine, RequestNotes, visible};
use crate::sampling::Doing;
use crate::scheduling::clock::precise_us;
use crate::slow::SlowRequests;
use crate::slow::report::{self, SlowRequest};

/// Bytes of a target that the report of a slow request has.
const TARGET_BYTES: usize = 1_024;

/// Updates the counters, writes the log line, and returns the response's buffer to the thread.
pub fn finish_line<A: App>(context: &mut ExchangeContext<'_, A>, entry: &LogEntry<'_>) -> Served<A::Pending> {
    let row = context.worker.row;
    let requests = row.count_request(context.worker.has_one_thread);
    let body_bytes = context.writer.body.bytes;
    let sent_bytes = context.writer.head_bytes + context.writer.body.bytes;
    let tally = &context.thread.slot.tally;
    let status = context.writer.status_code();
    let cancelled = context.writer.notes.cancelled;
    counting::count(tally, entry.answered_by, entry.log_facts.application, status, cancelled, sent_bytes);
    let mut microseconds = None;
    if context.worker.measures_time {
        let microseconds = *microseconds.insert(precise_us().saturating_sub(entry.began_us));
        add(&tally.busy_us, microseconds);
        row.note_answer_time(microseconds);
        if !counting::is_websocket(status, entry.method) {
            let (thread, groups) = ((context.thread.meters, context.thread.core), context.worker.route_groups.as_ref());
            counting::count_duration(thread, groups, (entry.uri, status), microseconds);
        }
    }
    if let Some((slot, number)) = entry.recorded {
        // The clock's ticks suffice if nothing else needs the time.
        let about_us = || (context.thread.clock.now_ms * 1000).saturating_sub(entry.began_us);
        slot.complete(number, End { status, microseconds: microseconds.unwrap_or_else(about_us) });
    }
    if context.app.observes_ends() {
        // The logged time excludes the notification of the application.
        microseconds.get_or_insert_with(|| precise_us().saturating_sub(entry.began_us));
        if !context.writer.has_unsent() {
            context.writer.show_end();
        }
        context.app.enter().exchange_has_ended(&mut Answer::of(&mut context.writer));
    }
    end_times(context, entry, Answered { status, body_bytes });
    let logging = &context.worker.settings.logging;
    if (logging.may_log_requests() || context.writer.notes.is_logged) && !context.writer.notes.is_unlogged {
        let response = &context.writer;
        let line = LogLine {
            application: entry.log_facts.application,
            request: requests,
            request_of_all: requests + context.worker.requests_elsewhere.load(Relaxed),
            address: entry.address,
            user: entry.user,
            variables: entry.log_facts.variables,
            variable_bytes: entry.log_facts.variable_bytes,
            ctime: &entry.ctime,
            method: entry.method,
            uri: entry.uri,
            body_bytes: response.body.bytes,
            microseconds: microseconds.unwrap_or_else(|| precise_us().saturating_sub(entry.began_us)),
            via_sendfile: response.body.sent_file,
            is_file: response.body.sent_file || response.body.sent_content,
            protocol: entry.protocol,
            status: response.status_code(),
            header_count: response.header_count(),
            head_bytes: response.head_bytes,
            core: context.thread.core,
            worker: context.worker.number,
            is_broken: response.client_is_gone(),
        };
        let is_wanted = logging.requests || response.notes.is_logged || line.is_among(&logging.always);
        if is_wanted && (!context.app.judges_requests() || context.app.enter().judge_request(&ended(&line))) {
            let values = entry.noted.as_deref();
            let application = response.notes.log_variables.as_deref().map_or(&[][..], Vec::as_slice);
            context.thread.log.line(&line, &RequestNotes { values, application, identity: entry.identity.as_deref() });
        }
    }
    end_answer(context)
}

/// As [`finish_line`], for an answer that has waited for its client.
pub fn finish_kept<A: App>(context: &mut ExchangeContext<'_, A>, entry: &LogEntry<'_>) -> Served<A::Pending> {
    match entry.answered_by {
        AnsweredBy::HealthCheck | AnsweredBy::Admission | AnsweredBy::OtherWorker => finish_unnoted(context),
        _ => finish_line(context, entry),
    }
}

/// The rest of an exchange whose answer is complete and must be sent, and that will not be counted or logged.
pub fn keep_unnoted<A: App>(context: &ExchangeContext<'_, A>, answered_by: AnsweredBy) -> Box<Suspended<A::Pending>> {
    let entry = LogEntry { answered_by, ..log_entry(context) };
    Box::new(Suspended { pending: None, permit: None, log_entry: entry.kept() })
}

/// Ends an answer without counting or logging it, and without a span. Load balancers send health checks every few seconds, and
/// the answers of other workers are counted there.
pub fn finish_unnoted<A: App>(context: &mut ExchangeContext<'_, A>) -> Served<A::Pending> {
    context.writer.notes.times = None;
    end_answer(context)
}

/// Returns the answer's buffers to the thread.
fn end_answer<A: App>(context: &mut ExchangeContext<'_, A>) -> Served<A::Pending> {
    let keep = context.writer.keeps_alive();
    context.thread.buffers.keep(context.writer.end());
    Served::Done { keep }
}

/// A request's line, for the application that judges it.
fn ended<'a>(line: &LogLine<'a>) -> EndedRequest<'a> {
    EndedRequest {
        address: line.address,
        method: line.method,
        target: line.uri,
        protocol: line.protocol,
        status: line.status,
        body_bytes: line.body_bytes,
        microseconds: line.microseconds,
    }
}

/// Completes the times of the phases, makes the request's span, and reports the request if it was slow.
#[inline(always)]
fn end_times<A: App>(context: &mut ExchangeContext<'_, A>, entry: &LogEntry<'_>, answered: Answered) {
    if let Some(times) = &mut context.writer.notes.times {
        times.end();
        if let Some(spans) = &context.worker.spans {
            let groups = (context.worker.route_groups.as_ref(), &*context.worker.settings.statistics.groups);
            spans.finish(entry, groups, times, answered);
        }
        if let Some(slow) = &context.worker.slow {
            report_if_slow(slow, context, entry);
        }
    }
}

/// Reports a request if it was slow. Its times are complete.
#[cold]
fn report_if_slow<A: App>(slow: &SlowRequests, context: &ExchangeContext<'_, A>, entry: &LogEntry<'_>) {
    let Some(times) = context.writer.notes.times.as_deref() else { return };
    let is_slow = times.ended_us.saturating_sub(times.head_us) / 1000 >= slow.mark_ms;
    let is_kept = entry.answered_by == AnsweredBy::AsynchronousApplication;
    if !is_slow && !is_kept {
        return;
    }
    let mut looks = slow.take(entry.recorded);
    let (status, worker) = (context.writer.status_code(), context.worker.number);
    // They are long by nature.
    let is_stream_in_time = times.is_event_stream && times.first_byte_us.saturating_sub(times.head_us) / 1000 < slow.mark_ms;
    let is_long = is_stream_in_time || counting::is_websocket(status, entry.method);
    if !is_slow || is_long || !slow.may_tell(worker) {
        return;
    }
    let mut target = Vec::with_capacity(TARGET_BYTES);
    visible(&mut target, &entry.uri[..entry.uri.len().min(TARGET_BYTES)]);
    // A call that waits for its client: that is measured.
    let is_client = |doing: &Doing| matches!(doing, Doing::WaitsForPeer { peer, .. } if context.client.has_name(peer));
    looks.retain(|look| !look.as_ref().is_ok_and(|look| is_client(&look.doing)));
    report::write(&SlowRequest {
        worker,
        mark_ms: slow.mark_ms,
        method: &String::from_utf8_lossy(entry.method),
        target: &masked(&String::from_utf8_lossy(&target)),
        id: entry.identity.as_ref().map(|identity| &*identity.id),
        status,
        times,
        looks: &looks,
    });
}
