//! A connection whose request the application has in its hands: it goes on by itself, takes what the client sends as it
//! comes, and answers when it likes, through [`Connection::visit`].
//!
//! Only asynchronous applications have such connections; the thread that runs the worker's loop attends to them.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::scoreboard::now_ms;
use bolide_protocol::Fault;

use super::linger::LINGER_BYTES;
use super::{Connection, ExchangeContext, NextAction, ServeStep, Stage};
use crate::app::App;
use crate::exchange::{BodySource, Head, Served, Suspended, give_up, serve};
use crate::request_stream::{BodyStream, RequestStream};
use crate::response::{Progress, ResponseWriter, reason_phrase};
use crate::socket::Read;
use crate::worker::{ThreadContext, Worker};

/// No time limit, in monotonic milliseconds.
const NEVER_MS: u64 = u64::MAX;

/// An exchange that the application has in its hands.
pub struct Open<A: App> {
    pub request_stream: RequestStream,
    suspended: Box<Suspended<A::Pending>>,
    began_ms: u64,
    /// Monotonic milliseconds at which `harakiri` strikes.
    overdue_ms: u64,
    /// Monotonic milliseconds at which the draining worker gives it up.
    mercy_ends_ms: u64,
    /// The same where the answer is a stream.
    stream_ends_ms: u64,
}

impl<A: App> Connection<A> {
    /// Gives a request to a streaming application. `rest` is what followed the head; returns the bytes of it that were used.
    pub(super) fn open(
        &mut self,
        (head, bytes, same): (&Head, &[u8], bool),
        mut body_stream: BodyStream,
        rest: &[u8],
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> Result<(usize, ServeStep), Fault> {
        let used = body_stream.feed(rest)?;
        let mut request_stream = RequestStream::Body(body_stream);
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
        let answered = serve(&mut context, head, bytes, memory, BodySource::Streamed(&mut request_stream))?;
        let Served::Ongoing(suspended) = answered else {
            self.keep_unread(request_stream);
            return Ok((used, self.after_answer(answered, thread, worker)));
        };
        request_stream.keep_time();
        let began_ms = thread.clock.now_ms;
        let of_route = self.response.harakiri_ms.map(u64::from);
        let most_ms = worker.settings.lifecycle.harakiri_ms.into_iter().chain(of_route).min();
        let overdue_ms = most_ms.map_or(NEVER_MS, |most| began_ms + most);
        let mercy_ends_ms = worker.mercy_ends_ms.load(Relaxed);
        let stream_ends_ms = worker.streams_end_ms.load(Relaxed);
        let open = Box::new(Open { request_stream, suspended, began_ms, overdue_ms, mercy_ends_ms, stream_ends_ms });
        self.deadline_ms = self.open_until_ms(&open, self.timeout_ms(worker));
        self.stage = Stage::Open(open);
        Ok((used, ServeStep::Parked))
    }

    /// Does all for an ongoing exchange that can be done without waiting. `None`: its answer is complete, go on.
    pub(super) fn go_on_open(
        &mut self,
        mut open: Box<Open<A>>,
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> Option<NextAction> {
        if open.overdue_ms <= thread.clock.now_ms && matches!(open.request_stream, RequestStream::Body(_)) {
            return self.end_overdue(open, thread, app);
        }
        let progress = if self.response.has_file() { app.aside(|| self.writer().advance()) } else { self.writer().advance() };
        if progress == Progress::Broken || self.given_up_ms(&open) <= thread.clock.now_ms {
            // What the client said before it went is the application's; a fault in it changes nothing any more.
            let _ = self.take_in(&mut open.request_stream, thread);
            self.give_up_open(*open, thread, app, worker);
            return Some(NextAction::Close);
        }
        if let Err(fault) = self.take_in(&mut open.request_stream, thread) {
            return Some(self.end_faulty(*open, fault, thread, app, worker));
        }
        let timeout_ms = self.timeout_ms(worker);
        if let RequestStream::Messages(line) = &mut open.request_stream {
            line.tend(&mut self.writer(), now_ms(), timeout_ms, worker.is_draining());
        }
        if let Some(pending) = &mut open.suspended.pending {
            app.news(pending, &mut self.writer(), &mut open.request_stream);
        }
        // Nothing happens unless there is one that has not left: the application takes its time, see `holds_its_head`.
        self.writer().send_head();
        if self.writer().client_is_gone() {
            self.give_up_open(*open, thread, app, worker);
            return Some(NextAction::Close);
        }
        let after = self.settle(open, timeout_ms);
        let is_cut_short = after == Some(NextAction::Wait) && !thread.turn.may_read();
        if is_cut_short { Some(NextAction::Again) } else { after }
    }

    /// Lets the application act on an exchange that it has in its hands. `None`: it has none here any more. The second part
    /// says whether the connection is to be attended to soon.
    pub fn visit<R>(
        &mut self,
        worker: &Worker,
        act: impl FnOnce(&mut ResponseWriter<'_>, &mut RequestStream) -> R,
    ) -> Option<(R, bool)> {
        let Stage::Open(open) = &self.stage else { return None };
        let waited_for_client = self.waits_for_client(open);
        let Stage::Open(open) = &mut self.stage else { return None };
        let had_room = open.request_stream.room() > 0;
        if worker.is_draining() && !self.response.head_has_left() {
            // RFC 9112 section 9.6: the request was taken before the drain began, and the answer is the last one all the same.
            self.response.close_after();
        }
        let mut writer = ResponseWriter { response: &mut self.response, transport: &mut self.transport };
        let result = act(&mut writer, &mut open.request_stream);
        open.request_stream.keep_time();
        let resumes = !had_room && open.request_stream.room() > 0;
        let wants_turn = self.response.is_finished() || self.writer().client_is_gone() || self.may_go_on_sending();
        let Stage::Open(open) = &self.stage else { return None };
        let until_ms = self.open_until_ms(open, self.timeout_ms(worker));
        // What the application does is no sign of life of a client that it waits for.
        let goes_on_waiting = waited_for_client && self.waits_for_client(open);
        self.deadline_ms = if goes_on_waiting { self.deadline_ms.min(until_ms) } else { until_ms };
        Some((result, resumes || wants_turn))
    }

    /// The application will not be told of the client any more: it has gone, or was slow for too long.
    pub(super) fn give_up_open(&mut self, mut open: Open<A>, thread: &mut ThreadContext, app: &mut A, worker: &Worker) {
        open.request_stream.hang_up();
        if let Some(pending) = &mut open.suspended.pending {
            // What came before the end is the application's.
            app.news(pending, &mut self.writer(), &mut open.request_stream);
        }
        give_up(&mut self.context(thread, app, worker), *open.suspended);
    }

    /// Reads what is left of a body that nobody wants, up to [`LINGER_BYTES`]. `None`: it is done, go on.
    pub(super) fn swallow(
        &mut self,
        mut body_stream: Box<BodyStream>,
        mut swallowed: usize,
        thread: &mut ThreadContext,
    ) -> Option<NextAction> {
        body_stream.patience.wait(true, thread.clock.now_ms);
        while swallowed < LINGER_BYTES {
            if !thread.turn.may_read() {
                self.deadline_ms = body_stream.patience.until_ms();
                self.stage = Stage::Swallow { body_stream, swallowed };
                return Some(NextAction::Again);
            }
            body_stream.drop_waiting();
            let Ok(read) = self.take_in_body(&mut body_stream, thread) else { break };
            if body_stream.is_complete() {
                return None;
            }
            match read {
                // All that came: chunks may be more frame than body.
                Read::Bytes(count) => swallowed += count,
                Read::Nothing => {
                    self.deadline_ms = body_stream.patience.until_ms();
                    self.stage = Stage::Swallow { body_stream, swallowed };
                    return Some(NextAction::Wait);
                }
                Read::End | Read::Broken => return Some(NextAction::Close),
            }
        }
        Some(self.begin_linger(thread))
    }

    /// What follows an answer whose request has not come to its end.
    pub(super) fn after_unread(&mut self, body_stream: Box<BodyStream>, keep: bool) -> ServeStep {
        // RFC 9110 section 10.1.1: a client that was not told to continue may send the body or not; nobody can tell.
        if !keep || body_stream.owes_continue {
            return ServeStep::Linger;
        }
        self.stage = Stage::Swallow { body_stream, swallowed: 0 };
        ServeStep::Parked
    }

    /// An ongoing exchange that looks after time by itself: a WebSocket, or one that is over its time.
    pub(super) fn keeps_its_own_time(&self) -> bool {
        match &self.stage {
            Stage::Open(open) => matches!(open.request_stream, RequestStream::Messages(_)) || self.is_over_its_time(now_ms()),
            _ => false,
        }
    }

    /// The application has begun its response, and the first part of the body has not come. A head that waits for it leaves in
    /// the same packet, and if the application fails meanwhile the answer is 500 (ASGI, "Response Start": it "need not" be sent
    /// earlier). But clients wait for the head alone, as an EventSource does, so it waits for the next look at the clock only.
    pub(super) fn holds_its_head(&self) -> bool {
        matches!(self.stage, Stage::Open(_)) && self.response.has_head() && !self.response.head_has_left()
    }

    pub(super) fn is_over_its_time(&self, now_ms: u64) -> bool {
        matches!(&self.stage, Stage::Open(open) if open.overdue_ms.min(self.given_up_ms(open)) <= now_ms)
    }

    /// When a worker that ends gives it up, in monotonic milliseconds.
    fn given_up_ms(&self, open: &Open<A>) -> u64 {
        let is_stream = matches!(open.request_stream, RequestStream::Body(_)) && self.response.is_stream();
        if is_stream { open.mercy_ends_ms.min(open.stream_ends_ms) } else { open.mercy_ends_ms }
    }

    /// A stream is cut off then, and what becomes one: the worker stops.
    pub fn end_stream_at(&mut self, when_ms: u64) {
        if let Stage::Open(open) = &mut self.stage {
            open.stream_ends_ms = when_ms;
        }
    }

    /// A WebSocket, which will not end by itself when the worker drains: it is closed at this time, in monotonic milliseconds.
    pub fn leave_at(&mut self, when_ms: u64, for_good: bool) {
        if let Stage::Open(open) = &mut self.stage
            && let RequestStream::Messages(line) = &mut open.request_stream
        {
            line.leave_at(when_ms, for_good);
            self.deadline_ms = self.deadline_ms.min(when_ms);
        }
    }

    /// A request that the application still has in its hands then is cut off: the worker drains. A WebSocket has a close of its
    /// own, see [`Connection::leave_at`].
    pub fn give_up_at(&mut self, when_ms: u64) {
        if let Stage::Open(open) = &mut self.stage {
            open.mercy_ends_ms = when_ms;
        }
    }

    /// One whose answer's end nobody can tell.
    pub fn is_endless(&self) -> bool {
        self.is_streaming() && self.response.is_stream()
    }

    /// A request that the application has in its hands.
    pub fn is_streaming(&self) -> bool {
        matches!(&self.stage, Stage::Open(open) if matches!(open.request_stream, RequestStream::Body(_)))
    }

    pub fn is_websocket(&self) -> bool {
        matches!(&self.stage, Stage::Open(open) if matches!(open.request_stream, RequestStream::Messages(_)))
    }

    fn settle(&mut self, mut open: Box<Open<A>>, timeout_ms: u64) -> Option<NextAction> {
        if self.response.is_finished() {
            let Open { request_stream, mut suspended, .. } = *open;
            suspended.pending = None;
            self.keep_unread(request_stream);
            self.stage = Stage::Response(suspended);
            return None;
        }
        open.request_stream.keep_time();
        self.deadline_ms = self.open_until_ms(&open, timeout_ms);
        self.stage = Stage::Open(open);
        // What is sent in turns has nothing but our own queue to tell, between two of them, that there is more to do.
        Some(if self.may_go_on_sending() { NextAction::Again } else { NextAction::Wait })
    }

    /// There is more to send, which waits for nothing but its turn.
    pub(super) fn may_go_on_sending(&self) -> bool {
        (self.response.has_file() || self.transport.turn_is_over()) && !self.transport.is_full
    }

    fn keep_unread(&mut self, request_stream: RequestStream) {
        if let RequestStream::Body(mut body_stream) = request_stream
            && !body_stream.is_complete()
        {
            body_stream.drop_waiting();
            self.unread = Some(Box::new(body_stream));
        }
    }

    /// Until when the peer may let an ongoing exchange wait. The application itself may take its time.
    fn open_until_ms(&self, open: &Open<A>, timeout_ms: u64) -> u64 {
        match &open.request_stream {
            RequestStream::Messages(line) => line.next_ms(self.has_unsent(), timeout_ms),
            RequestStream::Body(body_stream) if self.has_unsent() => (now_ms() + timeout_ms).min(body_stream.patience.until_ms()),
            RequestStream::Body(body_stream) => body_stream.patience.until_ms(),
        }
    }

    /// Whether something waits for the client, as [`ResponseWriter::has_unsent`] says.
    fn has_unsent(&self) -> bool {
        self.response.has_file() || self.transport.has_unsent()
    }

    /// Whether it is the client's turn: to take what was sent, or to send of the body what the application waits for.
    fn waits_for_client(&self, open: &Open<A>) -> bool {
        let owes_body = match &open.request_stream {
            RequestStream::Messages(_) => false,
            RequestStream::Body(body_stream) => body_stream.is_owed(),
        };
        owes_body || self.has_unsent()
    }

    /// Reads as much as the application has room for.
    fn take_in(&mut self, request_stream: &mut RequestStream, thread: &mut ThreadContext) -> Result<(), Fault> {
        match request_stream {
            RequestStream::Body(body_stream) => {
                let mut read = Read::Nothing;
                while body_stream.room() > 0 && thread.turn.may_read() {
                    read = self.take_in_body(body_stream, thread)?;
                    if !matches!(read, Read::Bytes(_)) {
                        break;
                    }
                }
                let ended = matches!(read, Read::End | Read::Broken) || self.peer_has_ended && body_stream.is_complete();
                body_stream.is_gone |= ended;
            }
            RequestStream::Messages(line) => {
                let mut writer = ResponseWriter { response: &mut self.response, transport: &mut self.transport };
                line.take_in(&mut writer, &mut self.input, thread, self.peer_has_ended);
            }
        }
        Ok(())
    }

    /// Reads once. What follows the body stays for later.
    fn take_in_body(&mut self, body_stream: &mut BodyStream, thread: &mut ThreadContext) -> Result<Read, Fault> {
        let buffer = &mut thread.read;
        let read = self.transport.read(buffer);
        if let Read::Bytes(count) = read {
            thread.turn.note_read(count);
            body_stream.patience.note(count, thread.clock.now_ms);
            let used = body_stream.feed(&buffer[..count])?;
            self.input.extend_from_slice(&buffer[used..count]);
        }
        Ok(read)
    }

    /// The client's body is not what HTTP allows, or too large: the application is told that the client has gone.
    fn end_faulty(
        &mut self,
        open: Open<A>,
        fault: Fault,
        thread: &mut ThreadContext,
        app: &mut A,
        worker: &Worker,
    ) -> NextAction {
        let head_has_left = self.response.head_has_left();
        self.give_up_open(open, thread, app, worker);
        if !head_has_left {
            self.refuse(fault, thread, worker);
        }
        self.begin_linger(thread)
    }

    /// `harakiri`: the application is told, and the client gets 504 if it got nothing yet.
    fn end_overdue(&mut self, mut open: Box<Open<A>>, thread: &mut ThreadContext, app: &mut A) -> Option<NextAction> {
        if let Some(pending) = open.suspended.pending.take() {
            app.overdue(pending, thread.clock.now_ms.saturating_sub(open.began_ms));
        }
        if self.response.head_has_left() {
            self.writer().cut_off();
        } else {
            self.writer().answer(504, reason_phrase(504), "The application took too long.");
        }
        self.settle(open, 0)
    }
}
