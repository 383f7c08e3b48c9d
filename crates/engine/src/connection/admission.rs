//! Requests of a connection that have waited too long (`admission`): how long one has waited, and its refusal, by the thread that
//! would begin it, or by the companion while no thread is free.
//!
//! The companion sees a request without reading it, as it sees health checks, and leaves one that it can't see whole for a
//! thread. It does not know about the poll or other connections.

use bolide_protocol::Fault;
use bolide_protocol::http1::Framing;
use bolide_protocol::session::{HeadEvent, HeadParts, RequestHead, Session, SessionEvent};

use super::checks::{MAX_UNREAD_BYTES, UnreadRequest};
use super::pulling::{PullEnd, pull};
use super::requests::{memory, note_client};
use super::steps::ServeStep;
use super::{Connection, ConnectionStage, LINGER_MS, Link};
use crate::app::App;
use crate::exchange::admission::Admission;
use crate::exchange::context::Context;
use crate::exchange::health::{is_check, is_head, wire_of, write};
use crate::exchange::refusing::refuse;
use crate::exchange::worker::Worker;
use crate::logging::waiting::{self, VARIABLE};
use crate::response::ResponseWriter;
use crate::scheduling::clock::Clock;
use crate::sockets::socket::{self, Read};

/// A request that waits unread, and that can be answered without the language.
#[derive(Debug)]
pub struct WaitingRequest {
    request: UnreadRequest,
    /// Its body is here too, so the connection may go on.
    is_whole: bool,
    /// It is a health check, which is never refused.
    pub is_check: bool,
    /// Nothing is behind it.
    pub is_alone: bool,
    /// How long it has waited by its reverse proxy, in milliseconds, if the kernel does not tell.
    pub said_ms: Option<u64>,
}

/// What becomes of a connection that was answered by the companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    Continues,
    /// It waits for the client's end, which a thread awaits.
    Lingers,
    Ends,
}

impl<A: App> Connection<A> {
    /// Refuses the request whose head is complete, if it has waited too long. `used` bytes of `bytes` are its head. `None`: it
    /// begins. Costs one branch without `admission`, and two while threads are free.
    #[inline(always)]
    pub(super) fn refuse_if_late(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        used: usize,
        context: &mut Context<'_, A>,
    ) -> Option<Result<(usize, ServeStep), Fault>> {
        let admission = context.worker.admission.as_ref()?;
        // An application that gets bodies as streams begins with each request as soon as the loop has read it.
        if A::STREAMS_BODY || !admission.is_loaded(context.thread.clock.now_ms) {
            return None;
        }
        self.refuse_late(admission, head, bytes, used, context)
    }

    #[cold]
    fn refuse_late(
        &mut self,
        admission: &Admission,
        head: &HeadEvent,
        bytes: &[u8],
        used: usize,
        context: &mut Context<'_, A>,
    ) -> Option<Result<(usize, ServeStep), Fault>> {
        let (own, now_ms) = (head.bytes.of(bytes), context.thread.clock.now_ms);
        let waited_ms = self.input_waited_ms(context.worker, now_ms).or_else(|| self.said_wait_ms(head, own, context));
        let cause = admission.judge(waited_ms?, now_ms)?;
        if is_check(context.worker, &head.head, own, &context.thread.parts.variables) {
            return None;
        }
        admission.note_refusal(&context.worker.peer_warnings, cause, now_ms);
        // The session remembers this header block, and what was known of the one before must not count for it.
        let _not_filled = memory(&mut self.memo, head, context.app);
        if self.client.is_trusted() && !head.is_repeated {
            note_client(&mut self.client, head, own, context);
        }
        let _start = self.transport.read_times.as_mut().map(|times| times.take());
        let rest = bytes.get(used..).unwrap_or_default();
        Some(self.answer_late(admission, head, own, rest, context).map(|(more, step)| (used + more, step)))
    }

    /// Answers the request. Bytes of its body that are here are dropped.
    fn answer_late(
        &mut self,
        admission: &Admission,
        head: &HeadEvent,
        own: &[u8],
        rest: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let pulled = pull((&mut self.session, &mut writer), rest, context.worker, &mut context.thread.parts, |_| Ok(()))?;
        let is_whole = match pulled.end {
            PullEnd::Complete => true,
            PullEnd::More => false,
            PullEnd::Aborted { end, keep_alive } => return Ok((pulled.used, self.abort(end, keep_alive))),
        };
        if let Link::Socket { may_be_http2 } = &mut self.link {
            // It has begun with a request of HTTP/1.
            *may_be_http2 = false;
        }
        let served = refuse(&mut self.context(context), head, own, admission.retry_after(), is_whole);
        let step = match self.after_answer(served, context) {
            ServeStep::Blocked => ServeStep::Blocked,
            _ if !is_whole => ServeStep::Linger,
            step => step,
        };
        Ok((pulled.used, step))
    }

    /// Refuses a request whose body has arrived, if it has waited too long since. `None`: it begins.
    #[inline(always)]
    pub(super) fn refuse_collected_if_late(
        &mut self,
        head: &HeadEvent,
        own: &[u8],
        context: &mut Context<'_, A>,
    ) -> Option<ServeStep> {
        let admission = context.worker.admission.as_ref()?;
        let now_ms = context.thread.clock.now_ms;
        if !admission.is_loaded(now_ms) {
            return None;
        }
        let cause = admission.judge(self.input_waited_ms(context.worker, now_ms)?, now_ms)?;
        admission.note_refusal(&context.worker.peer_warnings, cause, now_ms);
        let served = refuse(&mut self.context(context), head, own, admission.retry_after(), true);
        Some(self.after_answer(served, context))
    }

    /// Milliseconds since the input came that was read last: the kernel knows it for TCP, and a stream has its own time. `None`
    /// for other sockets.
    pub fn input_waited_ms(&self, worker: &Worker, now_ms: u64) -> Option<u64> {
        if matches!(self.link, Link::Stream { .. }) {
            return Some(now_ms.saturating_sub(self.arrived_ms()));
        }
        let ask = || self.with_transport(|transport| socket::waited_ms(transport.socket()));
        worker.is_tcp(self.listener).then(ask).flatten().map(u64::from)
    }

    /// How long the input of a connection with streams waited to be read. Costs one branch without `admission`, and a system call
    /// only while no thread is free.
    #[inline(always)]
    pub(super) fn kernel_wait_ms(&self, worker: &Worker, now_ms: u64) -> u64 {
        match &worker.admission {
            Some(admission) if !A::STREAMS_BODY && admission.is_loaded(now_ms) => {
                self.input_waited_ms(worker, now_ms).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Milliseconds since a reverse proxy on this machine has received the request, if it tells that. It uses the same clock.
    fn said_wait_ms(&self, head: &HeadEvent, own: &[u8], context: &Context<'_, A>) -> Option<u64> {
        let parts = &context.thread.parts;
        let said = match &head.head {
            RequestHead::Http { line, .. } if self.client.is_trusted() => {
                waiting::find_field(&parts.fields, own.get(line.length as usize..)?)
            }
            RequestHead::Http { .. } => None,
            RequestHead::Variables { .. } => {
                parts.variables.iter().rfind(|variable| variable.name.of(own) == VARIABLE).map(|said| said.value.of(own))
            }
        };
        waiting::waited_ms(said?)
    }

    /// Returns the request that waits unread, if it can be refused without a thread. It has come as HTTP/1 in the clear.
    pub fn waiting_request(&self, worker: &Worker) -> Option<WaitingRequest> {
        if !self.shows_requests() {
            return None;
        }
        let mut bytes = [0; MAX_UNREAD_BYTES];
        let Read::Bytes(count) = socket::peek(self.socket(), &mut bytes) else { return None };
        let bytes = bytes.get(..count)?;
        let mut parts = HeadParts::default();
        // A fault is for the thread that reads it.
        let (used, event) = Session::http1().next(bytes, &worker.head_limits, &mut parts).ok()?;
        let SessionEvent::Head(event) = event else { return None };
        let RequestHead::Http { facts, line } = &event.head else { return None };
        let head = event.bytes.of(bytes);
        let length = match event.body {
            Framing::None => Some(0),
            Framing::Length(length) => usize::try_from(length).ok(),
            Framing::Chunked => None,
        };
        let whole = length.and_then(|length| used.checked_add(length)).filter(|end| *end <= count);
        let may_say = self.client.is_trusted() && !worker.is_tcp(self.listener);
        let said = || waiting::find_field(&parts.fields, head.get(line.length as usize..)?).and_then(waiting::waited_ms);
        Some(WaitingRequest {
            request: UnreadRequest {
                bytes: whole.unwrap_or(used),
                wire: wire_of(&event.head, event.wire),
                is_head: is_head(&event.head, head),
                may_keep: facts.keep_alive && whole.is_some(),
            },
            is_whole: whole.is_some(),
            is_check: is_check(worker, &event.head, head, &parts.variables),
            is_alone: count < MAX_UNREAD_BYTES && whole == Some(count),
            said_ms: if may_say { said() } else { None },
        })
    }

    /// Answers a request that waits unread: it is refused, unless it is a health check. Returns what becomes of the connection.
    pub fn refuse_unread(
        &mut self,
        waiting: &WaitingRequest,
        admission: &Admission,
        worker: &Worker,
        clock: &Clock,
    ) -> AfterRefusal {
        let continues = self.answer_early(&waiting.request, worker, clock, |writer| match waiting.is_check {
            true => write(writer, worker.availability.service()),
            false => writer.answer_overloaded(admission.retry_after()),
        });
        if continues || waiting.is_whole {
            return if continues { AfterRefusal::Continues } else { AfterRefusal::Ends };
        }
        // RFC 9112 section 9.6: a reset would destroy the answer, because its client still sends.
        self.stage = ConnectionStage::Lingers { swallowed: 0 };
        self.deadline_ms = clock.now_ms + LINGER_MS;
        AfterRefusal::Lingers
    }
}
