//! An HTTP/2 connection: it reads for all of its streams, and each stream is a separate connection.
//!
//! It knows frames only through the session, and no application. Workers run it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use bolide_protocol::http1::Framing;
use bolide_protocol::http1::head::Version;
use bolide_protocol::http2::{Http2, Http2Error, Http2Limits, PREFACE};
use bolide_protocol::response::Wire;
use bolide_protocol::session::{HeadBytes, HeadEvent, HeadParts, RequestHead};

use super::steps::{NextAction, ServeStep};
use crate::app::App;
use crate::connection::multiplexer::{Arrival, Beginning, Goaway, Multiplexer, Pumped};
use crate::exchange::context::Context;
use crate::exchange::worker::Worker;
use crate::sockets::transport::Transport;

/// Milliseconds between the two GOAWAY frames of a shutdown (RFC 9113 section 6.8): requests that were sent before the client has
/// read the first one are served.
const GOAWAY_DELAY_MS: u64 = 1_000;

/// Decides by the first bytes of a connection: they are the preface of HTTP/2 (RFC 9113 sections 3.2 and 3.3), may become it, or
/// are not (`None`).
pub(super) fn look_for_preface<A: App>(bytes: &[u8], is_encrypted: bool, worker: &Worker) -> Option<ServeStep> {
    let length = bytes.len().min(PREFACE.len());
    let is_preface = PREFACE[..length] == bytes[..length];
    if is_preface && length < PREFACE.len() {
        return Some(ServeStep::More);
    }
    if !is_preface && !must_be_http2(bytes, is_encrypted) {
        return None;
    }
    let session = Http2::new(http2_limits::<A>(worker));
    Some(ServeStep::Http2(Box::new(Beginning { session, upgraded: None })))
}

/// Whether bytes that are not a preface of HTTP/2 can't be HTTP/1 either: ALPN has chosen HTTP/2, or the first line is not one of
/// HTTP/1. The session answers the error. An empty line may stand before a request of HTTP/1 (RFC 9112 section 2.2), but in no
/// preface.
fn must_be_http2(bytes: &[u8], is_encrypted: bool) -> bool {
    let is_of_neither = |line: &[u8]| !matches!(line, b"" | b"\r") && memchr::memmem::find(line, b" HTTP/").is_none();
    is_encrypted || memchr::memchr(b'\n', bytes).is_some_and(|end| is_of_neither(&bytes[..end]))
}

/// A first request may ask for HTTP/2 (RFC 7540 section 3.2): it becomes the first stream, and is answered there. An invalid
/// upgrade is ignored, as a server need not upgrade. A request with a body is not upgraded, as the body would have to arrive
/// first.
pub(super) fn upgrade_to_http2<A: App>(
    head: &mut HeadEvent,
    bytes: &[u8],
    transport: &mut Transport,
    context: &mut Context<'_, A>,
) -> Option<Box<Beginning>> {
    let RequestHead::Http { line, facts } = &mut head.head else { return None };
    if !facts.upgrade || head.body != Framing::None || head.is_repeated {
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
            // RFC 7540 section 3.2.1: a server must not upgrade "if more than one is present".
            name if name.eq_ignore_ascii_case(b"http2-settings") && settings.replace(value).is_some() => return None,
            _ => {}
        }
    }
    let settings = URL_SAFE_NO_PAD.decode(settings.filter(|_| asks)?).ok()?;
    let session = Http2::upgraded(http2_limits::<A>(context.worker), &settings).ok()?;
    transport.send_aside(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    (line.version, facts.upgrade) = (Version::Http2, false);
    let bytes = HeadBytes::Own(own.to_vec());
    let mut parts = HeadParts::default();
    parts.fields = std::mem::take(&mut context.thread.parts.fields);
    let head = HeadEvent { bytes, wire: Wire::Http2, is_remembered: false, ..head.clone() };
    let upgraded = Some(Arrival { number: 1, is_tunnel: false, start: None, request: Ok((head, parts)) });
    Some(Box::new(Beginning { session, upgraded }))
}

/// The limits of an HTTP/2 connection.
fn http2_limits<A: App>(worker: &Worker) -> Http2Limits {
    Http2Limits {
        header_list_bytes: u32::try_from(worker.head_limits.head_bytes).unwrap_or(u32::MAX),
        has_extended_connect: A::STREAMS_BODY,
        ..Http2Limits::default()
    }
}

/// The result of a turn of an HTTP/2 connection.
pub(super) enum TurnEnd {
    Goes(NextAction),
    /// With its last frames written: the transport is returned to the connection. The fault is the client's.
    Over(Transport, Option<Http2Error>),
}

/// The fields of a connection that a turn changes, beside its streams.
pub(super) struct Limits<'a> {
    pub deadline_ms: &'a mut u64,
    pub has_served: &'a mut bool,
    pub timeout_ms: u64,
}

impl Limits<'_> {
    pub fn renew(&mut self, multiplexer: &mut Multiplexer, now_ms: u64, worker: &Worker) {
        let until_ms = multiplexer.look_at_deadline(now_ms, self.timeout_ms, worker.settings.limits.keepalive_ms);
        *self.deadline_ms = match multiplexer.goaway {
            Goaway::Announced { until_ms } => until_ms,
            // The next turn ends it.
            Goaway::Final if multiplexer.is_idle() => 0,
            Goaway::Unsent | Goaway::Final => until_ms,
        };
        *self.has_served |= multiplexer.has_streams();
    }
}

/// Reads, and sends the output of streams. [`Multiplexer::take_arrived`] returns new requests.
pub(super) fn attend_streams<A: App>(
    multiplexer: &mut Multiplexer,
    limits: &mut Limits<'_>,
    is_over: bool,
    context: &mut Context<'_, A>,
) -> TurnEnd {
    let now_ms = context.thread.clock.now_ms;
    multiplexer.session.note_time(now_ms);
    multiplexer.begin_turn();
    // A client whose connection is new would not learn where else to send its first request.
    if context.worker.is_draining() || context.worker.leaves_balancer() && *limits.has_served {
        send_goaway(multiplexer, now_ms);
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
            return TurnEnd::Over(multiplexer.transport.take(), Some(fault));
        }
        Pumped::All | Pumped::Rest | Pumped::Later | Pumped::End | Pumped::Broken => {
            multiplexer.transport.is_broken = true;
            multiplexer.break_all();
            return TurnEnd::Goes(NextAction::Close);
        }
    }
    limits.renew(multiplexer, now_ms, context.worker);
    let has_ended = multiplexer.goaway == Goaway::Final && multiplexer.is_idle();
    // Input of this turn may have extended its time; a draining worker shortens it.
    let is_over = is_over && (*limits.deadline_ms <= now_ms || context.worker.is_draining() && multiplexer.is_idle());
    if has_ended || is_over {
        multiplexer.go_away(true);
        multiplexer.break_all();
        return TurnEnd::Over(multiplexer.transport.take(), None);
    }
    // Streams that begin, or that have room again, ask for the next turn.
    let has_more = match pumped {
        Pumped::Later => true,
        Pumped::Rest => !multiplexer.has_streams() && !multiplexer.is_behind(),
        _ => false,
    };
    TurnEnd::Goes(if has_more || multiplexer.transport.turn_is_over() { NextAction::Again } else { NextAction::Wait })
}

/// The worker drains: sends GOAWAY, and again when requests that were on their way must have arrived.
fn send_goaway(multiplexer: &mut Multiplexer, now_ms: u64) {
    match multiplexer.goaway {
        Goaway::Unsent => {
            multiplexer.go_away(false);
            multiplexer.goaway = Goaway::Announced { until_ms: now_ms + GOAWAY_DELAY_MS };
        }
        Goaway::Announced { until_ms } if until_ms <= now_ms => {
            multiplexer.go_away(true);
            multiplexer.goaway = Goaway::Final;
        }
        Goaway::Announced { .. } | Goaway::Final => {}
    }
}
