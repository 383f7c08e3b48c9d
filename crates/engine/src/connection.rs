//! One connection: the bytes that it has read, their meaning, and the time limits of its peer.
//!
//! It moves bytes between its transport and its session, and passes the session's events to the exchange. One thread at a time
//! attends to it when its socket has events. It does not know about the poll or other connections. Workers run it.

pub mod admission;
pub mod beginning;
pub mod census;
pub mod checks;
pub mod moving;
mod multiplexed;
pub mod multiplexer;
mod owners;
mod proxy_header;
mod pulling;
mod refusal;
mod relaying;
mod requests;
mod steps;
mod streaming;
mod waiting;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bolide_contract::clock::now_ms;
use bolide_protocol::Fault;
use bolide_protocol::session::Session;
use bolide_scoreboard::add;

use crate::app::App;
use crate::app_thread::{AppThread, Leftover};
use crate::connection::multiplexer::SharedMultiplexer;
use crate::exchange::context::{Context, ExchangeContext, ThreadContext};
use crate::exchange::worker::Worker;
use crate::exchange::{Exchange, ExchangeState, UnreadBody, give_up, resume_response};
use crate::logging::access_log::complain;
use crate::response::ResponseWriter;
use crate::scheduling::body_timeout::{BodyTimeout, DRAIN_ARRIVAL_MS};
use crate::scheduling::connections::{Due, ExchangeId, Key};
use crate::scheduling::deadlines::NEVER_MS;
use crate::scheduling::turn::TurnBudget;
use crate::sessions::Travel;
use crate::sockets::client::Client;
use crate::sockets::socket::{self, Read};
use crate::sockets::tls::TlsFault;
use crate::sockets::transport::Transport;
use multiplexed::{Limits, TurnEnd, attend_streams};
use proxy_header::take_proxy_header;
use refusal::{answer_fault, log_refusal, path_of, place};
pub use steps::NextAction;
use steps::ServeStep;

/// A connection that this side ends with unread input lingers for this many milliseconds, so that the peer can read the answer
/// before a reset destroys it (RFC 9112 section 9.6).
const LINGER_MS: u64 = 2_000;

/// Maximum number of bytes that are discarded from an unwanted body, or from a connection that lingers.
const LINGER_BYTES: usize = 1024 * 1024;

/// The number of the first stream that an HTTP/2 client opens (RFC 9113 section 5.1.1).
const FIRST_STREAM: u32 = 1;

pub struct Connection<A: App> {
    transport: Transport,
    session: Session,
    /// The current request. A protocol with several at a time has a connection for each of the others.
    exchange: Exchange<A>,
    /// The adapter's memory of the header block that the session remembers.
    memo: Option<A::Memo>,
    client: Client,
    listener: usize,
    link: Link,
    /// Bytes that were read and not processed yet.
    input: Vec<u8>,
    stage: ConnectionStage,
    /// Its moves to workers that have its sessions.
    travel: Travel,
    /// It was answered before.
    has_served: bool,
    /// The next answer is the last: its listening socket is gone.
    is_last: bool,
    /// Processes that the application has forked in another worker may have it open too.
    pub is_shared: bool,
    /// Its name in the connection table.
    pub key: Key,
    /// When the request of a stream arrived, in monotonic milliseconds.
    arrived_ms: u64,
    /// When it is given up, in monotonic milliseconds.
    pub deadline_ms: u64,
    is_overdue: bool,
    /// It had an event while the worker was paused.
    pub is_resting: bool,
    /// It is registered with the poll.
    pub is_polled: bool,
    /// The poll has reported that the peer sends no more: reading must continue to the end of stream.
    pub peer_has_ended: bool,
}

/// A connection's relation to its socket.
pub enum Link {
    /// It has the socket for itself. `may_be_http2`: no bytes were processed yet.
    Socket { may_be_http2: bool },
    /// It has the socket and speaks HTTP/2: its streams share the transport.
    Multiplexed(Arc<SharedMultiplexer>),
    /// It is a stream of such a connection.
    Stream { multiplexer: Arc<SharedMultiplexer>, number: u32 },
}

/// The stage that a connection has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionStage {
    /// It begins with a PROXY header.
    AwaitsProxyHeader,
    Serves,
    /// Our side has ended, and the client's end is awaited; this many bytes were discarded in the meantime.
    Lingers {
        swallowed: usize,
    },
}

impl<A: App> Connection<A> {
    pub fn listener(&self) -> usize {
        self.listener
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.transport.socket()
    }

    /// The application has taken the socket over and is responsible for the connection.
    pub fn is_given_away(&self) -> bool {
        self.transport.is_given_away()
    }

    /// When the request of a stream arrived, in monotonic milliseconds.
    fn arrived_ms(&self) -> u64 {
        self.arrived_ms
    }

    fn note_arrival(&mut self, arrived_ms: u64) {
        self.arrived_ms = arrived_ms;
    }

    /// Returns whether the kernel holds its answer, and clears the mark.
    pub fn take_corked(&mut self) -> bool {
        self.transport.take_corked()
    }

    /// Sends the answer that the kernel holds.
    pub fn push(&self) {
        self.transport.push();
    }

    /// Takes the language's objects out of the connection: a thread that closes it without the language must not drop them.
    pub fn leftover(&mut self) -> Leftover<A> {
        let pending = match self.exchange.take_state() {
            ExchangeState::Suspended(suspended) => suspended.pending,
            ExchangeState::Streaming(streaming) => streaming.suspended.pending,
            ExchangeState::Idle
            | ExchangeState::Collecting(_)
            | ExchangeState::Waiting(_)
            | ExchangeState::Draining { .. }
            | ExchangeState::Relayed(_) => None,
        };
        Leftover { memo: self.memo.take(), pending }
    }

    /// True while no request has begun or is in progress.
    pub fn is_idle(&self) -> bool {
        if let (Link::Multiplexed(multiplexer), ConnectionStage::Serves) = (&self.link, self.stage) {
            return multiplexer.lock().is_idle();
        }
        self.exchange.is_idle() && !matches!(self.stage, ConnectionStage::Lingers { .. }) && !self.has_part_of_request()
    }

    /// A part of the next request is here, processed or not.
    fn has_part_of_request(&self) -> bool {
        !self.input.is_empty() || self.session.has_part_of_head()
    }

    /// It was answered before: if it is idle, the next request may be on its way.
    pub fn has_served(&self) -> bool {
        self.has_served
    }

    /// Does everything that can be done without waiting: reads, serves, sends. After `Close` the application does not hold any
    /// part of it.
    pub fn attend(&mut self, thread: &mut ThreadContext, app: &mut AppThread<A>, worker: &Worker) -> NextAction {
        thread.turn = TurnBudget::default();
        self.transport.begin_turn();
        // The connections before it may have taken long.
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
                if self.session.has_head() && !worker.may_cancel {
                    // The client has cancelled the request before it was served.
                    return NextAction::Close;
                }
            }
            Link::Socket { .. } | Link::Multiplexed(_) | Link::Stream { .. } => {}
        }
        // A trickle into a worker that exits always has another byte, so input extends no limit then.
        let is_late = self.is_arriving() && worker.arrivals_are_over(now_ms);
        let next = if !is_over || self.keeps_its_own_time() {
            self.turn(context)
        } else if self.has_timely_input() && !is_late {
            let next = self.turn(context);
            if self.is_too_slow(now_ms) { self.expire(context) } else { next }
        } else {
            self.expire(context)
        };
        if next == NextAction::Close {
            self.give_up(context);
            self.transport.end_tls();
        }
        next
    }

    /// A turn of a connection whose streams share the socket.
    fn attend_multiplexed(&mut self, shared: &SharedMultiplexer, is_over: bool, context: &mut Context<'_, A>) -> NextAction {
        let mut multiplexer = shared.lock();
        multiplexer.key = self.key;
        multiplexer.peer_has_ended = self.peer_has_ended;
        let ended = attend_streams(&mut multiplexer, &mut self.limits(context.worker), is_over, context);
        drop(multiplexer);
        match ended {
            TurnEnd::Goes(next) => next,
            TurnEnd::Over(transport, fault) => {
                if let Some(fault) = fault {
                    let what = format!(" with {}: {}", fault.code.name(), fault.reason);
                    log_refusal(&self.client, ("HTTP/2", "a connection"), &what, context);
                }
                self.transport = transport;
                self.begin_linger(context)
            }
        }
    }

    fn limits(&mut self, worker: &Worker) -> Limits<'_> {
        let timeout_ms = self.timeout_ms(worker);
        Limits { deadline_ms: &mut self.deadline_ms, has_served: &mut self.has_served, timeout_ms }
    }

    /// Streams end without a turn of their connection: when the last one has gone, the limit of an idle connection begins.
    pub fn note_last_stream(&mut self, worker: &Worker) {
        let Link::Multiplexed(shared) = &self.link else { return };
        if self.deadline_ms == NEVER_MS {
            let shared = shared.clone();
            let mut multiplexer = shared.lock();
            if !multiplexer.has_streams() {
                self.limits(worker).renew(&mut multiplexer, now_ms(), worker);
            }
        }
    }

    /// Returns when it must be checked whatever its socket does, in monotonic milliseconds.
    pub fn due_ms(&self) -> u64 {
        self.deadline_ms.min(self.exchange.due_ms())
    }

    /// Checks its time limits. If one has passed, the next `attend` ends the connection, unless a request has come at the last
    /// moment; or it sends the head that was held back.
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
                let of_connection = (self.listener, self.peer_has_ended);
                if let Some(next) = take_proxy_header(&self.transport, &mut self.client, of_connection, context) {
                    return next;
                }
                self.stage = ConnectionStage::Serves;
                // The input that follows has its own time limit.
                self.deadline_ms = context.thread.clock.now_ms + self.timeout_ms(context.worker);
            }
        }
        loop {
            let next = match self.exchange.take_state() {
                ExchangeState::Suspended(suspended) => {
                    let served = resume_response(&mut self.context(context), suspended);
                    match self.after_answer(served, context) {
                        ServeStep::Blocked => Some(self.wait_for_client()),
                        ServeStep::Close => Some(self.close_or_linger(context)),
                        ServeStep::Linger => Some(self.begin_linger(context)),
                        _ => None,
                    }
                }
                ExchangeState::Streaming(streaming) => self.go_on_streaming(streaming, context),
                ExchangeState::Waiting(waiting) => self.go_on_waiting(waiting, context),
                ExchangeState::Relayed(relay) => self.go_on_relaying(relay, context),
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

    /// Whether input has arrived in time: an idle connection whose next request is already here is not closed, and bytes of a
    /// body that arrived while the worker was busy elsewhere are not late.
    fn has_timely_input(&self) -> bool {
        // A stream that waits for its turn has its whole request head.
        self.session.has_head() || (self.is_idle() || self.exchange.is_collecting()) && self.transport.has_input()
    }

    /// Gives up a suspended answer, so that the application's `close()` runs.
    fn give_up(&mut self, context: &mut Context<'_, A>) {
        match self.exchange.take_state() {
            ExchangeState::Suspended(suspended) => {
                add(&context.thread.slot.tally.write_errors, 1);
                give_up(&mut self.context(context), *suspended);
            }
            ExchangeState::Streaming(streaming) => self.give_up_streaming(*streaming, context),
            ExchangeState::Collecting(_) => add(&context.thread.slot.tally.read_errors, 1),
            ExchangeState::Idle | ExchangeState::Waiting(_) | ExchangeState::Draining { .. } | ExchangeState::Relayed(_) => {}
        }
    }

    fn writer(&mut self) -> ResponseWriter<'_> {
        ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport }
    }

    fn travel(&self) -> Travel {
        self.travel
    }

    /// It is an end of a relay, whose client has its connection at another worker.
    fn is_end_of_relay(&self) -> bool {
        self.travel.relay.is_some()
    }

    fn travel_mut(&mut self) -> &mut Travel {
        &mut self.travel
    }

    /// The request is the first one of its connection: of HTTP/2, the first stream.
    fn serves_first(&self) -> bool {
        match self.link {
            Link::Stream { number, .. } => number == FIRST_STREAM,
            Link::Socket { .. } | Link::Multiplexed(_) => !self.has_served,
        }
    }

    fn body_timeout(&self, worker: &Worker) -> BodyTimeout {
        BodyTimeout::new(self.timeout_ms(worker), worker.settings.limits.body_bytes_per_second)
    }

    fn timeout_ms(&self, worker: &Worker) -> u64 {
        worker.listeners.get(self.listener).map_or(0, |listener| listener.timeout_ms)
    }

    fn context<'a>(&'a mut self, context: &'a mut Context<'_, A>) -> ExchangeContext<'a, A> {
        let is_first = self.serves_first();
        ExchangeContext {
            worker: context.worker,
            thread: context.thread,
            app: context.app,
            writer: ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport },
            client: &self.client,
            listener: self.listener,
            id: ExchangeId { connection: self.key, stream: self.exchange.stream },
            is_first,
            is_last: self.is_last,
            start: None,
            passage: None,
        }
    }

    /// Limits the time in which a request that is arriving must be complete. At a reload a body that keeps arriving may take all
    /// of the mercy, as other workers serve by now; at shutdown it may not.
    pub fn arrive_by(&mut self, when_ms: u64, worker: &Worker, now_ms: u64) {
        let body = self.exchange.body_timeout().filter(|_| !worker.is_stopping());
        let until_ms = if let Some(body_timeout) = body {
            body_timeout.shorten(DRAIN_ARRIVAL_MS, now_ms);
            body_timeout.until_ms().min(worker.availability.mercy_ends_ms())
        } else if self.is_arriving() {
            when_ms
        } else {
            return;
        };
        self.deadline_ms = self.deadline_ms.min(until_ms);
    }

    /// A head or a body is on its way, and the application was not called for it yet.
    fn is_arriving(&self) -> bool {
        self.exchange.is_collecting()
            || self.exchange.is_idle() && self.stage == ConnectionStage::Serves && self.has_part_of_request()
    }

    /// Input does not extend the time of an incomplete body or PROXY header.
    fn is_too_slow(&self, now_ms: u64) -> bool {
        let is_incomplete = self.exchange.is_collecting() || self.stage == ConnectionStage::AwaitsProxyHeader;
        is_incomplete && self.deadline_ms <= now_ms
    }

    /// Ends the connection for a time limit. The answer is 408 if there is a request to answer.
    fn expire(&mut self, context: &mut Context<'_, A>) -> NextAction {
        let begun = self.is_arriving() || self.exchange.is_streaming() && !self.exchange.response.head_has_left();
        if begun && self.session.is_http() {
            self.refuse(Fault::new(408, "The request did not arrive completely in time."), &[], context);
        }
        if self.transport.is_within_handshake() {
            self.note_handshake_fault(&TlsFault::TooSlow, context);
        }
        if self.has_served && self.is_idle() { self.end_idle(context) } else { NextAction::Close }
    }

    /// It is between two requests, or the head of the next one is incomplete: in a pause, no request begins here.
    pub fn awaits_request(&self) -> bool {
        self.exchange.is_idle()
            && !matches!(self.stage, ConnectionStage::Lingers { .. })
            && !matches!(self.link, Link::Multiplexed(_))
    }

    /// The worker's pause has lasted this long: time limits do not count it.
    pub fn extend_time(&mut self, by_ms: u64) {
        self.deadline_ms = self.deadline_ms.saturating_add(by_ms);
        self.is_overdue = false;
    }

    /// Whether its next request must wait. A health check need not, and a client that has left without a request is closed.
    fn must_rest(&self, worker: &Worker) -> bool {
        let has_left = || self.peer_has_ended && self.input.is_empty() && self.transport.peer_has_ended();
        worker.is_paused() && !has_left() && !self.has_unread_check(worker)
    }

    /// Whether it may move to another worker: it is between two requests, or before its first, no byte of the next one was read,
    /// and it has no state that only this process knows (TLS, streams).
    pub fn may_move(&self) -> bool {
        let is_between =
            self.exchange.is_idle() && !matches!(self.stage, ConnectionStage::Lingers { .. }) && !self.has_part_of_request();
        is_between && matches!(self.link, Link::Socket { .. }) && self.transport.is_movable() && !self.is_last
    }

    /// Bytes of the next request have arrived, and were not read; or the peer has ended its side.
    pub fn has_unread(&self) -> bool {
        self.with_transport(Transport::has_input)
    }

    /// The peer has ended its side, and everything that it sent before was read.
    pub fn peer_has_left(&self) -> bool {
        self.with_transport(Transport::peer_has_ended)
    }

    fn with_transport<R>(&self, ask: impl FnOnce(&Transport) -> R) -> R {
        match &self.link {
            Link::Multiplexed(multiplexer) if self.stage == ConnectionStage::Serves => ask(&multiplexer.lock().transport),
            _ => ask(&self.transport),
        }
    }

    /// Ends a connection at rest as its protocol asks for, for a thread without the language: with close_notify within TLS, and
    /// with GOAWAY in HTTP/2. A client of HTTP/2 learns that unread requests were not processed, and may send them again on
    /// another connection (RFC 9113 section 8.7).
    pub fn end_at_rest(&mut self) {
        match &self.link {
            Link::Multiplexed(multiplexer) if self.stage == ConnectionStage::Serves => {
                let mut multiplexer = multiplexer.lock();
                multiplexer.go_away(true);
                multiplexer.transport.end_sending();
            }
            _ => self.transport.end_sending(),
        }
        // Unread bytes would make a reset of the close, which can destroy what the client has not read yet.
        socket::discard_input(self.socket(), LINGER_BYTES);
    }

    /// Requests that it has not read are known to be unprocessed when it ends.
    pub fn tells_unprocessed(&self) -> bool {
        matches!(self.link, Link::Multiplexed(_))
    }

    fn close_or_linger(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if self.input.is_empty() { NextAction::Close } else { self.begin_linger(context) }
    }

    /// Ends an idle connection. A request that arrives at this very moment is not answered any more: it gets an end of stream
    /// instead of a reset.
    fn end_idle(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if !matches!(self.link, Link::Socket { .. }) {
            return NextAction::Close;
        }
        self.transport.end_sending();
        if self.transport.has_input() { self.begin_linger(context) } else { NextAction::Close }
    }

    fn begin_linger(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if matches!(self.link, Link::Stream { .. }) {
            // The rest of the request does not matter, and its connection continues.
            return NextAction::Close;
        }
        self.transport.end_sending();
        self.input = Vec::new();
        self.deadline_ms = context.thread.clock.now_ms + LINGER_MS;
        self.linger(context, 0)
    }

    fn linger(&mut self, context: &mut Context<'_, A>, mut swallowed: usize) -> NextAction {
        while swallowed < LINGER_BYTES {
            self.stage = ConnectionStage::Lingers { swallowed };
            if !context.thread.turn.may_read() {
                return NextAction::Again;
            }
            match self.transport.read(&mut context.thread.read) {
                Read::Bytes(count) => {
                    context.thread.turn.note_read(self.transport.read_cost(count));
                    swallowed += count;
                }
                Read::Nothing => return NextAction::Wait,
                Read::End | Read::Broken => break,
            }
        }
        NextAction::Close
    }

    /// Reads the rest of an unwanted body, up to [`LINGER_BYTES`]. `None`: it is complete, continue.
    fn swallow(&mut self, mut body: Box<UnreadBody>, mut swallowed: usize, context: &mut Context<'_, A>) -> Option<NextAction> {
        body.body_timeout.wait(true, context.thread.clock.now_ms);
        while swallowed < LINGER_BYTES {
            let read = match context.thread.turn.may_read() {
                true => self.read_body(&mut body.body_timeout, context, |_| Ok(())),
                false => return Some(self.swallow_later(body, swallowed, NextAction::Again)),
            };
            let Ok((read, _)) = read else { break };
            if !self.session.is_body_open() {
                return None;
            }
            match read {
                // Counts all received bytes: chunks may be more framing than body.
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => return Some(self.swallow_later(body, swallowed, NextAction::Wait)),
                Read::End | Read::Broken => return Some(NextAction::Close),
            }
        }
        Some(self.begin_linger(context))
    }

    fn swallow_later(&mut self, body: Box<UnreadBody>, swallowed: usize, next: NextAction) -> NextAction {
        self.deadline_ms = body.body_timeout.until_ms();
        self.exchange.state = ExchangeState::Draining { body, swallowed };
        next
    }

    /// Answers a peer's mistake and logs it: the fault and the path at the beginning of the head, never other bytes.
    fn refuse(&mut self, fault: Fault, head: &[u8], context: &mut Context<'_, A>) {
        // A reverse proxy that is configured for another protocol makes the same mistake with each request, and scanners come
        // again and again.
        if fault.is_mixup {
            let what = format!(" with {}{}: {}", fault.status, place(self.listener, context.worker), fault.reason);
            log_refusal(&self.client, (fault.reason, "a request"), &what, context);
        } else {
            let who = self.client.own_peer().name();
            let path = path_of(head).map_or_else(String::new, |path| format!(" ({path})"));
            complain(
                context.worker.number,
                &format!("refused a request from {who} with {}: {}{path}", fault.status, fault.reason),
            );
        }
        answer_fault(self.session.wire(), &mut self.writer(), fault, context.thread);
    }
}
