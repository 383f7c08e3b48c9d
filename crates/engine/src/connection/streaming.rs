//! A connection whose request an asynchronous application holds: the application continues by itself, gets the client's bytes as
//! they arrive, and answers at any time, through [`Connection::visit`].
//!
//! It does not know about the poll or other connections. The thread that runs the worker's loop attends to it.

use bolide_contract::answering::CancelOnDisconnect;
use bolide_contract::clock::now_ms;
use bolide_protocol::Fault;
use bolide_protocol::session::HeadEvent;
use bolide_scoreboard::{Phase, add};

use super::Connection;
use super::pulling::{PullEnd, Pulled, find_abort, pull};
use super::steps::{NextAction, ServeStep};
use crate::answer::Answer;
use crate::app::{App, Cancelled};
use crate::exchange::context::Context;
use crate::exchange::worker::Worker;
use crate::exchange::{BodySource, ExchangeState, Served, Streaming, Suspended, WaitingBody, give_up};
use crate::logging::counting;
use crate::request::request_stream::{BodyStream, RequestStream};
use crate::response::{Progress, ResponseWriter, end_cancelled, reason_phrase};
use crate::scheduling::body_timeout::BodyTimeout;
use crate::scheduling::connections::ExchangeId;
use crate::scheduling::deadlines::NEVER_MS;
use crate::scheduling::phases::{Moment, RequestWait};
use crate::sockets::socket::{self, Read};

impl<A: App> Connection<A> {
    /// Calls the application while the body is still arriving. `rest` are the bytes behind the head; returns how many of them
    /// were used.
    pub(super) fn stream(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        rest: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let worker = context.worker;
        let most_bytes = worker.body_limits.bytes;
        let mut body = BodyStream::new(head.body, most_bytes, head.head.expects_continue(), self.body_timeout(worker))?;
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let session = (&mut self.session, &mut writer);
        let Pulled { used, end } = pull(session, rest, worker, &mut context.thread.parts, |part| body.push(part))?;
        if let PullEnd::Aborted { end, keep_alive } = end {
            return Ok((used, self.abort(end, keep_alive)));
        }
        note_progress(&mut body, used, matches!(end, PullEnd::Complete));
        if matches!(end, PullEnd::Complete) {
            self.exchange.response.notes.note_time(Moment::Body);
        }
        let mut request_stream = RequestStream::Body(body);
        let served = self.serve(head, bytes, BodySource::Streamed(&mut request_stream), None, context)?;
        let step = match served {
            Served::Ongoing(suspended) => self.leave_to_application(suspended, request_stream, context),
            Served::Passed(passage) => {
                let body = WaitingBody::Streamed(request_stream);
                self.wait_for_permit(head, bytes, passage, body, context)
            }
            served => {
                self.exchange.keep_unread(request_stream);
                self.after_answer(served, context)
            }
        };
        Ok((used, step))
    }

    /// The application has kept the exchange and continues by itself.
    pub(super) fn leave_to_application(
        &mut self,
        suspended: Box<Suspended<A::Pending>>,
        mut request_stream: RequestStream,
        context: &Context<'_, A>,
    ) -> ServeStep {
        let worker = context.worker;
        request_stream.keep_time();
        let began_ms = context.thread.clock.now_ms;
        let of_route = self.exchange.response.notes.harakiri_ms.map(u64::from);
        let most_ms = worker.settings.lifecycle.harakiri_ms.into_iter().chain(of_route).min();
        let streaming = Box::new(Streaming {
            request_stream,
            suspended,
            began_ms,
            head_due_ms: NEVER_MS,
            overdue_ms: most_ms.map_or(NEVER_MS, |most| began_ms + most),
            mercy_ends_ms: worker.availability.mercy_ends_ms(),
            stream_ends_ms: worker.availability.streams_end_ms(),
        });
        self.deadline_ms = self.streaming_until_ms(&streaming, self.timeout_ms(worker));
        self.show_phase(&streaming);
        self.exchange.state = ExchangeState::Streaming(streaming);
        self.exchange.limit_head(began_ms);
        self.exchange.apply_time_limit(began_ms);
        ServeStep::Parked
    }

    /// Does everything for an ongoing exchange that can be done without waiting. `None`: its answer is complete, continue.
    pub(super) fn go_on_streaming(
        &mut self,
        mut streaming: Box<Streaming<A>>,
        context: &mut Context<'_, A>,
    ) -> Option<NextAction> {
        let now = context.thread.clock.now_ms;
        if streaming.overdue_ms <= now && matches!(streaming.request_stream, RequestStream::Body(_)) {
            if context.worker.settings.asynchronous.harakiri_streams || !self.exchange.response.head_has_left() {
                return self.end_overdue(streaming, context);
            }
            // Its answer has begun in time, and may take any time.
            streaming.overdue_ms = NEVER_MS;
        }
        let mut writer = self.writer();
        let progress = if writer.has_file() { context.app.aside(|| writer.advance()) } else { writer.advance() };
        if progress == Progress::Broken || streaming.given_up_ms(&self.exchange.response) <= now {
            // The application gets the bytes that came before the client's end; a fault in them does not matter any more.
            let _ = self.take_in(&mut streaming.request_stream, context);
            self.give_up_streaming(*streaming, context);
            return Some(NextAction::Close);
        }
        if let Err(fault) = self.take_in(&mut streaming.request_stream, context) {
            return Some(self.end_faulty(*streaming, fault, context));
        }
        if self.must_cancel(&streaming, context).is_some() {
            self.give_up_streaming(*streaming, context);
            return Some(NextAction::Close);
        }
        let timeout_ms = self.timeout_ms(context.worker);
        if let RequestStream::Messages(websocket) = &mut streaming.request_stream {
            if context.worker.is_draining() {
                websocket.leave_late(now_ms(), context.worker.is_told_to_stop());
            }
            websocket.tend(&mut self.writer(), now_ms(), timeout_ms);
        }
        let had_room = streaming.request_stream.room() > 0;
        if let Some(pending) = &mut streaming.suspended.pending {
            context.app.enter().client_event(pending, &mut Answer::of(&mut self.writer()), &mut streaming.request_stream);
        }
        // No poll reports the bytes that were left unread for want of room.
        let resumes = !had_room && streaming.request_stream.room() > 0;
        // Sends the head if it was held back: the application takes its time, see `holds_its_head`.
        self.writer().send_head();
        if self.transport.is_broken {
            self.give_up_streaming(*streaming, context);
            return Some(NextAction::Close);
        }
        let next = self.park(streaming, timeout_ms, context);
        let is_cut_short = next == Some(NextAction::Wait) && (resumes || !context.thread.turn.may_read());
        if is_cut_short { Some(NextAction::Again) } else { next }
    }

    /// Lets the application act on an exchange that it holds. `None`: it does not hold one of this name here any more. The second
    /// value says whether the connection must be attended to soon.
    pub fn visit<R>(
        &mut self,
        id: ExchangeId,
        worker: &Worker,
        act: impl FnOnce(&mut Answer<'_>, &mut RequestStream) -> R,
    ) -> Option<(R, bool)> {
        if self.exchange.stream != id.stream {
            return None;
        }
        let mut streaming = self.exchange.take_streaming()?;
        let waited_for_client = self.waits_for_client(&streaming);
        let had_room = streaming.request_stream.room() > 0;
        let mut writer = self.writer();
        let may_move = worker.hands_over() && writer.transport.is_movable_kind();
        if worker.closes_connections() && !may_move && !writer.head_has_left() {
            // RFC 9112 section 9.6: the request was read before the drain began, but the answer is the last one all the same.
            writer.close_after();
        }
        let result = act(&mut Answer::of(&mut writer), &mut streaming.request_stream);
        streaming.request_stream.keep_time();
        let resumes = !had_room && streaming.request_stream.room() > 0;
        let wants_turn = self.exchange.response.is_finished() || self.transport.is_broken || self.may_go_on_sending();
        let until_ms = self.streaming_until_ms(&streaming, self.timeout_ms(worker));
        // The application's actions do not show that a client that it waits for is alive.
        let goes_on_waiting = waited_for_client && self.waits_for_client(&streaming);
        self.show_phase(&streaming);
        self.deadline_ms = if goes_on_waiting { self.deadline_ms.min(until_ms) } else { until_ms };
        self.exchange.state = ExchangeState::Streaming(streaming);
        self.exchange.limit_head(now_ms());
        self.exchange.apply_time_limit(now_ms());
        Some((result, resumes || wants_turn))
    }

    /// The client has gone, or was too slow: the exchange is given up, and the application learns it as a disconnect.
    pub(super) fn give_up_streaming(&mut self, mut streaming: Streaming<A>, context: &mut Context<'_, A>) {
        let tally = &context.thread.slot.tally;
        match &streaming.request_stream {
            RequestStream::Body(body) if !body.is_complete() => add(&tally.read_errors, 1),
            RequestStream::Body(_) => add(&tally.write_errors, 1),
            // The end of a WebSocket is not an error.
            RequestStream::Messages(_) => {}
        }
        let cancelled = self.must_cancel(&streaming, context);
        leave_permit(&mut streaming, context);
        streaming.request_stream.hang_up();
        if let Some(pending) = &mut streaming.suspended.pending {
            // The application gets the bytes that came before the end.
            context.app.enter().client_event(pending, &mut Answer::of(&mut self.writer()), &mut streaming.request_stream);
        }
        if let Some(cancelled) = cancelled
            && let Some(pending) = streaming.suspended.pending.take()
        {
            context.app.enter().cancel(pending);
            end_cancelled(&mut self.writer(), cancelled);
        }
        give_up(&mut self.context(context), *streaming.suspended);
    }

    /// Whether the application must be cancelled, because the client of an incomplete answer has left (`cancel-on-disconnect`),
    /// and what that ends. Costs one branch without the option.
    fn must_cancel(&self, streaming: &Streaming<A>, context: &mut Context<'_, A>) -> Option<Cancelled> {
        if !context.worker.may_cancel || self.exchange.response.is_finished() {
            return None;
        }
        let RequestStream::Body(body) = &streaming.request_stream else { return None };
        // Only the poll's report of an end makes a system call here.
        let has_left = match self.exchange.response.notes.cancel_on_disconnect {
            CancelOnDisconnect::Off => false,
            CancelOnDisconnect::Fin if body.is_gone || self.peer_says_no_more() => true,
            CancelOnDisconnect::Fin | CancelOnDisconnect::Reset => {
                body.is_aborted || self.transport.is_broken || self.peer_has_ended && self.transport.peer_has_gone(false)
            }
        };
        let pending = streaming.suspended.pending.as_ref().filter(|_| has_left)?;
        context.app.enter().cancels(pending)
    }

    /// An ongoing exchange with its own time limits: a WebSocket, a relayed one, or one that is over its time.
    pub(super) fn keeps_its_own_time(&self) -> bool {
        self.exchange.is_websocket()
            || self.exchange.is_relayed()
            || self.exchange.is_waiting()
            || self.exchange.is_over_its_time(now_ms())
    }

    /// The worker stops: a stream is cut off at this time, also one that becomes a stream later.
    pub fn end_stream_at(&mut self, when_ms: u64) {
        match &mut self.exchange.state {
            ExchangeState::Streaming(streaming) => streaming.stream_ends_ms = when_ms,
            ExchangeState::Relayed(relay) => relay.stream_ends_ms = when_ms,
            _ => {}
        }
    }

    /// A WebSocket does not end by itself when the worker drains: it is closed at this time, in monotonic milliseconds.
    pub fn leave_at(&mut self, when_ms: u64, for_good: bool) {
        self.leave_tunnel_at(when_ms);
        if let Some(Streaming { request_stream: RequestStream::Messages(websocket), .. }) = self.exchange.streaming() {
            websocket.leave_at(when_ms, for_good);
            self.deadline_ms = self.deadline_ms.min(when_ms);
        }
    }

    /// The worker drains: a request that the application still holds at this time is cut off. A WebSocket is closed separately,
    /// see [`Connection::leave_at`].
    pub fn give_up_at(&mut self, when_ms: u64) {
        match &mut self.exchange.state {
            ExchangeState::Streaming(streaming) => streaming.mercy_ends_ms = when_ms,
            ExchangeState::Relayed(relay) => relay.mercy_ends_ms = when_ms,
            _ => {}
        }
    }

    /// An exchange with an answer of unknown length.
    pub fn is_endless(&self) -> bool {
        self.is_streaming() && self.exchange.response.is_endless()
    }

    /// A request that the application holds, here or where it is relayed to.
    pub fn is_streaming(&self) -> bool {
        self.exchange.is_streaming_body() || self.exchange.is_relayed() && !self.exchange.is_tunnel()
    }

    /// A WebSocket, here or where it is relayed to.
    pub fn is_websocket(&self) -> bool {
        self.exchange.is_websocket() || self.exchange.is_tunnel()
    }

    /// Leaves the exchange to the application. `None` if its answer is complete.
    fn park(&mut self, mut streaming: Box<Streaming<A>>, timeout_ms: u64, context: &mut Context<'_, A>) -> Option<NextAction> {
        if self.exchange.response.is_finished() {
            if matches!(streaming.request_stream, RequestStream::Messages(_)) {
                // Its application learns of the end now.
                leave_permit(&mut streaming, context);
            }
            let Streaming { request_stream, mut suspended, .. } = *streaming;
            self.exchange.response.notes.note_time(Moment::Returned);
            (suspended.pending, suspended.permit) = (None, None);
            self.exchange.keep_unread(request_stream);
            self.exchange.state = ExchangeState::Suspended(suspended);
            return None;
        }
        streaming.request_stream.keep_time();
        self.deadline_ms = self.streaming_until_ms(&streaming, timeout_ms);
        self.show_phase(&streaming);
        self.exchange.state = ExchangeState::Streaming(streaming);
        // A head that has been sent has no time limit any more.
        self.exchange.limit_head(now_ms());
        // Between two turns of sending, only our own queue knows that there is more to do.
        Some(if self.may_go_on_sending() { NextAction::Again } else { NextAction::Wait })
    }

    /// There is more to send, which waits only for the next turn.
    pub(super) fn may_go_on_sending(&self) -> bool {
        (self.exchange.response.has_file() || self.transport.turn_is_over()) && !self.transport.is_full
    }

    /// Until when the peer may delay an ongoing exchange. The application may take any time.
    fn streaming_until_ms(&self, streaming: &Streaming<A>, timeout_ms: u64) -> u64 {
        match &streaming.request_stream {
            RequestStream::Messages(websocket) => websocket.next_ms(self.has_unsent(), timeout_ms),
            RequestStream::Body(body) if self.has_unsent() => (now_ms() + timeout_ms).min(body.body_timeout.until_ms()),
            RequestStream::Body(body) => body.body_timeout.until_ms(),
        }
    }

    /// Whether bytes wait for the client, as in [`ResponseWriter::has_unsent`].
    pub(super) fn has_unsent(&self) -> bool {
        self.exchange.response.has_file() || self.transport.has_unsent()
    }

    /// Whether the client has to act: to read the sent bytes, or to send the part of the body that the application waits for.
    fn waits_for_client(&self, streaming: &Streaming<A>) -> bool {
        owes_body(streaming) || self.has_unsent()
    }

    /// Shows in the flight recorder what the request waits for, and measures it.
    fn show_phase(&mut self, streaming: &Streaming<A>) {
        // A turn of sending ends also with bytes that the application still has: the next one waits for the poll.
        let has_more = self.has_unsent() || self.transport.turn_is_over();
        let (phase, wait) = match (has_more, owes_body(streaming)) {
            (true, _) => (Phase::Sending, Some(RequestWait::Sending)),
            (false, true) => (Phase::Body, Some(RequestWait::Body)),
            (false, false) => (Phase::Application, None),
        };
        self.exchange.response.notes.note_wait(wait);
        streaming.suspended.enter_phase(phase);
    }

    /// Reads as much as the application has room for.
    fn take_in(&mut self, request_stream: &mut RequestStream, context: &mut Context<'_, A>) -> Result<(), Fault> {
        match request_stream {
            RequestStream::Body(body) => {
                let mut read = Read::Nothing;
                while body.room() > 0 && context.thread.turn.may_read() {
                    let mut body_timeout = body.body_timeout;
                    let is_aborted;
                    (read, is_aborted) = self.read_body(&mut body_timeout, context, |part| body.push(part))?;
                    body.body_timeout = body_timeout;
                    body.is_gone |= is_aborted;
                    body.is_aborted |= is_aborted;
                    let is_complete = !is_aborted && !self.session.is_body_open();
                    note_progress(body, usize::from(matches!(read, Read::Bytes(_))), is_complete);
                    if is_complete {
                        self.exchange.response.notes.note_time(Moment::Body);
                    }
                    if !matches!(read, Read::Bytes(_)) {
                        break;
                    }
                }
                // Behind a complete answer comes the next request.
                if self.session.may_be_aborted() && !self.exchange.response.is_finished() {
                    let (is_gone, is_aborted) = self.listen_for_abort(context)?;
                    body.is_gone |= is_gone;
                    body.is_aborted |= is_aborted;
                }
                body.is_gone |= matches!(read, Read::End | Read::Broken) || self.peer_says_no_more() && body.is_complete();
            }
            RequestStream::Messages(websocket) => {
                let is_end_of_relay = self.is_end_of_relay();
                let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
                websocket.take_in(&mut writer, &mut self.input, &mut context.thread.turn);
                while websocket.room() > 0 && self.input.is_empty() && context.thread.turn.may_read() {
                    let buffer = &mut context.thread.read;
                    match writer.transport.read(buffer) {
                        Read::Bytes(count) => {
                            context.thread.turn.note_read(writer.transport.read_cost(count));
                            websocket.hear(context.thread.clock.now_ms);
                            let used = websocket.feed(&mut buffer[..count], &mut writer, &mut context.thread.turn);
                            self.input.extend_from_slice(&buffer[used..count]);
                            // An edge-triggered poll reports bytes that arrive after a read that did not fill the buffer.
                            let has_more = count == buffer.len() || writer.transport.has_more();
                            if !has_more && !self.peer_has_ended && !writer.transport.peer_has_closed() {
                                break;
                            }
                        }
                        Read::Nothing => break,
                        // The other end of a relay still takes what is sent if only its worker leaves.
                        Read::End if is_end_of_relay && !socket::has_hung_up(writer.socket()) => {
                            websocket.part(&mut writer);
                            break;
                        }
                        Read::End | Read::Broken => {
                            websocket.hang_up();
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads behind a complete request: the client may leave (the first value), or abort it (both).
    fn listen_for_abort(&mut self, context: &mut Context<'_, A>) -> Result<(bool, bool), Fault> {
        let thread = &mut *context.thread;
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let came_along = std::mem::take(&mut self.input);
        let limits = &context.worker.head_limits;
        let mut is_aborted = find_abort(&mut self.session, &mut writer, &came_along, limits, &mut thread.parts)?;
        while !is_aborted && thread.turn.may_read() {
            match writer.transport.read(&mut thread.read) {
                Read::Bytes(count) => {
                    thread.turn.note_read(count);
                    is_aborted = find_abort(&mut self.session, &mut writer, &thread.read[..count], limits, &mut thread.parts)?;
                }
                Read::Nothing => break,
                Read::End | Read::Broken => return Ok((true, is_aborted)),
            }
        }
        Ok((is_aborted, is_aborted))
    }

    /// Reads once, and returns whether the client has cancelled its request. Bytes behind the body stay for later.
    pub(super) fn read_body(
        &mut self,
        body_timeout: &mut BodyTimeout,
        context: &mut Context<'_, A>,
        sink: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(Read, bool), Fault> {
        let thread = &mut *context.thread;
        let read = self.transport.read(&mut thread.read);
        let mut is_aborted = false;
        if let Read::Bytes(count) = read {
            thread.turn.note_read(self.transport.read_cost(count));
            body_timeout.note(count, thread.clock.now_ms);
            let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
            let session = (&mut self.session, &mut writer);
            let pulled = pull(session, &thread.read[..count], context.worker, &mut thread.parts, sink)?;
            is_aborted = matches!(pulled.end, PullEnd::Aborted { .. });
            self.input.extend_from_slice(&thread.read[pulled.used..count]);
            // The next request begins behind the body.
            if let Some(times) = self.transport.read_times.as_mut().filter(|_| pulled.used < count) {
                times.begin_request();
            }
        }
        Ok((read, is_aborted))
    }

    /// The client's body violates HTTP, or is too large: the application gets a disconnect.
    fn end_faulty(&mut self, streaming: Streaming<A>, fault: Fault, context: &mut Context<'_, A>) -> NextAction {
        let head_has_left = self.exchange.response.head_has_left();
        self.give_up_streaming(streaming, context);
        if !head_has_left {
            self.refuse(fault, &[], context);
        }
        self.begin_linger(context)
    }

    /// `harakiri`: the application is notified, and the client gets 504 if it got nothing yet.
    fn end_overdue(&mut self, mut streaming: Box<Streaming<A>>, context: &mut Context<'_, A>) -> Option<NextAction> {
        leave_permit(&mut streaming, context);
        if let Some(pending) = streaming.suspended.pending.take() {
            context.app.enter().overdue(pending, context.thread.clock.now_ms.saturating_sub(streaming.began_ms));
        }
        let mut writer = self.writer();
        if writer.head_has_left() {
            counting::count_error(&context.thread.slot.tally);
            writer.cut_off();
        } else {
            writer.answer(504, reason_phrase(504), "The application took too long.");
        }
        self.park(streaming, 0, context)
    }
}

/// The application's work may go on without the exchange. Costs one branch without bulkheads.
fn leave_permit<A: App>(streaming: &mut Streaming<A>, context: &mut Context<'_, A>) {
    if let Some(permit) = streaming.suspended.permit.take()
        && let Some(pending) = &streaming.suspended.pending
    {
        context.app.enter().keep_permit(pending, Box::new(permit));
    }
}

/// Whether the application waits for a part of the body that the client has not sent.
fn owes_body<A: App>(streaming: &Streaming<A>) -> bool {
    match &streaming.request_stream {
        RequestStream::Messages(_) => false,
        RequestStream::Body(body) => body.is_owed(),
    }
}

/// Notes that this many bytes of a request's body were used, and whether it is complete.
fn note_progress(body: &mut BodyStream, used: usize, is_complete: bool) {
    if used > 0 {
        body.note_begun();
    }
    if is_complete {
        body.note_end();
    }
}
