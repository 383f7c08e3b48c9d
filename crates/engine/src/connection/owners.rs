//! The session of a connection's next request (`sticky`): which worker has it, whether the connection may move there, and its
//! beginning at that worker.
//!
//! It does not know pairs or the poll. Worker threads run it.

use std::sync::Arc;

use bolide_protocol::http1::head::Version;
use bolide_protocol::session::{HeadEvent, RequestHead, Session};
use bolide_scoreboard::session_owners::Owner;
use bolide_scoreboard::session_pair::{MAX_INPUT_BYTES, RelayedHttp, SessionMove};
use bolide_tls::TlsFacts;

use super::beginning::session_of;
use super::requests::note_client;
use super::steps::ServingPlace;
use super::{Connection, Link};
use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::health::is_check;
use crate::exchange::worker::Worker;
use crate::logging::waiting::RequestStart;
use crate::sessions::affinity::{Affinity, Came, ServedAt};
use crate::sessions::session_keys::KeyedRequest;
use crate::sessions::{NextRequest, Travel};
use crate::sockets::transport::ReadTimes;

impl<A: App> Connection<A> {
    /// Finds where a request is served, whose head is at the beginning of `bytes`: at the worker that has its session, if it can
    /// get there.
    pub(super) fn find_place(
        &mut self,
        affinity: &'static Affinity,
        event: &mut HeadEvent,
        bytes: &[u8],
        context: &mut Context<'_, A>,
    ) -> ServingPlace {
        let Travel { next, relay, .. } = self.travel();
        self.travel_mut().next = NextRequest::Free;
        self.exchange.response.notes.session = None;
        if let (Some(RelayedHttp::Http2), RequestHead::Http { line, .. }) = (relay, &mut event.head) {
            // The application sees the version that its client speaks.
            line.version = Version::Http2;
        }
        let head_bytes = event.bytes.of(bytes);
        if is_check(context.worker, &event.head, head_bytes, &context.thread.parts.variables) {
            return ServingPlace::Here;
        }
        if affinity.needs_client() && self.client.is_trusted() && !event.is_repeated {
            note_client(&mut self.client, event, head_bytes, context);
        }
        let now_ms = context.thread.clock.now_ms;
        let (parts, limits) = (&context.thread.parts, &context.worker.head_limits);
        let request = KeyedRequest::new(&event.head, head_bytes, parts, &self.client, limits);
        let choice = affinity.choose(&request, now_ms);
        if let ServedAt::Elsewhere(owner) = choice.place
            && next == NextRequest::Free
        {
            if self.may_move_with(bytes.len(), affinity, owner, now_ms) {
                return ServingPlace::Moved(owner);
            }
            if let Some(relay) = self.start_relay(affinity, owner, event, bytes, context) {
                return ServingPlace::Relayed(relay);
            }
        }
        let came = match next {
            NextRequest::HasArrived if relay.is_some() => Came::OverRelay,
            NextRequest::HasArrived => Came::WithConnection,
            NextRequest::Free | NextRequest::Stays => Came::ByItself,
        };
        let answer = affinity.answer(choice, &request, now_ms, came, &context.thread.slot.tally);
        self.exchange.response.notes.session = answer;
        ServingPlace::Here
    }

    /// Whether it may move with this much input: no byte of an answer waits, and the worker there can begin again from the input.
    fn may_move_with(&self, input_bytes: usize, affinity: &Affinity, owner: Owner, now_ms: u64) -> bool {
        // FastCGI's parameters are stored where they were read, and TLS and HTTP/2 have state that only this process knows.
        let begins_again = matches!(self.session, Session::Http1(_) | Session::Uwsgi(_) | Session::Scgi(_));
        begins_again
            && matches!(self.link, Link::Socket { .. })
            && self.transport.is_movable_kind()
            && !self.transport.has_unsent()
            && !self.transport.is_given_away()
            && !self.transport.is_broken
            && !self.is_last
            && input_bytes <= MAX_INPUT_BYTES
            && affinity.pair_of(owner).is_some()
            && self.travel().moves.next(now_ms).is_some()
    }

    /// Up to which length a buffer of this length is filled, of which `held` bytes are there. A request may move with what was
    /// read of it, so its first reads take no more than moves. With bulkheads it may wait with that, so they take no more than
    /// a head may have. Costs two branches without these.
    #[inline(always)]
    pub(super) fn most_input(&self, held: usize, room: usize, worker: &Worker) -> usize {
        let most = match (worker.affinity, worker.bulkheads) {
            (None, None) => return room,
            (Some(_), None) => MAX_INPUT_BYTES,
            (_, Some(_)) => MAX_INPUT_BYTES.min(worker.head_limits.head_bytes),
        };
        if held < most && self.exchange.is_idle() { room.min(most) } else { room }
    }

    /// Its next request has come with it from another worker.
    pub(super) fn has_just_arrived(&self) -> bool {
        self.travel().next == NextRequest::HasArrived
    }

    /// The input that was read and not used.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// It has arrived with this input, and its next request is served here.
    pub fn begin_with(&mut self, moved: &SessionMove, facts: &[u8], input: Vec<u8>, worker: &Worker) {
        self.input = input;
        let SessionMove { moves, relay, .. } = *moved;
        *self.travel_mut() = Travel { moves, next: NextRequest::HasArrived, relay };
        if relay.is_some() {
            self.become_relayed();
            if let Some(facts) = TlsFacts::of_packet(facts) {
                self.client.note_tls(Arc::new(facts));
            }
        }
        if worker.settings.tracing.gives_start && moved.arrived_us != 0 {
            self.transport.read_times = Some(Box::new(ReadTimes::of_stream(RequestStart { arrived_us: moved.arrived_us })));
        }
    }

    /// It could not move: its next request is served here, and parsed again from its input.
    pub fn stay(&mut self, worker: &Worker) {
        self.session = session_of(worker.listeners.get(self.listener).map(|listener| listener.protocol), worker);
        self.travel_mut().next = NextRequest::Stays;
    }
}
