//! The answers to requests that are refused: by `admission`, because they have waited too long, and by their bulkhead. It does
//! not decide which requests these are, and does not know about sockets. The threads that would begin the request run it, and the
//! companion for requests that wait for a permit.

use bolide_protocol::session::{HeadEvent, RequestHead};

use super::beginning::begin;
use super::finishing::{finish_unnoted, keep_unnoted};
use super::health::{is_head, wire_of};
use super::{Served, Waiting};
use crate::app::App;
use crate::exchange::bulkheads::RefusedRequest;
use crate::exchange::context::ExchangeContext;
use crate::exchange::routing::give;
use crate::exchange::worker::Worker;
use crate::logging::access_log::complain;
use crate::logging::counting::AnsweredBy;
use crate::response::buffers::ResponseBuffers;
use crate::response::{Progress, ResponseWriter, Terms};
use crate::scheduling::clock::Clock;

/// Answers the request with this head, of these bytes. It is neither logged nor counted as a request. `may_keep`: all of the
/// request has arrived, so the connection may go on.
pub fn refuse<A: App>(
    context: &mut ExchangeContext<'_, A>,
    head: &HeadEvent,
    bytes: &[u8],
    retry_after: &str,
    may_keep: bool,
) -> Served<A::Pending> {
    begin(context, wire_of(&head.head, head.wire), is_head(&head.head, bytes), client_keeps(head) && may_keep);
    context.writer.answer_overloaded(retry_after);
    match context.writer.advance() {
        Progress::Done | Progress::Broken => finish_unnoted(context),
        Progress::Blocked => Served::Blocked(keep_unnoted(context, AnsweredBy::Admission)),
    }
}

/// Answers a request that its bulkhead refuses, and counts it as such.
#[cold]
pub fn refuse_for_bulkhead(refused: &RefusedRequest, worker: &Worker, now_ms: u64, writer: &mut ResponseWriter<'_>) {
    let (answer, name, line) = refused.answer();
    give(&answer, worker.rules, writer);
    if let Some(line) = worker.peer_warnings.note("a bulkhead", name, now_ms, || line) {
        complain(worker.number, &line);
    }
}

/// A request has waited for a permit too long, and all threads are in calls: its answer begins and leaves without one. `is_last`:
/// it is the connection's last in any case. What the client does not take now leaves when a thread is free.
pub fn refuse_without_thread(
    refused: &RefusedRequest,
    waiting: &mut Waiting,
    is_last: bool,
    worker: &Worker,
    clock: &Clock,
    writer: &mut ResponseWriter<'_>,
) {
    let Waiting { head, bytes, passage, .. } = waiting;
    let client_keeps = client_keeps(head);
    let may_go_on = !is_last && worker.settings.limits.keepalive_ms > 0 && !worker.closes_connections();
    let terms = Terms {
        wire: wire_of(&head.head, head.wire),
        head_only: is_head(&head.head, bytes),
        keep_alive: client_keeps && may_go_on,
        client_keeps,
        may_cork: false,
        date_line: clock.date_line(),
    };
    writer.begin(terms, ResponseBuffers::default());
    passage.change(writer);
    if let (Some(rules), Some(identity)) = (worker.identity, &passage.identity) {
        writer.set_own_fields(rules.fields(identity));
    }
    refuse_for_bulkhead(refused, worker, clock.now_ms, writer);
    writer.finish();
    if writer.advance() == Progress::Done && !writer.keeps_alive() {
        writer.transport.end_sending();
    }
}

/// Whether the client keeps its connection open.
fn client_keeps(head: &HeadEvent) -> bool {
    match &head.head {
        RequestHead::Http { facts, .. } => facts.keep_alive,
        RequestHead::Variables { keep_alive, .. } => *keep_alive,
    }
}
