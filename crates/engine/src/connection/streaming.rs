//! A connection whose request the application has in its hands: it goes on by itself, takes what the client sends as it
//! comes, and answers when it likes, through [`Connection::visit`].
//!
//! Only asynchronous applications have such connections; the thread that runs the worker's loop attends to them.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::clock::now_ms;
use bolide_contract::scoreboard::add;
use bolide_protocol::Fault;
use bolide_protocol::session::HeadEvent;

use super::Connection;
use super::pulling::{PullEnd, Pulled, heed, pull};
use super::steps::{NextAction, ServeStep};
use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::worker::Worker;
use crate::exchange::{BodySource, ExchangeState, Served, Streaming, Suspended, give_up};
use crate::logging::counting;
use crate::request::request_stream::{BodyStream, RequestStream};
use crate::response::{Progress, ResponseWriter, reason_phrase};
use crate::scheduling::connections::ExchangeId;
use crate::scheduling::deadlines::NEVER_MS;
use crate::scheduling::patience::Patience;
use crate::sockets::socket::Read;

impl<A: App> Connection<A> {
    /// Calls the application with a body that is still to come. `rest` is what followed the head; returns the bytes of it that were used.
    pub(super) fn stream(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        rest: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let worker = context.worker;
        let most_bytes = worker.body_limits.bytes;
        let mut body = BodyStream::new(head.body, most_bytes, head.head.expects_continue(), self.patience(worker))?;
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let session = (&mut self.session, &mut writer);
        let Pulled { used, end } = pull(session, rest, worker, &mut context.thread.parts, |part| body.push(part))?;
        if let PullEnd::Aborted { end, keep_alive } = end {
            return Ok((used, self.abort(end, keep_alive)));
        }
        note_progress(&mut body, used, matches!(end, PullEnd::Complete));
        let mut request_stream = RequestStream::Body(body);
        let served = self.serve(head, bytes, BodySource::Streamed(&mut request_stream), context)?;
        let Served::Ongoing(suspended) = served else {
            self.exchange.keep_unread(request_stream);
            return Ok((used, self.after_answer(served, context)));
        };
        Ok((used, self.leave_to_application(suspended, request_stream, context)))
    }

    /// The application has kept the exchange and goes on by itself.
    pub(super) fn leave_to_application(
        &mut self,
        suspended: Box<Suspended<A::Pending>>,
        mut request_stream: RequestStream,
        context: &Context<'_, A>,
    ) -> ServeStep {
        let worker = context.worker;
        request_stream.keep_time();
        let began_ms = context.thread.clock.now_ms;
        let of_route = self.exchange.response.harakiri_ms.map(u64::from);
        let most_ms = worker.settings.lifecycle.harakiri_ms.into_iter().chain(of_route).min();
        let streaming = Box::new(Streaming {
            request_stream,
            suspended,
            began_ms,
            head_due_ms: NEVER_MS,
            overdue_ms: most_ms.map_or(NEVER_MS, |most| began_ms + most),
            mercy_ends_ms: worker.mercy_ends_ms.load(Relaxed),
            stream_ends_ms: worker.streams_end_ms.load(Relaxed),
        });
        self.deadline_ms = self.streaming_until_ms(&streaming, self.timeout_ms(worker));
        self.exchange.state = ExchangeState::Streaming(streaming);
        self.exchange.limit_head(began_ms);
        ServeStep::Parked
    }

    /// Does all for an ongoing exchange that can be done without waiting. `None`: its answer is complete, go on.
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
            // Its answer has begun in time, and may take its own.
            streaming.overdue_ms = NEVER_MS;
        }
        let mut writer = self.writer();
        let progress = if writer.has_file() { context.app.aside(|| writer.advance()) } else { writer.advance() };
        if progress == Progress::Broken || streaming.given_up_ms(&self.exchange.response) <= now {
            // What the client said before it went is the application's; a fault in it changes nothing any more.
            let _ = self.take_in(&mut streaming.request_stream, context);
            self.give_up_streaming(*streaming, context);
            return Some(NextAction::Close);
        }
        if let Err(fault) = self.take_in(&mut streaming.request_stream, context) {
            return Some(self.end_faulty(*streaming, fault, context));
        }
        let timeout_ms = self.timeout_ms(context.worker);
        if let RequestStream::Messages(websocket) = &mut streaming.request_stream {
            websocket.tend(&mut self.writer(), now_ms(), timeout_ms, context.worker.is_draining());
        }
        let had_room = streaming.request_stream.room() > 0;
        if let Some(pending) = &mut streaming.suspended.pending {
            context.app.enter().client_event(pending, &mut self.writer(), &mut streaming.request_stream);
        }
        // What was left unread for want of room is told of by nobody else.
        let resumes = !had_room && streaming.request_stream.room() > 0;
        // Nothing happens unless there is one that has not left: the application takes its time, see `holds_its_head`.
        self.writer().send_head();
        if self.transport.is_broken {
            self.give_up_streaming(*streaming, context);
            return Some(NextAction::Close);
        }
        let next = self.park(streaming, timeout_ms);
        let is_cut_short = next == Some(NextAction::Wait) && (resumes || !context.thread.turn.may_read());
        if is_cut_short { Some(NextAction::Again) } else { next }
    }

    /// Lets the application act on an exchange that it has in its hands. `None`: it has none of this name here any more. The second part
    /// says whether the connection is to be attended to soon.
    pub fn visit<R>(
        &mut self,
        id: ExchangeId,
        worker: &Worker,
        act: impl FnOnce(&mut ResponseWriter<'_>, &mut RequestStream) -> R,
    ) -> Option<(R, bool)> {
        if self.exchange.stream != id.stream {
            return None;
        }
        let mut streaming = self.exchange.take_streaming()?;
        let waited_for_client = self.waits_for_client(&streaming);
        let had_room = streaming.request_stream.room() > 0;
        let mut writer = self.writer();
        let may_move = worker.hands_over() && writer.transport.is_movable_kind();
        if worker.is_draining() && !may_move && !writer.head_has_left() {
            // RFC 9112 section 9.6: the request was taken before the drain began, and the answer is the last one all the same.
            writer.close_after();
        }
        let result = act(&mut writer, &mut streaming.request_stream);
        streaming.request_stream.keep_time();
        let resumes = !had_room && streaming.request_stream.room() > 0;
        let wants_turn = self.exchange.response.is_finished() || self.transport.is_broken || self.may_go_on_sending();
        let until_ms = self.streaming_until_ms(&streaming, self.timeout_ms(worker));
        // What the application does is no sign of life of a client that it waits for.
        let goes_on_waiting = waited_for_client && self.waits_for_client(&streaming);
        self.deadline_ms = if goes_on_waiting { self.deadline_ms.min(until_ms) } else { until_ms };
        self.exchange.state = ExchangeState::Streaming(streaming);
        self.exchange.limit_head(now_ms());
        Some((result, resumes || wants_turn))
    }

    /// The application will not be told of the client any more: it has gone, or was slow for too long.
    pub(super) fn give_up_streaming(&mut self, mut streaming: Streaming<A>, context: &mut Context<'_, A>) {
        let tally = &context.thread.slot.tally;
        match &streaming.request_stream {
            RequestStream::Body(body) if !body.is_complete() => add(&tally.read_errors, 1),
            RequestStream::Body(_) => add(&tally.write_errors, 1),
            // The end of a WebSocket is nobody's error.
            RequestStream::Messages(_) => {}
        }
        streaming.request_stream.hang_up();
        if let Some(pending) = &mut streaming.suspended.pending {
            // What came before the end is the application's.
            context.app.enter().client_event(pending, &mut self.writer(), &mut streaming.request_stream);
        }
        give_up(&mut self.context(context), *streaming.suspended);
    }

    /// An ongoing exchange that looks after time by itself: a WebSocket, or one that is over its time.
    pub(super) fn keeps_its_own_time(&self) -> bool {
        self.exchange.is_websocket() || self.exchange.is_over_its_time(now_ms())
    }

    /// A stream is cut off then, and what becomes one: the worker stops.
    pub fn end_stream_at(&mut self, when_ms: u64) {
        if let Some(streaming) = self.exchange.streaming() {
            streaming.stream_ends_ms = when_ms;
        }
    }

    /// A WebSocket, which will not end by itself when the worker drains: it is closed at this time, in monotonic milliseconds.
    pub fn leave_at(&mut self, when_ms: u64, for_good: bool) {
        if let Some(Streaming { request_stream: RequestStream::Messages(websocket), .. }) = self.exchange.streaming() {
            websocket.leave_at(when_ms, for_good);
            self.deadline_ms = self.deadline_ms.min(when_ms);
        }
    }

    /// A request that the application still has in its hands then is cut off: the worker drains. A WebSocket has a close of its
    /// own, see [`Connection::leave_at`].
    pub fn give_up_at(&mut self, when_ms: u64) {
        if let Some(streaming) = self.exchange.streaming() {
            streaming.mercy_ends_ms = when_ms;
        }
    }

    /// One whose answer's end nobody can tell.
    pub fn is_endless(&self) -> bool {
        self.is_streaming() && self.exchange.response.is_endless()
    }

    /// A request that the application has in its hands.
    pub fn is_streaming(&self) -> bool {
        self.exchange.is_streaming_body()
    }

    pub fn is_websocket(&self) -> bool {
        self.exchange.is_websocket()
    }

    /// Leaves the exchange to the application, unless its answer is complete: `None`.
    fn park(&mut self, mut streaming: Box<Streaming<A>>, timeout_ms: u64) -> Option<NextAction> {
        if self.exchange.response.is_finished() {
            let Streaming { request_stream, mut suspended, .. } = *streaming;
            suspended.pending = None;
            self.exchange.keep_unread(request_stream);
            self.exchange.state = ExchangeState::Suspended(suspended);
            return None;
        }
        streaming.request_stream.keep_time();
        self.deadline_ms = self.streaming_until_ms(&streaming, timeout_ms);
        self.exchange.state = ExchangeState::Streaming(streaming);
        // What is sent in turns has nothing but our own queue to tell, between two of them, that there is more to do.
        Some(if self.may_go_on_sending() { NextAction::Again } else { NextAction::Wait })
    }

    /// There is more to send, which waits for nothing but its turn.
    pub(super) fn may_go_on_sending(&self) -> bool {
        (self.exchange.response.has_file() || self.transport.turn_is_over()) && !self.transport.is_full
    }

    /// Until when the peer may let an ongoing exchange wait. The application itself may take its time.
    fn streaming_until_ms(&self, streaming: &Streaming<A>, timeout_ms: u64) -> u64 {
        match &streaming.request_stream {
            RequestStream::Messages(websocket) => websocket.next_ms(self.has_unsent(), timeout_ms),
            RequestStream::Body(body) if self.has_unsent() => (now_ms() + timeout_ms).min(body.patience.until_ms()),
            RequestStream::Body(body) => body.patience.until_ms(),
        }
    }

    /// Whether something waits for the client, as [`ResponseWriter::has_unsent`] says.
    fn has_unsent(&self) -> bool {
        self.exchange.response.has_file() || self.transport.has_unsent()
    }

    /// Whether it is the client's turn: to take what was sent, or to send of the body what the application waits for.
    fn waits_for_client(&self, streaming: &Streaming<A>) -> bool {
        let owes_body = match &streaming.request_stream {
            RequestStream::Messages(_) => false,
            RequestStream::Body(body) => body.is_owed(),
        };
        owes_body || self.has_unsent()
    }

    /// Reads as much as the application has room for.
    fn take_in(&mut self, request_stream: &mut RequestStream, context: &mut Context<'_, A>) -> Result<(), Fault> {
        match request_stream {
            RequestStream::Body(body) => {
                let mut read = Read::Nothing;
                while body.room() > 0 && context.thread.turn.may_read() {
                    let mut patience = body.patience;
                    let is_aborted;
                    (read, is_aborted) = self.read_body(&mut patience, context, |part| body.push(part))?;
                    body.patience = patience;
                    body.is_gone |= is_aborted;
                    let is_complete = !is_aborted && !self.session.is_body_open();
                    note_progress(body, usize::from(matches!(read, Read::Bytes(_))), is_complete);
                    if !matches!(read, Read::Bytes(_)) {
                        break;
                    }
                }
                // Behind an answer that is complete comes the next request.
                if self.session.may_be_aborted() && !self.exchange.response.is_finished() {
                    body.is_gone |= self.listen_for_abort(context)?;
                }
                body.is_gone |= matches!(read, Read::End | Read::Broken) || self.peer_says_no_more() && body.is_complete();
            }
            RequestStream::Messages(websocket) => {
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
                            // An edge-triggered poll tells of what comes after a read that did not fill the buffer.
                            let has_more = count == buffer.len() || writer.transport.has_more();
                            if !has_more && !self.peer_has_ended && !writer.transport.peer_has_closed() {
                                break;
                            }
                        }
                        Read::Nothing => break,
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

    /// Reads on behind a request that is complete: its client may say, or show by going, that it does not want the answer any more.
    fn listen_for_abort(&mut self, context: &mut Context<'_, A>) -> Result<bool, Fault> {
        let thread = &mut *context.thread;
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let came_along = std::mem::take(&mut self.input);
        let limits = &context.worker.head_limits;
        let mut is_aborted = heed(&mut self.session, &mut writer, &came_along, limits, &mut thread.parts)?;
        while !is_aborted && thread.turn.may_read() {
            match writer.transport.read(&mut thread.read) {
                Read::Bytes(count) => {
                    thread.turn.note_read(count);
                    is_aborted = heed(&mut self.session, &mut writer, &thread.read[..count], limits, &mut thread.parts)?;
                }
                Read::Nothing => break,
                Read::End | Read::Broken => return Ok(true),
            }
        }
        Ok(is_aborted)
    }

    /// Reads once, and says whether the client has taken its request back. What follows the body stays for later.
    pub(super) fn read_body(
        &mut self,
        patience: &mut Patience,
        context: &mut Context<'_, A>,
        sink: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(Read, bool), Fault> {
        let thread = &mut *context.thread;
        let read = self.transport.read(&mut thread.read);
        let mut is_aborted = false;
        if let Read::Bytes(count) = read {
            thread.turn.note_read(self.transport.read_cost(count));
            patience.note(count, thread.clock.now_ms);
            let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
            let session = (&mut self.session, &mut writer);
            let pulled = pull(session, &thread.read[..count], context.worker, &mut thread.parts, sink)?;
            is_aborted = matches!(pulled.end, PullEnd::Aborted { .. });
            self.input.extend_from_slice(&thread.read[pulled.used..count]);
        }
        Ok((read, is_aborted))
    }

    /// The client's body is not what HTTP allows, or too large: the application is told that the client has gone.
    fn end_faulty(&mut self, streaming: Streaming<A>, fault: Fault, context: &mut Context<'_, A>) -> NextAction {
        let head_has_left = self.exchange.response.head_has_left();
        self.give_up_streaming(streaming, context);
        if !head_has_left {
            self.refuse(fault, context);
        }
        self.begin_linger(context)
    }

    /// `harakiri`: the application is told, and the client gets 504 if it got nothing yet.
    fn end_overdue(&mut self, mut streaming: Box<Streaming<A>>, context: &mut Context<'_, A>) -> Option<NextAction> {
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
        self.park(streaming, 0)
    }
}

/// So many bytes of a request's body were used, and perhaps its last.
fn note_progress(body: &mut BodyStream, used: usize, is_complete: bool) {
    if used > 0 {
        body.note_begun();
    }
    if is_complete {
        body.note_end();
    }
}
