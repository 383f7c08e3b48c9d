//! A connection whose request waits for a permit of its bulkhead (`bulkhead`). It keeps the head and what came with it, and does
//! not read. The loop gives it a permit, or its time ends, or its client leaves.
//!
//! While all threads of the worker are in calls, the companion ends a wait that is over: the client gets its answer, and the
//! request stays as answered until a thread counts and logs it. It does not know about the poll or other connections. The thread
//! that attends to the connection runs it.

use bolide_protocol::Fault;
use bolide_protocol::session::HeadEvent;
use bolide_scoreboard::{End, Phase};

use super::steps::{NextAction, ServeStep};
use super::{Connection, Link};
use crate::app::App;
use crate::exchange::bulkheads::{BulkheadVerdict, Permit, Ticket};
use crate::exchange::context::Context;
use crate::exchange::passage::Passage;
use crate::exchange::refusing::refuse_without_thread;
use crate::exchange::worker::Worker;
use crate::exchange::{AwaitedCall, BodySource, Exchange, ExchangeState, Served, Waiting, WaitingBody};
use crate::response::ResponseWriter;
use crate::scheduling::clock::Clock;
use crate::scheduling::deadlines::NEVER_MS;
use crate::scheduling::phases::RequestWait;
use crate::sockets::socket;

impl<A: App> Connection<A> {
    /// Leaves a request until its bulkhead has a permit for it.
    pub(super) fn wait_for_permit(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        passage: Box<Passage>,
        body: WaitingBody,
        context: &Context<'_, A>,
    ) -> ServeStep {
        let thread = &*context.thread;
        let line = head.head.first_line(bytes);
        let awaited = AwaitedCall::begin(thread.slot, thread.clock.now_ms, line, Phase::Bulkhead);
        let (head, bytes, parts) = (head.clone(), bytes.to_vec(), thread.parts.clone());
        let waiting = Waiting { head, bytes, parts, passage, body, awaited, is_listed: false };
        self.deadline_ms = NEVER_MS;
        self.exchange.response.notes.note_wait(Some(RequestWait::Permit));
        self.exchange.state = ExchangeState::Waiting(Box::new(waiting));
        ServeStep::Parked
    }

    /// Continues with a request that has waited. `None`: its state has changed, continue.
    pub(super) fn go_on_waiting(&mut self, mut waiting: Box<Waiting>, context: &mut Context<'_, A>) -> Option<NextAction> {
        let now_ms = context.thread.clock.now_ms;
        let bulkhead = std::mem::replace(&mut waiting.passage.bulkhead, BulkheadVerdict::Left);
        waiting.passage.bulkhead = match bulkhead {
            BulkheadVerdict::Answered => BulkheadVerdict::Answered,
            _ if self.client_has_left() => {
                self.transport.is_broken = true;
                BulkheadVerdict::Left
            }
            BulkheadVerdict::Waits(ticket) if ticket.until_ms() <= now_ms => BulkheadVerdict::Refused(ticket.into_refused()),
            BulkheadVerdict::Waits(ticket) => {
                waiting.passage.bulkhead = BulkheadVerdict::Waits(ticket);
                self.exchange.state = ExchangeState::Waiting(waiting);
                return Some(NextAction::Wait);
            }
            other => other,
        };
        let step = self.go_on_with(*waiting, context).unwrap_or_else(|fault| {
            self.refuse(fault, &[], context);
            ServeStep::Linger
        });
        // A request that was cancelled before its call has none.
        let unused = std::mem::take(&mut context.thread.awaited);
        context.thread.slot.complete(unused, End { status: 0, microseconds: 0 });
        match step {
            ServeStep::Blocked => Some(self.wait_for_client()),
            ServeStep::Close => Some(self.close_or_linger(context)),
            ServeStep::Linger => Some(self.begin_linger(context)),
            _ => {
                if self.exchange.is_idle() {
                    self.deadline_ms = now_ms + context.worker.settings.limits.keepalive_ms;
                }
                None
            }
        }
    }

    /// Serves a request that does not wait any more, as far as its body is here.
    fn go_on_with(&mut self, waiting: Waiting, context: &mut Context<'_, A>) -> Result<ServeStep, Fault> {
        let Waiting { head, bytes, parts, mut passage, body, awaited, .. } = waiting;
        context.thread.parts = parts;
        self.exchange.response.notes.note_wait(None);
        let mut awaited = Some(awaited);
        if passage.is_permitted() && !matches!(body, WaitingBody::Unread { .. }) {
            context.thread.awaited = awaited.take().map_or(0, |awaited| awaited.arrived(context.thread.slot));
        }
        match body {
            WaitingBody::Whole => {
                let body = std::mem::take(&mut passage.body);
                let served = self.serve(&head, &bytes, BodySource::Whole(body), Some(passage), context)?;
                Ok(self.after_answer(served, context))
            }
            WaitingBody::Unread { collector, owes_continue } => {
                if passage.is_permitted() {
                    self.send_continue(&head, owes_continue);
                    self.begin_collecting(head, bytes, collector, Some(passage), awaited, context)?;
                    return Ok(ServeStep::More);
                }
                let served = self.serve(&head, &bytes, BodySource::Unread, Some(passage), context)?;
                self.leave_body_unread(owes_continue, context.worker);
                Ok(self.after_answer(served, context))
            }
            WaitingBody::Streamed(mut request_stream) => {
                let source = BodySource::Streamed(&mut request_stream);
                match self.serve(&head, &bytes, source, Some(passage), context)? {
                    Served::Ongoing(suspended) => Ok(self.leave_to_application(suspended, request_stream, context)),
                    served => {
                        self.exchange.keep_unread(request_stream);
                        Ok(self.after_answer(served, context))
                    }
                }
            }
        }
    }

    /// Ends the wait of a request while no thread is free, if its time is over or its client has left. `has_ended`: the poll has
    /// reported that the peer does not send more. Returns whether it has ended, so that a thread must continue with it.
    pub fn end_wait(&mut self, has_ended: bool, worker: &Worker, clock: &Clock) -> bool {
        self.peer_has_ended |= has_ended;
        let has_left = self.client_has_left();
        let Exchange { state, response, .. } = &mut self.exchange;
        let ExchangeState::Waiting(waiting) = state else { return false };
        let is_over = waiting.ticket().is_some_and(|ticket| has_left || ticket.until_ms() <= clock.now_ms);
        if !is_over {
            return false;
        }
        // Its place is free from here on.
        let after = if has_left { BulkheadVerdict::Left } else { BulkheadVerdict::Answered };
        if let BulkheadVerdict::Waits(ticket) = std::mem::replace(&mut waiting.passage.bulkhead, after)
            && !has_left
        {
            let refused = ticket.into_refused();
            let mut writer = ResponseWriter { response, transport: &mut self.transport };
            refuse_without_thread(&refused, waiting, self.is_last, worker, clock, &mut writer);
        }
        true
    }

    /// The client has reset the connection or the stream. One that has only ended its side still waits for its answer.
    fn client_has_left(&self) -> bool {
        match self.link {
            Link::Stream { .. } => self.transport.is_broken,
            Link::Socket { .. } | Link::Multiplexed(_) => self.peer_has_ended && socket::has_hung_up(self.socket()),
        }
    }

    /// The place of its request among those that wait for a permit.
    pub fn ticket(&self) -> Option<&Ticket> {
        match &self.exchange.state {
            ExchangeState::Waiting(waiting) => waiting.ticket(),
            _ => None,
        }
    }

    /// The loop knows that its request waits. Returns whether it knew before.
    pub fn note_listed(&mut self) -> bool {
        match &mut self.exchange.state {
            ExchangeState::Waiting(waiting) => std::mem::replace(&mut waiting.is_listed, true),
            _ => true,
        }
    }

    /// Its request gets a permit. One that does not wait any more gives it back.
    pub fn grant(&mut self, permit: Permit) {
        if let ExchangeState::Waiting(waiting) = &mut self.exchange.state
            && waiting.passage.waits()
        {
            waiting.passage.bulkhead = BulkheadVerdict::Permitted(permit);
        }
    }
}
