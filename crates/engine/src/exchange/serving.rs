//! Serving a request: from a head and a body to the application, its response, the log line and the counters.
//!
//! It does not know about readiness or time limits (those belong to the connection). It runs on the worker thread that read the
//! request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::http1::head::{HeaderFacts, RequestLine, Version, header_block};
use bolide_protocol::http1::target::{Target, decode_path, split_target};
use bolide_protocol::http1::{Framing, target::TargetForm};
use bolide_protocol::response::Wire;
use bolide_protocol::session::RequestHead;
use bolide_protocol::variables::VariableFacts;
use bolide_protocol::{Fault, Span};
use bolide_routes::{Network, Values};
use bolide_scoreboard::add;

use super::beginning::{begin_once, log_entry};
use super::finishing::{finish_kept, finish_line};
use super::log_entry::{LogEntry, NotedValues};
use super::{BodySource, Served, Suspended};
use crate::answer::Answer;
use crate::app::{App, Outcome};
use crate::exchange::bulkheads::Permit;
use crate::exchange::cancelling::ends_before_call;
use crate::exchange::context::{ExchangeContext, ThreadContext};
use crate::exchange::entrance::{Entrance, admit};
use crate::exchange::health::{answer_check, is_check};
use crate::exchange::passage::Passage;
use crate::exchange::routing::{HttpValues, Routed, Rules, VariableValues, WithMeans};
use crate::exchange::worker::Worker;
use crate::logging::access_log::complain;
use crate::logging::counting::{self, AnsweredBy};
use crate::logging::log_line::Texts;
use crate::logging::waiting;
use crate::request::websocket::{self, Handshake};
use crate::request::{HeaderMemory, HttpRequest, LogFacts, Parts, Request, RequestParts, SharedIdentity, VariablesRequest};
use crate::response::{Progress, ResponseWriter};
use crate::scheduling::clock::precise_us;
use crate::scheduling::phases::Moment;

/// Serves a request. `bytes` are those of its head; its fields or variables are in `context.thread.parts`. `wire` is the encoding
/// of answers of the connection's session.
///
/// # Errors
/// An invalid target, or an invalid upgrade request: nothing has been answered yet.
pub fn serve<A: App>(
    context: &mut ExchangeContext<'_, A>,
    (head, bytes): (&RequestHead, &[u8]),
    wire: Wire,
    memory: HeaderMemory<'_, A::Memo>,
    source: BodySource<'_>,
) -> Result<Served<A::Pending>, Fault> {
    if is_check(context.worker, head, bytes, &context.thread.parts.variables) {
        return Ok(answer_check(context, head, bytes, wire));
    }
    match head {
        RequestHead::Http { line, facts } => serve_http(context, (line, facts, bytes), wire, memory, source),
        RequestHead::Variables { facts, keep_alive } => serve_variables(context, (facts, bytes), (wire, *keep_alive), source),
    }
}

fn serve_http<A: App>(
    context: &mut ExchangeContext<'_, A>,
    (line, facts, bytes): (&RequestLine, &HeaderFacts, &[u8]),
    wire: Wire,
    memory: HeaderMemory<'_, A::Memo>,
    source: BodySource<'_>,
) -> Result<Served<A::Pending>, Fault> {
    let method = line.method.of(bytes);
    let target_bytes = line.target.of(bytes);
    // RFC 8441 section 4: an extended CONNECT has a target like other methods, and is served here.
    let is_extended = line.version == Version::Http2 && facts.upgrade;
    let target = split_target(target_bytes, if is_extended { b"GET" } else { method })?;
    let was_changed = decode_path(target.path.of(target_bytes), &mut context.thread.path)?;
    let header_bytes = bytes.get(line.length as usize..).unwrap_or_default();
    let authority = authority_of(context, target.authority.of(target_bytes), facts, header_bytes)?;
    let handshake = handshake_of_fields(context, facts, method, header_bytes)?;
    let is_known = matches!(memory, HeaderMemory::Same(_));
    if !is_known && context.thread.parts.fields.is_empty() {
        // The block was read before but no memo was made of it, so it is parsed again.
        let _ = header_block(header_bytes, line.version, &context.worker.head_limits, &mut context.thread.parts.fields);
    }
    let (decoded, fields) = (std::mem::take(&mut context.thread.path), std::mem::take(&mut context.thread.parts.fields));
    // Routes, mounts, files and the application use the same path.
    let path = if was_changed { &decoded } else { target.path.of(target_bytes) };
    let uri = request_uri(&target, target_bytes);
    let worker = context.worker;
    let has_passed = context.passage.is_some();
    let waited_us = match worker.reads_start && context.client.is_trusted() {
        true if !has_passed => waiting::note_field(context.thread.meters, &fields, header_bytes),
        _ => None,
    };
    // A block that was read before has no fields here.
    context.keep_said_start(|| match is_known {
        false => waiting::find_field(&fields, header_bytes).is_some(),
        true => repeats_start(line, header_bytes, worker),
    });
    let wire = if line.version == Version::Http10 { Wire::Http10 } else { wire };
    begin_once(context, wire, method == b"HEAD", facts.keep_alive);
    note_waited(&mut context.writer, waited_us);
    let (client, script_name, listener) = (context.client, script_name(context), context.listener);
    let (request_uri, query, read) = (&*uri, target.query.of(target_bytes), &source);
    // Only computed if rules or the log format need it, and copied only then, as a reference to it would keep all in memory.
    let values = move || HttpValues {
        method,
        uri: request_uri,
        path,
        query,
        authority,
        version: line.version,
        header_bytes,
        body_bytes: read.length(),
        peer: client.peer(),
        script_name,
        is_https: client.is_https(),
        listener: worker.listeners.get(listener),
        worker: worker.number,
    };
    // What the rules have decided is large, so it stays where it is made.
    let mut found = match worker.sees_requests || has_passed {
        false => Findings::default(),
        true => see(context, move || (client.peer().network(), path.into()), values),
    };
    let routed = found.decided.as_ref();
    let or = |name: &[u8], before| routed.map_or(before, |routed| routed.or(name, before));
    let parts = RequestParts(Parts::Http(HttpRequest {
        method: or(b"REQUEST_METHOD", method),
        uri: or(b"REQUEST_URI", &uri),
        raw_uri: target_bytes,
        path: or(b"PATH_INFO", path),
        query: or(b"QUERY_STRING", target.query.of(target_bytes)),
        authority,
        version: line.version,
        header_bytes,
        variables: routed.map_or(&[], Routed::variables),
        fields: &fields,
        memo: memory,
        upgrade: facts.upgrade,
        chunked: facts.framing == Framing::Chunked,
    }));
    let entry = LogEntry {
        method: or(b"REQUEST_METHOD", method),
        uri: or(b"REQUEST_URI", &uri),
        protocol: line.version.name().as_bytes(),
        address: or(b"REMOTE_ADDR", context.client.log_address()),
        user: or(b"REMOTE_USER", b""),
        noted: found.noted,
        identity: found.identity,
        ..log_entry(context)
    };
    let served = answer(context, parts, entry, routed, (source, handshake));
    context.thread.parts.fields = fields;
    context.thread.path = decoded;
    Ok(served.with_rules(&mut found.decided))
}

fn serve_variables<A: App>(
    context: &mut ExchangeContext<'_, A>,
    (facts, bytes): (&VariableFacts, &[u8]),
    (wire, keep_alive): (Wire, bool),
    source: BodySource<'_>,
) -> Result<Served<A::Pending>, Fault> {
    let mut variables = std::mem::take(&mut context.thread.parts.variables);
    let worker = context.worker;
    if let Some(names) = &worker.clients.server_names {
        let host = variables.iter().rfind(|variable| variable.name.of(bytes) == b"HTTP_HOST");
        names.check(host.map_or(b"", |host| host.value.of(bytes)))?;
    }
    begin_once(context, wire, facts.head_request, keep_alive);
    let count = variables.len();
    let has_passed = context.passage.is_some();
    let values = VariableValues { bytes, variables: &variables, worker: worker.number };
    let limited = || (values.network(), values.value(b"PATH_INFO").unwrap_or_default());
    let mut routed = decide(context, limited, move || values);
    let raw_uri = facts.uri.map_or(&b""[..], |span| span.of(bytes));
    let changed;
    let (mut facts, mut bytes) = (*facts, bytes);
    if let Some((packet, more, new)) = routed.as_ref().and_then(|routed| routed.packet(bytes, &variables, facts)) {
        changed = packet;
        (bytes, variables, facts) = (&changed, more, new);
    }
    let text = |span: Option<Span>| span.map_or(&b""[..], |span| span.of(bytes));
    let find = |name: &[u8]| {
        variables.iter().rfind(|variable| variable.name.of(bytes) == name).map_or(&b""[..], |found| found.value.of(bytes))
    };
    if worker.reads_start && !has_passed {
        // A client of these protocols is a reverse proxy.
        let waited_us = waiting::note(context.thread.meters, find(waiting::VARIABLE));
        note_waited(&mut context.writer, waited_us);
    }
    context.keep_said_start(|| !find(waiting::VARIABLE).is_empty());
    let handshake = match A::STREAMS_BODY {
        // Another protocol can't be used inside of FastCGI's records.
        true if !matches!(wire, Wire::FastCgi { .. }) => {
            websocket::asked_by_variables(&find, &worker.settings.asynchronous.websocket)?
        }
        _ => None,
    };
    let is_logged = worker.settings.logging.may_log_requests();
    let all = &variables;
    let values = || VariableValues { bytes, variables: all, worker: worker.number };
    let identity = context.identity(values);
    let noted = noted(worker, None, values);
    let entry = LogEntry {
        method: text(facts.method),
        uri: text(facts.uri),
        protocol: text(facts.protocol),
        // The log shows the client, not the reverse proxy.
        address: if is_logged { logged_address(&find, worker) } else { b"" },
        user: if is_logged { find(b"REMOTE_USER") } else { b"" },
        noted,
        identity,
        ..log_entry(context)
    };
    let VariableFacts { method, uri, .. } = facts;
    let parts = RequestParts(Parts::Variables(VariablesRequest { bytes, variables: &variables, method, uri, raw_uri }));
    let served = answer(context, parts, entry, routed.as_ref(), (source, handshake));
    // Those that rules have set are not in the bytes that a request keeps which is called later.
    variables.truncate(count);
    context.thread.parts.variables = variables;
    Ok(served.with_rules(&mut routed))
}

/// Notes the time that the request has waited before its head was here.
#[inline(always)]
fn note_waited(writer: &mut ResponseWriter<'_>, waited_us: Option<u64>) {
    if let (Some(waited_us), Some(times)) = (waited_us, &mut writer.notes.times) {
        times.waited_us = waited_us;
    }
}

/// Whether a header block that was read before, and whose fields were not kept, says when the request arrived.
#[cold]
fn repeats_start(line: &RequestLine, header_bytes: &[u8], worker: &Worker) -> bool {
    let mut fields = Vec::new();
    let _was_valid = header_block(header_bytes, line.version, &worker.head_limits, &mut fields);
    waiting::find_field(&fields, header_bytes).is_some()
}

/// Checks whether the client asks for a WebSocket, if the application supports it.
fn handshake_of_fields<A: App>(
    context: &ExchangeContext<'_, A>,
    facts: &HeaderFacts,
    method: &[u8],
    header_bytes: &[u8],
) -> Result<Option<Handshake>, Fault> {
    let settings = &context.worker.settings.asynchronous.websocket;
    if A::STREAMS_BODY && facts.upgrade && method == b"CONNECT" {
        // RFC 8441 section 4: the session has already found a WebSocket request.
        return websocket::asked_by_connect(&context.thread.parts.fields, header_bytes, settings).map(Some);
    }
    if !(A::STREAMS_BODY && facts.upgrade && method == b"GET") {
        return Ok(None);
    }
    let handshake = websocket::asked_by_fields(&context.thread.parts.fields, header_bytes, settings)?;
    if handshake.is_some() && facts.framing != Framing::None {
        // RFC 6455 section 4.1: frames follow the head, and a body would be taken for frames.
        return Err(Fault::bad_request("A WebSocket handshake must not have a body."));
    }
    Ok(handshake)
}

/// What rules, identities and the log format find in a request.
#[derive(Default)]
struct Findings {
    decided: Option<Routed>,
    identity: SharedIdentity,
    noted: NotedValues,
}

/// Not inlined, because the values would be gathered even for requests of which nothing is needed.
#[inline(never)]
fn see<'r, A: App, V: Values>(
    context: &mut ExchangeContext<'_, A>,
    limited: impl FnOnce() -> (Network<'r>, Cow<'r, [u8]>),
    values: impl Fn() -> V,
) -> Findings {
    let decided = decide(context, limited, &values);
    let identity = context.identity(&values);
    let noted = noted(context.worker, decided.as_ref(), values);
    Findings { decided, identity, noted }
}

/// Has the rules decide, unless they have before the request waited. `None`: there are none but limits, and it passes them.
fn decide<'r, A: App, V: Values>(
    context: &mut ExchangeContext<'_, A>,
    limited: impl FnOnce() -> (Network<'r>, Cow<'r, [u8]>),
    values: impl FnOnce() -> V,
) -> Option<Routed> {
    if let Some(passage) = &mut context.passage {
        return passage.resume(&mut context.writer);
    }
    let rules = context.worker.rules?;
    match rules.refusal(limited) {
        None if !rules.needs_walk() => None,
        None => Some(walk(context, rules, values())),
        Some(answer) => Some(rules.refuse(answer, &values(), &mut context.writer)),
    }
}

/// Walks the rules; slow work in them runs without the language.
fn walk<A: App>(context: &mut ExchangeContext<'_, A>, rules: &'static Rules, values: impl Values) -> Routed {
    let app = RefCell::new(&mut *context.app);
    let aside = |work: &mut dyn FnMut()| app.borrow_mut().aside(work);
    rules.walk(&WithMeans { values, services: rules.services(), aside: &aside }, &mut context.writer)
}

/// The values that the log format needs of a request, copied while its bytes are at hand. Costs one branch if there are none.
#[inline]
fn noted<V: Values>(worker: &Worker, routed: Option<&Routed>, values: impl FnOnce() -> V) -> NotedValues {
    let names = worker.line_style.names();
    if names.is_empty() {
        return None;
    }
    let values = values();
    let value = |name: &'static Vec<u8>| match routed.and_then(|routed| routed.value(name)) {
        Some(value) => Cow::Borrowed(value),
        None => values.value(name).unwrap_or_default(),
    };
    Some(Arc::new(Texts::of(names.iter().map(value))))
}

/// Answers a valid request: by a route, a file or the application. Inlined, because otherwise the request would be moved once
/// more.
#[inline(always)]
fn answer<A: App>(
    context: &mut ExchangeContext<'_, A>,
    parts: RequestParts<'_, A::Memo>,
    mut entry: LogEntry<'_>,
    routed: Option<&Routed>,
    (source, handshake): (BodySource<'_>, Option<Handshake>),
) -> Served<A::Pending> {
    let is_unread = source.is_unread();
    let (body, request_stream) = source.parts();
    let mut request = Request {
        listener: context.listener,
        peer: context.client.peer(),
        forwarded: context.client.forwarded(),
        script_name: script_name(context),
        parts,
        body,
        request_stream,
        handshake,
        id: context.id,
        identity: entry.identity.clone(),
        start: context.start,
        slot: context.thread.slot,
        log_facts: LogFacts::default(),
    };
    let Called { outcome, permit } = match context.worker.may_withhold {
        false => Called { outcome: call(context, &mut request, &mut entry, None), permit: None },
        true => match call_if_admitted(context, &mut request, &mut entry, routed, is_unread) {
            Ok(called) => called,
            Err(passage) => return Served::Passed(passage),
        },
    };
    resolve(context, outcome, entry, permit)
}

/// The outcome of a request, and the permit that its call had.
struct Called<Pending> {
    outcome: Outcome<Pending>,
    permit: Option<Permit>,
}

/// Calls the application if the request is admitted now.
///
/// # Errors
/// The application is called later.
#[inline(never)]
fn call_if_admitted<A: App>(
    context: &mut ExchangeContext<'_, A>,
    request: &mut Request<'_, A::Memo>,
    entry: &mut LogEntry<'_>,
    routed: Option<&Routed>,
    is_unread: bool,
) -> Result<Called<A::Pending>, Box<Passage>> {
    match admit(context, request, routed, is_unread) {
        Entrance::Called(None) => Ok(Called { outcome: call(context, request, entry, None), permit: None }),
        Entrance::Called(Some(permit)) => {
            let outcome = call(context, request, entry, Some(&permit));
            Ok(Called { outcome, permit: Some(permit) })
        }
        Entrance::Answered(answered_by) => {
            entry.answered_by = answered_by;
            Ok(Called { outcome: Outcome::Finished, permit: None })
        }
        Entrance::Later(mut passage) => {
            passage.identity = request.identity.take();
            Err(passage)
        }
    }
}

/// Calls the application. A request with a permit teaches its bulkhead how long its calls are.
fn call<A: App>(
    context: &mut ExchangeContext<'_, A>,
    request: &mut Request<'_, A::Memo>,
    entry: &mut LogEntry<'_>,
    permit: Option<&Permit>,
) -> Outcome<A::Pending> {
    if context.worker.may_cancel && ends_before_call(context, request.handshake.is_some()) {
        return Outcome::Finished;
    }
    let slot = context.thread.slot;
    let limit_ms = context.writer.notes.harakiri_ms;
    if let Some(limit_ms) = limit_ms {
        slot.limit_ms.store(limit_ms, Relaxed);
    }
    context.worker.watch_leaks(context.app, entry.method, entry.uri);
    if let Some(identity) = &entry.identity {
        slot.identify(identity.id.as_bytes());
    }
    let began_ms = context.thread.clock.now_ms;
    let number = match context.thread.awaited {
        0 => slot.begin(began_ms, &[entry.method, b" ", entry.uri]),
        _ => recorded_before(context.thread, entry),
    };
    entry.recorded = Some((slot, number));
    if let Some(identity) = &entry.identity {
        identity.record(slot, number);
    }
    context.writer.notes.note_time(Moment::Called);
    let served_from_us = context.worker.admission.as_ref().map(|admission| (admission, precise_us()));
    if permit.is_some_and(Permit::expects_long_call) {
        // Requests of this worker's other connections go to other workers immediately if all of its threads are in calls, which
        // shows only now that this call has begun.
        context.worker.companion.expect_long_call();
    }
    let outcome = context.app.enter().call(request, &mut Answer::of(&mut context.writer));
    slot.leave();
    note_return(&outcome, &mut context.writer);
    // Times that are set from here on start now, even if the application took long.
    context.thread.clock.tick();
    if let Some(permit) = permit {
        permit.note_call(context.thread.clock.now_ms.saturating_sub(began_ms));
    }
    if let Some((admission, from_us)) = served_from_us
        && !matches!(outcome, Outcome::Ongoing(_))
    {
        admission.note_service(precise_us().saturating_sub(from_us), context.thread.clock.now_ms);
    }
    if limit_ms.is_some() {
        slot.limit_ms.store(0, Relaxed);
    }
    entry.log_facts = request.log_facts;
    outcome
}

/// The body of the request was awaited: its call goes on in the same entry of the recorder, if that is still its own.
#[cold]
fn recorded_before(thread: &mut ThreadContext, entry: &LogEntry<'_>) -> u64 {
    let (number, now_ms) = (std::mem::take(&mut thread.awaited), thread.clock.now_ms);
    if thread.slot.resume(number, now_ms) { number } else { thread.slot.begin(now_ms, &[entry.method, b" ", entry.uri]) }
}

/// Notes when the application has returned, unless it continues by itself.
#[inline(always)]
fn note_return<Pending>(outcome: &Outcome<Pending>, writer: &mut ResponseWriter<'_>) {
    if writer.notes.times.is_some() && !matches!(outcome, Outcome::Ongoing(_)) {
        writer.notes.note_time(Moment::Returned);
    }
}

/// Resumes a response after its client has read data.
pub fn resume_response<A: App>(
    context: &mut ExchangeContext<'_, A>,
    mut suspended: Box<Suspended<A::Pending>>,
) -> Served<A::Pending> {
    context.writer.notes.note_wait(None);
    loop {
        if suspended.pending.is_some() && context.writer.turn_is_over() {
            return Served::Blocked(suspended);
        }
        match advance(context) {
            Progress::Blocked => return Served::Blocked(suspended),
            Progress::Broken => {
                if let Some(pending) = suspended.pending.take() {
                    context.app.enter().abandon(pending);
                }
                add(&context.thread.slot.tally.write_errors, 1);
                return finish_kept(context, &suspended.log_entry.entry());
            }
            Progress::Done => {}
        }
        let Some(pending) = suspended.pending.take() else {
            return finish_kept(context, &suspended.log_entry.entry());
        };
        suspended.log_entry.resume(context.thread.slot, context.thread.clock.now_ms);
        let outcome = context.app.enter().resume(pending, &mut Answer::of(&mut context.writer));
        context.thread.slot.leave();
        note_return(&outcome, &mut context.writer);
        context.thread.clock.tick();
        let entry = suspended.log_entry.entry();
        let pending = conclude(context, outcome, &entry);
        if pending.is_none() {
            suspended.permit = None;
        }
        suspended.pending = pending;
        if suspended.pending.is_some() && context.writer.is_full() {
            return Served::Blocked(suspended);
        }
    }
}

/// Sends buffered data. For a file this reads and perhaps encodes it, which may take a while.
fn advance<A: App>(context: &mut ExchangeContext<'_, A>) -> Progress {
    if context.writer.has_left() {
        return Progress::Done;
    }
    if context.writer.has_file() { context.app.aside(|| context.writer.advance()) } else { context.writer.advance() }
}

/// Ends a response that its client has not read in time: runs the application's `close()`, and writes the log line.
pub fn give_up<A: App>(context: &mut ExchangeContext<'_, A>, mut suspended: Suspended<A::Pending>) {
    if let Some(pending) = suspended.pending.take() {
        context.app.enter().abandon(pending);
    }
    finish_kept(context, &suspended.log_entry.entry());
}

/// Applies an outcome to the response; returns the pending response, if any.
fn conclude<A: App>(
    context: &mut ExchangeContext<'_, A>,
    outcome: Outcome<A::Pending>,
    entry: &LogEntry<'_>,
) -> Option<A::Pending> {
    let is_fatal = matches!(outcome, Outcome::FailedFatally);
    match outcome {
        Outcome::Suspended(pending) | Outcome::Ongoing(pending) => return Some(pending),
        Outcome::FailedOpen { pending, is_fatal } => {
            let failed = if is_fatal { Outcome::FailedFatally } else { Outcome::Failed };
            conclude(context, failed, entry);
            advance(context);
            if let Some((slot, number)) = entry.recorded {
                slot.resume(number, context.thread.clock.now_ms);
            }
            context.app.enter().abandon(pending);
            context.thread.slot.leave();
        }
        Outcome::Finished => {
            context.writer.end_answer();
            if let Some(fault) = context.writer.length_fault().filter(|_| !A::KEEPS_EXCHANGES) {
                let (method, uri) = (String::from_utf8_lossy(entry.method), String::from_utf8_lossy(entry.uri));
                complain(context.worker.number, &format!("the application's answer to {method} {uri} {fault}"));
            }
        }
        Outcome::Failed | Outcome::FailedFatally => {
            counting::count_exception(&context.thread.slot.tally, entry.log_facts.application);
            if is_fatal {
                context.worker.availability.ask_to_leave();
                context.writer.close_after();
            }
            if context.writer.head_has_left() {
                count_broken_off(context);
                context.writer.cut_off();
            } else {
                fail(context);
            }
        }
    }
    None
}

/// Counts an aborted answer as an error if its status was not one; a status of 500 and above is already counted.
fn count_broken_off<A: App>(context: &ExchangeContext<'_, A>) {
    if context.writer.status_code() < counting::FAILED_STATUS {
        counting::count_error(&context.thread.slot.tally);
    }
}

/// Answers 500, with the configured page if there is one.
fn fail<A: App>(context: &mut ExchangeContext<'_, A>) {
    let rules = context.worker.rules.filter(|rules| rules.has_error_page(500));
    // Reading the page may wait for the disk.
    match rules.and_then(|rules| context.app.aside(|| rules.error_page(500))) {
        Some(page) => context.writer.answer_page(500, "text/html", &page),
        None => context.writer.answer(500, "Internal Server Error", "Internal Server Error"),
    }
}

fn resolve<A: App>(
    context: &mut ExchangeContext<'_, A>,
    outcome: Outcome<A::Pending>,
    mut entry: LogEntry<'_>,
    permit: Option<Permit>,
) -> Served<A::Pending> {
    if let Outcome::Ongoing(pending) = outcome {
        counting::count_taken(&context.thread.slot.tally);
        if let Some(slow) = &context.worker.slow {
            let thread = context.thread.slot.thread.load(Relaxed);
            slow.keep(entry.recorded, thread, context.app.enter().address_of(&pending));
        }
        entry.answered_by = AnsweredBy::AsynchronousApplication;
        return Served::Ongoing(Box::new(Suspended { pending: Some(pending), permit, log_entry: entry.kept() }));
    }
    let pending = conclude(context, outcome, &entry);
    // The client may still read the answer of an application that has ended.
    let permit = permit.filter(|_| pending.is_some());
    if pending.is_none() {
        match advance(context) {
            Progress::Done => return finish_line(context, &entry),
            Progress::Broken => {
                add(&context.thread.slot.tally.write_errors, 1);
                return finish_line(context, &entry);
            }
            Progress::Blocked => {}
        }
    }
    let suspended = Box::new(Suspended { pending, permit, log_entry: entry.kept() });
    // The socket may have become writable while the application ran. A suspended response is retried once, because an
    // edge-triggered poll does not report the same event twice.
    if suspended.pending.is_some() { resume_response(context, suspended) } else { Served::Blocked(suspended) }
}

/// Host and port that override the Host header, if any: from a trusted reverse proxy, or from the target.
///
/// # Errors
/// The resulting host is not one of `server-names`.
#[inline]
fn authority_of<'a, A: App>(
    context: &ExchangeContext<'a, A>,
    of_target: &'a [u8],
    facts: &HeaderFacts,
    header_bytes: &[u8],
) -> Result<&'a [u8], Fault> {
    let authority = match context.client.forwarded() {
        Some(forwarded) if !forwarded.host.is_empty() => forwarded.host.as_slice(),
        _ => of_target,
    };
    if let Some(names) = &context.worker.clients.server_names {
        let named = facts.host.map_or(&b""[..], |host| host.of(header_bytes));
        names.check(if authority.is_empty() { named } else { authority })?;
    }
    Ok(authority)
}

/// The client of a reverse proxy's request.
fn logged_address<'a>(find: &dyn Fn(&[u8]) -> &'a [u8], worker: &Worker) -> &'a [u8] {
    let said = if worker.settings.logging.x_forwarded_for { find(b"HTTP_X_FORWARDED_FOR") } else { b"" };
    if said.is_empty() { find(b"REMOTE_ADDR") } else { said }
}

/// The path prefix that a reverse proxy has stripped: as sent by it, or the setting.
fn script_name<'a, A: App>(context: &ExchangeContext<'a, A>) -> &'a [u8] {
    let said = context.client.forwarded().and_then(|forwarded| forwarded.prefix.as_deref());
    said.unwrap_or(context.worker.settings.application.root_path.as_bytes())
}

/// REQUEST_URI as in uWSGI: path and query as the client sent them, also for an absolute-form target.
fn request_uri<'a>(target: &Target, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if target.form != TargetForm::Absolute {
        return Cow::Borrowed(bytes);
    }
    let rest = bytes.get(target.authority.end as usize..).unwrap_or_default();
    if rest.starts_with(b"/") { Cow::Borrowed(rest) } else { Cow::Owned([b"/", rest].concat()) }
}
