//! One connection: what it has read, what its peer's bytes mean, how long it may keep us waiting.
//!
//! It moves bytes between its transport and its session, and hands what they mean to the exchange. It is attended to by one thread at a
//! time, whenever its socket has news; it knows no poll and no other connection.

pub mod beginning;
pub mod moving;
mod multiplexed;
pub mod multiplexer;
mod proxy_header;
mod pulling;
mod refusal;
mod requests;
mod steps;
mod streaming;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::scoreboard::add;
use bolide_protocol::Fault;
use bolide_protocol::session::Session;

use crate::app::App;
use crate::app_thread::{AppThread, Leftover};
use crate::connection::multiplexer::SharedMultiplexer;
use crate::exchange::context::{Context, ExchangeContext};
use crate::exchange::thread_context::ThreadContext;
use crate::exchange::worker::Worker;
use crate::exchange::{Exchange, ExchangeState, UnreadBody, give_up, resume_response};
use crate::logging::access_log::complain;
use crate::response::ResponseWriter;
use crate::scheduling::connections::{Due, ExchangeId, Key};
use crate::scheduling::deadlines::NEVER_MS;
use crate::scheduling::patience::{DRAIN_ARRIVAL_MS, Patience};
use crate::scheduling::turn::TurnBudget;
use crate::sockets::client::Client;
use crate::sockets::socket::Read;
use crate::sockets::tls::TlsFault;
use crate::sockets::transport::Transport;
use multiplexed::{Limits, TurnEnd, attend_streams};
use proxy_header::take_proxy_header;
use refusal::{answer_fault, complain_of_peer, place};
pub use steps::NextAction;
use steps::ServeStep;

/// A connection that is ended by us with unread input lingers this long, in milliseconds, so that the peer
/// can read the answer before a reset destroys it (RFC 9112 section 9.6).
const LINGER_MS: u64 = 2_000;

/// Bytes that are thrown away at the most: of a body that nobody wants, and of a connection that lingers.
const LINGER_BYTES: usize = 1024 * 1024;

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

    /// A turn of a connection whose streams have the socket in common.
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
                    complain_of_peer(&self.client, ("HTTP/2", "a connection"), &what, context);
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

    /// Streams end without a turn of their connection: one that has lost its last has the time of an idle one from now on.
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
                let of_connection = (self.listener, self.peer_has_ended);
                if let Some(next) = take_proxy_header(&self.transport, &mut self.client, of_connection, context) {
                    return next;
                }
                self.stage = ConnectionStage::Serves;
                // What follows has a time of its own.
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

    /// A request that has begun to come has so long to come whole. A body that keeps coming may take all of the mercy at a reload, where others
    /// serve by now; at a stop it may not.
    pub fn arrive_by(&mut self, when_ms: u64, worker: &Worker, now_ms: u64) {
        let body = self.exchange.body_patience().filter(|_| !worker.is_stopping());
        let until_ms = if let Some(patience) = body {
            patience.shorten(DRAIN_ARRIVAL_MS, now_ms);
            patience.until_ms().min(worker.mercy_ends_ms.load(Relaxed))
        } else if self.is_arriving() {
            when_ms
        } else {
            return;
        };
        self.deadline_ms = self.deadline_ms.min(until_ms);
    }

    /// A head or a body is on its way, and the application has not been called for it yet.
    fn is_arriving(&self) -> bool {
        self.exchange.is_collecting()
            || self.exchange.is_idle() && self.stage == ConnectionStage::Serves && self.has_part_of_request()
    }

    /// What has come of a body, or of a PROXY header, does not buy it more time.
    fn is_too_slow(&self, now_ms: u64) -> bool {
        let is_incomplete = self.exchange.is_collecting() || self.stage == ConnectionStage::AwaitsProxyHeader;
        is_incomplete && self.deadline_ms <= now_ms
    }

    /// The answer, where there is one to give, is 408.
    fn expire(&mut self, context: &mut Context<'_, A>) -> NextAction {
        let begun = self.is_arriving() || self.exchange.is_streaming() && !self.exchange.response.head_has_left();
        if begun && self.session.is_http() {
            self.refuse(Fault::new(408, "The request did not arrive completely in time."), context);
        }
        if self.transport.is_within_handshake() {
            self.tell_of_handshake(&TlsFault::TooSlow, context);
        }
        if self.has_served && self.is_idle() { self.part_when_idle(context) } else { NextAction::Close }
    }

    /// It is between two requests, or the head of the next one has not come whole: in a pause, nothing begins here.
    pub fn awaits_request(&self) -> bool {
        self.exchange.is_idle()
            && !matches!(self.stage, ConnectionStage::Lingers { .. })
            && !matches!(self.link, Link::Multiplexed(_))
    }

    /// The worker's pause has lasted so long: no time limit counts that time.
    pub fn extend_time(&mut self, by_ms: u64) {
        self.deadline_ms = self.deadline_ms.saturating_add(by_ms);
        self.is_overdue = false;
    }

    /// Whether its next request must wait. A client that has left without one is let go.
    fn must_rest(&self, worker: &Worker) -> bool {
        let has_left = || self.peer_has_ended && self.input.is_empty() && self.transport.peer_has_ended();
        worker.is_paused() && !has_left()
    }

    /// It is between two requests, or before its first, nothing of the next one was read, and it has nothing that only this process knows (TLS,
    /// streams).
    pub fn may_move(&self) -> bool {
        let is_between = self.exchange.is_idle()
            && !matches!(self.stage, ConnectionStage::Lingers { .. })
            && !self.has_part_of_request()
            && !self.peer_has_ended;
        is_between && matches!(self.link, Link::Socket { .. }) && self.transport.is_movable() && !self.is_last
    }

    /// Something of a next request is there, and was not read.
    pub fn has_unread(&self) -> bool {
        self.transport.has_input()
    }

    fn close_or_linger(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if self.input.is_empty() { NextAction::Close } else { self.begin_linger(context) }
    }

    /// The end of an idle connection. Its client may ask at this very moment: that gets no answer any more, but an end in place of a reset.
    fn part_when_idle(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if !matches!(self.link, Link::Socket { .. }) {
            return NextAction::Close;
        }
        self.transport.end_sending();
        if self.transport.has_input() { self.begin_linger(context) } else { NextAction::Close }
    }

    fn begin_linger(&mut self, context: &mut Context<'_, A>) -> NextAction {
        if matches!(self.link, Link::Stream { .. }) {
            // What is still to come of a request says nothing, and its connection goes on.
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

    /// Reads what is left of a body that nobody wants, up to [`LINGER_BYTES`]. `None`: it is done, go on.
    fn swallow(&mut self, mut body: Box<UnreadBody>, mut swallowed: usize, context: &mut Context<'_, A>) -> Option<NextAction> {
        body.patience.wait(true, context.thread.clock.now_ms);
        while swallowed < LINGER_BYTES {
            let read = match context.thread.turn.may_read() {
                true => self.read_body(&mut body.patience, context, |_| Ok(())),
                false => return Some(self.swallow_later(body, swallowed, NextAction::Again)),
            };
            let Ok((read, _)) = read else { break };
            if !self.session.is_body_open() {
                return None;
            }
            match read {
                // All that came: chunks may be more frame than body.
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => return Some(self.swallow_later(body, swallowed, NextAction::Wait)),
                Read::End | Read::Broken => return Some(NextAction::Close),
            }
        }
        Some(self.begin_linger(context))
    }

    fn swallow_later(&mut self, body: Box<UnreadBody>, swallowed: usize, next: NextAction) -> NextAction {
        self.deadline_ms = body.patience.until_ms();
        self.exchange.state = ExchangeState::Draining { body, swallowed };
        next
    }

    /// Answers a peer's mistake and logs it: the fault, never the bytes.
    fn refuse(&mut self, fault: Fault, context: &mut Context<'_, A>) {
        // A front server that is set up for another protocol makes the same mistake with each request, and scanners come again and again.
        if fault.is_mixup {
            let what = format!(" with {}{}: {}", fault.status, place(self.listener, context.worker), fault.reason);
            complain_of_peer(&self.client, (fault.reason, "a request"), &what, context);
        } else {
            let who = self.client.own_peer().name();
            complain(context.worker.number, &format!("refused a request of {who} with {}: {}", fault.status, fault.reason));
        }
        answer_fault(self.session.wire(), &mut self.writer(), fault, context.thread);
    }
}
