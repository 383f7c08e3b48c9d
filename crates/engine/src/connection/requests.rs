//! Requests of a connection: it reads, has its session parse the bytes, collects bodies for applications that need them whole,
//! and serves one request after the other. It does not know about the poll. Workers run it.

use std::sync::Arc;

use bolide_protocol::fastcgi::Answer;
use bolide_protocol::response::ResponseEncoder;
use bolide_protocol::session::{HeadEvent, RequestHead, SessionEvent};
use bolide_protocol::variables::Variable;
use bolide_protocol::{Fault, Span};
use bolide_scoreboard::{End, Phase, add};

use super::multiplexed::{look_for_preface, upgrade_to_http2};
use super::pulling::{PullEnd, Pulled, pull};
use super::refusal::{answer_fault, log_refusal, note_dropped_field, place};
use super::steps::{NextAction, ServeStep, ServingPlace};
use super::{Connection, Link};
use crate::app::App;
use crate::app_thread::{AppThread, Leftover};
use crate::connection::multiplexer::{Beginning, Multiplexer, SharedMultiplexer};
use crate::exchange::context::{Context, ExchangeContext};
use crate::exchange::passage::Passage;
use crate::exchange::worker::Worker;
use crate::exchange::{AwaitedCall, BodySource, Collecting, ExchangeState, Served, UnreadBody, WaitingBody, serve};
use crate::logging::access_log::complain;
use crate::request::HeaderMemory;
use crate::request::body::{Body, Collector, Refusal};
use crate::request::request_stream::{BodyStream, RequestStream};
use crate::response::ResponseWriter;
use crate::scheduling::connections::ExchangeId;
use crate::scheduling::phases::{Moment, RequestWait, Times};
use crate::sessions::affinity::Affinity;
use crate::sockets::client::Client;
use crate::sockets::socket::Read;
use crate::sockets::tls::{Alpn, TlsFault};

impl<A: App> Connection<A> {
    /// Reads once and serves the requests that are here. `None`: there may be more to do immediately.
    pub(super) fn read(&mut self, context: &mut Context<'_, A>) -> Option<NextAction> {
        let mut buffer = std::mem::take(&mut context.thread.read);
        let mut kept = std::mem::take(&mut self.input);
        let held = kept.len();
        let had_begun = held > 0 || self.has_part_of_request();
        // Kept bytes may fill the buffer; a read into an empty slice would look like the client's end. A request that has come
        // from another worker is here, and the poll does not know its connection yet.
        let full = held == buffer.len() || held > 0 && self.has_just_arrived();
        let most = self.most_input(held, buffer.len(), context.worker);
        let read = match full {
            true => Read::Nothing,
            false if self.transport.is_handshaking() => self.read_handshake(&mut buffer[held..most], context),
            false => self.transport.read(&mut buffer[held..most]),
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
        if let Some(times) = &mut self.transport.read_times
            && filled > held
            && !had_begun
            && self.exchange.is_idle()
        {
            times.begin_request();
        }
        // Kept bytes are not copied, but new bytes are appended: a head that trickles in would be copied for each of its bytes.
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
        let was_full = filled == most || self.transport.has_more();
        context.thread.read = buffer;
        self.set_deadline(&step, had_begun, context);
        match step {
            ServeStep::Close if has_rest => Some(self.begin_linger(context)),
            ServeStep::Close => Some(NextAction::Close),
            ServeStep::Linger => Some(self.begin_linger(context)),
            ServeStep::Blocked => Some(self.wait_for_client()),
            ServeStep::Yield => Some(NextAction::Again),
            ServeStep::Move(owner) => Some(NextAction::Move(owner)),
            ServeStep::More | ServeStep::Next | ServeStep::Parked | ServeStep::Http2(_) => match read {
                // A read that filled the buffer may have left bytes behind, which an edge-triggered poll does not report.
                Read::Bytes(_) if was_full || self.peer_says_no_more() => Self::go_on_reading(context),
                Read::Nothing if was_full && position > 0 => Self::go_on_reading(context),
                _ if self.exchange.is_streaming() && self.may_go_on_sending() => Some(NextAction::Again),
                _ if self.exchange.is_relayed() => self.after_relaying_began(),
                // A WebSocket's first frames may have arrived with its handshake.
                _ if has_rest && self.exchange.is_streaming() => None,
                Read::Bytes(_) | Read::Nothing => Some(NextAction::Wait),
                // The request began in bytes that were kept. A client that has ended its side still waits for the answer.
                Read::End | Read::Broken if self.exchange.is_streaming() || self.exchange.is_waiting() => None,
                Read::End | Read::Broken => Some(NextAction::Close),
            },
        }
    }

    /// The peer does not send more, as the poll or close_notify has shown: reading must continue to the end of stream.
    pub(super) fn peer_says_no_more(&self) -> bool {
        self.peer_has_ended || self.transport.peer_has_closed()
    }

    /// `None` means immediately, but a turn is bounded.
    fn go_on_reading(context: &Context<'_, A>) -> Option<NextAction> {
        if context.thread.turn.may_read() { None } else { Some(NextAction::Again) }
    }

    /// Sets the time until which the connection may now keep the worker waiting.
    fn set_deadline(&mut self, step: &ServeStep, had_begun: bool, context: &Context<'_, A>) {
        let now = context.thread.clock.now_ms;
        let timeout_ms = self.timeout_ms(context.worker);
        match (step, &self.exchange.state) {
            (_, ExchangeState::Streaming(_) | ExchangeState::Relayed(_) | ExchangeState::Waiting(_)) => {}
            (_, ExchangeState::Collecting(collecting)) => self.deadline_ms = collecting.body_timeout.until_ms(),
            (ServeStep::Blocked | ServeStep::Yield, _) | (_, ExchangeState::Draining { .. }) => {
                self.deadline_ms = now + timeout_ms
            }
            // A head has one time limit as a whole: a byte a second must not keep a connection forever.
            (ServeStep::More, _) if self.has_part_of_request() && !had_begun => self.deadline_ms = now + timeout_ms,
            (ServeStep::More, _) if self.has_part_of_request() => {}
            _ if self.has_served => self.deadline_ms = now + context.worker.settings.limits.keepalive_ms,
            _ => {}
        }
    }

    /// Serves the requests in the bytes, one after the other. Returns the bytes used.
    fn serve_all(&mut self, bytes: &[u8], context: &mut Context<'_, A>) -> (usize, ServeStep) {
        let mut position = 0;
        loop {
            if position == bytes.len() && !self.session.has_head() {
                return (position, ServeStep::More);
            }
            // A request that was read together with the one before it.
            let must_rest = position > 0 && self.exchange.is_idle() && context.worker.is_paused();
            if must_rest || !context.thread.turn.may_serve() {
                return (position, ServeStep::Yield);
            }
            let rest = &bytes[position..];
            let (head, served) = match self.exchange.take_state() {
                ExchangeState::Collecting(collecting) => (&rest[..0], self.collect(collecting, rest, context)),
                _ => (rest, self.begin(rest, context)),
            };
            let (used, step) = served.unwrap_or_else(|fault| {
                self.refuse(fault, head, context);
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
        if may_be_http2 && let Some(step) = look_for_preface::<A>(bytes, self.transport.is_encrypted(), context.worker) {
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
            // There is no request that these events could belong to.
            SessionEvent::More | SessionEvent::Data(_) | SessionEvent::End | SessionEvent::Aborted { .. } => {
                return Ok((used, ServeStep::More));
            }
        };
        if let Some(refused) = self.refuse_if_late(&head, bytes, used, context) {
            return refused;
        }
        if let Some(affinity) = context.worker.affinity
            && let Some(served) = self.serve_elsewhere(affinity, &mut head, bytes, used, context)
        {
            return served;
        }
        if context.worker.times_phases {
            self.exchange.response.notes.times = Some(Times::begin());
        }
        let rest = &bytes[used..];
        if may_be_http2 {
            self.link = Link::Socket { may_be_http2: false };
            let is_encrypted = context.worker.listeners.get(self.listener).is_some_and(|listener| listener.tls.is_some());
            if !is_encrypted && let Some(beginning) = upgrade_to_http2(&mut head, bytes, &mut self.transport, context) {
                return Ok((used, ServeStep::Http2(beginning)));
            }
        }
        let (more, step) = if A::STREAMS_BODY {
            self.stream(&head, head.bytes.of(bytes), rest, context)?
        } else {
            let collector = Collector::new(head.body, context.worker.body_limits)?;
            // An application that takes the socket would lose bytes that the client sent behind a request for another protocol.
            if !rest.is_empty() || collector.is_some() {
                head.head.forget_upgrade();
            }
            match collector {
                None => (0, self.answer(&head, head.bytes.of(bytes), Body::Empty, None, context)?),
                Some(collector) => self.receive_body(head, bytes, collector, rest, context)?,
            }
        };
        Ok((used + more, step))
    }

    /// Has a request served by the worker that has its session. `None`: it is served here.
    #[inline(never)]
    fn serve_elsewhere(
        &mut self,
        affinity: &'static Affinity,
        head: &mut HeadEvent,
        bytes: &[u8],
        used: usize,
        context: &mut Context<'_, A>,
    ) -> Option<Result<(usize, ServeStep), Fault>> {
        match self.find_place(affinity, head, bytes, context) {
            ServingPlace::Here => None,
            ServingPlace::Moved(owner) => Some(Ok((0, ServeStep::Move(owner)))),
            ServingPlace::Relayed(relay) => {
                let begun = self.begin_relaying(relay, head, bytes, &bytes[used..], context);
                Some(begun.map(|(more, step)| (used + more, step)))
            }
        }
    }

    /// Inlined, because a body would be moved once more.
    #[inline(always)]
    fn answer(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        body: Body,
        passage: Option<Box<Passage>>,
        context: &mut Context<'_, A>,
    ) -> Result<ServeStep, Fault> {
        match self.serve(head, bytes, BodySource::Whole(body), passage, context)? {
            Served::Passed(passage) => Ok(self.wait_for_permit(head, bytes, passage, WaitingBody::Whole, context)),
            served => Ok(self.after_answer(served, context)),
        }
    }

    /// Inlined for the same reason.
    #[inline(always)]
    pub(super) fn serve(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        source: BodySource<'_>,
        passage: Option<Box<Passage>>,
        context: &mut Context<'_, A>,
    ) -> Result<Served<A::Pending>, Fault> {
        let is_first = self.serves_first();
        let memory = memory(&mut self.memo, head, context.app);
        if let RequestHead::Http { line, facts } = &head.head
            && passage.is_none()
            && (facts.underscored.is_some() || facts.script_name.is_some())
        {
            note_dropped_field(line, facts, bytes, &self.client, context.worker);
        }
        if self.client.is_trusted() && !head.is_repeated {
            note_client(&mut self.client, head, bytes, context);
        }
        // The request behind this one may have been read with the end of its body, even if it has passed before.
        let arrived = self.transport.read_times.as_mut().map(|times| times.take());
        let start = match &passage {
            None => arrived,
            Some(passage) => passage.start,
        };
        let mut context = ExchangeContext {
            worker: context.worker,
            thread: context.thread,
            app: context.app,
            writer: ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport },
            client: &self.client,
            listener: self.listener,
            id: ExchangeId { connection: self.key, stream: self.exchange.stream },
            is_first,
            is_last: self.is_last,
            start,
            passage,
        };
        serve(&mut context, (&head.head, bytes), head.wire, memory, source)
    }

    pub(super) fn after_answer(&mut self, served: Served<A::Pending>, context: &Context<'_, A>) -> ServeStep {
        match served {
            Served::Blocked(suspended) => {
                suspended.enter_phase(Phase::Sending);
                self.exchange.response.notes.note_wait(Some(RequestWait::Sending));
                self.exchange.state = ExchangeState::Suspended(suspended);
                self.deadline_ms = context.thread.clock.now_ms + self.timeout_ms(context.worker);
                ServeStep::Blocked
            }
            Served::Ongoing(suspended) => {
                let body = BodyStream::collected(self.body_timeout(context.worker));
                self.leave_to_application(suspended, RequestStream::Body(body), context)
            }
            // It is not called yet, and its caller keeps it.
            Served::Passed(_) => ServeStep::More,
            Served::Done { keep } => {
                // A stream ends with its answer.
                let keep = keep && !matches!(self.link, Link::Stream { .. });
                self.has_served = true;
                self.exchange.stream = self.exchange.stream.wrapping_add(1);
                self.exchange.share = None;
                self.session.note_answered();
                match self.exchange.unread.take().filter(|_| self.session.is_body_open()) {
                    // RFC 9110 section 10.1.1: a client that was not told to continue may send the body or not, and the server
                    // can't know.
                    Some(body) if keep && !body.owes_continue => {
                        self.exchange.state = ExchangeState::Draining { body, swallowed: 0 };
                        ServeStep::Parked
                    }
                    Some(_) => ServeStep::Linger,
                    None if keep => ServeStep::Next,
                    // Its bytes belong to the application.
                    None if self.is_given_away() => ServeStep::Close,
                    // RFC 9112 section 9.6: the client has sent another request before it could know of the end. Closing now
                    // would send a reset, and the answer may still be on its way.
                    None if self.exchange.response.client_keeps() && !self.is_end_of_relay() && self.transport.has_input() => {
                        ServeStep::Linger
                    }
                    // RFC 6455 section 7.1.1: the client must be able to read our last frame, whatever it still sends.
                    None if self.writer().status_code() == 101 => ServeStep::Linger,
                    None => ServeStep::Close,
                }
            }
        }
    }

    /// Collects the bytes of the body, and serves the request if it is complete. `input` holds the head, `rest` the bytes behind
    /// it.
    fn receive_body(
        &mut self,
        head: HeadEvent,
        input: &[u8],
        mut collector: Collector,
        rest: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let pulled = self.keep(&mut collector, rest, context)?;
        match pulled.end {
            PullEnd::Complete => {
                let answered = self.answer_collected(&head, head.bytes.of(input), collector, None, context);
                return Ok((pulled.used, answered?));
            }
            PullEnd::Aborted { end, keep_alive } => return Ok((pulled.used, self.abort(end, keep_alive))),
            PullEnd::More => {}
        }
        let owes_continue = head.head.expects_continue() && rest.is_empty();
        let mut passage = None;
        if context.worker.gates_bodies() {
            match self.serve(&head, head.bytes.of(input), BodySource::Unread, None, context)? {
                Served::Passed(passed) if passed.waits() => {
                    collector.shrink();
                    let body = WaitingBody::Unread { collector, owes_continue };
                    let step = self.wait_for_permit(&head, head.bytes.of(input), passed, body, context);
                    return Ok((pulled.used, step));
                }
                Served::Passed(passed) => passage = Some(passed),
                served => {
                    self.leave_body_unread(owes_continue, context.worker);
                    return Ok((pulled.used, self.after_answer(served, context)));
                }
            }
        }
        self.send_continue(&head, owes_continue);
        let bytes = head.bytes.of(input).to_vec();
        self.begin_collecting(head, bytes, collector, passage, None, context)?;
        Ok((pulled.used, ServeStep::More))
    }

    /// Tells the client that its body is wanted, if it waits for that.
    pub(super) fn send_continue(&mut self, head: &HeadEvent, is_owed: bool) {
        if is_owed {
            let interim = ResponseEncoder::new(head.wire).interim("100 Continue", &[]);
            self.transport.send_aside(&interim.unwrap_or_default());
        }
    }

    /// The rest of the body is not wanted, because its request was answered without the application.
    pub(super) fn leave_body_unread(&mut self, owes_continue: bool, worker: &Worker) {
        let body_timeout = self.body_timeout(worker);
        self.exchange.unread = Some(Box::new(UnreadBody { body_timeout, owes_continue }));
    }

    /// The rest of a body arrives later. `bytes` are those of its head. `awaited`: the request has waited before.
    pub(super) fn begin_collecting(
        &mut self,
        head: HeadEvent,
        bytes: Vec<u8>,
        mut collector: Collector,
        passage: Option<Box<Passage>>,
        awaited: Option<AwaitedCall>,
        context: &mut Context<'_, A>,
    ) -> Result<(), Fault> {
        let mut body_timeout = self.body_timeout(context.worker);
        body_timeout.wait(true, context.thread.clock.now_ms);
        collector.wait().map_err(|refusal| fault_of(refusal, context.worker))?;
        let parts = context.thread.parts.clone();
        let (recorder, now_ms) = (context.thread.slot, context.thread.clock.now_ms);
        let awaited = match awaited {
            Some(awaited) => awaited.awaits_body(),
            None => AwaitedCall::begin(recorder, now_ms, head.head.first_line(&bytes), Phase::Body),
        };
        let collecting = Collecting { head, bytes, parts, collector, passage, body_timeout, awaited };
        self.exchange.state = ExchangeState::Collecting(Box::new(collecting));
        Ok(())
    }

    /// Passes bytes to a body that is arriving, and serves the request when it is complete.
    fn collect(
        &mut self,
        mut collecting: Box<Collecting>,
        bytes: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let pulled = self.keep(&mut collecting.collector, bytes, context)?;
        match pulled.end {
            PullEnd::Complete => {
                let Collecting { head, bytes, parts, collector, passage, awaited, .. } = *collecting;
                context.thread.parts = parts;
                context.thread.awaited = awaited.arrived(context.thread.slot);
                // The bulkhead limits the wait for a permit, which does not show an overload.
                let has_permit = passage.as_ref().is_some_and(|passage| passage.is_permitted());
                let late = if has_permit { None } else { self.refuse_collected_if_late(&head, &bytes, context) };
                let answered = match late {
                    Some(step) => Ok(step),
                    None => self.answer_collected(&head, &bytes, collector, passage, context),
                };
                // A request that was answered without the application has no call.
                let unused = std::mem::take(&mut context.thread.awaited);
                context.thread.slot.complete(unused, End { status: 0, microseconds: 0 });
                Ok((pulled.used, answered?))
            }
            PullEnd::Aborted { end, keep_alive } => Ok((pulled.used, self.abort(end, keep_alive))),
            PullEnd::More => {
                collecting.body_timeout.note(pulled.used, context.thread.clock.now_ms);
                collecting.collector.wait().map_err(|refusal| fault_of(refusal, context.worker))?;
                self.exchange.state = ExchangeState::Collecting(collecting);
                Ok((pulled.used, ServeStep::More))
            }
        }
    }

    /// Ends a request that the application has not seen, and that the client has cancelled.
    pub(super) fn abort(&mut self, end: Answer, keep_alive: bool) -> ServeStep {
        self.session.note_answered();
        self.writer().say_aside(end.as_bytes());
        if keep_alive && !self.transport.is_broken { ServeStep::Next } else { ServeStep::Close }
    }

    /// Puts the body's part of `bytes` into the collector.
    fn keep(&mut self, collector: &mut Collector, bytes: &[u8], context: &mut Context<'_, A>) -> Result<Pulled, Fault> {
        let Context { worker, thread, app } = context;
        let mut refused = None;
        let is_long = collector.will_spill(bytes.len());
        let session = &mut self.session;
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let mut take = || {
            pull((session, &mut writer), bytes, worker, &mut thread.parts, |part| {
                collector.keep(part).map_err(|refusal| {
                    let fault = Fault::new(507, "The body could not be stored.");
                    refused = Some(refusal);
                    fault
                })
            })
        };
        let taken = if is_long { app.aside(take) } else { take() };
        match refused {
            Some(refusal) => Err(fault_of(refusal, worker)),
            None => taken,
        }
    }

    fn answer_collected(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        collector: Collector,
        passage: Option<Box<Passage>>,
        context: &mut Context<'_, A>,
    ) -> Result<ServeStep, Fault> {
        let finished = if collector.has_file() { context.app.aside(|| collector.finish()) } else { collector.finish() };
        self.exchange.response.notes.note_time(Moment::Body);
        let (body, share) = finished.map_err(|refusal| fault_of(refusal, context.worker))?;
        self.exchange.share = Some(share);
        let variables = &mut context.thread.parts.variables;
        match &head.head {
            RequestHead::Variables { facts, .. } if facts.content_length.is_none() && body.length() > 0 => {
                let bytes = with_length(bytes, body.length(), variables);
                self.answer(head, &bytes, body, passage, context)
            }
            _ => self.answer(head, bytes, body, passage, context),
        }
    }

    /// Advances the handshake, and reads the bytes behind it. A signature takes a millisecond of native work, so the language is
    /// released in the meantime.
    fn read_handshake(&mut self, buffer: &mut [u8], context: &mut Context<'_, A>) -> Read {
        let transport = &mut self.transport;
        let read = context.app.aside(|| transport.read(buffer));
        if let Some(facts) = transport.tls_facts() {
            self.client.note_tls(facts.clone());
            if context.worker.has_scraper {
                add(&context.thread.meters.tls_handshakes, 1);
            }
            // RFC 9113 section 3.2: within TLS, ALPN chooses HTTP/2, not the first bytes of the client.
            self.link = Link::Socket { may_be_http2: transport.alpn() == Some(Alpn::Http2) };
        }
        read
    }

    /// A handshake has failed. A client that speaks HTTP gets an HTTP answer, others got an alert.
    fn refuse_handshake(&mut self, fault: &TlsFault, context: &mut Context<'_, A>) -> NextAction {
        self.note_handshake_fault(fault, context);
        match fault {
            TlsFault::PlainHttp => {
                self.transport.leave_tls();
                answer_fault(
                    self.session.wire(),
                    &mut self.writer(),
                    Fault::new(400, "This port speaks HTTPS: use https:// instead of http://."),
                    context.thread,
                );
                self.begin_linger(context)
            }
            TlsFault::Left => NextAction::Close,
            TlsFault::NotTls | TlsFault::TooSlow | TlsFault::TooLong | TlsFault::Failed(_) => self.begin_linger(context),
        }
    }

    /// Counts and logs a handshake that has failed.
    pub(super) fn note_handshake_fault(&self, fault: &TlsFault, context: &Context<'_, A>) {
        if context.worker.has_scraper {
            context.thread.meters.note_tls_failure(fault.failure());
        }
        let place = if fault.is_mixup() { place(self.listener, context.worker) } else { String::new() };
        log_refusal(&self.client, (fault.kind(), "a TLS handshake"), &format!("{place}: {}", fault.reason()), context);
    }

    /// From here on the connection speaks HTTP/2. `input` holds the bytes that were read.
    fn begin_http2(&mut self, beginning: Beginning, input: Vec<u8>, worker: &Worker) -> Arc<SharedMultiplexer> {
        let transport = self.transport.take();
        let shared = Multiplexer::shared(transport, beginning.session, worker, self.key, self.deadline_ms, input);
        if let Some(arrival) = beginning.upgraded {
            shared.lock().arrive(arrival);
        }
        self.link = Link::Multiplexed(shared.clone());
        shared
    }
}

/// Notes the fields of a trusted reverse proxy about a request.
pub(super) fn note_client<A: App>(client: &mut Client, head: &HeadEvent, bytes: &[u8], context: &Context<'_, A>) {
    if let RequestHead::Http { line, facts } = &head.head {
        let header_bytes = bytes.get(line.length as usize..).unwrap_or_default();
        client.note_fields(&context.thread.parts.fields, header_bytes, facts.script_name, &context.worker.clients);
    }
}

/// The adapter's memory of the header block, or the place for one.
pub(super) fn memory<'a, A: App>(
    memo: &'a mut Option<A::Memo>,
    head: &HeadEvent,
    app: &mut AppThread<A>,
) -> HeaderMemory<'a, A::Memo> {
    if !head.is_repeated && memo.is_some() {
        app.discard(Leftover { memo: memo.take(), pending: None });
    }
    match memo {
        Some(memo) => HeaderMemory::Same(memo),
        memo if head.is_remembered => HeaderMemory::Fill(memo),
        _ => HeaderMemory::Off,
    }
}

fn fault_of(refusal: Refusal, worker: &Worker) -> Fault {
    match refusal {
        Refusal::Fault(fault) => fault,
        Refusal::Spill(error) => {
            let problem = format!("a request's body can't be stored in a temporary file: {error}; is the disk full?");
            complain(worker.number, &problem);
            Fault::new(507, "The body could not be stored.")
        }
    }
}

/// Adds the length of a body if the reverse proxy has not sent it (RFC 3875 section 4.1.2): it has ended with its stream.
fn with_length(bytes: &[u8], length: u64, variables: &mut Vec<Variable>) -> Vec<u8> {
    const NAME: &[u8] = b"CONTENT_LENGTH";
    let mut bytes = bytes.to_vec();
    let mut part = |text: &[u8]| {
        let start = bytes.len() as u32;
        bytes.extend_from_slice(text);
        Span { start, end: bytes.len() as u32 }
    };
    let (name, value) = (part(NAME), part(itoa::Buffer::new().format(length).as_bytes()));
    variables.push(Variable { name, value });
    bytes
}
