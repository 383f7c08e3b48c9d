//! A connection whose request another worker serves, because it has the session, while the connection stays here: within TLS, or
//! as a stream of HTTP/2 (`sticky`). What the client sends goes over a [`Relay`], and the answer comes back over it.
//!
//! It does not know how the worker was chosen, and does not wait for it: the poll reports both ends. Worker threads run it.

use std::os::fd::AsFd;

use bolide_contract::clock::now_ms;
use bolide_protocol::Fault;
use bolide_protocol::http1::Field;
use bolide_protocol::http1::head::Version;
use bolide_protocol::http1::response::{AnswerTo, ResponsePart, StatusLine};
use bolide_protocol::session::{HeadEvent, RequestHead, Session};
use bolide_scoreboard::connection_queue::Put;
use bolide_scoreboard::session_owners::Owner;
use bolide_scoreboard::session_pair::{RelayedHttp, SessionBytes};

use super::Connection;
use super::moving::to_relay;
use super::pulling::{Pulled, pull};
use super::steps::{NextAction, ServeStep};
use crate::app::App;
use crate::exchange::beginning::begin;
use crate::exchange::context::Context;
use crate::exchange::finishing::keep_unnoted;
use crate::exchange::relay::{self, Relay, RelayedRequest};
use crate::exchange::{ExchangeState, UnreadBody};
use crate::logging::access_log::complain;
use crate::logging::counting::{self, AnsweredBy};
use crate::response::{BELONGS_TO_SERVER, HeadRefusal, Progress, Pushed, ResponseWriter, When, reason_phrase};
use crate::scheduling::deadlines::NEVER_MS;
use crate::sessions::affinity::Affinity;
use crate::sessions::relayed_head::relayed_head;
use crate::sockets::socket::Read;

/// What has become of a relayed exchange in a turn.
enum Carried {
    /// It goes on when either end has an event.
    Waits,
    /// It goes on behind other connections.
    HasMore,
    /// The answer is complete, or was replaced by one of the server's own.
    Answered,
    ClientLeft,
    /// The client's body is malformed.
    Faulty(Fault),
}

/// How far an answer was passed on.
enum Passed {
    /// All of it that has come.
    All,
    /// The client must read first, or its turn is over.
    Part,
    Complete,
    /// The other worker is gone, or does not send an answer.
    CutShort,
}

impl<A: App> Connection<A> {
    /// Sends the head of a request to the worker that has its session. `None`: it can't be relayed, and nothing has happened.
    pub(super) fn start_relay(
        &self,
        affinity: &'static Affinity,
        owner: Owner,
        event: &HeadEvent,
        bytes: &[u8],
        context: &Context<'_, A>,
    ) -> Option<Box<Relay>> {
        let RequestHead::Http { line, facts } = &event.head else { return None };
        if !matches!(self.session, Session::Http1(_) | Session::Http2Stream(_)) || self.transport.is_given_away() || self.is_last
        {
            return None;
        }
        let head_bytes = event.bytes.of(bytes);
        let head = relayed_head(line, facts, head_bytes)?;
        let pair = affinity.pair_of(owner)?;
        let http = if line.version == Version::Http2 { RelayedHttp::Http2 } else { RelayedHttp::Http1 };
        let moved = to_relay(self, http, !self.serves_first(), context)?;
        let tls = self.client.connection_peer().tls.as_ref().map(|tls| tls.to_packet());
        let (mut relay, other) = relay::open(RelayedRequest {
            owner,
            framing: event.body,
            to: if line.method.of(head_bytes) == b"HEAD" { AnswerTo::Head } else { AnswerTo::Request },
            owes_continue: facts.expect_continue,
            body_timeout: self.body_timeout(context.worker),
        })?;
        match pair.put(&moved, other.as_fd(), SessionBytes { facts: &tls.unwrap_or_default(), input: &head }) {
            Ok(Put::Done) => {}
            Ok(_) => return None,
            Err(error) => {
                let what = format!("can't relay a request to the worker of its session: {error}");
                complain(context.worker.number, &what);
                return None;
            }
        }
        relay.mercy_ends_ms = context.worker.availability.mercy_ends_ms();
        relay.stream_ends_ms = context.worker.availability.streams_end_ms();
        Some(Box::new(relay))
    }

    /// Begins to relay. `rest` are the bytes behind the head; returns how many of them were used.
    pub(super) fn begin_relaying(
        &mut self,
        mut relay: Box<Relay>,
        event: &HeadEvent,
        bytes: &[u8],
        rest: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let session = (&mut self.session, &mut writer);
        let Pulled { used, .. } = pull(session, rest, context.worker, &mut context.thread.parts, |part| {
            relay.push(part);
            Ok(())
        })?;
        if let RequestHead::Http { line, facts } = &event.head {
            let is_head = line.method.of(event.bytes.of(bytes)) == b"HEAD";
            begin(&mut self.context(context), event.wire, is_head, facts.keep_alive);
        }
        self.exchange.response.notes.times = None;
        self.deadline_ms = NEVER_MS;
        self.exchange.state = ExchangeState::Relayed(relay);
        Ok((used, ServeStep::Parked))
    }

    /// Does everything for a relayed exchange that can be done without waiting. `None`: its answer is complete, continue.
    pub(super) fn go_on_relaying(&mut self, mut relay: Box<Relay>, context: &mut Context<'_, A>) -> Option<NextAction> {
        let now_ms = context.thread.clock.now_ms;
        let is_too_slow = self.deadline_ms <= now_ms && self.has_unsent();
        if is_too_slow || relay.given_up_ms(&self.exchange.response) <= now_ms {
            self.writer().cut_off();
            return Some(NextAction::Close);
        }
        relay.leave_if_due(now_ms);
        let before = self.writer().taken_bytes();
        match self.carry(&mut relay, context) {
            carried @ (Carried::Waits | Carried::HasMore) => {
                // The other worker limits everything else.
                let goes_on = self.writer().taken_bytes() != before || self.deadline_ms == NEVER_MS;
                match self.has_unsent() {
                    true if goes_on => self.deadline_ms = now_ms + self.timeout_ms(context.worker),
                    true => {}
                    false => self.deadline_ms = NEVER_MS,
                }
                self.exchange.state = ExchangeState::Relayed(relay);
                let has_more = matches!(carried, Carried::HasMore) || self.may_go_on_sending();
                Some(if has_more { NextAction::Again } else { NextAction::Wait })
            }
            Carried::Answered => {
                if self.session.is_body_open() {
                    let Relay { body_timeout, owes_continue, .. } = *relay;
                    self.exchange.unread = Some(Box::new(UnreadBody { body_timeout, owes_continue }));
                }
                self.deadline_ms = now_ms + self.timeout_ms(context.worker);
                self.exchange.state = ExchangeState::Suspended(keep_unnoted(&self.context(context), AnsweredBy::OtherWorker));
                None
            }
            Carried::ClientLeft => Some(NextAction::Close),
            Carried::Faulty(fault) => {
                drop(relay);
                if !self.exchange.response.head_has_left() {
                    self.refuse(fault, &[], context);
                }
                Some(self.begin_linger(context))
            }
        }
    }

    /// Whether the client has left in a way that the end of the relay must show to the other worker (`cancel-on-disconnect`).
    fn ends_relay(&self, context: &Context<'_, A>) -> bool {
        context.worker.may_cancel && self.peer_has_ended && self.transport.peer_has_gone(false)
    }

    /// Carries bytes in both directions, until nothing moves any more or the turn is over.
    fn carry(&mut self, relay: &mut Relay, context: &mut Context<'_, A>) -> Carried {
        loop {
            if self.writer().advance() == Progress::Broken || self.ends_relay(context) {
                return Carried::ClientLeft;
            }
            if let Err(fault) = self.take_request(relay, context) {
                return Carried::Faulty(fault);
            }
            let has_left = relay.flush();
            if self.transport.is_broken {
                return Carried::ClientLeft;
            }
            match self.pass_answer(relay) {
                Ok(Passed::All) => {}
                // Only this turn knows that there is room again for what the client has sent.
                Ok(Passed::Part) if has_left && relay.wants_request() => return Carried::HasMore,
                Ok(Passed::Part) => return Carried::Waits,
                Ok(Passed::Complete) => return Carried::Answered,
                Ok(Passed::CutShort) => return self.answer_instead(context, "ended before it had answered"),
                Err(_) => return self.answer_instead(context, "did not send an answer"),
            }
            if !context.thread.turn.may_read() {
                return Carried::HasMore;
            }
            match relay.read(&mut context.thread.read) {
                Read::Bytes(count) => context.thread.turn.note_read(count),
                // There may be room again for what the client has sent.
                Read::Nothing if has_left && relay.wants_request() => {}
                Read::Nothing => return Carried::Waits,
                Read::End | Read::Broken if relay.is_complete_at_end() => {
                    self.finish_answer();
                    return Carried::Answered;
                }
                // The application need not answer a client that has left.
                Read::End | Read::Broken if relay.client_has_ended => return Carried::ClientLeft,
                Read::End | Read::Broken => return self.answer_instead(context, "ended before it had answered"),
            }
        }
    }

    /// Reads from the client as long as there is room.
    fn take_request(&mut self, relay: &mut Relay, context: &mut Context<'_, A>) -> Result<(), Fault> {
        while relay.wants_request() && context.thread.turn.may_read() {
            let read = match relay.is_tunnel {
                true => self.read_tunnel(relay, context),
                false => {
                    if !self.session.is_body_open() {
                        relay.complete();
                        break;
                    }
                    let mut body_timeout = relay.body_timeout;
                    let (read, _) = self.read_body(&mut body_timeout, context, |part| {
                        relay.push(part);
                        Ok(())
                    })?;
                    relay.body_timeout = body_timeout;
                    read
                }
            };
            match read {
                Read::Bytes(_) => {}
                Read::Nothing => break,
                // A tunnel has ended with either of its sides.
                Read::End | Read::Broken if relay.is_tunnel => self.transport.is_broken = true,
                Read::End | Read::Broken => relay.end_request(),
            }
            if self.transport.is_broken {
                break;
            }
        }
        if relay.is_request_complete() && !relay.is_tunnel && self.peer_says_no_more() {
            relay.end_request();
        }
        Ok(())
    }

    fn read_tunnel(&mut self, relay: &mut Relay, context: &mut Context<'_, A>) -> Read {
        let before = std::mem::take(&mut self.input);
        if !before.is_empty() {
            relay.push(&before);
            return Read::Bytes(before.len());
        }
        let read = self.transport.read(&mut context.thread.read);
        if let Read::Bytes(count) = read {
            context.thread.turn.note_read(self.transport.read_cost(count));
            relay.push(&context.thread.read[..count]);
        }
        read
    }

    /// Passes on the parts of the answer that are here, as far as the client reads.
    fn pass_answer(&mut self, relay: &mut Relay) -> Result<Passed, Fault> {
        loop {
            let mut writer = self.writer();
            if writer.is_behind() {
                // What has gathered so far.
                writer.advance();
            }
            if writer.is_behind() || writer.turn_is_over() {
                return Ok(Passed::Part);
            }
            let (part, used) = relay.next()?;
            let input = relay.input();
            match part {
                ResponsePart::More => {
                    writer.send_head();
                    // The parts that came together leave together. The next look at the client finds one that is gone.
                    writer.advance();
                    relay.use_up(used, 0);
                    return Ok(Passed::All);
                }
                ResponsePart::Data(range) => {
                    match writer.push(&input[range.clone()], When::WithTheNext) {
                        // A client that is gone is found at the next look at it.
                        Pushed::All | Pushed::Gone => {}
                        Pushed::Part(taken) => {
                            relay.use_up(range.start + taken, range.len() - taken);
                            return Ok(Passed::Part);
                        }
                    }
                }
                ResponsePart::Interim(line) => {
                    let fields: Vec<(&[u8], &[u8])> = pairs(&relay.fields, input).collect();
                    match line.status {
                        100 => writer.say_continue(),
                        // It was valid when the application sent it.
                        status => _ = writer.informational(status, &fields),
                    }
                    relay.owes_continue &= line.status != 100;
                }
                ResponsePart::Head(line) => {
                    if begin_head(&mut writer, line, &relay.fields, input).is_err() {
                        return Ok(Passed::CutShort);
                    }
                }
                ResponsePart::Switched => relay.is_tunnel = true,
                ResponsePart::Trailers => {
                    writer.announce_trailers();
                    for (name, value) in pairs(&relay.fields, input) {
                        // As for an interim answer.
                        let _ = writer.trailer(name, value);
                    }
                }
                ResponsePart::End => {
                    self.finish_answer();
                    return Ok(Passed::Complete);
                }
            }
            relay.use_up(used, 0);
        }
    }

    fn finish_answer(&mut self) {
        match self.exchange.response.wants_trailers() {
            true => self.writer().finish_trailers(),
            false => self.writer().finish(),
        }
    }

    /// The other worker has not answered, or only in part. It has counted and logged an answer that it broke off itself. That
    /// there is none is counted and logged here alone.
    fn answer_instead(&mut self, context: &Context<'_, A>, what: &str) -> Carried {
        let mut writer = self.writer();
        if writer.head_has_left() {
            writer.cut_off();
            return Carried::Answered;
        }
        writer.answer(502, reason_phrase(502), "The worker that has the session of this request has ended.");
        counting::count_error(&context.thread.slot.tally);
        complain(context.worker.number, &format!("the worker that a request was relayed to {what}; answered 502"));
        Carried::Answered
    }

    /// The end of a relay whose events the poll does not report as it must.
    pub fn unwatched_relay(&mut self) -> Option<&mut Relay> {
        self.exchange.relay().filter(|relay| relay.watched < relay.wanted_watch())
    }

    /// What comes after the beginning of a relay. `None`: there is more to do immediately.
    pub(super) fn after_relaying_began(&mut self) -> Option<NextAction> {
        let awaits_answer = self.exchange.relay().is_some_and(|relay| relay.is_request_complete() && !relay.has_unsent());
        awaits_answer.then_some(NextAction::Wait)
    }

    /// A relay carries one request, so its answer is the last.
    pub(super) fn become_relayed(&mut self) {
        self.is_last = true;
        self.link = super::Link::Socket { may_be_http2: false };
    }

    /// A tunnel does not end by itself when the worker drains: at this time, in monotonic milliseconds, the other worker learns
    /// that its client leaves.
    pub(super) fn leave_tunnel_at(&mut self, when_ms: u64) {
        if let Some(relay) = self.exchange.relay() {
            relay.leaves_ms = when_ms.max(now_ms());
        }
    }
}

fn pairs<'a>(fields: &'a [Field], input: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    fields.iter().map(|field| (field.name.of(input), field.value.of(input)))
}

/// Begins the client's answer with the head of the other worker's, without what it says of the connection between the two.
fn begin_head(writer: &mut ResponseWriter<'_>, line: StatusLine, fields: &[Field], input: &[u8]) -> Result<(), HeadRefusal> {
    if line.status == 101 {
        return writer.switch_as(line.text.of(input), pairs(fields, input));
    }
    writer.status(line.text.of(input))?;
    let is = |name: &[u8], wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
    if pairs(fields, input).any(|(name, _)| is(name, b"trailer")) {
        writer.announce_trailers();
    }
    for (name, value) in pairs(fields, input) {
        match writer.field(name, value) {
            // A client that must upgrade is told to what (RFC 9110 section 15.5.22).
            Err(BELONGS_TO_SERVER) if is(name, b"upgrade") || is(name, b"connection") && is(value, b"upgrade") => {
                writer.field_of_connection(name, value);
            }
            Ok(()) | Err(BELONGS_TO_SERVER) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(())
}
