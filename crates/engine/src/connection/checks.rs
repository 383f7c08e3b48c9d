//! Health checks on connections of which no byte of the next request was read: found without reading, and answered without the
//! language, for a thread that does not have it. A request that is not a check stays in its socket as it came.
//!
//! It does not know about the poll or other connections. The companion runs it, and a paused worker finds checks with it.

use bolide_protocol::http1::Framing;
use bolide_protocol::response::Wire;
use bolide_protocol::session::{HeadParts, RequestHead, Session, SessionEvent};

use super::{Connection, ConnectionStage, Link};
use crate::app::App;
use crate::exchange::health::{is_check, is_head, wire_of, write};
use crate::exchange::worker::Worker;
use crate::response::buffers::ResponseBuffers;
use crate::response::{Progress, ResponseWriter, Terms};
use crate::scheduling::clock::Clock;
use crate::sockets::socket::{self, Read};

/// Maximum size of the head of a check that is found without reading, in bytes. One with a longer head waits like any request.
const MAX_HEAD_BYTES: usize = 4096;

/// Maximum size of a request that is answered without reading it before, in bytes.
pub(super) const MAX_UNREAD_BYTES: usize = 8192;

/// What the next request of a connection is, as far as it is here.
#[derive(Debug)]
pub enum Unread {
    Check(UnreadRequest),
    /// Another request, a part of one, nothing, or something that can't be found out without reading.
    Other,
}

/// A request that is answered by the server itself. A health check is here as a whole, with nothing behind it.
#[derive(Debug)]
pub struct UnreadRequest {
    /// Those that are read before the answer, at most [`MAX_UNREAD_BYTES`].
    pub(super) bytes: usize,
    pub(super) wire: Wire,
    pub(super) is_head: bool,
    pub(super) may_keep: bool,
}

impl<A: App> Connection<A> {
    /// Whether a health check waits unread.
    pub fn has_unread_check(&self, worker: &Worker) -> bool {
        matches!(self.unread_check(worker), Unread::Check(_))
    }

    /// Looks at what waits unread. Costs one branch without `health-path`.
    pub fn unread_check(&self, worker: &Worker) -> Unread {
        if worker.settings.answering.health_path.is_none() || !self.shows_requests() {
            return Unread::Other;
        }
        let mut bytes = [0; MAX_HEAD_BYTES];
        match socket::peek(self.socket(), &mut bytes) {
            Read::Bytes(count) => check_of(&bytes[..count], worker),
            Read::Nothing | Read::End | Read::Broken => Unread::Other,
        }
    }

    /// Its requests can be seen without reading: they come as HTTP/1, in the clear.
    pub(super) fn shows_requests(&self) -> bool {
        let is_plain = matches!(self.session, Session::Http1(_)) && self.stage == ConnectionStage::Serves;
        is_plain && matches!(self.link, Link::Socket { may_be_http2: false }) && !self.is_shared && self.may_move()
    }

    /// Answers a check that waits. Returns whether the connection continues.
    pub fn answer_unread(&mut self, check: &UnreadRequest, worker: &Worker, clock: &Clock) -> bool {
        self.answer_early(check, worker, clock, |writer| write(writer, worker.availability.service()))
    }

    /// Answers a request that waits. Returns whether the connection continues.
    pub(super) fn answer_early(
        &mut self,
        request: &UnreadRequest,
        worker: &Worker,
        clock: &Clock,
        write: impl FnOnce(&mut ResponseWriter<'_>),
    ) -> bool {
        let mut bytes = [0; MAX_UNREAD_BYTES];
        let Some(bytes) = bytes.get_mut(..request.bytes) else { return false };
        // Only this thread reads from the connection, so its bytes are still there.
        match self.transport.read(bytes) {
            Read::Bytes(count) if count == request.bytes => {}
            Read::Bytes(_) | Read::Nothing | Read::End | Read::Broken => return false,
        }
        let keepalive_ms = worker.settings.limits.keepalive_ms;
        let keep_alive = request.may_keep && keepalive_ms > 0 && !worker.closes_connections();
        let terms = Terms {
            wire: request.wire,
            head_only: request.is_head,
            keep_alive,
            client_keeps: request.may_keep,
            may_cork: false,
            date_line: clock.date_line(),
        };
        let mut writer = self.writer();
        writer.begin(terms, ResponseBuffers::default());
        write(&mut writer);
        // An answer of some 200 bytes has no room only if the client reads none of its answers.
        let has_left = writer.advance() == Progress::Done;
        writer.end();
        self.has_served = true;
        self.exchange.stream = self.exchange.stream.wrapping_add(1);
        self.deadline_ms = clock.now_ms + keepalive_ms;
        let continues = keep_alive && has_left;
        if !continues {
            self.transport.end_sending();
        }
        continues
    }
}

/// What these first bytes of a request are.
fn check_of(bytes: &[u8], worker: &Worker) -> Unread {
    let mut parts = HeadParts::default();
    // A fault is for the thread that reads it.
    let Ok((used, SessionEvent::Head(event))) = Session::http1().next(bytes, &worker.head_limits, &mut parts) else {
        return Unread::Other;
    };
    let head = event.bytes.of(bytes);
    let is_alone = used == bytes.len() && event.body == Framing::None;
    let RequestHead::Http { facts, .. } = &event.head else { return Unread::Other };
    if !is_alone || !is_check(worker, &event.head, head, &parts.variables) {
        return Unread::Other;
    }
    Unread::Check(UnreadRequest {
        bytes: used,
        wire: wire_of(&event.head, event.wire),
        is_head: is_head(&event.head, head),
        may_keep: facts.keep_alive,
    })
}
