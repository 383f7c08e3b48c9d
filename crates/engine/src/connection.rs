//! One connection: what it has read, what its peer's bytes mean, how long it may keep us waiting.
//!
//! It moves bytes between its transport and its session, and hands what they mean to the exchange. It is attended to by one thread at a
//! time, whenever its socket has news; it knows no poll and no other connection.

mod beginning;
mod collecting;
mod late;
mod linger;
pub mod moving;
mod multiplexed;
pub mod multiplexer;
mod proxy_header;
mod pulling;
mod refusal;
mod resting;
mod streaming;
mod tls;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bolide_contract::scoreboard::add;
use bolide_protocol::Fault;
use bolide_protocol::session::{HeadEvent, RequestHead, Session, SessionEvent};

use crate::app::App;
use crate::app_thread::{AppThread, Leftover};
use crate::connection::multiplexer::{Beginning, SharedMultiplexer};
use crate::exchange::context::{Context, ExchangeContext};
use crate::exchange::thread_context::ThreadContext;
use crate::exchange::worker::Worker;
use crate::exchange::{BodySource, Exchange, ExchangeState, Served, give_up, go_on, serve};
use crate::request::HeaderMemory;
use crate::request::body::{Body, Collector};
use crate::request::request_stream::{BodyStream, RequestStream};
use crate::response::ResponseWriter;
use crate::scheduling::connections::{Due, ExchangeId, Key};
use crate::scheduling::patience::Patience;
use crate::scheduling::turn::TurnBudget;
use crate::sockets::client::Client;
use crate::sockets::socket::Read;
use crate::sockets::transport::Transport;

/// The next action for a connection, as it asks for it.
#[derive(Debug, PartialEq, Eq)]
pub enum NextAction {
    /// It waits for news of its socket.
    Wait,
    /// The same, but there is more to do, be it to send or to serve: its next turn comes after those of others.
    Again,
    /// It waits for the end of the worker's pause: the next request is not begun, and its bytes are left where they are.
    Rest,
    Close,
}

pub struct Connection<A: App> {
    transport: Transport,
    session: Session,
    /// The request in work. A protocol with several at a time has the others beside it.
    exchange: Exchange<A>,
    /// The adapter's memory of the header block that the session remembers.
    memo: Option<A::Memo>,
    client: Client,
    listener: usize,
    link: Link,
    /// Bytes that were read and not understood yet.
    input: Vec<u8>,
    stage: ConnectionStage,
    /// It has been answered before.
    has_served: bool,
    /// The next answer is the last: its listening socket is gone.
    is_last: bool,
    /// Processes that the application has forked elsewhere may have it open too.
    pub is_shared: bool,
    /// Its name in the connection table.
    pub key: Key,
    /// Monotonic milliseconds at which it is given up.
    pub deadline_ms: u64,
    is_overdue: bool,
    /// It has had news while the worker was paused.
    pub is_resting: bool,
    /// The poll knows it.
    pub is_polled: bool,
    /// The poll has told that the peer sends no more: what is left to read ends with the end itself.
    pub peer_has_ended: bool,
}

/// A connection's relation to its socket.
pub enum Link {
    /// The socket is its own. `may_be_http2`: nothing was understood yet.
    Socket { may_be_http2: bool },
    /// The socket is its own and speaks HTTP/2: its streams share the transport.
    Multiplexed(Arc<SharedMultiplexer>),
    /// It is a stream of such a connection.
    Stream { multiplexer: Arc<SharedMultiplexer>, number: u32 },
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionStage {
    /// The first thing is a PROXY header.
    AwaitsProxyHeader,
    Serves,
    /// We have said all and wait for the client's end; so many bytes were thrown away meanwhile.
    Lingers {
        swallowed: usize,
    },
}

/// The result of serving the bytes at hand.
enum ServeStep {
    /// More bytes are needed.
    More,
    /// It has had its turn; there is more to serve.
    Yield,
    /// A request was answered; the next may follow.
    Next,
    Blocked,
    /// The exchange's state says what comes next: the application's turn, or the rest of an unwanted body.
    Parked,
    /// It speaks HTTP/2 from here on, with a first request where it has upgraded.
    Http2(Box<Beginning>),
    Close,
    Linger,
}

impl<A: App> Connection<A> {
    pub fn listener(&self) -> usize {
        self.listener
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.transport.socket()
    }

    /// The application has taken the socket: what becomes of the connection is its business.
    pub fn is_given_away(&self) -> bool {
        self.transport.is_given_away()
    }

    /// Whether its answer waits in the kernel. Asking forgets it.
    pub fn take_corked(&mut self) -> bool {
        self.transport.take_corked()
    }

    /// Lets go the answer that waits in the kernel.
    pub fn push(&self) {
        self.transport.push();
    }

    /// What is left in it of the language, which a thread that is to close it must not drop where it has the language not.
    pub fn leftover(&mut self) -> Leftover<A> {
        let pending = match self.exchange.take_state() {
            ExchangeState::Suspended(suspended) => suspended.pending,
            ExchangeState::Streaming(streaming) => streaming.suspended.pending,
            ExchangeState::Idle | ExchangeState::Collecting(_) | ExchangeState::Draining { .. } => None,
        };
        Leftover { memo: self.memo.take(), pending }
    }

    /// True while no request is begun or under way.
    pub fn is_idle(&self) -> bool {
        if let (Link::Multiplexed(multiplexer), ConnectionStage::Serves) = (&self.link, self.stage) {
            return multiplexer.lock().is_idle();
        }
        self.exchange.is_idle() && !matches!(self.stage, ConnectionStage::Lingers { .. }) && !self.has_part_of_request()
    }

    /// Something of a next request is here, be it understood or not.
    fn has_part_of_request(&self) -> bool {
        !self.input.is_empty() || self.session.has_part_of_head()
    }

    /// Idle, and has been answered before: the client may have a next request on its way.
    pub fn has_served(&self) -> bool {
        self.has_served
    }

    /// Does all that can be done without waiting: reads, serves, sends. After `Close` nothing of it is left with the application.
    pub fn attend(&mut self, thread: &mut ThreadContext, app: &mut AppThread<A>, worker: &Worker) -> NextAction {
        thread.turn = TurnBudget::default();
        self.transport.begin_turn();
        // Those that were attended to before may have taken long.
        thread.clock.tick();
        let context = &mut Context { worker, thread, app };
        let now_ms = context.thread.clock.now_ms;
        let is_over = std::mem::take(&mut self.is_overdue) && self.deadline_ms <= now_ms;
        let is_over = is_over && !(worker.is_paused() && self.awaits_request());
        match &self.link {
            Link::Multiplexed(multiplexer) if self.stage == ConnectionStage::Serves => {
                return self.attend_multiplexed(&multiplexer.clone(), is_over, context);
            }
            Link::Stream { .. } if self.transport.peer_has_ended() => {
                self.peer_has_ended = true;
                self.transport.is_broken = true;
                if self.session.has_head() {
                    // The client has taken it back before anybody has seen it.
                    return NextAction::Close;
                }
            }
            Link::Socket { .. } | Link::Multiplexed(_) | Link::Stream { .. } => {}
        }
        // What drips into a worker that ends has always a byte more.
        let is_late = self.is_arriving() && worker.arrivals_are_over(now_ms);
        let next = if !is_over || self.keeps_its_own_time() {
            self.turn(context)
        } else if self.has_news() && !is_late {
            let next = self.turn(context);
            if self.is_too_slow(now_ms) { self.expire(context) } else { next }
        } else {
            self.expire(context)
        };
        if next == NextAction::Close {
            self.give_up(context);
            self.transport.say_goodbye();
        }
        next
    }

    /// When it is to be looked at whatever its socket does, in monotonic milliseconds.
    pub fn due_ms(&self) -> u64 {
        self.deadline_ms.min(self.exchange.due_ms())
    }

    /// A look at its time. Where that is over, the next `attend` ends it, unless a request has come at the last moment; or sends the head
    /// that was held.
    pub fn look(&mut self, now_ms: u64) -> Due {
        self.is_overdue |= self.deadline_ms <= now_ms || self.exchange.is_over_its_time(now_ms);
        match self.due_ms() {
            due_ms if due_ms <= now_ms => Due::Now,
            due_ms => Due::At(due_ms),
        }
    }

    fn turn(&mut self, context: &mut Context<'_, A>) -> NextAction {
        match self.stage {
            ConnectionStage::Serves => {}
            ConnectionStage::Lingers { swallowed } => return self.linger(context, swallowed),
            ConnectionStage::AwaitsProxyHeader => {
                if let Some(next) = self.take_proxy_header(context) {
                    return next;
                }
            }
        }
        loop {
            let next = match self.exchange.take_state() {
                ExchangeState::Suspended(suspended) => {
                    let served = go_on(&mut self.context(context), suspended);
                    match self.after_answer(served, context) {
                        ServeStep::Blocked => Some(self.wait_for_client()),
                        ServeStep::Close => Some(self.close_or_linger(context)),
                        ServeStep::Linger => Some(self.begin_linger(context)),
                        _ => None,
                    }
                }
                ExchangeState::Streaming(streaming) => self.go_on_streaming(streaming, context),
                ExchangeState::Draining { body, swallowed } => self.swallow(body, swallowed, context),
                ExchangeState::Idle if self.must_rest(context.worker) => Some(NextAction::Rest),
                state @ (ExchangeState::Idle | ExchangeState::Collecting(_)) => {
                    self.exchange.state = state;
                    self.read(context)
                }
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    fn wait_for_client(&self) -> NextAction {
        if self.transport.is_full { NextAction::Wait } else { NextAction::Again }
    }

    /// An idle connection whose next request is already here is not closed under it, and what has come of a body while the worker was
    /// busy elsewhere came in time.
    fn has_news(&self) -> bool {
        // A stream whose turn has not come yet has all that it needs.
        self.session.has_head() || (self.is_idle() || self.exchange.is_collecting()) && self.transport.has_input()
    }

    /// A suspended answer is given up, so that the application's `close()` runs.
    fn give_up(&mut self, context: &mut Context<'_, A>) {
        match self.exchange.take_state() {
            ExchangeState::Suspended(suspended) => {
                add(&context.thread.slot.tally.write_errors, 1);
                give_up(&mut self.context(context), *suspended);
            }
            ExchangeState::Streaming(streaming) => self.give_up_streaming(*streaming, context),
            ExchangeState::Collecting(_) => add(&context.thread.slot.tally.read_errors, 1),
            ExchangeState::Idle | ExchangeState::Draining { .. } => {}
        }
    }

    fn writer(&mut self) -> ResponseWriter<'_> {
        ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport }
    }

    fn patience(&self, worker: &Worker) -> Patience {
        Patience::new(self.timeout_ms(worker), worker.settings.limits.body_bytes_per_second)
    }

    fn timeout_ms(&self, worker: &Worker) -> u64 {
        worker.listeners.get(self.listener).map_or(0, |listener| listener.timeout_ms)
    }

    fn context<'a>(&'a mut self, context: &'a mut Context<'_, A>) -> ExchangeContext<'a, A> {
        ExchangeContext {
            worker: context.worker,
            thread: context.thread,
            app: context.app,
            writer: ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport },
            client: &self.client,
            listener: self.listener,
            id: ExchangeId { connection: self.key, stream: self.exchange.stream },
            is_last: self.is_last,
        }
    }

    /// Reads once and serves what is there. `None`: there may be more to do at once.
    fn read(&mut self, context: &mut Context<'_, A>) -> Option<NextAction> {
        let mut buffer = std::mem::take(&mut context.thread.read);
        let mut kept = std::mem::take(&mut self.input);
        let held = kept.len();
        let had_begun = held > 0 || self.has_part_of_request();
        // What was kept may fill the buffer; reading into nothing would look like the client's end.
        let full = held == buffer.len();
        let read = match full {
            true => Read::Nothing,
            false if self.transport.is_handshaking() => self.read_handshake(&mut buffer[held..], context),
            false => self.transport.read(&mut buffer[held..]),
        };
        if self.transport.is_encrypted()
            && let Some(fault) = self.transport.take_tls_fault()
        {
            context.thread.read = buffer;
            self.input = kept;
            return Some(self.refuse_handshake(&fault, context));
        }
        let filled = held + if let Read::Bytes(count) = read { count } else { 0 };
        context.thread.turn.note_read(self.transport.read_cost(filled - held));
        // What was kept stays where it is, and what has come is put behind it: a head that drips is not copied as often as it has bytes.
        let bytes = if held == 0 {
            &buffer[..filled]
        } else {
            kept.extend_from_slice(&buffer[held..filled]);
            &kept[..]
        };
        let (position, step) = self.serve_all(bytes, context);
        let rest = &bytes[position..];
        if let ServeStep::Http2(beginning) = step {
            let rest = rest.to_vec();
            context.thread.read = buffer;
            let multiplexer = self.begin_http2(*beginning, rest, context.worker);
            return Some(self.attend_multiplexed(&multiplexer, false, context));
        }
        let has_rest = !rest.is_empty();
        if has_rest && !matches!(step, ServeStep::Close | ServeStep::Linger) {
            self.input = if held > 0 && position == 0 { kept } else { rest.to_vec() };
        }
        let was_full = filled == buffer.len() || self.transport.has_more();
        context.thread.read = buffer;
        self.set_deadline(&step, had_begun, context);
        match step {
            ServeStep::Close if has_rest => Some(self.begin_linger(context)),
            ServeStep::Close => Some(NextAction::Close),
            ServeStep::Linger => Some(self.begin_linger(context)),
            ServeStep::Blocked => Some(self.wait_for_client()),
            ServeStep::Yield => Some(NextAction::Again),
            ServeStep::More | ServeStep::Next | ServeStep::Parked | ServeStep::Http2(_) => match read {
                // A read that filled the buffer may have left something behind, and an edge-triggered poll won't tell.
                Read::Bytes(_) if was_full || self.peer_says_no_more() => Self::go_on_reading(context),
                Read::Nothing if was_full && position > 0 => Self::go_on_reading(context),
                _ if self.exchange.is_streaming() && self.may_go_on_sending() => Some(NextAction::Again),
                // A WebSocket's first frames may have come with its handshake.
                _ if has_rest && self.exchange.is_streaming() => None,
                Read::Bytes(_) | Read::Nothing => Some(NextAction::Wait),
                Read::End | Read::Broken => Some(NextAction::Close),
            },
        }
    }

    /// The peer has ended, as the poll or a word within TLS tells: what is left to read ends with the end itself.
    fn peer_says_no_more(&self) -> bool {
        self.peer_has_ended || self.transport.peer_has_closed()
    }

    /// `None`: at once; but a turn has an end.
    fn go_on_reading(context: &Context<'_, A>) -> Option<NextAction> {
        if context.thread.turn.may_read() { None } else { Some(NextAction::Again) }
    }

    /// Sets the time until which the connection may now keep us waiting.
    fn set_deadline(&mut self, step: &ServeStep, had_begun: bool, context: &Context<'_, A>) {
        let now = context.thread.clock.now_ms;
        let timeout_ms = self.timeout_ms(context.worker);
        match (step, &self.exchange.state) {
            (_, ExchangeState::Streaming(_)) => {}
            (_, ExchangeState::Collecting(collecting)) => self.deadline_ms = collecting.patience.until_ms(),
            (ServeStep::Blocked | ServeStep::Yield, _) | (_, ExchangeState::Draining { .. }) => {
                self.deadline_ms = now + timeout_ms
            }
            // A head has its time as a whole: a byte a second must not keep a connection for ever.
            (ServeStep::More, _) if self.has_part_of_request() && !had_begun => self.deadline_ms = now + timeout_ms,
            (ServeStep::More, _) if self.has_part_of_request() => {}
            _ if self.has_served => self.deadline_ms = now + context.worker.settings.limits.keepalive_ms,
            _ => {}
        }
    }

    /// Serves what the bytes have, one request after the other. Returns the bytes used.
    fn serve_all(&mut self, bytes: &[u8], context: &mut Context<'_, A>) -> (usize, ServeStep) {
        let mut position = 0;
        loop {
            if position == bytes.len() && !self.session.has_head() {
                return (position, ServeStep::More);
            }
            // One that was read with the request before it.
            let must_rest = position > 0 && self.exchange.is_idle() && context.worker.is_paused();
            if must_rest || !context.thread.turn.may_serve() {
                return (position, ServeStep::Yield);
            }
            let rest = &bytes[position..];
            let served = match self.exchange.take_state() {
                ExchangeState::Collecting(collecting) => self.collect(collecting, rest, context),
                _ => self.begin(rest, context),
            };
            let (used, step) = served.unwrap_or_else(|fault| {
                self.refuse(fault, context);
                (rest.len(), ServeStep::Linger)
            });
            position += used;
            match step {
                ServeStep::Next => context.thread.turn.note_request(),
                step => return (position, step),
            }
        }
    }

    /// Serves the request at the start of `bytes`, as far as it is here. Returns the bytes used.
    fn begin(&mut self, bytes: &[u8], context: &mut Context<'_, A>) -> Result<(usize, ServeStep), Fault> {
        let may_be_http2 = matches!(self.link, Link::Socket { may_be_http2: true });
        if may_be_http2 && let Some(step) = self.look_for_preface(bytes, context.worker) {
            return Ok((0, step));
        }
        let limits = &context.worker.head_limits;
        let (used, event) = self.session.next(bytes, limits, &mut context.thread.parts)?;
        let mut head = match event {
            SessionEvent::Head(head) => head,
            SessionEvent::Send { answer, close } => {
                self.writer().say_aside(answer.as_bytes());
                let is_over = close || self.transport.is_broken;
                return Ok((used, if is_over { ServeStep::Close } else { ServeStep::Next }));
            }
            // Without a request there is nothing of it.
            SessionEvent::More | SessionEvent::Data(_) | SessionEvent::End | SessionEvent::Aborted { .. } => {
                return Ok((used, ServeStep::More));
            }
        };
        let rest = &bytes[used..];
        if may_be_http2 && let Some(beginning) = self.upgrade_to_http2(&mut head, bytes, context) {
            return Ok((used, ServeStep::Http2(beginning)));
        }
        let (more, step) = if A::STREAMS_BODY {
            self.stream(&head, head.bytes.of(bytes), rest, context)?
        } else {
            let collector = Collector::new(head.body, context.worker.body_limits)?;
            // What the client sent behind a request for another protocol would be lost to an application that takes the socket.
            if !rest.is_empty() || collector.is_some() {
                head.head.forget_upgrade();
            }
            match collector {
                None => (0, self.answer(&head, head.bytes.of(bytes), Body::Empty, context)?),
                Some(collector) => self.begin_to_collect(head, bytes, collector, rest, context)?,
            }
        };
        Ok((used + more, step))
    }

    fn answer(&mut self, head: &HeadEvent, bytes: &[u8], body: Body, context: &mut Context<'_, A>) -> Result<ServeStep, Fault> {
        let served = self.serve(head, bytes, BodySource::Whole(body), context)?;
        Ok(self.after_answer(served, context))
    }

    fn serve(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        source: BodySource<'_>,
        context: &mut Context<'_, A>,
    ) -> Result<Served<A::Pending>, Fault> {
        let memory = memory(&mut self.memo, head, context.app);
        if self.client.is_trusted() && !head.is_repeated {
            note_client(&mut self.client, head, bytes, context);
        }
        let mut context = ExchangeContext {
            worker: context.worker,
            thread: context.thread,
            app: context.app,
            writer: ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport },
            client: &self.client,
            listener: self.listener,
            id: ExchangeId { connection: self.key, stream: self.exchange.stream },
            is_last: self.is_last,
        };
        serve(&mut context, (&head.head, bytes), head.wire, memory, source)
    }

    fn after_answer(&mut self, served: Served<A::Pending>, context: &Context<'_, A>) -> ServeStep {
        match served {
            Served::Blocked(suspended) => {
                self.exchange.state = ExchangeState::Suspended(suspended);
                self.deadline_ms = context.thread.clock.now_ms + self.timeout_ms(context.worker);
                ServeStep::Blocked
            }
            Served::Ongoing(suspended) => {
                let body = BodyStream::collected(self.patience(context.worker));
                self.leave_to_application(suspended, RequestStream::Body(body), context)
            }
            Served::Done { keep } => {
                // A stream ends with its answer.
                let keep = keep && !matches!(self.link, Link::Stream { .. });
                self.has_served = true;
                self.exchange.stream = self.exchange.stream.wrapping_add(1);
                self.exchange.share = None;
                self.session.note_answered();
                match self.exchange.unread.take().filter(|_| self.session.is_body_open()) {
                    // RFC 9110 section 10.1.1: a client that was not told to continue may send the body or not; nobody can tell.
                    Some(body) if keep && !body.owes_continue => {
                        self.exchange.state = ExchangeState::Draining { body, swallowed: 0 };
                        ServeStep::Parked
                    }
                    Some(_) => ServeStep::Linger,
                    None if keep => ServeStep::Next,
                    // What the client sends is not for us to read.
                    None if self.is_given_away() => ServeStep::Close,
                    // RFC 9112 section 9.6: it has asked again before it could know of the end. Closing over that would be a reset, and the
                    // answer may be on its way still.
                    None if self.exchange.response.client_keeps() && self.transport.has_input() => ServeStep::Linger,
                    // RFC 6455 section 7.1.1: the client is to read our last frame, whatever it still sends.
                    None if self.writer().status_code() == 101 => ServeStep::Linger,
                    None => ServeStep::Close,
                }
            }
        }
    }
}

/// Notes what a trusted front server says of a request.
fn note_client<A: App>(client: &mut Client, head: &HeadEvent, bytes: &[u8], context: &Context<'_, A>) {
    if let RequestHead::Http { line, .. } = &head.head {
        let header_bytes = bytes.get(line.length as usize..).unwrap_or_default();
        client.note_fields(&context.thread.parts.fields, header_bytes, &context.worker.clients);
    }
}

/// The adapter's memory of the header block, or the place for one.
fn memory<'a, A: App>(memo: &'a mut Option<A::Memo>, head: &HeadEvent, app: &mut AppThread<A>) -> HeaderMemory<'a, A::Memo> {
    if !head.is_repeated && memo.is_some() {
        app.discard(Leftover { memo: memo.take(), pending: None });
    }
    match memo {
        Some(memo) => HeaderMemory::Same(memo),
        memo if head.is_remembered => HeaderMemory::Fill(memo),
        _ => HeaderMemory::Off,
    }
}
