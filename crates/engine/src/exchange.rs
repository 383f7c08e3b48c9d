//! One request and its answer: from a complete head and body to the application, its reply, the log line
//! and the counters. It knows no readiness and no time limits (those are the connection's) and runs on the
//! thread that read the request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::Fault;
use bolide_protocol::http1::head::{HeaderFacts, RequestLine, Version};
use bolide_protocol::http1::target::{Target, decode_path, split_target};
use bolide_protocol::http1::{Framing, target::TargetForm};
use bolide_protocol::uwsgi::UwsgiFacts;

use crate::access_log::{Line, complain};
use crate::app::{App, Outcome};
use crate::body::Body;
use crate::clock::precise_us;
use crate::dispatch::serve_directly;
use crate::hall::Key;
use crate::house::{House, Kit};
use crate::inflow::Inflow;
use crate::listener::Peer;
use crate::reply::{Progress, Reply, Style, Terms};
use crate::request::{HeaderMemory, HttpRequest, Meaning, Request, Told, UwsgiRequest};
use crate::routing::{HttpValues, Routed, UwsgiValues};
use crate::websocket;

/// A head of either protocol, parsed. Spans are relative to the head's first byte.
#[derive(Debug, Clone, Copy)]
pub enum Head {
    Http { line: RequestLine, facts: HeaderFacts },
    Uwsgi { facts: UwsgiFacts, bytes: usize },
}

/// How an exchange ended, or did not yet.
pub enum Answered<Pending> {
    /// The reply has left; `keep` says whether the connection goes on.
    Done { keep: bool },
    /// The client must take something first.
    Blocked(Box<Suspended<Pending>>),
    /// The application goes on by itself.
    Ongoing(Box<Suspended<Pending>>),
}

/// A request's body: whole, or as it comes.
pub enum Delivery<'a> {
    Whole(Body),
    Streamed(&'a mut Inflow),
}

/// A reply that waits for its client, with what its log line will need.
pub struct Suspended<Pending> {
    pub pending: Option<Pending>,
    subject: Subject,
}

/// What the log says of a request, in memory of its own: one piece for all texts.
struct Subject {
    text: Vec<u8>,
    /// Where each of the five texts ends: method, target, protocol, address, user.
    ends: [u32; 5],
    told: Told,
    ctime: [u8; 24],
    began_us: u64,
}

/// The same while the request's bytes are still at hand.
struct Seen<'a> {
    method: &'a [u8],
    uri: &'a [u8],
    protocol: &'a [u8],
    address: &'a [u8],
    user: &'a [u8],
    told: Told,
    ctime: [u8; 24],
    began_us: u64,
}

/// Serves a request. `bytes` begins with its head; `kit.fields` or `kit.variables` hold what was parsed.
///
/// # Errors
/// A target that can't be understood: nothing has been answered yet.
pub fn serve<A: App>(
    place: &mut Place<'_, A>,
    head: &Head,
    bytes: &[u8],
    memory: HeaderMemory<'_, A::Memo>,
    delivery: Delivery<'_>,
) -> Result<Answered<A::Pending>, Fault> {
    match head {
        Head::Http { line, facts } => serve_http(place, line, facts, bytes, memory, delivery),
        Head::Uwsgi { facts, bytes: length } => serve_uwsgi(place, facts, &bytes[..*length], delivery),
    }
}

impl<'a> Delivery<'a> {
    /// Bytes of a body that is here; 0 for one that is still to come.
    fn length(&self) -> u64 {
        match self {
            Delivery::Whole(body) => body.length(),
            Delivery::Streamed(_) => 0,
        }
    }

    fn parts(self) -> (Body, Option<&'a mut Inflow>) {
        match self {
            Delivery::Whole(body) => (body, None),
            Delivery::Streamed(inflow) => (Body::Empty, Some(inflow)),
        }
    }
}

/// Where an exchange happens.
pub struct Place<'a, A: App> {
    pub house: &'a House,
    pub kit: &'a mut Kit,
    pub app: &'a mut A,
    pub reply: &'a mut Reply,
    pub peer: &'a Peer,
    pub listener: usize,
    pub connection: Key,
}

fn serve_http<A: App>(
    place: &mut Place<'_, A>,
    line: &RequestLine,
    facts: &HeaderFacts,
    bytes: &[u8],
    memory: HeaderMemory<'_, A::Memo>,
    delivery: Delivery<'_>,
) -> Result<Answered<A::Pending>, Fault> {
    let method = line.method.of(bytes);
    let target_bytes = line.target.of(bytes);
    let target = split_target(target_bytes, method)?;
    let path = target.path.of(target_bytes);
    let was_changed = decode_path(path, &mut place.kit.path)?;
    let decoded = std::mem::take(&mut place.kit.path);
    // Routes, mounts, files and the application see one path.
    let path = if was_changed { &decoded } else { path };
    let uri = request_uri(&target, target_bytes);
    let version_1_0 = line.version == Version::Http10;
    let house = place.house;
    place.reply.begin(
        Terms {
            style: Style::Http { version_1_0 },
            chunks: !version_1_0,
            head_only: method == b"HEAD",
            keep_alive: facts.keep_alive && house.settings.limits.keepalive_ms > 0 && !house.is_draining(),
            may_hold: place.kit.may_hold,
            date_line: place.kit.clock.date_line(),
        },
        std::mem::take(&mut place.kit.spare_output),
    );
    let head_start = line.length as usize;
    let header_bytes = &bytes[head_start..head_start + facts.length as usize];
    let routed = house.rules.map(|rules| {
        let app = RefCell::new(&mut *place.app);
        let values = HttpValues {
            method,
            uri: &uri,
            path,
            query: target.query.of(target_bytes),
            authority: target.authority.of(target_bytes),
            version: line.version,
            header_bytes,
            body_bytes: delivery.length(),
            peer: place.peer,
            listener: house.listeners.get(place.listener),
            worker: house.worker,
            aside: &|work| app.borrow_mut().aside(work),
        };
        rules.walk(&values, place.reply)
    });
    let routed = routed.as_ref();
    let or = |name: &[u8], before| routed.map_or(before, |routed| routed.or(name, before));
    let fields = std::mem::take(&mut place.kit.fields);
    let handshake = if A::STREAMS && facts.upgrade && method == b"GET" {
        websocket::asked_by_fields(&fields, header_bytes, &place.house.settings.asynchronous.websocket)?
    } else {
        None
    };
    if handshake.is_some() && facts.framing != Framing::None {
        // RFC 6455 section 4.1: frames follow the head, and what is announced as a body would be taken for them.
        return Err(Fault::bad_request("A request to switch to WebSocket has no body."));
    }
    let (body, inflow) = delivery.parts();
    let mut request = Request {
        listener: place.listener,
        peer: place.peer,
        meaning: Meaning::Http(HttpRequest {
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
        inflow,
        handshake,
        connection: place.connection,
        slot: place.kit.slot,
        told: Told::default(),
    };
    let protocol: &[u8] = if version_1_0 { b"HTTP/1.0" } else { b"HTTP/1.1" };
    let mut seen = Seen::new(place, or(b"REQUEST_METHOD", method), or(b"REQUEST_URI", &uri), protocol);
    seen.address = or(b"REMOTE_ADDR", place.peer.address.as_bytes());
    seen.user = or(b"REMOTE_USER", b"");
    let outcome = call(place, &mut request, &mut seen, routed);
    let answered = settle(place, outcome, seen);
    place.kit.fields = fields;
    place.kit.path = decoded;
    Ok(answered)
}

fn serve_uwsgi<A: App>(
    place: &mut Place<'_, A>,
    facts: &UwsgiFacts,
    bytes: &[u8],
    delivery: Delivery<'_>,
) -> Result<Answered<A::Pending>, Fault> {
    let terms = Terms {
        style: Style::Uwsgi,
        chunks: false,
        head_only: facts.head_request,
        keep_alive: false,
        may_hold: false,
        date_line: place.kit.clock.date_line(),
    };
    place.reply.begin(terms, std::mem::take(&mut place.kit.spare_output));
    let mut variables = std::mem::take(&mut place.kit.variables);
    let (mut facts, mut bytes) = (*facts, bytes);
    let routed = place.house.rules.map(|rules| {
        let app = RefCell::new(&mut *place.app);
        let aside = |work: &mut dyn FnMut()| app.borrow_mut().aside(work);
        let values = UwsgiValues { bytes, variables: &variables, worker: place.house.worker, aside: &aside };
        rules.walk(&values, place.reply)
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
    let logged = place.house.settings.logging.requests;
    let user = if logged { find(b"REMOTE_USER") } else { b"" };
    let address = if logged { find(b"REMOTE_ADDR") } else { b"" };
    let handshake =
        if A::STREAMS { websocket::asked_by_variables(&find, &place.house.settings.asynchronous.websocket)? } else { None };
    let (body, inflow) = delivery.parts();
    let mut request = Request {
        listener: place.listener,
        peer: place.peer,
        meaning: Meaning::Uwsgi(UwsgiRequest {
            bytes,
            variables: &variables,
            method: facts.method,
            uri: facts.uri,
            protocol: facts.protocol,
        }),
        body,
        inflow,
        handshake,
        connection: place.connection,
        slot: place.kit.slot,
        told: Told::default(),
    };
    let mut seen = Seen::new(place, text(facts.method), text(facts.uri), text(facts.protocol));
    // The log names the client, not the front server.
    seen.user = user;
    seen.address = address;
    let outcome = call(place, &mut request, &mut seen, routed.as_ref());
    let answered = settle(place, outcome, seen);
    place.kit.variables = variables;
    Ok(answered)
}

fn call<A: App>(
    place: &mut Place<'_, A>,
    request: &mut Request<'_, A::Memo>,
    seen: &mut Seen<'_>,
    routed: Option<&Routed>,
) -> Outcome<A::Pending> {
    if place.house.has_own_answers && serve_directly(place, request, routed.and_then(Routed::verdict)) {
        return Outcome::Finished;
    }
    let slot = place.kit.slot;
    let limit_ms = place.reply.harakiri_ms;
    if let Some(limit_ms) = limit_ms {
        slot.limit_ms.store(limit_ms, Relaxed);
    }
    slot.begin(place.kit.clock.now_ms, &[seen.method, b" ", seen.uri]);
    let outcome = place.app.call(request, place.reply);
    slot.end();
    if limit_ms.is_some() {
        slot.limit_ms.store(0, Relaxed);
    }
    seen.told = request.told;
    outcome
}

/// Goes on with a reply whose client has taken something.
pub fn go_on<A: App>(place: &mut Place<'_, A>, mut suspended: Box<Suspended<A::Pending>>) -> Answered<A::Pending> {
    loop {
        if suspended.pending.is_some() && place.reply.turn_is_over() {
            return Answered::Blocked(suspended);
        }
        match advance(place) {
            Progress::Blocked => return Answered::Blocked(suspended),
            Progress::Broken => {
                if let Some(pending) = suspended.pending.take() {
                    place.app.abandon(pending);
                }
                return finish_line(place, &suspended.subject.seen());
            }
            Progress::Done => {}
        }
        let Some(pending) = suspended.pending.take() else {
            return finish_line(place, &suspended.subject.seen());
        };
        let seen = suspended.subject.seen();
        place.kit.slot.begin(place.kit.clock.now_ms, &[seen.method, b" ", seen.uri]);
        let outcome = place.app.resume(pending, place.reply);
        place.kit.slot.end();
        suspended.pending = conclude(place, outcome, seen.method, seen.uri);
        if suspended.pending.is_some() && place.reply.is_full() {
            return Answered::Blocked(suspended);
        }
    }
}

/// Sends what waits. A file is read and perhaps encoded for it, which may take a while.
fn advance<A: App>(place: &mut Place<'_, A>) -> Progress {
    if place.reply.has_file() { place.app.aside(|| place.reply.advance()) } else { place.reply.advance() }
}

/// Ends a reply that its client has not taken in time: the application's `close()` runs, and the log has its line.
pub fn give_up<A: App>(place: &mut Place<'_, A>, mut suspended: Suspended<A::Pending>) {
    if let Some(pending) = suspended.pending.take() {
        place.app.abandon(pending);
    }
    finish_line(place, &suspended.subject.seen());
}

/// What an outcome means for the reply; what is still pending is returned.
fn conclude<A: App>(place: &mut Place<'_, A>, outcome: Outcome<A::Pending>, method: &[u8], uri: &[u8]) -> Option<A::Pending> {
    let leave = matches!(outcome, Outcome::FailedAndLeave);
    match outcome {
        Outcome::Suspended(pending) | Outcome::Ongoing(pending) => return Some(pending),
        Outcome::Finished => {
            place.reply.finish();
            // A streaming application was told in its face.
            if let Some(fault) = place.reply.length_fault().filter(|_| !A::STREAMS) {
                let (method, uri) = (String::from_utf8_lossy(method), String::from_utf8_lossy(uri));
                complain(place.house.worker, &format!("the application's answer to {method} {uri} {fault}"));
            }
        }
        Outcome::Failed | Outcome::FailedAndLeave => {
            let exceptions = &place.house.row.exceptions;
            exceptions.store(exceptions.load(Relaxed) + 1, Relaxed);
            if leave {
                place.house.leaving.store(true, Relaxed);
                place.reply.close_after();
            }
            if place.reply.head_has_left() {
                place.reply.cut_off();
            } else {
                fail(place.house, place.reply);
            }
        }
    }
    None
}

/// Answers 500, with the page for it where there is one.
fn fail(house: &House, reply: &mut Reply) {
    match house.rules.and_then(|rules| rules.error_page(500)) {
        Some(page) => reply.answer_page(500, "text/html", &page),
        None => reply.answer(500, "Internal Server Error", "Internal Server Error"),
    }
}

fn settle<A: App>(place: &mut Place<'_, A>, outcome: Outcome<A::Pending>, seen: Seen<'_>) -> Answered<A::Pending> {
    if let Outcome::Ongoing(pending) = outcome {
        return Answered::Ongoing(Box::new(Suspended { pending: Some(pending), subject: seen.into_subject() }));
    }
    let pending = conclude(place, outcome, seen.method, seen.uri);
    if pending.is_none() {
        match advance(place) {
            Progress::Done | Progress::Broken => return finish_line(place, &seen),
            Progress::Blocked => {}
        }
    }
    let suspended = Box::new(Suspended { pending, subject: seen.into_subject() });
    // The socket may have drained while the application was at work; a suspended reply is tried once more,
    // because an edge-triggered poll does not tell the same news twice.
    if suspended.pending.is_some() { go_on(place, suspended) } else { Answered::Blocked(suspended) }
}

/// Counters and the log line; the reply's buffer goes back to the thread.
fn finish_line<A: App>(place: &mut Place<'_, A>, seen: &Seen<'_>) -> Answered<A::Pending> {
    let row = place.house.row;
    let requests = row.requests.fetch_add(1, Relaxed) + 1;
    if place.house.settings.logging.requests && !place.reply.is_unlogged {
        let reply = &place.reply;
        place.kit.log.line(&Line {
            application: seen.told.application,
            request: requests,
            request_of_all: requests + place.house.requests_elsewhere.load(Relaxed),
            address: seen.address,
            user: seen.user,
            variables: seen.told.variables,
            variable_bytes: seen.told.variable_bytes,
            ctime: &seen.ctime,
            method: seen.method,
            uri: seen.uri,
            body_bytes: reply.body_bytes,
            microseconds: precise_us().saturating_sub(seen.began_us),
            via_sendfile: reply.sent_file,
            protocol: seen.protocol,
            status: reply.status_code(),
            header_count: reply.header_count,
            head_bytes: reply.head_bytes,
            core: place.kit.core,
        });
    }
    row.sent_bytes.store(row.sent_bytes.load(Relaxed) + place.reply.head_bytes + place.reply.body_bytes, Relaxed);
    let keep = place.reply.keeps_alive();
    if !place.reply.is_broken() {
        let buffer = place.reply.buffer_back();
        place.kit.keep_output(buffer);
    }
    Answered::Done { keep }
}

/// REQUEST_URI is what uWSGI's users know: the path and query as the client wrote them, also of an absolute-form target.
fn request_uri<'a>(target: &Target, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if target.form != TargetForm::Absolute {
        return Cow::Borrowed(bytes);
    }
    let rest = bytes.get(target.authority.end as usize..).unwrap_or_default();
    if rest.starts_with(b"/") { Cow::Borrowed(rest) } else { Cow::Owned([b"/", rest].concat()) }
}

impl<'a> Seen<'a> {
    fn new<A: App>(place: &Place<'_, A>, method: &'a [u8], uri: &'a [u8], protocol: &'a [u8]) -> Seen<'a> {
        let began_us = if place.house.settings.logging.requests { precise_us() } else { 0 };
        Seen { method, uri, protocol, address: b"", user: b"", told: Told::default(), ctime: place.kit.clock.ctime(), began_us }
    }

    fn into_subject(self) -> Subject {
        let texts = [self.method, self.uri, self.protocol, self.address, self.user];
        let mut text = Vec::with_capacity(texts.iter().map(|text| text.len()).sum());
        let ends = texts.map(|part| {
            text.extend_from_slice(part);
            text.len() as u32
        });
        Subject { text, ends, told: self.told, ctime: self.ctime, began_us: self.began_us }
    }
}

impl Subject {
    fn seen(&self) -> Seen<'_> {
        let part = |number: usize| {
            let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.text.get(begin as usize..self.ends[number] as usize).unwrap_or_default()
        };
        Seen {
            method: part(0),
            uri: part(1),
            protocol: part(2),
            address: part(3),
            user: part(4),
            told: self.told,
            ctime: self.ctime,
            began_us: self.began_us,
        }
    }
}
