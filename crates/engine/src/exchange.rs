//! One request and its answer: from a complete head and body to the application, its response, the log line
//! and the counters. It knows no readiness and no time limits (those are the connection's) and runs on the
//! thread that read the request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::Fault;
use bolide_protocol::http1::head::{HeaderFacts, RequestLine, Version};
use bolide_protocol::http1::target::{Target, decode_path, split_target};
use bolide_protocol::http1::{Framing, target::TargetForm};
use bolide_protocol::response::Wire;
use bolide_protocol::variables::VariableFacts;

use crate::access_log::{LogLine, complain};
use crate::app::{App, Outcome};
use crate::body::Body;
use crate::clock::precise_us;
use crate::connections::Key;
use crate::dispatch::serve_directly;
use crate::listener::Peer;
use crate::request::{HeaderMemory, HttpRequest, LogFacts, Request, RequestParts, UwsgiRequest};
use crate::request_stream::RequestStream;
use crate::response::{Progress, ResponseWriter, Terms};
use crate::routing::{HttpValues, Routed, UwsgiValues};
use crate::websocket;
use crate::worker::{ThreadContext, Worker};

/// A head of either protocol, parsed. Spans are relative to the head's first byte.
#[derive(Debug, Clone, Copy)]
pub enum Head {
    Http { line: RequestLine, facts: HeaderFacts },
    Uwsgi { facts: VariableFacts, bytes: usize },
}

/// How an exchange ended, or did not yet.
pub enum Served<Pending> {
    /// The response has left; `keep` says whether the connection goes on.
    Done { keep: bool },
    /// The client must take something first.
    Blocked(Box<Suspended<Pending>>),
    /// The application goes on by itself.
    Ongoing(Box<Suspended<Pending>>),
}

/// A request's body: whole, or as it comes.
pub enum BodySource<'a> {
    Whole(Body),
    Streamed(&'a mut RequestStream),
}

/// A response that waits for its client, with what its log line will need.
pub struct Suspended<Pending> {
    pub pending: Option<Pending>,
    log_entry: KeptLogEntry,
}

/// What the log says of a request, in memory of its own: one piece for all texts.
struct KeptLogEntry {
    text: Vec<u8>,
    /// Where each of the five texts ends: method, target, protocol, address, user.
    ends: [u32; 5],
    log_facts: LogFacts,
    ctime: [u8; 24],
    began_us: u64,
}

/// The same while the request's bytes are still at hand.
struct LogEntry<'a> {
    method: &'a [u8],
    uri: &'a [u8],
    protocol: &'a [u8],
    address: &'a [u8],
    user: &'a [u8],
    log_facts: LogFacts,
    ctime: [u8; 24],
    began_us: u64,
}

/// Serves a request. `bytes` begins with its head; `thread.fields` or `thread.variables` hold what was parsed.
///
/// # Errors
/// A target that can't be understood: nothing has been answered yet.
pub fn serve<A: App>(
    context: &mut ExchangeContext<'_, A>,
    head: &Head,
    bytes: &[u8],
    memory: HeaderMemory<'_, A::Memo>,
    body_source: BodySource<'_>,
) -> Result<Served<A::Pending>, Fault> {
    match head {
        Head::Http { line, facts } => serve_http(context, line, facts, bytes, memory, body_source),
        Head::Uwsgi { facts, bytes: length } => serve_uwsgi(context, facts, &bytes[..*length], body_source),
    }
}

impl<'a> BodySource<'a> {
    /// Bytes of a body that is here; 0 for one that is still to come.
    fn length(&self) -> u64 {
        match self {
            BodySource::Whole(body) => body.length(),
            BodySource::Streamed(_) => 0,
        }
    }

    fn parts(self) -> (Body, Option<&'a mut RequestStream>) {
        match self {
            BodySource::Whole(body) => (body, None),
            BodySource::Streamed(request_stream) => (Body::Empty, Some(request_stream)),
        }
    }
}

/// Where an exchange happens.
pub struct ExchangeContext<'a, A: App> {
    pub worker: &'a Worker,
    pub thread: &'a mut ThreadContext,
    pub app: &'a mut A,
    pub writer: ResponseWriter<'a>,
    pub peer: &'a Peer,
    pub listener: usize,
    pub connection: Key,
}

fn serve_http<A: App>(
    context: &mut ExchangeContext<'_, A>,
    line: &RequestLine,
    facts: &HeaderFacts,
    bytes: &[u8],
    memory: HeaderMemory<'_, A::Memo>,
    body_source: BodySource<'_>,
) -> Result<Served<A::Pending>, Fault> {
    let method = line.method.of(bytes);
    let target_bytes = line.target.of(bytes);
    let target = split_target(target_bytes, method)?;
    let path = target.path.of(target_bytes);
    let was_changed = decode_path(path, &mut context.thread.path)?;
    let decoded = std::mem::take(&mut context.thread.path);
    // Routes, mounts, files and the application see one path.
    let path = if was_changed { &decoded } else { path };
    let uri = request_uri(&target, target_bytes);
    let version_1_0 = line.version == Version::Http10;
    let worker = context.worker;
    context.writer.begin(
        Terms {
            wire: if version_1_0 { Wire::Http10 } else { Wire::Http11 },
            head_only: method == b"HEAD",
            keep_alive: facts.keep_alive && worker.settings.limits.keepalive_ms > 0 && !worker.is_draining(),
            may_cork: context.thread.may_cork,
            date_line: context.thread.clock.date_line(),
        },
        context.thread.buffers.lend(),
    );
    let head_start = line.length as usize;
    let header_bytes = &bytes[head_start..head_start + facts.length as usize];
    let routed = worker.rules.map(|rules| {
        let app = RefCell::new(&mut *context.app);
        let values = HttpValues {
            method,
            uri: &uri,
            path,
            query: target.query.of(target_bytes),
            authority: target.authority.of(target_bytes),
            version: line.version,
            header_bytes,
            body_bytes: body_source.length(),
            peer: context.peer,
            listener: worker.listeners.get(context.listener),
            worker: worker.number,
            aside: &|work| app.borrow_mut().aside(work),
        };
        rules.walk(&values, &mut context.writer)
    });
    let routed = routed.as_ref();
    let or = |name: &[u8], before| routed.map_or(before, |routed| routed.or(name, before));
    let fields = std::mem::take(&mut context.thread.fields);
    let handshake = if A::STREAMS && facts.upgrade && method == b"GET" {
        websocket::asked_by_fields(&fields, header_bytes, &context.worker.settings.asynchronous.websocket)?
    } else {
        None
    };
    if handshake.is_some() && facts.framing != Framing::None {
        // RFC 6455 section 4.1: frames follow the head, and what is announced as a body would be taken for them.
        return Err(Fault::bad_request("A request to switch to WebSocket has no body."));
    }
    let (body, request_stream) = body_source.parts();
    let mut request = Request {
        listener: context.listener,
        peer: context.peer,
        parts: RequestParts::Http(HttpRequest {
            method: or(b"REQUEST_METHOD", method),
            uri: or(b"REQUEST_URI", &uri),
            path: or(b"PATH_INFO", path),
            query: or(b"QUERY_STRING", target.query.of(target_bytes)),
            authority: target.authority.of(target_bytes),
            version: line.version,
            header_bytes,
            variables: routed.map_or(&[], Routed::variables),
            fields: &fields,
            memo: memory,
            upgrade: facts.upgrade,
            chunked: facts.framing == Framing::Chunked,
        }),
        body,
        request_stream,
        handshake,
        connection: context.connection,
        slot: context.thread.slot,
        log_facts: LogFacts::default(),
    };
    let protocol: &[u8] = if version_1_0 { b"HTTP/1.0" } else { b"HTTP/1.1" };
    let mut entry = LogEntry::new(context, or(b"REQUEST_METHOD", method), or(b"REQUEST_URI", &uri), protocol);
    entry.address = or(b"REMOTE_ADDR", context.peer.address.as_bytes());
    entry.user = or(b"REMOTE_USER", b"");
    let outcome = call(context, &mut request, &mut entry, routed);
    let answered = settle(context, outcome, entry);
    context.thread.fields = fields;
    context.thread.path = decoded;
    Ok(answered)
}

fn serve_uwsgi<A: App>(
    context: &mut ExchangeContext<'_, A>,
    facts: &VariableFacts,
    bytes: &[u8],
    body_source: BodySource<'_>,
) -> Result<Served<A::Pending>, Fault> {
    let terms = Terms {
        wire: Wire::Uwsgi,
        head_only: facts.head_request,
        keep_alive: false,
        may_cork: false,
        date_line: context.thread.clock.date_line(),
    };
    context.writer.begin(terms, context.thread.buffers.lend());
    let mut variables = std::mem::take(&mut context.thread.variables);
    let (mut facts, mut bytes) = (*facts, bytes);
    let routed = context.worker.rules.map(|rules| {
        let app = RefCell::new(&mut *context.app);
        let aside = |work: &mut dyn FnMut()| app.borrow_mut().aside(work);
        let values = UwsgiValues { bytes, variables: &variables, worker: context.worker.number, aside: &aside };
        rules.walk(&values, &mut context.writer)
    });
    let changed;
    if let Some((packet, more, new)) = routed.as_ref().and_then(|routed| routed.packet(bytes, &variables, facts)) {
        changed = packet;
        (bytes, variables, facts) = (&changed, more, new);
    }
    let text = |span: Option<bolide_protocol::Span>| span.map_or(&b""[..], |span| span.of(bytes));
    let find = |name: &[u8]| {
        variables.iter().rfind(|variable| variable.name.of(bytes) == name).map_or(&b""[..], |found| found.value.of(bytes))
    };
    let logged = context.worker.settings.logging.requests;
    let user = if logged { find(b"REMOTE_USER") } else { b"" };
    let address = if logged { find(b"REMOTE_ADDR") } else { b"" };
    let handshake =
        if A::STREAMS { websocket::asked_by_variables(&find, &context.worker.settings.asynchronous.websocket)? } else { None };
    let (body, request_stream) = body_source.parts();
    let mut request = Request {
        listener: context.listener,
        peer: context.peer,
        parts: RequestParts::Uwsgi(UwsgiRequest {
            bytes,
            variables: &variables,
            method: facts.method,
            uri: facts.uri,
            protocol: facts.protocol,
        }),
        body,
        request_stream,
        handshake,
        connection: context.connection,
        slot: context.thread.slot,
        log_facts: LogFacts::default(),
    };
    let mut entry = LogEntry::new(context, text(facts.method), text(facts.uri), text(facts.protocol));
    // The log names the client, not the front server.
    entry.user = user;
    entry.address = address;
    let outcome = call(context, &mut request, &mut entry, routed.as_ref());
    let answered = settle(context, outcome, entry);
    context.thread.variables = variables;
    Ok(answered)
}

fn call<A: App>(
    context: &mut ExchangeContext<'_, A>,
    request: &mut Request<'_, A::Memo>,
    entry: &mut LogEntry<'_>,
    routed: Option<&Routed>,
) -> Outcome<A::Pending> {
    if context.worker.has_own_answers && serve_directly(context, request, routed.and_then(Routed::verdict)) {
        return Outcome::Finished;
    }
    let slot = context.thread.slot;
    let limit_ms = context.writer.harakiri_ms;
    if let Some(limit_ms) = limit_ms {
        slot.limit_ms.store(limit_ms, Relaxed);
    }
    slot.begin(context.thread.clock.now_ms, &[entry.method, b" ", entry.uri]);
    let outcome = context.app.call(request, &mut context.writer);
    slot.end();
    if limit_ms.is_some() {
        slot.limit_ms.store(0, Relaxed);
    }
    entry.log_facts = request.log_facts;
    outcome
}

/// Goes on with a response whose client has taken something.
pub fn go_on<A: App>(context: &mut ExchangeContext<'_, A>, mut suspended: Box<Suspended<A::Pending>>) -> Served<A::Pending> {
    loop {
        if suspended.pending.is_some() && context.writer.turn_is_over() {
            return Served::Blocked(suspended);
        }
        match advance(context) {
            Progress::Blocked => return Served::Blocked(suspended),
            Progress::Broken => {
                if let Some(pending) = suspended.pending.take() {
                    context.app.abandon(pending);
                }
                return finish_line(context, &suspended.log_entry.entry());
            }
            Progress::Done => {}
        }
        let Some(pending) = suspended.pending.take() else {
            return finish_line(context, &suspended.log_entry.entry());
        };
        let entry = suspended.log_entry.entry();
        context.thread.slot.begin(context.thread.clock.now_ms, &[entry.method, b" ", entry.uri]);
        let outcome = context.app.resume(pending, &mut context.writer);
        context.thread.slot.end();
        suspended.pending = conclude(context, outcome, entry.method, entry.uri);
        if suspended.pending.is_some() && context.writer.is_full() {
            return Served::Blocked(suspended);
        }
    }
}

/// Sends what waits. A file is read and perhaps encoded for it, which may take a while.
fn advance<A: App>(context: &mut ExchangeContext<'_, A>) -> Progress {
    if context.writer.has_file() { context.app.aside(|| context.writer.advance()) } else { context.writer.advance() }
}

/// Ends a response that its client has not taken in time: the application's `close()` runs, and the log has its line.
pub fn give_up<A: App>(context: &mut ExchangeContext<'_, A>, mut suspended: Suspended<A::Pending>) {
    if let Some(pending) = suspended.pending.take() {
        context.app.abandon(pending);
    }
    finish_line(context, &suspended.log_entry.entry());
}

/// What an outcome means for the response; what is still pending is returned.
fn conclude<A: App>(
    context: &mut ExchangeContext<'_, A>,
    outcome: Outcome<A::Pending>,
    method: &[u8],
    uri: &[u8],
) -> Option<A::Pending> {
    let leave = matches!(outcome, Outcome::FailedAndLeave);
    match outcome {
        Outcome::Suspended(pending) | Outcome::Ongoing(pending) => return Some(pending),
        Outcome::Finished => {
            context.writer.finish();
            // A streaming application was told in its face.
            if let Some(fault) = context.writer.length_fault().filter(|_| !A::STREAMS) {
                let (method, uri) = (String::from_utf8_lossy(method), String::from_utf8_lossy(uri));
                complain(context.worker.number, &format!("the application's answer to {method} {uri} {fault}"));
            }
        }
        Outcome::Failed | Outcome::FailedAndLeave => {
            let exceptions = &context.worker.row.exceptions;
            exceptions.store(exceptions.load(Relaxed) + 1, Relaxed);
            if leave {
                context.worker.leaving.store(true, Relaxed);
                context.writer.close_after();
            }
            if context.writer.head_has_left() {
                context.writer.cut_off();
            } else {
                fail(context.worker, &mut context.writer);
            }
        }
    }
    None
}

/// Answers 500, with the page for it where there is one.
fn fail(worker: &Worker, response: &mut ResponseWriter<'_>) {
    match worker.rules.and_then(|rules| rules.error_page(500)) {
        Some(page) => response.answer_page(500, "text/html", &page),
        None => response.answer(500, "Internal Server Error", "Internal Server Error"),
    }
}

fn settle<A: App>(context: &mut ExchangeContext<'_, A>, outcome: Outcome<A::Pending>, entry: LogEntry<'_>) -> Served<A::Pending> {
    if let Outcome::Ongoing(pending) = outcome {
        return Served::Ongoing(Box::new(Suspended { pending: Some(pending), log_entry: entry.into_kept() }));
    }
    let pending = conclude(context, outcome, entry.method, entry.uri);
    if pending.is_none() {
        match advance(context) {
            Progress::Done | Progress::Broken => return finish_line(context, &entry),
            Progress::Blocked => {}
        }
    }
    let suspended = Box::new(Suspended { pending, log_entry: entry.into_kept() });
    // The socket may have drained while the application was at work; a suspended response is tried once more,
    // because an edge-triggered poll does not tell the same news twice.
    if suspended.pending.is_some() { go_on(context, suspended) } else { Served::Blocked(suspended) }
}

/// Counters and the log line; the response's buffer goes back to the thread.
fn finish_line<A: App>(context: &mut ExchangeContext<'_, A>, entry: &LogEntry<'_>) -> Served<A::Pending> {
    let row = context.worker.row;
    let requests = row.requests.fetch_add(1, Relaxed) + 1;
    if context.worker.settings.logging.requests && !context.writer.is_unlogged {
        let response = &context.writer;
        context.thread.log.line(&LogLine {
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
            body_bytes: response.body_bytes,
            microseconds: precise_us().saturating_sub(entry.began_us),
            via_sendfile: response.sent_file,
            protocol: entry.protocol,
            status: response.status_code(),
            header_count: response.header_count(),
            head_bytes: response.head_bytes,
            core: context.thread.core,
        });
    }
    row.sent_bytes.store(row.sent_bytes.load(Relaxed) + context.writer.head_bytes + context.writer.body_bytes, Relaxed);
    let keep = context.writer.keeps_alive();
    context.thread.buffers.keep(context.writer.end());
    Served::Done { keep }
}

/// REQUEST_URI is what uWSGI's users know: the path and query as the client wrote them, also of an absolute-form target.
fn request_uri<'a>(target: &Target, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if target.form != TargetForm::Absolute {
        return Cow::Borrowed(bytes);
    }
    let rest = bytes.get(target.authority.end as usize..).unwrap_or_default();
    if rest.starts_with(b"/") { Cow::Borrowed(rest) } else { Cow::Owned([b"/", rest].concat()) }
}

impl<'a> LogEntry<'a> {
    fn new<A: App>(context: &ExchangeContext<'_, A>, method: &'a [u8], uri: &'a [u8], protocol: &'a [u8]) -> LogEntry<'a> {
        let began_us = if context.worker.settings.logging.requests { precise_us() } else { 0 };
        LogEntry {
            method,
            uri,
            protocol,
            address: b"",
            user: b"",
            log_facts: LogFacts::default(),
            ctime: context.thread.clock.ctime(),
            began_us,
        }
    }

    fn into_kept(self) -> KeptLogEntry {
        let texts = [self.method, self.uri, self.protocol, self.address, self.user];
        let mut text = Vec::with_capacity(texts.iter().map(|text| text.len()).sum());
        let ends = texts.map(|part| {
            text.extend_from_slice(part);
            text.len() as u32
        });
        KeptLogEntry { text, ends, log_facts: self.log_facts, ctime: self.ctime, began_us: self.began_us }
    }
}

impl KeptLogEntry {
    fn entry(&self) -> LogEntry<'_> {
        let part = |number: usize| {
            let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.text.get(begin as usize..self.ends[number] as usize).unwrap_or_default()
        };
        LogEntry {
            method: part(0),
            uri: part(1),
            protocol: part(2),
            address: part(3),
            user: part(4),
            log_facts: self.log_facts,
            ctime: self.ctime,
            began_us: self.began_us,
        }
    }
}
