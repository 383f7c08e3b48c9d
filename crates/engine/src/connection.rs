//! One connection: what it waits for, what it has read, how long it may take.
//!
//! Its life is the table [`Stage`]. It is attended to by one thread at a time, whenever its socket has news;
//! it knows no poll and no other connection.

mod header_cache;
mod late;
mod linger;
mod open;
mod refusal;

use std::os::fd::OwnedFd;

use bolide_contract::settings::Protocol;
use bolide_protocol::http1::head::{Field, HeaderFacts, header_block, leading_blank, request_line};
use bolide_protocol::uwsgi::{PACKET_HEAD_BYTES, not_a_request, packet_head, variables};
use bolide_protocol::variables::Variable;
use bolide_protocol::{Fault, Progress as Parsed};

use crate::access_log::complain;
use crate::app::App;
use crate::body::{Body, Collector, Refusal, Share};
use crate::connections::Key;
use crate::exchange::{BodySource, ExchangeContext, Head, Served, Suspended, give_up, go_on, serve};
use crate::listener::Peer;
use crate::patience::Patience;
use crate::request_stream::BodyStream;
use crate::response::{Response, ResponseWriter};
use crate::socket::Read;
use crate::transport::Transport;
use crate::turn::Turn;
use crate::worker::{ThreadContext, Worker};
use header_cache::HeaderCache;
use open::Open;

/// What a connection does next.
#[derive(Debug, PartialEq, Eq)]
pub enum NextAction {
    /// It waits for news of its socket.
    Wait,
    /// The same, but there is more to do, be it to send or to serve: its next turn comes after those of others.
    Again,
    Close,
}

/// What a connection waits for.
enum Stage<A: App> {
    /// The next head, or the rest of one.
    Head,
    /// The rest of a body.
    Body(Box<Incoming>),
    /// Its client, to take the answer.
    Response(Box<Suspended<A::Pending>>),
    /// The application, which has the request in its hands.
    Open(Box<Open<A>>),
    /// The rest of a body that the application did not want.
    Swallow { body_stream: Box<BodyStream>, swallowed: usize },
    /// The client's end of the connection; we have said all.
    Linger { swallowed: usize },
}

/// A request whose body is coming: its head in memory of its own.
struct Incoming {
    head: Head,
    bytes: Vec<u8>,
    fields: Vec<Field>,
    variables: Vec<Variable>,
    /// The head's fields are those that the connection remembers.
    same: bool,
    collector: Collector,
    patience: Patience,
}

pub struct Connection<A: App> {
    transport: Transport,
    response: Response,
    peer: Peer,
    listener: usize,
    stage: Stage<A>,
    /// Bytes that were read and not understood yet.
    input: Vec<u8>,
    /// How much of `input` was already searched for the end of a head.
    searched: usize,
    cache: HeaderCache<A::Memo>,
    /// What was answered before all of it had come.
    unread: Option<Box<BodyStream>>,
    /// The room that the body of the request in work has of the worker's.
    share: Option<Share>,
    served: u32,
    /// Its name in the connection table.
    pub key: Key,
    /// Monotonic milliseconds at which it is given up.
    pub deadline_ms: u64,
    is_overdue: bool,
    /// The poll knows it.
    pub is_polled: bool,
    /// The poll has told that the peer sends no more: what is left to read ends with the end itself.
    pub peer_has_ended: bool,
}

/// What serving the bytes at hand came to.
enum ServeStep {
    /// More bytes are needed.
    More,
    /// It has had its turn; there is more to serve.
    Yield,
    /// A request was answered; the next may follow.
    Next,
    Blocked,
    /// The stage says what comes next: the application's turn, or the rest of an unwanted body.
    Parked,
    Close,
    Linger,
}

impl<A: App> Connection<A> {
    pub fn new(socket: OwnedFd, peer: Peer, listener: usize, worker: &Worker, now_ms: u64) -> Connection<A> {
        let timeout_ms = worker.listeners.get(listener).map_or(0, |listener| listener.timeout_ms);
        Connection {
            transport: Transport::new(socket),
            response: Response::new(),
            peer,
            listener,
            stage: Stage::Head,
            input: Vec::new(),
            searched: 0,
            cache: HeaderCache::new(),
            unread: None,
            share: None,
            served: 0,
            key: Key::CONTROL,
            deadline_ms: now_ms + timeout_ms,
            is_overdue: false,
            is_polled: false,
            peer_has_ended: false,
        }
    }

    pub fn listener(&self) -> usize {
        self.listener
    }

    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.transport.socket()
    }

    /// The application has taken the socket: what becomes of the connection is its business.
    pub fn is_given_away(&self) -> bool {
        self.transport.is_given_away
    }

    /// Whether its answer waits in the kernel. Asking forgets it.
    pub fn take_corked(&mut self) -> bool {
        self.transport.take_corked()
    }

    /// Lets go the answer that waits in the kernel.
    pub fn push(&self) {
        self.transport.push();
    }

    /// True while no request is begun or under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.input.is_empty()
    }

    /// Idle, and has been answered before: the client may have a next request on its way.
    pub fn has_served(&self) -> bool {
        self.served > 0
    }

    /// Does all that can be done without waiting: reads, serves, sends. After `Close` nothing of it is left with the application.
    pub fn attend(&mut self, thread: &mut ThreadContext, app: &mut A, worker: &Worker) -> NextAction {
        thread.turn = Turn::default();
        self.transport.begin_turn();
        let is_over = std::mem::take(&mut self.is_overdue) && self.deadline_ms <= thread.clock.now_ms;
        // What drips into a worker that ends has always a byte more.
        let is_late = worker.is_draining() && self.is_arriving();
        let after = if !is_over || self.keeps_its_own_time() {
            self.turn(thread, app, worker)
        } else if self.has_news() && !is_late {
            let after = self.turn(thread, app, worker);
            if self.is_too_slow(thread.clock.now_ms) { self.expire(thread, worker) } else { after }
        } else {
            self.expire(thread, worker)
        };
        if after == NextAction::Close {
            self.give_up(thread, app, worker);
        }
        after
    }

    /// Its time is over: the next `attend` ends it, unless a request has come at the last moment. Or its head waits to be sent.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        self.is_overdue |= self.deadline_ms <= now_ms || self.is_over_its_time(now_ms);
        self.is_overdue || self.holds_its_head()
    }

    fn turn(&mut self, thread: &mut ThreadContext, app: &mut A, worker: &Worker) -> NextAction {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Head) {
                Stage::Response(suspended) => {
                    let answered = go_on(&mut self.context(thread, app, worker), suspended);
                    match self.after_answer(answered, thread, worker) {
                        ServeStep::Blocked => return self.wait_for_client(),
                        ServeStep::Close => return self.close_or_linger(thread),
                        ServeStep::Linger => return self.begin_linger(thread),
                        _ => {}
                    }
                }
                Stage::Open(open) => {
                    if let Some(after) = self.go_on_open(open, thread, app, worker) {
                        return after;
                    }
                }
                Stage::Swallow { body_stream, swallowed } => {
                    if let Some(after) = self.swallow(body_stream, swallowed, thread) {
                        return after;
                    }
                }
                Stage::Linger { swallowed } => return self.linger(thread, swallowed),
                stage @ (Stage::Head | Stage::Body(_)) => {
                    self.stage = stage;
                    if let Some(after) = self.read(thread, app, worker) {
                        return after;
                    }
                }
            }
        }
    }

    fn wait_for_client(&self) -> NextAction {
        if self.transport.is_full { NextAction::Wait } else { NextAction::Again }
    }

    /// An idle connection whose next request is already here is not closed under it, and what has come of a body while the worker was
    /// busy elsewhere came in time.
    fn has_news(&self) -> bool {
        (self.is_idle() || matches!(self.stage, Stage::Body(_))) && self.transport.has_input()
    }

    /// What has come of a body does not buy it more time.
    fn is_too_slow(&self, now_ms: u64) -> bool {
        matches!(self.stage, Stage::Body(_)) && self.deadline_ms <= now_ms
    }

    /// A suspended answer is given up, so that the application's `close()` runs.
    fn give_up(&mut self, thread: &mut ThreadContext, app: &mut A, worker: &Worker) {
        match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Response(suspended) => give_up(&mut self.context(thread, app, worker), *suspended),
            Stage::Open(open) => self.give_up_open(*open, thread, app, worker),
            _ => {}
        }
    }

    fn writer(&mut self) -> ResponseWriter<'_> {
        ResponseWriter { response: &mut self.response, transport: &mut self.transport }
    }

    fn is_http(&self, worker: &Worker) -> bool {
        worker.listeners.get(self.listener).is_some_and(|listener| listener.protocol == Protocol::Http)
    }

    fn patience(&self, worker: &Worker) -> Patience {
        Patience::new(self.timeout_ms(worker), worker.settings.limits.body_bytes_per_second)
    }

    fn timeout_ms(&self, worker: &Worker) -> u64 {
        worker.listeners.get(self.listener).map_or(0, |listener| listener.timeout_ms)
    }

    fn context<'a>(&'a mut self, thread: &'a mut ThreadContext, app: &'a mut A, worker: &'a Worker) -> ExchangeContext<'a, A> {
        let (listener, connection) = (self.listener, self.key);
        ExchangeContext {
            worker,
            thread,
            app,
            writer: ResponseWriter { response: &mut self.response, transport: &mut self.transport },
            peer: &self.peer,
            listener,
            connection,
        }
    }

    /// Reads once and serves what is there. `None`: there may be more to do at once.
    fn read(&mut self, thread: &mut ThreadContext, app: &mut A, worker: &Worker) -> Option<NextAction> {
        let mut buffer = std::mem::take(&mut thread.read);
        let held = self.input.len();
        buffer[..held].copy_from_slice(&self.input);
        self.input = Vec::new();
        // What was kept may fill the buffer; reading into nothing would look like the client's end.
        let full = held == buffer.len();
        let read = if full { Read::Nothing } else { self.transport.read(&mut buffer[held..]) };
        let filled = held + if let Read::Bytes(count) = read { count } else { 0 };
        thread.turn.note_read(filled - held);
        let mut position = 0;
        let step = loop {
            if position == filled {
                break ServeStep::More;
            }
            if !thread.turn.may_serve() {
                break ServeStep::Yield;
            }
            match self.serve_next(&buffer[position..filled], thread, app, worker) {
                (used, ServeStep::Next) => {
                    position += used;
                    thread.turn.note_request();
                }
                (used, step) => {
                    position += used;
                    break step;
                }
            }
        };
        let rest = &buffer[position..filled];
        if !rest.is_empty() && !matches!(step, ServeStep::Close | ServeStep::Linger) {
            self.input = rest.to_vec();
        }
        self.searched = if matches!((&step, &self.stage), (ServeStep::More, Stage::Head)) { self.input.len() } else { 0 };
        let has_rest = !rest.is_empty();
        let was_full = filled == buffer.len();
        thread.read = buffer;
        self.set_deadline(&step, held, thread, worker);
        match step {
            ServeStep::Close if has_rest => Some(self.begin_linger(thread)),
            ServeStep::Close => Some(NextAction::Close),
            ServeStep::Linger => Some(self.begin_linger(thread)),
            ServeStep::Blocked => Some(self.wait_for_client()),
            ServeStep::Yield => Some(NextAction::Again),
            ServeStep::More | ServeStep::Next | ServeStep::Parked => match read {
                // A read that filled the buffer may have left something behind, and an edge-triggered poll won't tell.
                Read::Bytes(_) if was_full || self.peer_has_ended => Self::go_on_reading(thread),
                Read::Nothing if was_full && position > 0 => Self::go_on_reading(thread),
                _ if matches!(self.stage, Stage::Open(_)) && self.may_go_on_sending() => Some(NextAction::Again),
                // A WebSocket's first frames may have come with its handshake.
                _ if has_rest && matches!(self.stage, Stage::Open(_)) => None,
                Read::Bytes(_) | Read::Nothing => Some(NextAction::Wait),
                Read::End | Read::Broken => Some(NextAction::Close),
            },
        }
    }

    /// `None`: at once; but a turn has an end.
    fn go_on_reading(thread: &ThreadContext) -> Option<NextAction> {
        if thread.turn.may_read() { None } else { Some(NextAction::Again) }
    }

    /// How long the connection may now keep us waiting.
    fn set_deadline(&mut self, step: &ServeStep, held: usize, thread: &ThreadContext, worker: &Worker) {
        let now = thread.clock.now_ms;
        match (step, &self.stage) {
            (_, Stage::Open(_)) => {}
            (_, Stage::Body(incoming)) => self.deadline_ms = incoming.patience.until_ms(),
            (ServeStep::Blocked | ServeStep::Yield, _) | (_, Stage::Swallow { .. }) => {
                self.deadline_ms = now + self.timeout_ms(worker)
            }
            // A head has its time as a whole: a byte a second must not keep a connection for ever.
            (ServeStep::More, _) if !self.input.is_empty() && held == 0 => self.deadline_ms = now + self.timeout_ms(worker),
            (ServeStep::More, _) if !self.input.is_empty() => {}
            _ if self.served > 0 => self.deadline_ms = now + worker.settings.limits.keepalive_ms,
            _ => {}
        }
    }

    /// Serves the request at the start of `bytes`, or a part of it. Returns the bytes used.
    fn serve_next(&mut self, bytes: &[u8], thread: &mut ThreadContext, app: &mut A, worker: &Worker) -> (usize, ServeStep) {
        let result = match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Body(incoming) => self.feed(incoming, bytes, thread, app, worker),
            _ if self.is_http(worker) => self.http_head(bytes, thread, app, worker),
            _ => self.uwsgi_head(bytes, thread, app, worker),
        };
        result.unwrap_or_else(|fault| {
            self.refuse(fault, thread, worker);
            (bytes.len(), ServeStep::Linger)
        })
    }

    fn http_head(
        &mut self,
        bytes: &[u8],
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> Result<(usize, ServeStep), Fault> {
        if self.searched > 0 && !has_head_end(bytes, self.searched) && bytes.len() < worker.head_limits.head_bytes {
            return Ok((0, ServeStep::More));
        }
        self.searched = 0;
        let blank = leading_blank(bytes);
        let bytes = &bytes[blank..];
        let Parsed::Complete(line) = request_line(bytes, &worker.head_limits)? else { return Ok((0, ServeStep::More)) };
        let block = &bytes[line.length as usize..];
        let same = self.cache.is_same(block, line.version);
        if same {
            // What is left there are the spans of another connection's block.
            thread.fields.clear();
        }
        let facts = match self.cache.facts.filter(|_| same) {
            Some(facts) => facts,
            None => match header_block(block, line.version, &worker.head_limits, &mut thread.fields)? {
                Parsed::Complete(facts) => facts,
                Parsed::Partial => return Ok((0, ServeStep::More)),
            },
        };
        let length = line.length as usize + facts.length as usize;
        if length > worker.head_limits.head_bytes {
            return Err(Fault::new(431, "The request's head is larger than buffer-size."));
        }
        if !same {
            self.cache.remember(&block[..facts.length as usize], line.version, facts);
        }
        let head = Head::Http { line, facts };
        if A::STREAMS {
            let body_stream =
                BodyStream::new(facts.framing, worker.body_limits.bytes, facts.expect_continue, self.patience(worker))?;
            let (used, step) = self.open((&head, &bytes[..length], same), body_stream, &bytes[length..], thread, app, worker)?;
            return Ok((blank + length + used, step));
        }
        let collector = Collector::new(facts.framing, worker.body_limits)?;
        let (used, step) = match collector {
            None => {
                // What the client sent behind a request for another protocol would be lost to an application that takes the socket.
                let facts = HeaderFacts { upgrade: facts.upgrade && bytes.len() == length, ..facts };
                let head = Head::Http { line, facts };
                (length, self.answer(&head, &bytes[..length], same, Body::Empty, thread, app, worker)?)
            }
            Some(collector) => {
                let head = Head::Http { line, facts: HeaderFacts { upgrade: false, ..facts } };
                let incoming = Incoming {
                    head,
                    bytes: bytes[..length].to_vec(),
                    fields: thread.fields.clone(),
                    variables: Vec::new(),
                    same,
                    collector,
                    patience: self.patience(worker),
                };
                if facts.expect_continue && bytes.len() == length {
                    self.writer().say_continue();
                }
                let (used, step) = self.feed(Box::new(incoming), &bytes[length..], thread, app, worker)?;
                (length + used, step)
            }
        };
        Ok((blank + used, step))
    }

    fn uwsgi_head(
        &mut self,
        bytes: &[u8],
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> Result<(usize, ServeStep), Fault> {
        let Parsed::Complete(packet) = packet_head(bytes) else { return Ok((0, ServeStep::More)) };
        if packet.modifier1 != 0 {
            return Err(not_a_request(bytes));
        }
        let length = usize::from(packet.vars_bytes);
        if length > worker.head_limits.head_bytes {
            return Err(Fault::new(431, "The uwsgi packet is larger than buffer-size."));
        }
        let Some(block) = bytes.get(PACKET_HEAD_BYTES..PACKET_HEAD_BYTES + length) else { return Ok((0, ServeStep::More)) };
        let facts = variables(block, &mut thread.variables)?;
        let head = Head::Uwsgi { facts, bytes: length };
        let framing = bolide_protocol::http1::head::Framing::Length(facts.content_length.unwrap_or(0));
        let whole = PACKET_HEAD_BYTES + length;
        if A::STREAMS {
            let body_stream = BodyStream::new(framing, worker.body_limits.bytes, false, self.patience(worker))?;
            let (used, step) = self.open((&head, block, false), body_stream, &bytes[whole..], thread, app, worker)?;
            return Ok((whole + used, step));
        }
        match Collector::new(framing, worker.body_limits)? {
            None => Ok((whole, self.answer(&head, block, false, Body::Empty, thread, app, worker)?)),
            Some(collector) => {
                let variables = thread.variables.clone();
                let patience = self.patience(worker);
                let (bytes_of_head, fields) = (block.to_vec(), Vec::new());
                let incoming = Incoming { head, bytes: bytes_of_head, fields, variables, same: false, collector, patience };
                let (used, step) = self.feed(Box::new(incoming), &bytes[whole..], thread, app, worker)?;
                Ok((whole + used, step))
            }
        }
    }

    /// Hands bytes to the body that is coming, and serves the request when it is complete.
    fn feed(
        &mut self,
        mut incoming: Box<Incoming>,
        bytes: &[u8],
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> Result<(usize, ServeStep), Fault> {
        let fault = |refusal| match refusal {
            Refusal::Fault(fault) => fault,
            Refusal::Spill(error) => {
                let problem = format!("a request's body can't be kept in a temporary file: {error}; is the disk full?");
                complain(worker.number, &problem);
                Fault::new(507, "The body could not be stored.")
            }
        };
        let is_long = incoming.collector.will_spill(bytes.len());
        let fed = if is_long { app.aside(|| incoming.collector.feed(bytes)) } else { incoming.collector.feed(bytes) };
        let (used, complete) = fed.map_err(fault)?;
        if !complete {
            if incoming.patience.is_waiting() {
                incoming.patience.note(used, thread.clock.now_ms);
            } else {
                incoming.patience.wait(true, thread.clock.now_ms);
            }
            self.stage = Stage::Body(incoming);
            return Ok((used, ServeStep::More));
        }
        let Incoming { head, bytes, fields, variables, same, collector, .. } = *incoming;
        let finished = if collector.has_file() { app.aside(|| collector.finish()) } else { collector.finish() };
        let (body, share) = finished.map_err(fault)?;
        self.share = Some(share);
        thread.fields = fields;
        thread.variables = variables;
        Ok((used, self.answer(&head, &bytes, same, body, thread, app, worker)?))
    }

    #[expect(clippy::too_many_arguments, reason = "the request in its parts, and the context where it is served")]
    fn answer(
        &mut self,
        head: &Head,
        bytes: &[u8],
        same: bool,
        body: Body,
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> Result<ServeStep, Fault> {
        let memory = self.cache.memory(same);
        let (listener, connection) = (self.listener, self.key);
        let mut context = ExchangeContext {
            worker,
            thread,
            app,
            writer: ResponseWriter { response: &mut self.response, transport: &mut self.transport },
            peer: &self.peer,
            listener,
            connection,
        };
        let answered = serve(&mut context, head, bytes, memory, BodySource::Whole(body))?;
        Ok(self.after_answer(answered, thread, worker))
    }

    fn after_answer(&mut self, answered: Served<A::Pending>, thread: &ThreadContext, worker: &Worker) -> ServeStep {
        match answered {
            Served::Blocked(suspended) => {
                self.stage = Stage::Response(suspended);
                self.deadline_ms = thread.clock.now_ms + self.timeout_ms(worker);
                ServeStep::Blocked
            }
            Served::Ongoing(suspended) => {
                // Only a streaming application goes on by itself, and `open` takes that case.
                self.stage = Stage::Response(suspended);
                ServeStep::Close
            }
            Served::Done { keep } => {
                self.served = self.served.saturating_add(1);
                self.share = None;
                match self.unread.take() {
                    Some(body_stream) => self.after_unread(body_stream, keep),
                    None if keep => ServeStep::Next,
                    // What the client sends is not for us to read.
                    None if self.is_given_away() => ServeStep::Close,
                    // RFC 6455 section 7.1.1: the client is to read our last frame, whatever it still sends.
                    None if self.writer().status_code() == 101 => ServeStep::Linger,
                    None => ServeStep::Close,
                }
            }
        }
    }
}

/// Whether the end of a head may be in `bytes`, of which `searched` were looked at before. A bare LF counts too: it is
/// an error, and better said at once.
fn has_head_end(bytes: &[u8], searched: usize) -> bool {
    let fresh = &bytes[searched.saturating_sub(3).min(bytes.len())..];
    memchr::memmem::find(fresh, b"\n\r\n").is_some() || memchr::memmem::find(fresh, b"\n\n").is_some()
}
