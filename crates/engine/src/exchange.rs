//! One request and its response: the state of an exchange, and the data that it needs to continue.
//!
//! It does not know about sockets or readiness: answers go through a [`crate::response::ResponseWriter`], and input is passed in.
//! The thread that serves the connection runs it.

pub mod admission;
pub mod availability;
pub mod beginning;
pub mod bulkheads;
pub mod cancelling;
pub mod context;
pub mod dispatch;
mod entrance;
pub mod finishing;
pub mod health;
pub mod https_redirect;
pub mod internal_requests;
pub mod leaks;
mod log_entry;
pub mod passage;
pub mod refusing;
pub mod relay;
pub mod routing;
mod serving;
pub mod spans;
pub mod worker;

use bolide_protocol::session::{HeadEvent, HeadParts};
use bolide_scoreboard::Phase;

use crate::app::App;
use crate::request::body::{Body, Collector, Share};
use crate::request::request_stream::RequestStream;
use crate::response::Response;
use crate::scheduling::body_timeout::BodyTimeout;
use crate::scheduling::deadlines::NEVER_MS;
use bulkheads::{BulkheadVerdict, Permit, Ticket};
pub use log_entry::AwaitedCall;
use log_entry::KeptLogEntry;
use passage::Passage;
use relay::Relay;
use routing::Routed;
pub use serving::{give_up, resume_response, serve};

/// Milliseconds for which the head of an answer is held back for the first part of the body.
const HEAD_HELD_MS: u64 = 20;

pub struct Exchange<A: App> {
    pub response: Response,
    pub state: ExchangeState<A>,
    /// The share of the worker's body storage that the request's body uses.
    pub share: Option<Share>,
    /// The rest of a body whose request was answered before all of it had arrived.
    pub unread: Option<Box<UnreadBody>>,
    /// The number of the exchange on its connection.
    pub stream: u32,
}

/// The states of an exchange, by what it waits for.
pub enum ExchangeState<A: App> {
    /// The next head: there is no request.
    Idle,
    /// The rest of a body, before the application is called.
    Collecting(Box<Collecting>),
    /// A permit of the request's bulkhead.
    Waiting(Box<Waiting>),
    /// The client, to read the answer.
    Suspended(Box<Suspended<A::Pending>>),
    /// The application, which keeps the request.
    Streaming(Box<Streaming<A>>),
    /// The rest of a body that the application did not read; `swallowed` bytes of it have been discarded.
    Draining { body: Box<UnreadBody>, swallowed: usize },
    /// The worker that has the request's session, which serves it (`sticky`).
    Relayed(Box<Relay>),
}

/// A request whose body is being received, with its own copy of the head.
pub struct Collecting {
    pub head: HeadEvent,
    pub bytes: Vec<u8>,
    pub parts: HeadParts,
    pub collector: Collector,
    /// The rules that the request has passed, if they came before its body.
    pub passage: Option<Box<Passage>>,
    pub body_timeout: BodyTimeout,
    pub awaited: AwaitedCall,
}

/// A request that waits for a permit of its bulkhead, with its own copy of the head.
pub struct Waiting {
    pub head: HeadEvent,
    pub bytes: Vec<u8>,
    pub parts: HeadParts,
    pub passage: Box<Passage>,
    pub body: WaitingBody,
    pub awaited: AwaitedCall,
    /// The loop knows that it waits.
    pub is_listed: bool,
}

/// The body of a request that waits: what came with its head. The rest is not read.
pub enum WaitingBody {
    /// All of it is in the passage, or there is none.
    Whole,
    /// The application gets it as a whole.
    Unread { collector: Collector, owes_continue: bool },
    /// The application gets it as it comes.
    Streamed(RequestStream),
}

impl Waiting {
    pub fn ticket(&self) -> Option<&Ticket> {
        match &self.passage.bulkhead {
            BulkheadVerdict::Waits(ticket) => Some(ticket),
            _ => None,
        }
    }
}

/// A body that will be discarded.
pub struct UnreadBody {
    pub body_timeout: BodyTimeout,
    /// The client waits for `100 Continue`.
    pub owes_continue: bool,
}

/// A response that waits for its client, with the data of its log line.
pub struct Suspended<Pending> {
    pub pending: Option<Pending>,
    /// The permit of its bulkhead, until the application has ended.
    pub permit: Option<Permit>,
    log_entry: KeptLogEntry,
}

/// An exchange that the application keeps. Times are in monotonic milliseconds.
pub struct Streaming<A: App> {
    pub request_stream: RequestStream,
    pub suspended: Box<Suspended<A::Pending>>,
    pub began_ms: u64,
    /// When a head that waits for the first part of the body is sent without it.
    pub head_due_ms: u64,
    /// When the `harakiri` limit expires.
    pub overdue_ms: u64,
    /// When a draining worker aborts it.
    pub mercy_ends_ms: u64,
    /// When a draining worker aborts it if the answer is a stream.
    pub stream_ends_ms: u64,
}

/// The result of serving a request, which may still be in progress.
pub enum Served<Pending> {
    /// The answer has been sent; `keep` says whether the connection stays open.
    Done { keep: bool },
    /// The client must read data first.
    Blocked(Box<Suspended<Pending>>),
    /// The application continues by itself.
    Ongoing(Box<Suspended<Pending>>),
    /// Nothing but the application answers the request, and it is not called yet: its body was not read (see
    /// [`BodySource::Unread`]), or it waits for a permit.
    Passed(Box<Passage>),
}

/// A request's body: complete, or streamed.
pub enum BodySource<'a> {
    Whole(Body),
    Streamed(&'a mut RequestStream),
    /// The rest of it was not read yet, and the application gets it as a whole. Rules that come before bodies decide first
    /// whether it is read.
    Unread,
}

impl<'a> BodySource<'a> {
    /// Length of a complete body; 0 for one that is streamed or unread.
    fn length(&self) -> u64 {
        match self {
            BodySource::Whole(body) => body.length(),
            BodySource::Streamed(_) | BodySource::Unread => 0,
        }
    }

    fn is_unread(&self) -> bool {
        matches!(self, BodySource::Unread)
    }

    fn parts(self) -> (Body, Option<&'a mut RequestStream>) {
        match self {
            BodySource::Whole(body) => (body, None),
            BodySource::Streamed(request_stream) => (Body::Empty, Some(request_stream)),
            BodySource::Unread => (Body::Empty, None),
        }
    }
}

impl<Pending> Served<Pending> {
    /// A request that has passed keeps what the rules have decided.
    #[inline(always)]
    fn with_rules(mut self, routed: &mut Option<Routed>) -> Served<Pending> {
        if let Served::Passed(passage) = &mut self {
            passage.routed = routed.take();
        }
        self
    }
}

impl<Pending> Suspended<Pending> {
    /// Shows in the flight recorder what the request waits for.
    pub fn enter_phase(&self, phase: Phase) {
        if let Some((recorder, number)) = self.log_entry.recorded() {
            recorder.enter_phase(number, phase);
        }
    }
}

impl<A: App> Exchange<A> {
    pub fn new() -> Exchange<A> {
        Exchange { response: Response::new(), state: ExchangeState::Idle, share: None, unread: None, stream: 0 }
    }

    /// Takes the state out, to continue with it.
    pub fn take_state(&mut self) -> ExchangeState<A> {
        std::mem::replace(&mut self.state, ExchangeState::Idle)
    }

    /// Takes the state out if the application keeps the exchange; other states stay.
    pub fn take_streaming(&mut self) -> Option<Box<Streaming<A>>> {
        match self.take_state() {
            ExchangeState::Streaming(streaming) => Some(streaming),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.state, ExchangeState::Idle)
    }

    pub fn is_collecting(&self) -> bool {
        matches!(self.state, ExchangeState::Collecting(_))
    }

    /// The time budget of a client whose body is being collected.
    pub fn body_timeout(&mut self) -> Option<&mut BodyTimeout> {
        match &mut self.state {
            ExchangeState::Collecting(collecting) => Some(&mut collecting.body_timeout),
            _ => None,
        }
    }

    /// Its request waits for a permit.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, ExchangeState::Waiting(_))
    }

    pub fn is_streaming(&self) -> bool {
        matches!(self.state, ExchangeState::Streaming(_))
    }

    /// The state of an exchange that the application keeps.
    pub fn streaming(&mut self) -> Option<&mut Streaming<A>> {
        match &mut self.state {
            ExchangeState::Streaming(streaming) => Some(streaming),
            _ => None,
        }
    }

    /// Records that the rest of the body will be discarded, if there is one.
    pub fn keep_unread(&mut self, request_stream: RequestStream) {
        if let RequestStream::Body(body) = request_stream
            && !body.is_complete()
        {
            self.unread = Some(Box::new(UnreadBody { body_timeout: body.body_timeout, owes_continue: body.owes_continue }));
        }
    }

    /// The application has begun its response, and the first part of the body has not arrived. A head that waits for it is sent
    /// in the same packet, and if the application fails in the meantime, the answer is 500 (ASGI, "Response Start": it "need not"
    /// be sent earlier). But some clients wait for the head alone, such as an EventSource, so it waits for at most
    /// [`HEAD_HELD_MS`].
    pub fn holds_its_head(&self) -> bool {
        self.is_streaming() && self.response.has_head() && !self.response.head_has_left()
    }

    /// Sets or clears the deadline of a head that is held back.
    pub fn limit_head(&mut self, now_ms: u64) {
        let holds = self.holds_its_head();
        if let ExchangeState::Streaming(streaming) = &mut self.state {
            streaming.head_due_ms = match holds {
                true => streaming.head_due_ms.min(now_ms + HEAD_HELD_MS),
                false => NEVER_MS,
            };
        }
    }

    /// Applies the limit that the application has set for its own request.
    pub fn apply_time_limit(&mut self, now_ms: u64) {
        if let Some(limit_ms) = self.response.notes.limit_from_now_ms.take()
            && let ExchangeState::Streaming(streaming) = &mut self.state
        {
            streaming.overdue_ms = if limit_ms == 0 { NEVER_MS } else { now_ms + limit_ms };
        }
    }

    /// The next deadline in monotonic milliseconds: its time limit, or when its head must be sent.
    pub fn due_ms(&self) -> u64 {
        match &self.state {
            ExchangeState::Streaming(streaming) => {
                streaming.overdue_ms.min(streaming.given_up_ms(&self.response)).min(streaming.head_due_ms)
            }
            ExchangeState::Relayed(relay) => relay.given_up_ms(&self.response).min(relay.leaves_ms),
            ExchangeState::Waiting(waiting) => waiting.ticket().map_or(NEVER_MS, Ticket::until_ms),
            _ => NEVER_MS,
        }
    }

    /// Its time limit has expired, or that of the draining worker.
    pub fn is_over_its_time(&self, now_ms: u64) -> bool {
        match &self.state {
            ExchangeState::Streaming(streaming) => streaming.overdue_ms.min(streaming.given_up_ms(&self.response)) <= now_ms,
            ExchangeState::Relayed(relay) => relay.given_up_ms(&self.response) <= now_ms,
            ExchangeState::Waiting(waiting) => waiting.ticket().is_some_and(|ticket| ticket.until_ms() <= now_ms),
            _ => false,
        }
    }

    /// A WebSocket that the application keeps.
    pub fn is_websocket(&self) -> bool {
        let ExchangeState::Streaming(streaming) = &self.state else { return false };
        matches!(streaming.request_stream, RequestStream::Messages(_))
    }

    /// A request, not a WebSocket, that the application keeps.
    pub fn is_streaming_body(&self) -> bool {
        self.is_streaming() && !self.is_websocket()
    }

    /// The exchange that is relayed.
    pub fn relay(&mut self) -> Option<&mut Relay> {
        match &mut self.state {
            ExchangeState::Relayed(relay) => Some(relay),
            _ => None,
        }
    }

    pub fn is_relayed(&self) -> bool {
        matches!(self.state, ExchangeState::Relayed(_))
    }

    /// A relayed exchange that has switched to another protocol.
    pub fn is_tunnel(&self) -> bool {
        matches!(&self.state, ExchangeState::Relayed(relay) if relay.is_tunnel)
    }
}

impl<A: App> Streaming<A> {
    /// When a worker that exits aborts it, in monotonic milliseconds.
    pub fn given_up_ms(&self, response: &Response) -> u64 {
        // A client that has closed its sending side may still read, but counts as disconnected, as in reverse proxies.
        let ends_early = match &self.request_stream {
            RequestStream::Body(body) => body.is_gone || response.is_endless(),
            RequestStream::Messages(_) => false,
        };
        if ends_early { self.mercy_ends_ms.min(self.stream_ends_ms) } else { self.mercy_ends_ms }
    }
}
