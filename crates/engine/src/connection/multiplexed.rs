//! A connection of HTTP/2: it reads for all of its streams, and each of them is a connection of its own.
//!
//! It knows frames by what the session says of them, and no application. Workers run it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use bolide_contract::clock::now_ms;
use bolide_protocol::http1::Framing;
use bolide_protocol::http1::head::Version;
use bolide_protocol::http2::{Http2, Http2Error, Http2Limits, PREFACE};
use bolide_protocol::response::Wire;
use bolide_protocol::session::{HeadBytes, HeadEvent, HeadParts, RequestHead, Session};

use super::{Connection, Link, NextAction, ServeStep};
use crate::app::App;
use crate::connection::multiplexer::{Arrival, Beginning, Farewell, Multiplexer, Pumped, SharedMultiplexer, StreamLink};
use crate::exchange::context::Context;
use crate::exchange::worker::Worker;
use crate::scheduling::deadlines::NEVER_MS;
use crate::sockets::transport::Transport;

/// Milliseconds between the two words of farewell (RFC 9113 section 6.8): requests that were sent before the client has read the first are
/// served.
const FAREWELL_MS: u64 = 1_000;

impl<A: App> Connection<A> {
    /// The connection of one stream. `connection` is the one that has the socket.
    pub fn of_stream(connection: &Connection<A>, arrival: Arrival, worker: &Worker, now_ms: u64) -> Option<Connection<A>> {
        let Link::Multiplexed(multiplexer) = &connection.link else { return None };
        let Arrival { number, request, .. } = arrival;
        let transport = Transport::of_stream(&connection.transport, Box::new(StreamLink::new(multiplexer.clone(), number)));
        let session = match request {
            Ok((head, parts)) => Session::http2_stream(head, parts),
            Err(fault) => Session::refused_http2_stream(fault),
        };
        let timeout_ms = connection.timeout_ms(worker);
        let mut stream = Connection::with(transport, session, connection.client.of_stream(), connection.listener);
        stream.deadline_ms = now_ms + timeout_ms;
        stream.link = Link::Stream { multiplexer: multiplexer.clone(), number };
        // The poll knows its connection.
        stream.is_polled = true;
        Some(stream)
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The first bytes of a connection: they are the beginning of HTTP/2 (RFC 9113 sections 3.2 and 3.3), may become it, or are not (`None`).
    pub(super) fn look_for_preface(&mut self, bytes: &[u8], worker: &Worker) -> Option<ServeStep> {
        let length = bytes.len().min(PREFACE.len());
        let is_preface = PREFACE[..length] == bytes[..length];
        if is_preface && length < PREFACE.len() {
            return Some(ServeStep::More);
        }
        if !is_preface && !self.must_be_http2(bytes) {
            return None;
        }
        let session = Http2::new(Self::http2_limits(worker));
        Some(ServeStep::Http2(Box::new(Beginning { session, upgraded: None })))
    }

    /// What is no beginning of HTTP/2 can be nothing else: it was chosen in the TLS handshake, or the first line is none of HTTP/1. The session
    /// says what is to be said of it. An empty line may stand before a request of HTTP/1 (RFC 9112 section 2.2), and in no preface.
    fn must_be_http2(&self, bytes: &[u8]) -> bool {
        let is_of_neither = |line: &[u8]| !matches!(line, b"" | b"\r") && memchr::memmem::find(line, b" HTTP/").is_none();
        self.transport.is_encrypted() || memchr::memchr(b'\n', bytes).is_some_and(|end| is_of_neither(&bytes[..end]))
    }

    /// A first request may ask for HTTP/2 (RFC 7540 section 3.2): it is the first stream then, and answered there. What is wrong with how it
    /// asks changes nothing, as nobody must upgrade. One with a body is left alone: it would have to come whole first.
    pub(super) fn upgrade_to_http2(
        &mut self,
        head: &mut HeadEvent,
        bytes: &[u8],
        context: &mut Context<'_, A>,
    ) -> Option<Box<Beginning>> {
        self.link = Link::Socket { may_be_http2: false };
        let RequestHead::Http { line, facts } = &mut head.head else { return None };
        let is_encrypted = context.worker.listeners.get(self.listener).is_some_and(|listener| listener.tls.is_some());
        if !facts.upgrade || is_encrypted || head.body != Framing::None || head.is_repeated {
            return None;
        }
        let own = head.bytes.of(bytes);
        let block = own.get(line.length as usize..).unwrap_or_default();
        let mut settings = None;
        let mut asks = false;
        for field in &context.thread.parts.fields {
            let value = field.value.of(block);
            match field.name.of(block) {
                name if name.eq_ignore_ascii_case(b"upgrade") => {
                    asks |= value.split(|byte| *byte == b',').any(|token| token.trim_ascii() == b"h2c");
                }
                // RFC 7540 section 3.2.1: not "if more than one is present".
                name if name.eq_ignore_ascii_case(b"http2-settings") && settings.replace(value).is_some() => return None,
                _ => {}
            }
        }
        let settings = URL_SAFE_NO_PAD.decode(settings.filter(|_| asks)?).ok()?;
        let session = Http2::upgraded(Self::http2_limits(context.worker), &settings).ok()?;
        self.transport.send_aside(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
        (line.version, facts.upgrade) = (Version::Http2, false);
        let bytes = HeadBytes::Own(own.to_vec());
        let mut parts = HeadParts::default();
        parts.fields = std::mem::take(&mut context.thread.parts.fields);
        let head = HeadEvent { bytes, wire: Wire::Http2, is_remembered: false, ..head.clone() };
        Some(Box::new(Beginning { session, upgraded: Some(Arrival { number: 1, is_tunnel: false, request: Ok((head, parts)) }) }))
    }

    /// From here on the connection speaks HTTP/2. `input` is what was read.
    pub(super) fn begin_http2(&mut self, beginning: Beginning, input: Vec<u8>, worker: &Worker) -> Arc<SharedMultiplexer> {
        let shared = Multiplexer::shared(self.transport.take(), beginning.session, worker, (self.key, self.deadline_ms), input);
        if let Some(arrival) = beginning.upgraded {
            shared.lock().arrive(arrival);
        }
        self.link = Link::Multiplexed(shared.clone());
        shared
    }

    /// The bounds of a connection of HTTP/2 here.
    pub(super) fn http2_limits(worker: &Worker) -> Http2Limits {
        Http2Limits {
            header_list_bytes: u32::try_from(worker.head_limits.head_bytes).unwrap_or(u32::MAX),
            has_extended_connect: A::STREAMS_BODY,
            ..Http2Limits::default()
        }
    }

    /// Reads, and sends what streams have left. What begins is found by [`Multiplexer::take_arrived`].
    pub(super) fn attend_multiplexed(
        &mut self,
        shared: &SharedMultiplexer,
        is_over: bool,
        context: &mut Context<'_, A>,
    ) -> NextAction {
        let mut multiplexer = shared.lock();
        let now_ms = context.thread.clock.now_ms;
        multiplexer.key = self.key;
        multiplexer.peer_has_ended = self.peer_has_ended;
        multiplexer.session.note_time(now_ms);
        multiplexer.begin_turn();
        if context.worker.is_draining() {
            self.say_farewell(&mut multiplexer, now_ms);
        }
        let turn = &mut context.thread.turn;
        let pumped = multiplexer.pump(&mut context.thread.read, |count| {
            turn.note_read(count);
            turn.may_read()
        });
        multiplexer.flush();
        match pumped {
            Pumped::All | Pumped::Rest | Pumped::Later if !multiplexer.transport.is_broken => {}
            Pumped::Fault(fault) => {
                multiplexer.break_all();
                let transport = multiplexer.transport.take();
                drop(multiplexer);
                return self.end_http2(fault, transport, context);
            }
            Pumped::All | Pumped::Rest | Pumped::Later | Pumped::End | Pumped::Broken => {
                multiplexer.transport.is_broken = true;
                multiplexer.break_all();
                return NextAction::Close;
            }
        }
        self.limit_multiplexed(&mut multiplexer, now_ms, context.worker);
        let has_ended = multiplexer.farewell == Farewell::Said && multiplexer.is_idle();
        // What has come in this turn may have given it more time; a worker that drains has less of it.
        let is_over = is_over && (self.deadline_ms <= now_ms || context.worker.is_draining() && multiplexer.is_idle());
        if has_ended || is_over {
            multiplexer.go_away(true);
            multiplexer.break_all();
            let transport = multiplexer.transport.take();
            drop(multiplexer);
            self.transport = transport;
            return self.begin_linger(context);
        }
        // Streams that begin, or that have room again, ask for the next turn.
        let has_more = match pumped {
            Pumped::Later => true,
            Pumped::Rest => !multiplexer.has_streams() && !multiplexer.is_behind(),
            _ => false,
        };
        if has_more || multiplexer.transport.turn_is_over() { NextAction::Again } else { NextAction::Wait }
    }

    /// The client has said what is not HTTP/2, and has been told.
    fn end_http2(&mut self, fault: Http2Error, transport: Transport, context: &mut Context<'_, A>) -> NextAction {
        let what = format!(" with {}: {}", fault.code.name(), fault.reason);
        self.complain_of_peer("HTTP/2", "a connection", &what, context);
        self.transport = transport;
        self.begin_linger(context)
    }

    /// The worker drains: the client is told, and told again when what was on its way must have come.
    fn say_farewell(&mut self, multiplexer: &mut Multiplexer, now_ms: u64) {
        match multiplexer.farewell {
            Farewell::Unsaid => {
                multiplexer.go_away(false);
                multiplexer.farewell = Farewell::Announced { until_ms: now_ms + FAREWELL_MS };
            }
            Farewell::Announced { until_ms } if until_ms <= now_ms => {
                multiplexer.go_away(true);
                multiplexer.farewell = Farewell::Said;
            }
            Farewell::Announced { .. } | Farewell::Said => {}
        }
    }

    fn limit_multiplexed(&mut self, multiplexer: &mut Multiplexer, now_ms: u64, worker: &Worker) {
        let keepalive_ms = worker.settings.limits.keepalive_ms;
        let until_ms = multiplexer.look_at_deadline(now_ms, self.timeout_ms(worker), keepalive_ms);
        self.deadline_ms = match multiplexer.farewell {
            Farewell::Announced { until_ms } => until_ms,
            // Its end is the next turn.
            Farewell::Said if multiplexer.is_idle() => 0,
            Farewell::Unsaid | Farewell::Said => until_ms,
        };
        self.has_served |= multiplexer.has_streams();
    }

    /// Streams end without a turn of their connection: one that has lost its last has the time of an idle one from now on.
    pub fn note_last_stream(&mut self, worker: &Worker) {
        let Link::Multiplexed(shared) = &self.link else { return };
        if self.deadline_ms == NEVER_MS {
            let shared = shared.clone();
            let mut multiplexer = shared.lock();
            if !multiplexer.has_streams() {
                self.limit_multiplexed(&mut multiplexer, now_ms(), worker);
            }
        }
    }
}
