//! One request and its response: how far it has come, and what it needs to go on.
//!
//! It knows no socket: what it says goes through a [`crate::response::ResponseWriter`], what its client sends is handed in. It knows no
//! readiness. The thread that attends to its connection runs it.

pub mod context;
pub mod dispatch;
pub mod https_redirect;
mod log_entry;
pub mod routing;
mod serving;
pub mod thread_context;
pub mod worker;

use bolide_protocol::session::{HeadEvent, HeadParts};

use crate::app::App;
use crate::request::body::{Body, Collector, Share};
use crate::request::request_stream::RequestStream;
use crate::response::Response;
use crate::scheduling::body_timeout::BodyTimeout;
use crate::scheduling::deadlines::NEVER_MS;
use log_entry::KeptLogEntry;
pub use serving::{give_up, go_on, serve};

/// Milliseconds for which the head of an answer waits for the first part of the body.
const HEAD_HELD_MS: u64 = 20;

pub struct Exchange<A: App> {
    pub response: Response,
    pub state: ExchangeState<A>,
    /// The room that the request's body has of the worker's.
    pub share: Option<Share>,
    /// A body that was answered before all of it had come.
    pub unread: Option<Box<UnreadBody>>,
    /// Its number on the connection.
    pub stream: u32,
}

/// The states of an exchange, by what it waits for.
pub enum ExchangeState<A: App> {
    /// A head: there is no request.
    Idle,
    /// The rest of a body, before the application is called.
    Collecting(Box<Collecting>),
    /// Its client, to take the answer.
    Suspended(Box<Suspended<A::Pending>>),
    /// The application, which has the request in its hands.
    Streaming(Box<Streaming<A>>),
    /// The rest of a body that the application did not want; so many bytes of it were thrown away.
    Draining { body: Box<UnreadBody>, swallowed: usize },
}

/// A request whose body is coming: its head in memory of its own.
pub struct Collecting {
    pub head: HeadEvent,
    pub bytes: Vec<u8>,
    pub parts: HeadParts,
    pub collector: Collector,
    pub body_timeout: BodyTimeout,
}

/// A body that nobody wants: all that is known of it.
pub struct UnreadBody {
    pub body_timeout: BodyTimeout,
    /// The client waits for `100 Continue`.
    pub owes_continue: bool,
}

/// A response that waits for its client, with what its log line will need.
pub struct Suspended<Pending> {
    pub pending: Option<Pending>,
    log_entry: KeptLogEntry,
}

/// An exchange that the application has in its hands. Times are in monotonic milliseconds.
pub struct Streaming<A: App> {
    pub request_stream: RequestStream,
    pub suspended: Box<Suspended<A::Pending>>,
    pub began_ms: u64,
    /// When a head that waits for the first part of the body leaves without it.
    pub head_due_ms: u64,
    /// When `harakiri` strikes.
    pub overdue_ms: u64,
    /// When the draining worker gives it up.
    pub mercy_ends_ms: u64,
    /// Where the answer is a stream, when the draining worker gives it up.
    pub stream_ends_ms: u64,
}

/// The result of serving a request, which may not have ended yet.
pub enum Served<Pending> {
    /// The answer has left; `keep` says whether the connection goes on.
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

impl<A: App> Exchange<A> {
    pub fn new() -> Exchange<A> {
        Exchange { response: Response::new(), state: ExchangeState::Idle, share: None, unread: None, stream: 0 }
    }

    /// Takes the state out, to go on with it.
    pub fn take_state(&mut self) -> ExchangeState<A> {
        std::mem::replace(&mut self.state, ExchangeState::Idle)
    }

    /// Takes the state out of an exchange that the application has in its hands; others keep theirs.
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

    /// What a client's body may still take of our time, while it is collected.
    pub fn body_timeout(&mut self) -> Option<&mut BodyTimeout> {
        match &mut self.state {
            ExchangeState::Collecting(collecting) => Some(&mut collecting.body_timeout),
            _ => None,
        }
    }

    pub fn is_streaming(&self) -> bool {
        matches!(self.state, ExchangeState::Streaming(_))
    }

    /// The exchange as the application has it in its hands.
    pub fn streaming(&mut self) -> Option<&mut Streaming<A>> {
        match &mut self.state {
            ExchangeState::Streaming(streaming) => Some(streaming),
            _ => None,
        }
    }

    /// Notes that the rest of the body is nobody's, where there is one.
    pub fn keep_unread(&mut self, request_stream: RequestStream) {
        if let RequestStream::Body(body) = request_stream
            && !body.is_complete()
        {
            self.unread = Some(Box::new(UnreadBody { body_timeout: body.body_timeout, owes_continue: body.owes_continue }));
        }
    }

    /// The application has begun its response, and the first part of the body has not come. A head that waits for it leaves in
    /// the same packet, and if the application fails meanwhile the answer is 500 (ASGI, "Response Start": it "need not" be sent
    /// earlier). But clients wait for the head alone, as an EventSource does, so it waits for [`HEAD_HELD_MS`] only.
    pub fn holds_its_head(&self) -> bool {
        self.is_streaming() && self.response.has_head() && !self.response.head_has_left()
    }

    /// A head that is held from now on leaves in time.
    pub fn limit_head(&mut self, now_ms: u64) {
        let holds = self.holds_its_head();
        if let ExchangeState::Streaming(streaming) = &mut self.state {
            streaming.head_due_ms = match holds {
                true => streaming.head_due_ms.min(now_ms + HEAD_HELD_MS),
                false => NEVER_MS,
            };
        }
    }

    /// When it is to be looked at, in monotonic milliseconds: it is over its time then, or its head leaves.
    pub fn due_ms(&self) -> u64 {
        match &self.state {
            ExchangeState::Streaming(streaming) => {
                streaming.overdue_ms.min(streaming.given_up_ms(&self.response)).min(streaming.head_due_ms)
            }
            _ => NEVER_MS,
        }
    }

    /// It is over its time, or that of the worker.
    pub fn is_over_its_time(&self, now_ms: u64) -> bool {
        match &self.state {
            ExchangeState::Streaming(streaming) => streaming.overdue_ms.min(streaming.given_up_ms(&self.response)) <= now_ms,
            _ => false,
        }
    }

    /// A WebSocket of the application's.
    pub fn is_websocket(&self) -> bool {
        matches!(&self.state, ExchangeState::Streaming(streaming) if matches!(streaming.request_stream, RequestStream::Messages(_)))
    }

    /// A request, and no WebSocket, that the application has in its hands.
    pub fn is_streaming_body(&self) -> bool {
        self.is_streaming() && !self.is_websocket()
    }
}

impl<A: App> Streaming<A> {
    /// When a worker that ends gives it up, in monotonic milliseconds.
    pub fn given_up_ms(&self, response: &Response) -> u64 {
        // A client that has ended its side may read on, but is taken for one that has left, as servers in front do.
        let ends_early = match &self.request_stream {
            RequestStream::Body(body) => body.is_gone || response.is_endless(),
            RequestStream::Messages(_) => false,
        };
        if ends_early { self.mercy_ends_ms.min(self.stream_ends_ms) } else { self.mercy_ends_ms }
    }
}
