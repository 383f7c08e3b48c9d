//! The identity of a request: its identifier, which reverse proxies may have given it, and its place in a trace. It does not know
//! about connections or languages. Worker threads make it, if the settings or the log need it; otherwise a request has none.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use bolide_contract::settings::Settings;
use bolide_protocol::trace_context::{MAX_TRACESTATE_BYTES, SAMPLED, TraceContext, write_hexadecimal};
use bolide_scoreboard::{Recorder, TRACE_BYTES};
use bolide_services::spans::{MAX_TEXT_BYTES, is_sampled};

/// Maximum size of an identifier that a reverse proxy sends, in bytes; a longer one is replaced.
pub const MAX_ID_BYTES: usize = 128;

/// An identifier of printable ASCII, in place: an allocation would cost each request with an identity.
#[derive(Debug, Clone, Copy)]
pub struct RequestId {
    text: [u8; MAX_ID_BYTES],
    length: u8,
}

/// The identity of one request, for the application, the log and the answer.
#[derive(Debug)]
pub struct Identity {
    pub id: RequestId,
    pub trace: Option<Trace>,
    /// What the request's span needs; `None`: it has none.
    pub span: Option<Box<SpanFacts>>,
}

/// The values of a request that only its span has. Missing ones are empty.
#[derive(Debug, Default)]
pub struct SpanFacts {
    pub is_https: bool,
    /// With the port, as the client writes it.
    pub host: Vec<u8>,
    pub agent: Vec<u8>,
    pub client: Vec<u8>,
}

/// A request's place in a trace.
#[derive(Debug)]
pub struct Trace {
    /// What the application sees as its parent: with spans, the request's own, otherwise that of the participant before.
    pub context: TraceContext,
    /// The span of the participant before, if the request has its own.
    pub parent: Option<[u8; 8]>,
    /// Data that earlier participants added, as it came; empty for a trace that begins here.
    pub state: Vec<u8>,
}

impl RequestId {
    /// Returns the identifier that a reverse proxy has sent, if it can stand in a log line and in a field as it is.
    fn accepted(said: &[u8]) -> Option<RequestId> {
        let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
        if said.is_empty() || !said.iter().all(is_valid) {
            return None;
        }
        let mut text = [0; MAX_ID_BYTES];
        text.get_mut(..said.len())?.copy_from_slice(said);
        Some(RequestId { text, length: said.len() as u8 })
    }

    fn made() -> RequestId {
        const BYTES: usize = 16;
        let mut text = [0; MAX_ID_BYTES];
        write_hexadecimal(&mut text, &random::<BYTES>());
        RequestId { text, length: 2 * BYTES as u8 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

impl Deref for RequestId {
    type Target = str;

    fn deref(&self) -> &str {
        // ASCII is UTF-8.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl Identity {
    /// Records the place of a request with a span in its trace: if its worker is killed, the master sends the span.
    pub fn record(&self, recorder: Recorder<'_>, number: u64) {
        if let (Some(trace), Some(_)) = (&self.trace, &self.span) {
            recorder.trace(number, &trace.recorded());
        }
    }
}

impl Trace {
    fn recorded(&self) -> [u8; TRACE_BYTES] {
        let mut bytes = [0; TRACE_BYTES];
        bytes[..16].copy_from_slice(&self.context.trace);
        bytes[16..24].copy_from_slice(&self.context.span);
        bytes[24..].copy_from_slice(&self.parent.unwrap_or_default());
        bytes
    }
}

/// The identity that log entries and requests share.
pub type SharedIdentity = Option<Arc<Identity>>;

/// Which parts of an identity a worker makes.
#[derive(Debug, Clone, Copy)]
pub struct IdentityRules {
    pub has_traces: bool,
    pub answers_have_ids: bool,
    /// Requests have spans of their own: this share of them, if no participant before decides.
    pub sampled: Option<f64>,
}

impl IdentityRules {
    /// `None`: requests have no identity.
    pub fn of(settings: &Settings, log_needs_it: bool) -> Option<IdentityRules> {
        let tracing = &settings.tracing;
        (log_needs_it || tracing.is_any()).then(|| IdentityRules {
            has_traces: tracing.has_traces,
            answers_have_ids: tracing.answers_have_ids,
            sampled: tracing.spans.is_on().then(|| tracing.spans.share()),
        })
    }

    /// The fields of the answer.
    pub fn fields(self, identity: &Identity) -> Vec<(&'static str, String)> {
        let id = self.answers_have_ids.then(|| ("X-Request-ID", String::from(&*identity.id)));
        let trace = identity.trace.as_ref().map(|trace| ("traceresponse", trace.context.text()));
        id.into_iter().chain(trace).collect()
    }

    /// Makes the identity of a request. `value` returns the request's variables. Those of a peer that is not a trusted reverse
    /// proxy do not count: clients could choose identifiers of other requests.
    pub fn identity<'a>(self, is_trusted: bool, value: impl Fn(&[u8]) -> Option<Cow<'a, [u8]>>) -> Identity {
        let said = |name: &[u8]| if is_trusted { value(name) } else { None };
        let id = said(b"HTTP_X_REQUEST_ID").as_deref().and_then(RequestId::accepted);
        let trace = self.has_traces.then(|| match said(b"HTTP_TRACEPARENT").as_deref().and_then(TraceContext::parse) {
            Some(mut context) => {
                let parent = self.sampled.map(|_| std::mem::replace(&mut context.span, random()));
                let state = said(b"HTTP_TRACESTATE").map(Cow::into_owned).unwrap_or_default();
                Trace { context, parent, state: if state.len() <= MAX_TRACESTATE_BYTES { state } else { Vec::new() } }
            }
            None => self.new_trace(),
        });
        let has_span = self.sampled.is_some() && trace.as_ref().is_some_and(|trace| trace.context.is_sampled());
        let span = has_span.then(|| Box::new(SpanFacts::of(&value)));
        Identity { id: id.unwrap_or_else(RequestId::made), trace, span }
    }

    fn new_trace(self) -> Trace {
        let trace = random();
        let is_sampled = self.sampled.is_none_or(|share| is_sampled(&trace, share));
        let context = TraceContext { trace, span: random(), flags: if is_sampled { SAMPLED } else { 0 } };
        Trace { context, parent: None, state: Vec::new() }
    }
}

impl SpanFacts {
    #[cold]
    fn of<'a>(value: &impl Fn(&[u8]) -> Option<Cow<'a, [u8]>>) -> SpanFacts {
        let text = |name: &[u8]| {
            let text = value(name).unwrap_or_default();
            text[..text.len().min(MAX_TEXT_BYTES)].to_vec()
        };
        let is_on = |text: &[u8]| text.eq_ignore_ascii_case(b"on") || text == b"1";
        SpanFacts {
            is_https: is_on(&text(b"HTTPS")) || text(b"REQUEST_SCHEME") == b"https",
            host: text(b"HTTP_HOST"),
            agent: text(b"HTTP_USER_AGENT"),
            client: text(b"REMOTE_ADDR"),
        }
    }
}

/// A generator of numbers that no other thread and no other process has: xoshiro256++, seeded by the kernel. Identifiers are not
/// secrets.
struct Generator {
    /// The process that has seeded it: a forked child must not repeat its parent's numbers.
    pid: u32,
    state: [u64; 4],
}

thread_local! {
    static GENERATOR: RefCell<Generator> = const { RefCell::new(Generator { pid: 0, state: [0; 4] }) };
}

/// Random bytes, not all zero, without a system call.
pub fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    GENERATOR.with_borrow_mut(|generator| {
        let pid = bolide_log::identity::pid();
        if generator.pid != pid {
            *generator = Generator { pid, state: seed(pid) };
        }
        while bytes == [0; BYTES] {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&generator.next().to_le_bytes()[..chunk.len()]);
            }
        }
    });
    bytes
}

fn seed(pid: u32) -> [u64; 4] {
    let mut state = [0; 4];
    for word in &mut state {
        // A kernel without random numbers does not exist where this runs; the time and the pid keep processes apart even there.
        *word = getrandom::u64().unwrap_or_else(|_| bolide_log::dates::now_us().wrapping_mul(u64::from(pid) | 1)) | 1;
    }
    state
}

impl Generator {
    fn next(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn made(is_trusted: bool, id: &'static [u8]) -> Identity {
        made_with(is_trusted, id, None)
    }

    fn made_with(is_trusted: bool, id: &'static [u8], sampled: Option<f64>) -> Identity {
        IdentityRules { has_traces: true, answers_have_ids: false, sampled }.identity(is_trusted, |name| {
            Some(Cow::Borrowed(match name {
                b"HTTP_X_REQUEST_ID" => id,
                b"HTTP_TRACEPARENT" => PARENT,
                b"HTTP_TRACESTATE" => b"a=1",
                _ => return None,
            }))
        })
    }

    #[test]
    fn a_reverse_proxies_identifier_counts_if_it_can_stand_in_a_log_line() {
        for (id, counts) in [
            (&b"a1"[..], true),
            (&[b'x'; MAX_ID_BYTES], true),
            (b"0192-AF_.:/+=@", true),
            (&[b'x'; MAX_ID_BYTES + 1], false),
            (b"", false),
            (b"a b", false),
            (b"a, b", false),
            (b"a\"b", false),
            (b"\xc3\xa4", false),
        ] {
            let own = made(true, id).id;
            assert_eq!(own.as_bytes() == id, counts, "{id:?}");
            assert!(counts || own.len() == 32);
        }
        assert_ne!(&*made(false, b"a1").id, "a1");
    }

    #[test]
    fn a_trace_goes_on_from_a_trusted_peer_and_begins_anew_otherwise() {
        let trace = made(true, b"a").trace.expect("a trace");
        assert_eq!((trace.context.text().as_bytes(), trace.state.as_slice()), (PARENT, &b"a=1"[..]));
        let trace = made(false, b"a").trace.expect("a trace");
        assert!(trace.context.is_sampled() && trace.state.is_empty());
        assert_ne!(trace.context.text().as_bytes(), PARENT);
    }

    #[test]
    fn a_request_with_a_span_is_the_parent_of_the_applications_and_the_flag_of_its_own_parent_decides() {
        let identity = made_with(true, b"a", Some(1.0));
        let trace = identity.trace.expect("a trace");
        assert_eq!(trace.parent, Some(TraceContext::parse(PARENT).expect("valid").span));
        assert_ne!(Some(trace.context.span), trace.parent);
        // Its parent is not sampled.
        assert!(!trace.context.is_sampled() && identity.span.is_none());
        for (share, is_sampled) in [(0.0, false), (1.0, true)] {
            let identity = made_with(false, b"a", Some(share));
            let trace = identity.trace.expect("a trace");
            assert_eq!((trace.context.is_sampled(), identity.span.is_some(), trace.parent), (is_sampled, is_sampled, None));
        }
        assert!(made(true, b"a").span.is_none());
    }

    #[test]
    fn numbers_differ() {
        let many: std::collections::HashSet<[u8; 16]> = (0..10_000).map(|_| random()).collect();
        assert_eq!(many.len(), 10_000);
    }
}
